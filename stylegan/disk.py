"""Files on disk: atomic writes, locks, and the check that an output may be written."""

import contextlib
import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{16}\.partial", re.S)
UNFINISHED = re.compile(r"\..+\.unfinished-[0-9a-f]{8}", re.S)
LOCK = ".lock"  # the file by which a process holds a folder
LOCK_SECONDS = 0.2  # to try again, as a call that ends takes the file along
MARKED_BYTES = 1000  # at the beginning of a file, where its mark is
NO_LOCKS = errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL
NO_SYNC = errno.EINVAL, errno.ENOTSUP, errno.ENOSYS
ABANDONED_SECONDS = 3600  # a folder to which nobody wrote for so long was left by a killed process


@contextmanager
def atomic_file(path: Path, *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """A file to write, renamed to `path` once it is complete and on the disk, removed on errors.
    Without `overwrite` FileExistsError if there is a file by then, which stays as it is."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        with open(partial, "xb") as file:
            yield file
            file.flush()
            wait_for_disk(file.fileno())
        put_into_place(partial, path, overwrite=overwrite)
    except BaseException as error:
        with contextlib.suppress(OSError):  # there may be no such folder
            partial.unlink()
        if isinstance(error, OSError) and error.errno:
            where = error.filename  # not known of a full disk; PyAV's errors cannot be changed
            named = str(path) if where in (None, partial, str(partial)) else where
            raise OSError(error.errno, error.strerror, named) from error
        raise
    sync(path.parent)


def put_into_place(partial: Path, path: Path, *, overwrite: bool) -> None:
    """Give a complete file its name; FileExistsError, without `overwrite`, if another has it."""
    if not overwrite:
        try:
            os.link(partial, path)  # in one step with the question whether there is a file
        except OSError as error:  # there is one, a link to nothing, or the drive has no links
            if path.exists():
                raise FileExistsError(
                    f"{path} was written by another process in the meantime; nothing was "
                    "overwritten: pass --overwrite or choose another name"
                ) from error
        else:
            partial.unlink()
            return
    os.replace(partial, path)


@contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` to write files into, which becomes `out` unless there is an
    error: OSError if `out` exists by then and is not empty."""
    remove_abandoned(out.parent)
    folder = out.with_name(f".{out.name[:40]}.unfinished-{secrets.token_hex(4)}")
    try:
        folder.mkdir(parents=True)
        yield folder
        for path in (*folder.iterdir(), folder):
            sync(path)
        with contextlib.suppress(FileNotFoundError):
            out.rmdir()  # an empty one is in the way on Windows
        folder.rename(out)
        sync(out.parent)
    except OSError as error:  # that of a full disk names no file
        if error.errno and str(error.filename or folder).startswith(str(folder)):
            raise OSError(error.errno, error.strerror, str(out)) from error
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove the leftovers of killed calls of `atomic_folder`."""
    for path in parent.iterdir() if parent.is_dir() else ():
        if UNFINISHED.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            with contextlib.suppress(FileNotFoundError):  # it is complete by now
                newest = max(part.stat().st_mtime for part in (path, *path.iterdir()))
                if time.time() - newest > ABANDONED_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Give `path` to errors of the system inside that name no file, as those of reading do."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        raise


def write_text(path: Path, text: str, *, overwrite: bool = True) -> None:
    """Write text atomically; file names in it need not be UTF-8."""
    with atomic_file(path, overwrite=overwrite) as file:
        file.write(text.encode("utf-8", "surrogateescape"))


def unfinished_name(path: Path) -> str:
    """The final name of a file that a killed `atomic_file` left behind; empty for other files."""
    match = PARTIAL.fullmatch(path.name)
    return match[1] if match else ""


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are safe on the disk, where that is possible."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders, and files only to write to them
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        wait_for_disk(descriptor)
    except OSError as error:  # that of a descriptor names no file
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def wait_for_disk(descriptor: int) -> None:
    """Wait until what was written is on the disk; network drives may not know how."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise


class LostFolder(OSError):
    """The folder that this process held has been renamed or removed. Nothing may be written under
    its name anymore: another process may hold what is there now."""


class Held:
    """A folder that this process has locked. A lock is on a file, whatever becomes of its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Open, so that the number of a removed folder is not given to the next one. Windows, which
        # opens no folders, does not rename those with open files.
        self.descriptor = os.open(folder, os.O_RDONLY) if hasattr(os, "O_DIRECTORY") else None
        self.status = folder.stat()

    def is_there(self) -> bool:
        """Whether the name still means the folder that was locked."""
        try:
            return os.path.samestat(self.folder.stat(), self.status)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def check(self) -> None:
        """LostFolder unless `is_there`."""
        if not self.is_there():
            raise LostFolder(
                f"{self.folder} was renamed or removed while this process was writing there; it "
                "has stopped and left alone whatever has that name now"
            )

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[Held]:
    """Make a folder if need be, and hold it by a file in it. BlockingIOError if another process
    holds it; on file systems without locks nothing is checked."""
    path = folder / LOCK
    lock = FileLock(path, timeout=LOCK_SECONDS)
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except FileNotFoundError:  # a refused call has just removed the folder
            continue
        except Timeout as error:
            message = "another process holds this folder"
            raise BlockingIOError(errno.EAGAIN, message, str(folder)) from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise OSError(error.errno, error.strerror, str(folder)) from error
        break
    try:
        held = Held(folder)
        try:
            yield held
        finally:
            with contextlib.suppress(OSError):  # while it is held; on Windows `release` removes it
                if held.is_there():
                    path.unlink()
            held.close()
    finally:
        lock.release()


def check_outputs(
    paths: Iterable[Path],
    *,
    overwrite: bool,
    endings: Collection[str] = (),
    mark: bytes = b"",
    sources: Iterable[Path] = (),
) -> None:
    """ValueError unless a file may be written to each of the paths, which end in one of `endings`,
    if there are any. None is one of the `sources`, and what is there is replaced only with
    `overwrite`, and only if it has the `mark` of such files near its beginning."""
    originals = {identity(source) for source in sources if source.is_file()}
    checked: set[Path] = set()
    for path in paths:
        if path.is_dir():
            raise ValueError(f"{path} is a folder; give the name of a file to write")
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is not a regular file; give another name")
        if path.exists() and identity(path) in originals:
            raise ValueError(f"{path} is the source; choose another name to write")
        if endings and path.suffix.lower() not in endings:
            raise ValueError(f"{path} does not name a format: it must end in {', '.join(endings)}")
        check_folder(path.parent)
        place = without_links(path)
        if place in checked:
            raise ValueError(f"two files would both be written to {path}; choose other names")
        checked.add(place)
        if not path.exists():
            continue
        if not overwrite:
            raise ValueError(f"{path} exists; pass --overwrite or choose another name")
        if mark and path.stat().st_size > 0:
            with open(path, "rb") as file:
                if mark not in file.read(MARKED_BYTES):
                    raise ValueError(f"{path} exists and is of another kind; choose another name")
    for place in checked:
        if both := checked.intersection(place.parents):
            raise ValueError(f"{both.pop()} would be a file and a folder; choose other names")


def identity(path: Path) -> tuple[int, int]:
    """What a file is, whatever its name: equal for two paths to one file."""
    status = path.stat()
    return status.st_dev, status.st_ino


def what_begins_with(start: bytes) -> str:
    """What a file is in place of the one that was to be fetched, where its first bytes tell: the
    end of "it is ..."; "" if they do not."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if not start:
        return "empty"
    if text.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS: `git lfs pull` fetches the file itself"
    if text.startswith((b"<!doctype html", b"<html")):
        return "a web page: the address of the file itself is another"
    return ""


def refuse_mistaken(path: Path) -> None:
    """ValueError if a file is empty, a web page, or stands for one that is elsewhere."""
    with errors_name(path), open(path, "rb") as file:
        mistake = what_begins_with(file.read(512))
    if mistake:
        raise ValueError(f"{path} is {mistake}")


def check_folder(folder: Path, *, empty: bool = False, written: bool = True) -> None:
    """ValueError unless `folder` is one, or may become one, which files may be `written` into, and
    which may have to be `empty`."""
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file; choose another folder")
    places = (folder, *folder.absolute().parents)
    place = next((path for path in places if path.exists()), places[-1])
    if written and not os.access(place, os.W_OK):  # now, not after the work
        raise ValueError(f"nothing may be written into the folder {place}; choose another one")
    if empty and folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"the folder {folder} is not empty; choose another folder")


def without_links(path: Path) -> Path:
    """The place that a path leads to through all links; links in a circle, for which
    some versions of `Path.resolve` fail, stay as they are."""
    return Path(os.path.realpath(path))


def name_of(path: Path) -> str:
    """The name without its ending, for files made of this one."""
    return path.stem if path.stem.strip(".") else path.name  # of `...png` not `..`
