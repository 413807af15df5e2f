"""Files on disk: atomic writes, locks, and the check that an output may be written."""

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from stylegan.machine.messages import reason_of

PARTIAL = re.compile(r"\..+\.[0-9a-f]{16}\.partial", re.S)
UNFINISHED = ".unfinished"  # at the end of the name of a folder that is being written
LOCK = ".lock"  # the file by which a process holds a folder
LOCK_SECONDS = 0.2  # to try again, as a call that ends takes the file along
NO_LOCKS = errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL
NO_SYNC = errno.EINVAL, errno.ENOTSUP, errno.ENOSYS


@contextmanager
def atomic_folder(out: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """Make a hidden folder beside `out` to write files into, which becomes `out` unless there is an
    error: ValueError if `out` is not empty. While another process does so, `waiting` is called, and
    its end awaited; unfinished folders of killed ones are removed."""
    folder = out.with_name(f".{out.name[:40]}{UNFINISHED}")
    out.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(out.parent)
    with lock(folder.with_name(f"{folder.name}{LOCK}"), waiting), errors_name(out):
        check_folder(out, empty=True)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir()
            yield folder
            for path in (*folder.iterdir(), folder):
                sync(path)
            with contextlib.suppress(FileNotFoundError):
                out.rmdir()  # an empty one is in the way on Windows
            folder.rename(out)
            sync(out.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_unfinished(parent: Path) -> None:
    """Remove the folders that killed calls of `atomic_folder` have left: their locks are free."""
    for path in parent.glob(f".*{UNFINISHED}{LOCK}"):
        with contextlib.suppress(OSError), FileLock(path, blocking=False):
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink()


@contextmanager
def errors_name(path: Path | str) -> Iterator[None]:
    """Give `path` to errors of the system inside that name no file, as those of reading do."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        raise


def is_of_system(error: Exception) -> bool:
    """Whether an error of reading a file says nothing of its content: a drive fails, memory is
    full. Libraries raise OSErrors without a number for damaged content."""
    # EINVAL: a damaged archive sends its reader to before its beginning
    number = error.errno if isinstance(error, OSError) else None
    return isinstance(error, MemoryError) or number not in (None, errno.EINVAL)


@contextmanager
def refusing(path: Path | str, what: str, advice: str = "") -> Iterator[None]:
    """Turn an error inside, but one of the system, into a ValueError: the file `path`, and `what`
    it is or cannot be. Values of a damaged or hostile file can raise almost anything."""
    try:
        yield
    except Exception as error:
        if is_of_system(error):
            raise
        reason = reason_of(error, line=0)
        after = f"; {advice}" if advice else ""
        raise ValueError(f"{path} {what}: {reason}{after}") from error


def unfinished(*folders: Path) -> list[Path]:
    """The files that killed calls of `Outputs.file` have left in folders."""
    hidden = [path for folder in folders for path in folder.glob(".*")]
    return [path for path in hidden if PARTIAL.fullmatch(path.name)]


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are safe on the disk, where that is possible."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders, and files only to write to them
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with errors_name(path):
            wait_for_disk(descriptor)
    finally:
        os.close(descriptor)


def wait_for_disk(descriptor: int) -> None:
    """Wait until what was written is on the disk; network drives may not know how."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise


@contextmanager
def lock(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a file, which is made, and removed at the end. While another process holds it, `waiting`
    is called and its end awaited; without `waiting` that is a BlockingIOError. On file systems
    without locks nothing is checked."""
    holder = FileLock(path, timeout=LOCK_SECONDS)
    held: tuple[int, int] | None = None
    try:
        try:
            holder.acquire()
        except Timeout as error:
            if waiting is None:
                raise OSError(errno.EAGAIN, "another process holds this folder") from error
            waiting()
            holder.acquire(timeout=-1)
        held = identity(path)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise OSError(error.errno, error.strerror, str(path.parent)) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # while it is held; on Windows `release` removes it
            if held in (None, identity(path)):  # else it is that of another folder
                path.unlink()
        holder.release()


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The files that are to be written: checked before the work, and written atomically."""

    overwrite: bool  # replace files that exist

    def check(
        self,
        *paths: Path,
        endings: Collection[str] = (),
        sources: Iterable[Path] = (),
        pictures: Mapping[Path, Path] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Raise ValueError unless a file may be written to each of the paths, which end in one of
        `endings`, if there are any. None is one of the `sources`, or in a folder of training
        `pictures` outside of its run. With `exist_ok` the writer decides what may be replaced."""
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
                raise ValueError(
                    f"{path} does not name a format: it must end in {', '.join(endings)}"
                )
            check_folder(path.parent)
            place = without_links(path)
            for folder, run in (pictures or {}).items():
                # a run may lie inside its data folder; writing within that run is fine
                if folder in place.parents and without_links(run) not in place.parents:
                    raise ValueError(
                        f"{path} is in a folder of training pictures of {run}; choose another place"
                    )
            if place in checked:
                raise ValueError(f"two files would both be written to {path}; choose other names")
            checked.add(place)
            if is_there(path) and not (self.overwrite or exist_ok):
                raise ValueError(f"{path} exists; pass --overwrite or choose another name")

    @contextmanager
    def file(self, path: Path) -> Iterator[BinaryIO]:
        """Open a file to write, renamed to `path` once it is complete and on the disk, removed on
        errors; make its folder. Raise FileExistsError if there is a file by then that stays."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
        try:
            with open(partial, "xb") as file:
                yield file
                file.flush()
                wait_for_disk(file.fileno())
            if not self.overwrite and is_there(path):
                raise FileExistsError(
                    f"{path} exists; pass --overwrite (outputs=REPLACING) or choose another name"
                )
            os.replace(partial, path)
        except BaseException as error:
            with contextlib.suppress(OSError):  # there may be no such file
                partial.unlink()
            if isinstance(error, OSError) and error.errno:
                where = error.filename  # not known of a full disk; PyAV's errors cannot be changed
                named = str(path) if where in (None, partial, str(partial)) else where
                raise OSError(error.errno, error.strerror, named) from error
            raise
        sync(path.parent)

    def content(self, path: Path, content: bytes) -> None:
        """Write a file, or leave one of the same content. Raises ValueError if another is kept."""
        if path.is_file() and path.read_bytes() == content:
            return
        self.check(path)
        with self.file(path) as file:
            file.write(content)

    def text(self, path: Path, text: str) -> None:
        """Write text; file names in it need not be UTF-8."""
        self.content(path, text.encode("utf-8", "surrogateescape"))


REPLACING = Outputs(overwrite=True)
KEEPING = Outputs(overwrite=False)  # the default of all that writes files of users


def is_there(path: Path) -> bool:
    """True if a name is taken, also by a link to nothing, which is somebody's, too."""
    return path.exists() or path.is_symlink()


def identity(path: Path) -> tuple[int, int]:
    """Return a file's identity: equal for two paths to one file."""
    status = path.stat()
    return status.st_dev, status.st_ino


def what_begins_with(start: bytes) -> str:
    """Return the end of "it is ..." for a file that is not the one that was to be fetched, where
    its first bytes tell; "" if they do not."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if not start:
        return "empty"
    if text.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS: `git lfs pull` fetches the file itself"
    if text.startswith((b"<!doctype html", b"<html")):
        return "a web page: the address of the file itself is another"
    return ""


def refuse_mistaken(path: Path) -> None:
    """Raise ValueError if a file is empty, a web page, or a pointer to one that is elsewhere."""
    with errors_name(path), open(path, "rb") as file:
        mistake = what_begins_with(file.read(512))
    if mistake:
        raise ValueError(f"{path} is {mistake}")


def check_folder(folder: Path, *, empty: bool = False, written: bool = True) -> None:
    """Raise ValueError unless `folder` is one, or may become one, which files may be `written`
    into, and which may have to be `empty`."""
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
    """Follow a path through all links; links in a circle, for which some versions of `Path.resolve`
    fail, stay as they are."""
    return Path(os.path.realpath(path))


def name_of(path: Path) -> str:
    """Return the name without its ending, for files made of this one."""
    return path.stem if path.stem.strip(".") else path.name  # of `...png` not `..`
