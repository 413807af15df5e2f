"""Sources of images: a folder, a zip, TFRecords, or a sequence that a program holds."""

import contextlib
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

from stylegan.machine.disk import refuse_mistaken, refusing
from stylegan.machine.messages import count, listed, readable, reason_of

from . import tfrecords
from .images import MODES, extensions, from_array, head, is_image, open_image, reading
from .labels import CSV, JSON, MOST, Labels, composed, of_classes, of_vectors, read_labels
from .store import META, NO_LABELS, Skipped

MAX_FILE_BYTES = 2**29  # of an image in a zip: as many as `MAX_PIXELS` take without compression
GRIDS = "grid.png", "grid.webp", "grid.jpg"  # of `stylegan generate`, beside its pictures
PARTS = {"train", "test", "val", "valid", "validation"}  # of data sets
UTF8_FLAG = 0x800  # of a name in a zip
SEE = "`stylegan check --help` lists what is read"
ARRAYS = ".npy", ".npz"
HOW_ARRAYS = "arrays become a store by stylegan.data.prepare_images; "
Pictures = Sequence[Image.Image | np.ndarray]  # arrays uint8 (H, W[, C])


class Source(ABC):
    """The images under one path, in one order on every machine: sorted by relative name.

    `names`, `ignored`, the files that are not images, `runs`, the folders of trainings, and
    `grids`, which `stylegan generate` writes beside its pictures, are relative, with forward
    slashes. `top` is the only folder in which everything lies, as in a zip of a folder: classes are
    its sub-folders, and files of labels lie there.
    """

    kind: ClassVar[str]

    def __init__(self, path: Path, files: Iterable[str], include: Sequence[str] = ()) -> None:
        self.path = path
        every = sorted(files)
        if not every:
            raise ValueError(f"the {self.kind} {path} is empty; {SEE}")
        self.runs = runs_among(every)
        if "" in self.runs:
            raise ValueError(f"{path} is a run, not a {self.kind} of pictures; give the pictures")
        inside = tuple(f"{folder}/" for folder in self.runs)
        outside = [name for name in every if not name.startswith(inside)]
        if include:
            check_included(include, outside, path)
        self.top = "" if include else only_folder(outside)
        self.label_files = [
            f"{self.top}{name}" for name in (JSON, CSV) if f"{self.top}{name}" in outside
        ]
        usable = [name for name in outside if not include or first_folder(name) in include]
        pictures = [name for name in usable if is_image(name)]
        self.grids = [name for name in pictures if os.path.basename(name) in GRIDS]
        self.names = [name for name in pictures if name not in self.grids]
        self.ignored = [n for n in usable if not is_image(n) and n not in self.label_files]
        if not self.names and META in outside:
            raise ValueError(f"{path} is a prepared store; train on it as it is")
        if not self.names:
            others = f"found {kinds_of(self.ignored)}" if usable else "found no other files"
            fault = f"no images under {path}: {'; '.join([others, *self.notes()])}"
            hint = HOW_ARRAYS if any(name.lower().endswith(ARRAYS) for name in self.ignored) else ""
            raise ValueError(
                f"{fault}; names of images end in {' '.join(extensions())}; {hint}{SEE}"
            )

    @abstractmethod
    def picture(self, name: str) -> Image.Image:
        """Return an image in its own mode. Raise ValueError or OSError if it is none."""

    @abstractmethod
    def listing(self) -> Iterator[tuple[object, ...]]:
        """Yield the properties that change with a file."""

    @abstractmethod
    def read_labels(self) -> Labels:
        """Return labels of `names`. Raise ValueError, in one line, for a fault of their file."""

    def head(self, name: str) -> tuple[int, int, str]:
        """Return upright width and height, and Pillow's mode; the image need not be sound."""
        image = self.picture(name)
        return image.width, image.height, image.mode

    @functools.cached_property
    def labels_or_reason(self) -> Labels | str:
        """Return labels of `names`, or the reason why their file cannot be used."""
        try:
            return self.read_labels()
        except ValueError as error:
            return f"{reason_of(error)} ({self.path})"

    @property
    def labels(self) -> Labels | None:
        return None if isinstance(self.labels_or_reason, str) else self.labels_or_reason

    @property
    def why_no_labels(self) -> str:
        """Return the reason if the images have no labels."""
        if isinstance(self.labels_or_reason, str):
            return self.labels_or_reason
        return NO_LABELS.format(self.path)

    def notes(self) -> list[str]:
        """Return notes about the files for the user, a sentence each."""
        lines = []
        if self.runs:
            runs = listed(list(map(readable, self.runs)), 4, ", ")
            lines.append(f"folders of runs, not pictures, so left out: {runs}")
        if self.grids:
            grids = listed(list(map(readable, self.grids)), 4, ", ")
            lines.append(f"grids that show the pictures beside them, so left out: {grids}")
        folders = {first_folder(name.removeprefix(self.top)) or "" for name in self.names}
        if not self.label_files and len(folders) > 1 and {f.lower() for f in folders} <= PARTS:
            parts = ", ".join(sorted(folders))
            lines.append(f"WARNING: {parts} are parts of a data set, but would be its labels")
        if self.label_files and self.names:
            deeper = any("/" in name.removeprefix(self.top) for name in self.names)
            beside = ", not the sub-folders" if deeper else ""
            used = f"labels are those in {self.label_files[0]}{beside}"
            lines.append(used if self.labels else f"no labels: {self.why_no_labels}")
        return lines

    def fingerprint(self) -> str:
        """Return a hash that changes with each image that is added, removed or changed, and with
        what else decides their classes."""
        digest = hashlib.sha256(str(self.path.resolve()).encode("utf-8", "surrogateescape"))
        for line in self.listing():
            digest.update(repr(line).encode())
        if self.top != only_folder([*self.names, *self.label_files]):  # `include`, or other files
            digest.update(repr(self.top).encode())
        return digest.hexdigest()


def runs_among(files: Sequence[str]) -> list[str]:
    """Return the folders that hold a training run, by the relative names of all files."""
    history = folders_of(files, "data.txt") | folders_of(files, "log.jsonl")
    return sorted(folders_of(files, "config.toml") & history)


def check_included(include: Sequence[str], files: Sequence[str], path: Path) -> None:
    """Raise ValueError unless all sub-folders to use are there."""
    folders = {first_folder(name) for name in files}
    if missing := [folder for folder in include if folder not in folders]:
        known = listed(sorted(readable(folder) for folder in folders if folder), 20, ", ")
        wanted = ", ".join(map(repr, missing))
        raise ValueError(f"no sub-folder {wanted} in {path}; available: {known or 'none'}")


def only_folder(files: Sequence[str]) -> str:
    """Return `photos/` or `data/photos/`, if all files lie in there and some not deeper than the
    sub-folders of classes; empty if several folders, or files, are at the top."""
    top = ""
    while files:
        rest = {first_folder(name.removeprefix(top)) for name in files}
        if len(rest) > 1 or None in rest:
            return top
        top += f"{rest.pop()}/"
    return top


class FileSource(Source):
    """Image files."""

    @abstractmethod
    def open(self, name: str) -> IO[bytes]:
        """Open a file to read."""

    def read(self, name: str) -> bytes:
        with self.open(name) as file, reading(name):
            return file.read()

    def picture(self, name: str) -> Image.Image:
        return open_image(io.BytesIO(self.read(name)), name)

    def head(self, name: str) -> tuple[int, int, str]:
        with self.open(name) as file:
            return head(file, name)

    def read_labels(self) -> Labels:
        if len(self.label_files) > 1:
            raise ValueError(f"there are labels in {JSON} and in {CSV}; take one of them away")
        relative = [name.removeprefix(self.top) for name in self.names]
        for file in self.label_files:
            return read_labels(file.removeprefix(self.top), self.read(file), relative)
        return of_classes([first_folder(name) for name in relative])


class FolderSource(FileSource):
    """Images in a folder and its sub-folders."""

    kind = "folder"

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        super().__init__(path, walk(path), include)

    def open(self, name: str) -> IO[bytes]:
        path = self.path / name
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe or a device might never end
            raise ValueError(f"{name}: not a regular file")
        return open(path, "rb")

    def listing(self) -> Iterator[tuple[object, ...]]:
        for name in [*self.names, *self.label_files]:
            yield name, *status_of(self.path / name)


class ZipSource(FileSource):
    """Images in a zip."""

    kind = "zip"

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        hint = HOW_ARRAYS if path.suffix.lower() in ARRAYS else ""
        with refusing(path, "is neither a folder nor a sound zip", f"{hint}{SEE}"):
            self.archive = zipfile.ZipFile(path)
        entries = [(name_of(info), info) for info in self.archive.infolist()]
        files = [
            (name, info)
            for name, info in entries
            if name and not name.endswith("/") and not any(map(hidden, name.split("/")))
        ]
        self.members = dict(files)
        if len(self.members) < len(files):
            raise ValueError(f"{path} holds two files of one name; make the zip anew")
        for name in self.members:
            if ".." in name.split("/"):
                raise ValueError(f"{name} lies outside of {path}; make the zip anew")
        super().__init__(path, self.members, include)

    def open(self, name: str) -> IO[bytes]:
        with reading(name):
            if self.members[name].file_size > MAX_FILE_BYTES:
                raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
            return self.archive.open(self.members[name])

    def listing(self) -> Iterator[tuple[object, ...]]:
        yield status_of(self.path)
        for name in [*self.names, *self.label_files]:
            yield name, self.members[name].file_size, self.members[name].CRC


def name_of(info: zipfile.ZipInfo) -> str:
    """Return a name in a zip, with forward slashes and without `./`. The Finder of macOS writes
    UTF-8 without its flag, and decomposes letters; other names without it are in code page 437."""
    name = info.filename
    if not info.flag_bits & UTF8_FLAG:
        with contextlib.suppress(UnicodeError):
            name = composed(name.encode("cp437").decode())
    return "/".join(part for part in name.replace("\\", "/").split("/") if part != ".")


class TFRecordSource(Source):
    """The images of TFRecords at the highest resolution; the others are their averages."""

    kind = "set of TFRecords"

    def __init__(self, path: Path, files: Sequence[Path], include: Sequence[str] = ()) -> None:
        name, *others = sorted({re.sub(r"-r\d\d$", "", file.stem) for file in files})
        if others:
            sets = listed(list(map(readable, (name, *others))), 3, ", ")
            raise ValueError(f"{path} holds several sets ({sets}); give one file")
        self.file = max(files, key=lambda file: file.stat().st_size)
        self.records = list(tfrecords.records(self.file))
        super().__init__(path, (f"{i:09}.tif" for i in range(len(self.records))), include)
        self.shape = self.pixels(self.names[0]).shape
        labels = self.file.with_name(f"{name}-rxx.labels")
        self.label_files = [str(labels)] if labels.is_file() else []

    def pixels(self, name: str) -> np.ndarray:
        return tfrecords.pixels(self.file, *self.records[int(name.removesuffix(".tif"))])

    def picture(self, name: str) -> Image.Image:
        return from_array(self.pixels(name).transpose(1, 2, 0))

    def head(self, name: str) -> tuple[int, int, str]:
        """Return those of the first image: all of a set are alike."""
        channels, height, width = self.shape
        return width, height, MODES[channels]

    def read_labels(self) -> Labels:
        """Read the `.labels` file, one-hot or other numbers: a NumPy array."""
        none = of_classes([None] * len(self.names))
        if not self.label_files:
            return none
        name = os.path.basename(self.label_files[0])
        # what becomes infinite is refused below
        with refusing(name, "holds no labels"), np.errstate(over="ignore"):
            read = np.load(self.label_files[0], allow_pickle=False)
            rows = read.astype(np.float32, casting="same_kind")
        if rows.ndim != 2 or len(rows) != len(self.names) or not (np.abs(rows) < MOST).all():
            raise ValueError(f"{name} does not hold finite numbers for {len(self.names)} images")
        return of_vectors(rows) if rows.size else none

    def listing(self) -> Iterator[tuple[object, ...]]:
        for file in (self.file, *map(Path, self.label_files)):
            yield file.name, *status_of(file)


class SequenceSource(Source):
    """Images that a program holds, by their position."""

    kind = "sequence"

    def __init__(self, images: Pictures, labels: Sequence[str] | None, path: Path) -> None:
        self.images = images
        self.classes = [None] * len(images) if labels is None else list(map(str, labels))
        if labels is not None and len(labels) != len(images):
            raise ValueError(f"{len(labels)} labels are given for {len(images)} images")
        if labels is not None and not all(
            isinstance(label, str | int | np.integer) for label in labels
        ):
            raise ValueError("labels are names or numbers of classes, one for each image")
        super().__init__(path, (f"{i:09}.png" for i in range(len(images))))

    def picture(self, name: str) -> Image.Image:
        image = self.images[int(name.removesuffix(".png"))]
        return image if isinstance(image, Image.Image) else from_array(image)

    def read_labels(self) -> Labels:
        return of_classes(self.classes)

    def listing(self) -> Iterator[tuple[object, ...]]:
        yield (len(self.images),)


def open_source(path: str | Path | Source, *, include: Sequence[str] = ()) -> Source:
    """List the images of a folder, a zip, or TFRecords; `include` keeps only these sub-folders. A
    source stays as it is."""
    if isinstance(path, Source):
        return path
    path = Path(path)
    if path.is_dir():
        records = sorted([*path.glob("*.tfrecords"), *path.glob("*/*.tfrecords")])
        if records and not any(map(is_image, walk(path))):
            return TFRecordSource(path, records, include)
        return FolderSource(path, include)
    if path.is_file():
        refuse_mistaken(path)
        is_record = path.suffix == ".tfrecords"
        return TFRecordSource(path, [path], include) if is_record else ZipSource(path, include)
    raise FileNotFoundError(f"there is no folder, zip or store at {path}; {SEE}")


def folders_of(files: Iterable[str], name: str) -> set[str]:
    """Return the folders that have a file of this name, by the relative names of all files."""
    return {file.rpartition("/")[0] for file in files if os.path.basename(file) == name}


def status_of(path: Path) -> tuple[int, int, int]:
    """Return a file's size and times of modification and change, which a new file alters."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def first_folder(name: str) -> str | None:
    folder, slash, _ = name.partition("/")
    return folder if slash else None


def kinds_of(names: Iterable[str]) -> str:
    """Count the files by their endings, for a message."""
    endings = Counter(os.path.splitext(name)[1].lower() for name in names).most_common()
    kinds = [
        count(n, f"{readable(e)} file") if e else f"{count(n, 'file')} without an ending"
        for e, n in endings
    ]
    return listed(kinds, 6, ", ")


def reasons_of(skipped: Sequence[Skipped]) -> str:
    """Return the first names and reasons, for a message."""
    return listed([readable(f"{name} ({reason})") for name, reason in skipped], most=5)


def hidden(part: str) -> bool:
    return (part.startswith(".") and part != "..") or part in ("__MACOSX", "lost+found")


def walk(root: Path) -> Iterator[str]:
    """Yield the relative names of all files. Links to folders are followed, but no folder is read
    twice. Raise OSError for a folder that cannot be listed."""

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
