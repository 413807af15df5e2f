"""Where images come from: a folder, or a zip that is read without unpacking it."""

import hashlib
import math
import os
import stat
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar

from stylegan.messages import readable, reason_of

from .images import EXTENSIONS, is_image

MAX_FILE_BYTES = 2**29  # the largest image that `MAX_PIXELS` allows, without compression
MAX_RATIO = 200  # unpacked size over packed size; photographs stay near 1
RATIO_FREE_BYTES = 2**24  # small files may be packed tightly: a flat drawing is


def label_of(name: str) -> str | None:
    """The label of an image: its first sub-folder."""
    folder, slash, _ = name.partition("/")
    return folder if slash else None


class Source(ABC):
    """The images under one path, in one order on every machine: sorted by relative name.

    `names` and `ignored`, the files that are not images, are relative, with forward slashes.
    """

    kind: ClassVar[str]

    def __init__(self, path: Path, files: Iterable[str], include: Sequence[str] = ()) -> None:
        self.path = path
        found = sorted(files)
        if not found:
            raise ValueError(f"the {self.kind} {path} is empty; see datasets/README.md")
        if include:
            labels = {label for name in found if (label := label_of(name)) is not None}
            if missing := [label for label in include if label not in labels]:
                raise ValueError(
                    f"no sub-folder {', '.join(map(repr, missing))} in {path}; "
                    f"available: {', '.join(sorted(labels)) or 'none'}"
                )
            found = [name for name in found if label_of(name) in include]
        self.names = [name for name in found if is_image(name)]
        self.ignored = [name for name in found if not is_image(name)]
        if not self.names:
            endings = (os.path.splitext(name)[1].lower() or "no extension" for name in found)
            common = Counter(endings).most_common(4)
            others = ", ".join(f"{count} x {readable(ending)}" for ending, count in common)
            raise ValueError(
                f"no images under {path}: found {len(found)} other files ({others}), none ending "
                f"in {' '.join(EXTENSIONS)}; see datasets/README.md"
            )

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of one file."""

    def fingerprint(self) -> str:
        """A hash that changes when an image is added, removed, renamed or written again."""
        digest = hashlib.sha256(str(self.path.resolve()).encode("utf-8", "surrogateescape"))
        for line in self.listing():
            digest.update(repr(line).encode())
        return digest.hexdigest()

    @abstractmethod
    def listing(self) -> Iterator[tuple[Any, ...]]:
        """What shows that a file has changed."""


class FolderSource(Source):
    """Images in a folder and its sub-folders."""

    kind = "folder"

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        super().__init__(path, walk(path), include)

    def read(self, name: str) -> bytes:
        path = self.path / name
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"{name}: larger than {MAX_FILE_BYTES} bytes")
        return path.read_bytes()

    def listing(self) -> Iterator[tuple[Any, ...]]:
        for name in self.names:
            try:
                status = (self.path / name).stat()
            except OSError as error:  # a dangling link; reading it fails with the reason
                yield name, error.errno
            else:
                yield name, status.st_size, status.st_mtime_ns


class ZipSource(Source):
    """Images in a zip."""

    kind = "zip"

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        self.archive = open_zip(path)
        self.members = members_of(self.archive, path)
        super().__init__(path, self.members, include)

    def read(self, name: str) -> bytes:
        info = self.members[name]
        try:
            with self.archive.open(info) as file:
                return file.read(info.file_size)  # bounded: a false size fails its checksum
        except Exception as error:  # of damaged entries each decompressor makes its own
            raise ValueError(f"{name}: {readable(reason_of(error))}") from error

    def listing(self) -> Iterator[tuple[Any, ...]]:
        status = self.path.stat()
        yield status.st_size, status.st_mtime_ns
        for name in self.names:
            yield name, self.members[name].file_size, self.members[name].CRC


def open_source(path: str | Path, *, include: Sequence[str] = ()) -> Source:
    """The images of a folder or zip; `include` keeps only these first-level sub-folders."""
    path = Path(path)
    if path.is_dir():
        return FolderSource(path, include)
    if path.is_file():
        return ZipSource(path, include)
    raise FileNotFoundError(f"there is no folder, zip or store at {path}; see datasets/README.md")


def hidden(part: str) -> bool:
    return part.startswith(".") or part == "__MACOSX"


def walk(
    folder: Path, prefix: str = "", above: frozenset[tuple[int, int]] = frozenset()
) -> Iterator[str]:
    """Relative names of all files; links are followed, but not into a folder above them."""
    status = folder.stat()
    identity = status.st_dev, status.st_ino
    if identity in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if hidden(entry.name):
                continue
            if entry.is_dir():
                yield from walk(Path(entry.path), f"{prefix}{entry.name}/", above | {identity})
            else:
                yield prefix + entry.name


def open_zip(path: Path) -> zipfile.ZipFile:
    """ValueError, in one line, for what is not a sound zip."""
    try:
        if zipfile.is_zipfile(path):
            return zipfile.ZipFile(path)
    except Exception as error:  # a damaged directory can raise almost anything
        reason = readable(reason_of(error))
        raise ValueError(f"{path} is a damaged zip: {reason}; copy it again") from error
    raise ValueError(f"{path} is neither a folder nor a zip; see datasets/README.md")


def members_of(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """Name -> entry of every file; tricks are refused with the whole archive."""
    members = {}
    for info in archive.infolist():
        name = info.filename.replace("\\", "/")
        if name.startswith("/") or PureWindowsPath(name).drive or ".." in name.split("/"):
            entry = readable(repr(info.filename))
            raise ValueError(f"{path} is refused: the entry {entry} points outside of it")
        if name.endswith("/") or any(map(hidden, PurePosixPath(name).parts)):
            continue
        entry = readable(name)
        if info.flag_bits & 1:
            raise ValueError(f"{path} is refused: {entry} is encrypted; pack it without a password")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise ValueError(f"{path} is refused: {entry} is a link; pack the files themselves")
        check_unpacked(entry, info.file_size, info.compress_size, MAX_FILE_BYTES, path)
        members[name] = info
    total = sum(info.file_size for info in members.values())
    check_unpacked("the whole", total, path.stat().st_size, math.inf, path)
    return members


def check_unpacked(name: str, size: int, packed: int, most: float, path: Path) -> None:
    """ValueError for what would fill the memory."""
    if size > most or (size > RATIO_FREE_BYTES and size > MAX_RATIO * packed):
        raise ValueError(
            f"{path} is refused: {name} would unpack from {packed} to {size} bytes "
            f"(limits: {MAX_FILE_BYTES} bytes a file, {MAX_RATIO} times the packed size)"
        )
