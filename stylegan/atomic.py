"""Files that are, at every moment, absent, the old ones or the new ones."""

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"  # suffix of a file that is being written
UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{16}\.partial|((?:state|generator)-\d+)\.partial", re.S)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that becomes `path` once it is complete and safe on the disk.

    After an error there is nothing new: `path` is as it was.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL}")  # nobody else's
    try:
        with open(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno:
            where = error.filename  # not known of a full disk; PyAV's errors cannot be changed
            named = str(path) if where in (None, str(partial)) else where
            raise OSError(error.errno, error.strerror, named) from error
        raise
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write text, in which file names need not be UTF-8, so that `path` is never half a file."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", "surrogateescape"))


def unfinished_name(path: Path) -> str:
    """Of a file that a killed `replacing` has left: the name that it was to get; else empty."""
    found = UNFINISHED.fullmatch(path.name)  # the second form: of older versions
    return (found[1] or f"{found[2]}.pt") if found else ""


def sync_folder(folder: Path) -> None:
    """Make a new name safe too, where the file system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
                raise
        finally:
            os.close(descriptor)
