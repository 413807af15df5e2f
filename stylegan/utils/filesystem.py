"""Files: atomic writes, locks, and checks of outputs before the work starts."""

import contextlib
import difflib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from stylegan.utils.text import error_reason

PARTIAL = re.compile(r"\..+\.[0-9a-f]{16}\.partial", re.S)
UNFINISHED = ".unfinished"  # suffix of a folder while it is written
LOCK = ".lock"  # file that a process locks to own a folder
LOCK_SECONDS = 0.2  # to retry, as a process that ends removes the lock file
NO_LOCKS = errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL
LockId = tuple[int, int]
NO_SYNC = errno.EINVAL, errno.ENOTSUP, errno.ENOSYS


@contextmanager
def atomic_folder(out: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """Yield a hidden folder next to `out`, which is renamed to `out` on success.

    Raises ValueError if `out` is not empty, or is a disk or volume. If another process is writing
    `out`, call `waiting` and block. Unfinished folders of killed processes are removed.
    """
    out = Path(os.path.realpath(out)) if out.is_symlink() else out
    folder = out.with_name(f".{out.name[:40]}{UNFINISHED}")
    out.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(out.parent)
    with lock(folder.with_name(f"{folder.name}{LOCK}"), waiting), attach_filename(out):
        check_folder(out, empty=True)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir()
            yield folder
            for path in (*folder.iterdir(), folder):
                sync(path)
            with contextlib.suppress(FileNotFoundError):
                out.rmdir()  # Windows does not rename onto an empty folder
            folder.rename(out)
            sync(out.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_unfinished(parent: Path) -> None:
    """Remove folders that killed calls of `atomic_folder` left: nobody holds their locks."""
    for path in parent.glob(f".*{UNFINISHED}{LOCK}"):
        with contextlib.suppress(OSError), FileLock(path, blocking=False):
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink()


@contextmanager
def attach_filename(path: Path | str) -> Iterator[None]:
    """Set `filename` on OSErrors raised inside that have none, such as those of `read()`."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        raise


def is_of_system(error: Exception) -> bool:
    """Whether reading failed by the machine (a drive, no memory), not by the file's content."""
    # damaged content: OSErrors of libraries, without errno, and EINVAL for offsets below 0
    number = error.errno if isinstance(error, OSError) else None
    return isinstance(error, MemoryError) or number not in (None, errno.EINVAL)


@contextmanager
def as_value_error(path: Path | str, what: str, advice: str = "") -> Iterator[None]:
    """Re-raise errors as ValueError("{path} {what}: {reason}; {advice}").

    Errors of the machine (`is_of_system`) pass through. A parser of a damaged or hostile file can
    raise almost anything.
    """
    try:
        yield
    except Exception as error:
        if is_of_system(error):
            raise
        reason = error_reason(error, line=0)
        after = f"; {advice}" if advice else ""
        raise ValueError(f"{path} {what}: {reason}{after}") from error


def unfinished(*folders: Path) -> list[Path]:
    """Temporary files that killed calls of `OutputWriter.file` left in the folders."""
    hidden = [path for folder in folders for path in folder.glob(".*")]
    return [path for path in hidden if PARTIAL.fullmatch(path.name)]


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk. Does nothing on Windows."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open folders, or sync read-only files
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with attach_filename(path):
            wait_for_disk(descriptor)
    finally:
        os.close(descriptor)


def wait_for_disk(descriptor: int) -> None:
    """Flush written data to the disk; some network drives do not support it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise


@contextmanager
def lock(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[LockId | None]:
    """Hold the lock file `path`, created here and removed on exit; yield its `lock_id`, or None
    on file systems without locks, where nothing is checked.

    If another process holds it, call `waiting` and block; without `waiting`, raise BlockingIOError.
    """
    holder = FileLock(path, timeout=LOCK_SECONDS)
    try:
        try:
            holder.acquire()
        except Timeout as error:
            if waiting is None:
                raise OSError(errno.EAGAIN, "another process holds this folder") from error
            waiting()
            holder.acquire(timeout=-1)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise OSError(error.errno, error.strerror, str(path.parent)) from error
    ours = lock_id(path) if holder.is_locked else None
    try:
        yield ours
    finally:
        with contextlib.suppress(OSError):  # on Windows `release` removes it
            # else the folder was moved, and another process locks here
            if ours in (None, lock_id(path)):
                path.unlink()
        holder.release()


def lock_id(path: Path) -> LockId | None:
    """Identity of a lock file; None if there is none."""
    return file_id(path) if path.exists() else None


@dataclass(frozen=True, kw_only=True)
class OutputWriter:
    """Writes files atomically, and checks before the work that they can be written."""

    overwrite: bool  # replace files that exist

    def check(
        self,
        *paths: Path,
        endings: Collection[str] = (),
        sources: Iterable[Path] = (),
        exist_ok: bool = False,
    ) -> None:
        """Raise ValueError unless every path can be written.

        Paths must end in one of `endings` (if given) and differ from each other and from `sources`.
        `exist_ok` leaves the decision about existing files to the writer.
        """
        originals = {file_id(source) for source in sources if source.is_file()}
        checked: set[str] = set()
        for path in paths:
            if path.is_dir():
                raise ValueError(f"{path} is a folder; give the name of a file to write")
            if path.exists() and not path.is_file():
                raise ValueError(f"{path} is not a regular file; give another name")
            if path.exists() and file_id(path) in originals:
                raise ValueError(f"{path} is the source; choose another name to write")
            if endings and path.suffix.lower() not in endings:
                raise ValueError(
                    f"{path} does not name a format: it must end in {', '.join(endings)}"
                )
            check_folder(path.parent)
            place = os.path.realpath(path)  # unlike Path.resolve, also of links in a circle
            if place in checked:
                raise ValueError(f"two files would both be written to {path}; choose other names")
            checked.add(place)
            if is_there(path) and not (self.overwrite or exist_ok):
                raise ValueError(f"{path} exists; pass --overwrite or choose another name")

    @contextmanager
    def file(self, path: Path) -> Iterator[BinaryIO]:
        """Open a temporary file in the folder, which is created; rename it once it is on the disk.

        Raises FileExistsError if `path` exists by then and must stay.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.partial")
        try:
            with open(partial, "xb") as file:
                yield file
                file.flush()
                wait_for_disk(file.fileno())
            if not self.overwrite and is_there(path):
                raise FileExistsError(
                    f"{path} exists; pass --overwrite (outputs=ALLOW_OVERWRITE) or choose another "
                    "name"
                )
            os.replace(partial, path)
        except BaseException as error:
            with contextlib.suppress(OSError):  # it may not exist
                partial.unlink()
            if isinstance(error, OSError) and error.errno:
                where = error.filename  # unknown for a full disk; PyAV's errors are read-only
                named = str(path) if where in (None, partial, str(partial)) else where
                raise OSError(error.errno, error.strerror, named) from error
            raise
        sync(path.parent)

    def content(self, path: Path, content: bytes) -> None:
        """Write a file unless it has this content. Raises ValueError if another one exists."""
        if path.is_file() and path.read_bytes() == content:
            return
        self.check(path)
        with self.file(path) as file:
            file.write(content)

    def text(self, path: Path, text: str) -> None:
        """Write text, in which file names need not be UTF-8."""
        self.content(path, text.encode("utf-8", "surrogateescape"))


ALLOW_OVERWRITE = OutputWriter(overwrite=True)
KEEP_EXISTING = OutputWriter(overwrite=False)  # the default of functions that write files for users


def is_there(path: Path) -> bool:
    """Whether a path is taken, also by a broken link, which belongs to somebody too."""
    return path.exists() or path.is_symlink()


def not_found(
    path: Path, advice: str, *, what: str = "file or folder", known: Sequence[str] = ()
) -> str:
    """Message that nothing usable is at `path`, with the nearest name there or in `known`."""
    if path.is_symlink() and not path.exists():
        return f"{path} is a broken link"
    if path.exists() and not (path.is_file() or path.is_dir()):
        return f"{path} is neither a file nor a folder"
    beside = list(known)
    with contextlib.suppress(OSError):
        beside += [name for name in os.listdir(path.parent) if name != path.name]
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.8)
    hint = f" (did you mean {path.with_name(near[0])}?)" if near else ""
    return f"there is no {what} {path.absolute()}{hint}; {advice}"


def file_id(path: Path) -> tuple[int, int]:
    """Device and inode, equal for two paths to the same file."""
    status = path.stat()
    return status.st_dev, status.st_ino


def what_begins_with(start: bytes) -> str:
    """Describe an empty file, Git LFS pointer or web page by its first bytes; else ""."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if not start:
        return "empty"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer: `git lfs pull` fetches the file itself"
    if text.startswith((b"<!doctype html", b"<html")):
        return "a web page: use the address of the file itself"
    return ""


def check_not_placeholder(path: Path) -> None:
    """Raise ValueError if a file is empty, a web page or a Git LFS pointer."""
    with attach_filename(path), open(path, "rb") as file:
        mistake = what_begins_with(file.read(512))
    if mistake:
        raise ValueError(f"{path} is {mistake}")


def check_folder(folder: Path, *, empty: bool = False, written: bool = True) -> None:
    """Raise ValueError unless `folder` is or can become a folder, `empty` and `written` into."""
    for path in (folder, *folder.parents):
        if is_there(path) and not path.is_dir():
            what = "file" if path.exists() else "broken link"
            raise ValueError(f"{path} is a {what}; choose another folder")
    places = (folder, *folder.absolute().parents)
    place = next((path for path in places if path.exists()), places[-1])
    if written and not os.access(place, os.W_OK):  # now, not after the work
        raise ValueError(f"the folder {place} is not writable; choose another folder")
    if empty and folder.is_dir() and folder.samefile("."):  # a shell would stay in the removed one
        raise ValueError(f"{folder} is the current folder; choose a new one in it")
    if empty and os.path.ismount(folder):
        raise ValueError(
            f"{folder} is a disk or volume; choose a new folder in it, such as {folder / 'store'}"
        )
    if empty and folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"the folder {folder} is not empty; choose another folder")


def output_stem(path: Path) -> str:
    """Stem for names of files that are made from this one."""
    return path.stem if path.stem.strip(".") else path.name  # of `...png` not `..`
