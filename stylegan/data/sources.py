"""Where images come from: a folder, or a zip that is read without unpacking it."""

import dataclasses
import hashlib
import os
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar

from stylegan.messages import readable

from .images import EXTENSIONS, is_image

MAX_FILE_BYTES = 2**29  # the largest image that `MAX_PIXELS` allows, without compression
MAX_RATIO = 200  # unpacked size over packed size; photographs stay near 1
RATIO_FREE_BYTES = 2**24  # small files may be packed tightly: a flat drawing is


def label_of(name: str) -> str | None:
    """The label of an image: its first sub-folder."""
    folder, slash, _ = name.partition("/")
    return folder if slash else None


@dataclasses.dataclass
class Source:
    """The images under one path, in one order on every machine: sorted by relative name."""

    path: Path
    names: list[str]  # relative, with forward slashes
    ignored: list[str]  # files that are not images
    kind: ClassVar[str]

    @property
    def labels(self) -> list[str | None]:
        """The label name of each image."""
        return [label_of(name) for name in self.names]

    def read(self, name: str) -> bytes:
        """The content of one file."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """A hash that changes when an image is added, removed, renamed or written again."""
        digest = hashlib.sha256(str(self.path.resolve()).encode("utf-8", "surrogateescape"))
        for line in self._listing():
            digest.update(repr(line).encode())
        return digest.hexdigest()

    def _listing(self) -> Iterator[tuple[Any, ...]]:
        raise NotImplementedError


class FolderSource(Source):
    """Images in a folder and its sub-folders."""

    kind = "folder"

    def read(self, name: str) -> bytes:
        path = self.path / name
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"{name}: larger than {MAX_FILE_BYTES} bytes")
        return path.read_bytes()

    def _listing(self) -> Iterator[tuple[Any, ...]]:
        for name in self.names:
            try:
                status = (self.path / name).stat()
            except OSError as error:  # a dangling link; reading it will say so
                yield name, error.errno
            else:
                yield name, status.st_size, status.st_mtime_ns


class ZipSource(Source):
    """Images in a zip, which every process opens for itself."""

    kind = "zip"
    _opened: tuple[int, zipfile.ZipFile, dict[str, zipfile.ZipInfo]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def read(self, name: str) -> bytes:
        archive, members = self._open()
        info = members[name]
        try:
            with archive.open(info) as file:
                return file.read(info.file_size)  # bounded: a false size fails its checksum
        except Exception as error:  # of damaged entries each decompressor makes its own
            raise ValueError(f"{name}: {readable(str(error) or type(error).__name__)}") from error

    def _open(self) -> tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]:
        if self._opened is None or self._opened[0] != os.getpid():  # a fork shares the position
            archive = _open_zip(self.path)
            self._opened = os.getpid(), archive, _members(archive, self.path)
        return self._opened[1:]

    def _listing(self) -> Iterator[tuple[Any, ...]]:
        status = self.path.stat()
        yield status.st_size, status.st_mtime_ns
        members = self._open()[1]
        for name in self.names:
            yield name, members[name].file_size, members[name].CRC


def open_source(path: str | Path, *, include: Sequence[str] = ()) -> Source:
    """The images of a folder or zip; `include` keeps only these first-level sub-folders."""
    path = Path(path)
    kind: type[Source]
    if path.is_dir():
        kind, found = FolderSource, sorted(_walk(path, "", frozenset()))
        if not found:
            raise ValueError(f"the folder {path} is empty; see datasets/README.md")
    elif path.is_file():
        kind, found = ZipSource, sorted(_zip_names(path))
        if not found:
            raise ValueError(f"the zip {path} is empty; see datasets/README.md")
    else:
        raise FileNotFoundError(f"there is no folder or zip at {path}; see datasets/README.md")
    if include:
        found = _select(found, include, path)
    names = [name for name in found if is_image(name)]
    ignored = [name for name in found if not is_image(name)]
    if not names:
        kinds = Counter(os.path.splitext(name)[1].lower() or "no extension" for name in ignored)
        others = ", ".join(f"{count} x {readable(kind)}" for kind, count in kinds.most_common(4))
        raise ValueError(
            f"no images under {path}: found {len(ignored)} other files ({others}), none ending in "
            f"{' '.join(EXTENSIONS)}; see datasets/README.md"
        )
    return kind(path, names, ignored)


def _select(names: list[str], include: Sequence[str], path: Path) -> list[str]:
    available = {label for name in names if (label := label_of(name)) is not None}
    if missing := [label for label in include if label not in available]:
        raise ValueError(
            f"no sub-folder {', '.join(map(repr, missing))} in {path}; "
            f"available: {', '.join(sorted(available)) or 'none'}"
        )
    return [name for name in names if label_of(name) in include]


def _hidden(part: str) -> bool:
    return part.startswith(".") or part == "__MACOSX"


def _walk(folder: Path, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    """Relative names of all files; links are followed, but not into a folder above them."""
    status = folder.stat()
    identity = status.st_dev, status.st_ino
    if identity in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if _hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", above | {identity})
            else:
                yield prefix + entry.name


def _zip_names(path: Path) -> list[str]:
    if not _is_zip(path):
        raise ValueError(f"{path} is neither a folder nor a zip; see datasets/README.md")
    with _open_zip(path) as archive:
        return list(_members(archive, path))


def _is_zip(path: Path) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:  # one that claims to lie on several disks
        return False


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # a damaged directory can raise almost anything
        reason = readable(str(error) or type(error).__name__)
        raise ValueError(f"{path} is a damaged zip: {reason}; copy it again") from error


def _members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """Name -> entry of every file; tricks are refused with the whole archive."""
    members = {}
    for info in archive.infolist():
        name = info.filename.replace("\\", "/")
        shown = readable(name)
        if name.startswith("/") or PureWindowsPath(name).drive or ".." in name.split("/"):
            shown = readable(repr(info.filename))
            raise ValueError(f"{path} is refused: the entry {shown} points outside of it")
        if name.endswith("/") or any(map(_hidden, PurePosixPath(name).parts)):
            continue
        if info.flag_bits & 1:
            raise ValueError(f"{path} is refused: {shown} is encrypted; pack it without a password")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise ValueError(f"{path} is refused: {shown} is a link; pack the files themselves")
        too_large = info.file_size > MAX_FILE_BYTES
        _refuse_bomb(shown, info.file_size, info.compress_size, path, too_large=too_large)
        members[name] = info
    total = sum(info.file_size for info in members.values())
    _refuse_bomb("the whole", total, path.stat().st_size, path)
    return members


def _refuse_bomb(name: str, size: int, packed: int, path: Path, *, too_large: bool = False) -> None:
    if too_large or (size > RATIO_FREE_BYTES and size > MAX_RATIO * packed):
        raise ValueError(
            f"{path} is refused: {name} would unpack from {packed} to {size} bytes "
            f"(limits: {MAX_FILE_BYTES} bytes a file, {MAX_RATIO} times the packed size)"
        )
