"""Sources of images: a folder, a zip, TFRecords, or a sequence that a program holds."""

import functools
import hashlib
import io
import os
import re
import stat
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, ClassVar

import numpy as np
from PIL import Image

from stylegan.utils.filesystem import as_value_error, check_not_placeholder, not_found
from stylegan.utils.text import error_reason, join_truncated, pluralize, sanitize

from . import tfrecords
from .images import MODES, extensions, image_errors, is_image, open_image, read_header, to_pil
from .labels import CSV, JSON, MAX_VALUE, Labels, composed, from_classes, from_vectors, read_labels
from .store import META, NO_LABELS, Skipped

MAX_FILE_BYTES = 2**29  # of an image in a zip or tar: the size of `MAX_PIXELS` without compression
GRIDS = "grid.png", "grid.webp", "grid.jpg"  # of `stylegan generate`, next to its samples
PARTS = {"train", "test", "val", "valid", "validation"}  # sub-folders that are no classes
SEE = "`stylegan check --help` lists what is read"
ARRAYS = ".npy", ".npz"
HOW_ARRAYS = "arrays become a store by stylegan.data.prepare_images; "
Images = Sequence[Image.Image | np.ndarray]  # arrays uint8 (H, W[, C])


class Source(ABC):
    """The images under one path, sorted by relative name: the same order on every machine.

    `names`, `ignored` (files that are not images), `runs` (run folders) and `grids` (of `stylegan
    generate`) are relative paths with forward slashes. `top` is the folder that holds everything,
    as in a zip of a folder: classes are its sub-folders, and label files lie there.
    """

    kind: ClassVar[str]

    def __init__(self, path: Path, files: Iterable[str], include: Sequence[str] = ()) -> None:
        self.path = path
        every = sorted(files)
        if not every:
            raise ValueError(f"the {self.kind} {path} is empty; {SEE}")
        history = folders_of(every, "data.txt") | folders_of(every, "log.jsonl")
        self.runs = sorted(folders_of(every, "config.toml") & history)
        if "" in self.runs:
            raise ValueError(f"{path} is a run, not a {self.kind} of images; give the images")
        inside = tuple(f"{folder}/" for folder in self.runs)
        outside = [name for name in every if not name.startswith(inside)]
        include = [*map(composed, include)]
        if include:
            check_included(include, outside, path)
        self.top = "" if include else only_folder(outside)
        label_files = (f"{self.top}{name}" for name in (JSON, CSV))
        self.label_files = [name for name in label_files if name in outside]
        usable = [
            name for name in outside if not include or first_folder(composed(name)) in include
        ]
        images = [name for name in usable if is_image(name)]
        self.grids = [name for name in images if os.path.basename(name) in GRIDS]
        self.names = [name for name in images if name not in self.grids]
        self.ignored = [n for n in usable if not is_image(n) and n not in self.label_files]
        if not self.names and META in outside:
            raise ValueError(f"{path} is a prepared store; train on it as it is")
        if not self.names:
            others = f"found {kinds_of(self.ignored)}" if usable else "found no other files"
            fault = f"no images under {path}: {'; '.join([others, *self.notes()])}"
            hint = HOW_ARRAYS if any(name.lower().endswith(ARRAYS) for name in self.ignored) else ""
            raise ValueError(f"{fault}; image names end in {' '.join(extensions())}; {hint}{SEE}")

    @abstractmethod
    def image(self, name: str) -> Image.Image:
        """The image in its own mode. Raises ValueError or OSError if it cannot be opened."""

    @abstractmethod
    def fingerprint_parts(self) -> Iterator[tuple[object, ...]]:
        """Properties that change whenever a file changes, for `fingerprint`."""

    @abstractmethod
    def read_labels(self) -> Labels:
        """Labels of `names`. Raises ValueError, in one line, if their file is invalid."""

    def head(self, name: str) -> tuple[int, int, str]:
        """Upright width and height, and Pillow's mode, as the header states them."""
        image = self.image(name)
        return image.width, image.height, image.mode

    @functools.cached_property
    def labels_or_reason(self) -> Labels | str:
        """Labels of `names`, or the reason why their file cannot be used."""
        try:
            return self.read_labels()
        except ValueError as error:
            return f"{error_reason(error)} ({self.path})"

    @property
    def labels(self) -> Labels | None:
        return None if isinstance(self.labels_or_reason, str) else self.labels_or_reason

    @property
    def why_no_labels(self) -> str:
        """The reason, for a message, if the images have no labels."""
        if isinstance(self.labels_or_reason, str):
            return self.labels_or_reason
        return NO_LABELS.format(self.path)

    def notes(self) -> list[str]:
        """Notes about the files for the user, a sentence each."""
        lines = []
        for what, names in (("run folders", self.runs), ("grids of generated samples", self.grids)):
            if names:
                first = join_truncated(list(map(sanitize, names)), 4, ", ")
                lines.append(f"left out as {what}: {first}")
        folders = {first_folder(name.removeprefix(self.top)) or "" for name in self.names}
        are_labels = self.labels is not None and folders == {*self.labels.names}
        if are_labels and len(folders) > 1 and {f.lower() for f in folders} <= PARTS:
            parts = ", ".join(sorted(folders))
            lines.append(f"WARNING: {parts} are splits of a data set, but would be its labels")
        if self.label_files and self.names:
            deeper = any("/" in name.removeprefix(self.top) for name in self.names)
            beside = ", not the sub-folders" if deeper else ""
            used = f"labels are those in {self.label_files[0]}{beside}"
            lines.append(used if self.labels else f"no labels: {self.why_no_labels}")
        return lines

    def fingerprint(self) -> str:
        """Hash that changes if an image is added, removed or changed, or may change its class."""
        digest = hashlib.sha256(str(self.path.resolve()).encode("utf-8", "surrogateescape"))
        for line in self.fingerprint_parts():
            digest.update(repr(line).encode())
        if self.top != only_folder([*self.names, *self.label_files]):  # `include`, or other files
            digest.update(repr(self.top).encode())
        return digest.hexdigest()


def check_included(include: Sequence[str], files: Sequence[str], path: Path) -> None:
    """Raise ValueError if a sub-folder of `include` does not exist."""
    folders = {first_folder(composed(name)) for name in files}
    if missing := [folder for folder in include if folder not in folders]:
        known = join_truncated(sorted(sanitize(folder) for folder in folders if folder), 20, ", ")
        wanted = ", ".join(map(repr, missing))
        raise ValueError(f"no sub-folder {wanted} in {path}; available: {known or 'none'}")


def only_folder(files: Sequence[str]) -> str:
    """Deepest folder that holds all files, such as `photos/`; "" if there is none."""
    top = ""
    while files:
        rest = {first_folder(name.removeprefix(top)) for name in files}
        if len(rest) > 1 or None in rest:
            return top
        top += f"{rest.pop()}/"
    return top


class FileSource(Source):
    @abstractmethod
    def open(self, name: str) -> IO[bytes]: ...

    def read(self, name: str) -> bytes:
        with self.open(name) as file, image_errors(name):
            return file.read()

    def image(self, name: str) -> Image.Image:
        return open_image(io.BytesIO(self.read(name)), name)

    def head(self, name: str) -> tuple[int, int, str]:
        with self.open(name) as file:
            return read_header(file, name)

    def read_labels(self) -> Labels:
        if len(self.label_files) > 1:
            raise ValueError(f"there are labels in {JSON} and in {CSV}; remove one of the files")
        relative = [name.removeprefix(self.top) for name in self.names]
        for file in self.label_files:
            return read_labels(file.removeprefix(self.top), self.read(file), relative)
        return from_classes([first_folder(name) for name in relative])


class FolderSource(FileSource):
    kind = "folder"

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        super().__init__(path, walk(path), include)

    def open(self, name: str) -> IO[bytes]:
        path = self.path / name
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe or a device might never end
            raise ValueError(f"{name}: not a regular file")
        return open(path, "rb")

    def fingerprint_parts(self) -> Iterator[tuple[object, ...]]:
        for name in [*self.names, *self.label_files]:
            yield name, *status_of(self.path / name)


class ZipSource(FileSource):
    kind = "zip"

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        hint = HOW_ARRAYS if path.suffix.lower() in ARRAYS else ""
        with as_value_error(path, "is neither a folder nor an intact zip", f"{hint}{SEE}"):
            self.archive = zipfile.ZipFile(path)
        entries = [(name_of(info), info) for info in self.archive.infolist()]
        files = [
            (name, info)
            for name, info in entries
            if name and not name.endswith("/") and not any(map(hidden, name.split("/")))
        ]
        self.members = dict(files)
        if len(self.members) < len(files):
            raise ValueError(f"{path} contains two files of the same name; create the zip again")
        for name in self.members:
            if ".." in name.split("/"):
                raise ValueError(f"{name} is outside of {path}; create the zip again")
        super().__init__(path, self.members, include)

    def open(self, name: str) -> IO[bytes]:
        with image_errors(name):
            size = self.members[name].file_size
            if size > MAX_FILE_BYTES:
                raise ValueError(f"file must be at most {MAX_FILE_BYTES} bytes, got {size}")
            return self.archive.open(self.members[name])

    def fingerprint_parts(self) -> Iterator[tuple[object, ...]]:
        yield status_of(self.path)
        for name in [*self.names, *self.label_files]:
            yield name, self.members[name].file_size, self.members[name].CRC


def name_of(info: zipfile.ZipInfo) -> str:
    """Name of an entry with forward slashes and without `./`."""
    parts = info.filename.replace("\\", "/").split("/")
    return "/".join(part for part in parts if part != ".")


class TFRecordSource(Source):
    """The TFRecords of the highest resolution; the other files are averages of its images."""

    kind = "set of TFRecords"

    def __init__(self, path: Path, files: Sequence[Path], include: Sequence[str] = ()) -> None:
        name, *others = sorted({re.sub(r"-r\d\d$", "", file.stem) for file in files})
        if others:
            sets = join_truncated(list(map(sanitize, (name, *others))), 3, ", ")
            raise ValueError(f"{path} contains several data sets ({sets}); give one file")
        self.file = max(files, key=lambda file: file.stat().st_size)
        self.records = list(tfrecords.records(self.file))
        super().__init__(path, (f"{i:09}.tif" for i in range(len(self.records))), include)
        self.shape = self.pixels(self.names[0]).shape
        labels = self.file.with_name(f"{name}-rxx.labels")
        self.label_files = [str(labels)] if labels.is_file() else []

    def pixels(self, name: str) -> np.ndarray:
        return tfrecords.pixels(self.file, *self.records[int(name.removesuffix(".tif"))])

    def image(self, name: str) -> Image.Image:
        return to_pil(self.pixels(name).transpose(1, 2, 0))

    def head(self, name: str) -> tuple[int, int, str]:
        channels, height, width = self.shape  # of the first image: all are alike
        return width, height, MODES[channels]

    def read_labels(self) -> Labels:
        """Read the `.labels` file, a NumPy array: one-hot rows become classes."""
        none = from_classes([None] * len(self.names))
        if not self.label_files:
            return none
        name = os.path.basename(self.label_files[0])
        # what becomes infinite is refused below
        with as_value_error(name, "holds no labels"), np.errstate(over="ignore"):
            read = np.load(self.label_files[0], mmap_mode="r", allow_pickle=False)
            rows = read.astype(np.float32, casting="same_kind")
        if rows.ndim != 2 or len(rows) != len(self.names) or not (np.abs(rows) < MAX_VALUE).all():
            raise ValueError(f"{name} must hold {len(self.names)} rows of finite numbers")
        return from_vectors(rows) if rows.size else none

    def fingerprint_parts(self) -> Iterator[tuple[object, ...]]:
        for file in (self.file, *map(Path, self.label_files)):
            yield file.name, *status_of(file)


class SequenceSource(Source):
    """Images in memory, or made on access, named by their position."""

    kind = "sequence"

    def __init__(self, images: Images, labels: Sequence[str] | None, path: Path) -> None:
        self.images = images
        self.classes = [None] * len(images) if labels is None else list(map(str, labels))
        if labels is not None and len(labels) != len(images):
            raise ValueError(f"expected {len(images)} labels, one per image, got {len(labels)}")
        if labels is not None and not all(
            isinstance(label, str | int | np.integer) for label in labels
        ):
            raise ValueError("labels must be names or numbers of classes, one per image")
        super().__init__(path, (f"{i:09}.png" for i in range(len(images))))

    def image(self, name: str) -> Image.Image:
        image = self.images[int(name.removesuffix(".png"))]
        return image if isinstance(image, Image.Image) else to_pil(image)

    def read_labels(self) -> Labels:
        return from_classes(self.classes)

    def fingerprint_parts(self) -> Iterator[tuple[object, ...]]:
        yield (len(self.images),)


def open_source(path: str | Path | Source, *, include: Sequence[str] = ()) -> Source:
    """List the images of a folder, zip, TFRecords, tars, Parquet or `hf:owner/name`.

    `include` keeps only these sub-folders. A source is returned unchanged.
    """
    from .shards import ParquetSource, TarSource, fetch_from_hub  # they are sources of this module

    if isinstance(path, Source):
        return path
    name = Path(path).as_posix()  # on Windows a Path has the other slash
    path = fetch_from_hub(name) if name.startswith("hf:") else Path(path)
    # On the Hub, a few images next to shards belong to the README. A run stores the folder's path.
    is_on_hub = path.match("datasets--*/snapshots/*")
    if path.is_dir() and (is_on_hub or not any(map(is_image, walk(path)))):
        if records := sorted([*path.glob("*.tfrecords"), *path.glob("*/*.tfrecords")]):
            return TFRecordSource(path, records, include)
        files = list(walk(path))
    else:
        files = [path.name] if path.is_file() else []
    for kind in (TarSource, ParquetSource):
        if any(name.lower().endswith(kind.ending) for name in files):
            return kind(path, include)
    if path.is_dir():
        return FolderSource(path, include)
    if path.is_file():
        check_not_placeholder(path)
        is_record = path.suffix == ".tfrecords"
        return TFRecordSource(path, [path], include) if is_record else ZipSource(path, include)
    raise FileNotFoundError(not_found(path, SEE))


def folders_of(files: Iterable[str], name: str) -> set[str]:
    """Folders that have a file called `name`, given the relative names of all files."""
    return {file.rpartition("/")[0] for file in files if os.path.basename(file) == name}


def status_of(path: Path) -> tuple[int, int, int]:
    """Size and times of modification and change: another file of this name has others."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def first_folder(name: str) -> str | None:
    folder, slash, _ = name.partition("/")
    return folder if slash else None


def kinds_of(names: Iterable[str]) -> str:
    """Number of files of each extension, for a message."""
    endings = Counter(os.path.splitext(name)[1].lower() for name in names).most_common()
    kinds = [
        pluralize(n, f"{sanitize(e)} file") if e else f"{pluralize(n, 'file')} without an extension"
        for e, n in endings
    ]
    return join_truncated(kinds, 6, ", ")


def summarize_skipped(skipped: Sequence[Skipped]) -> str:
    """The first names and reasons, for a message."""
    return join_truncated([sanitize(f"{name} ({reason})") for name, reason in skipped], most=5)


def hidden(part: str) -> bool:
    return (part.startswith(".") and part != "..") or part in ("__MACOSX", "lost+found")


def walk(root: Path) -> Iterator[str]:
    """Relative names of all files. Links to folders are followed, but no folder is read twice.

    Raises OSError if a folder cannot be listed.
    """

    def failed(error: OSError) -> None:
        raise error

    seen = set()
    for folder, folders, files in os.walk(root, onerror=failed, followlinks=True):
        status = os.stat(folder)
        if (identity := (status.st_dev, status.st_ino)) in seen:
            folders.clear()
            continue
        seen.add(identity)
        folders[:] = [name for name in folders if not hidden(name)]
        folders.sort(key=lambda name: (os.path.islink(os.path.join(folder, name)), name))
        inside = Path(folder).relative_to(root).as_posix()
        for name in files:
            if not hidden(name):
                yield name if inside == "." else f"{inside}/{name}"
