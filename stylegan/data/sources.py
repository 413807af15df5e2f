"""Where images come from: a folder, or a zip that is read without unpacking it."""

import functools
import hashlib
import heapq
import io
import math
import os
import stat
import zipfile
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast

from stylegan.messages import count, listed, readable, reason_of

from . import tfrecords
from .images import AVIF, HEIF, MODES, extensions, from_array, head, is_image, reading, tiff
from .labels import CSV, JSON, Labels, of_classes, read_labels
from .store import NO_LABELS, Skipped, holds_store

MAX_FILE_BYTES = 2**29  # the largest image that `MAX_PIXELS` allows, without compression
PHONES = (
    ("HEIC picture", HEIF["HEIF"], "pip install pillow-heif"),
    ("AVIF picture", AVIF["AVIF"], "pip install --upgrade pillow"),
)
RUN_FILE, RUN_HISTORY = "config.toml", {"data.txt", "log.jsonl"}  # a run has it, and one of these


def kind_of(name: str) -> str:
    """What a file that is not an image is, by its ending."""
    ending = os.path.splitext(name)[1].lower()
    return f"{readable(ending)} file" if ending else "file without an ending"


def runs_and_stores(files: Iterable[str]) -> dict[str, str]:
    """Folder -> `run` or `store`, by the relative names of all files."""
    inside = defaultdict(set)
    for name in files:
        folder, _, file = name.rpartition("/")
        if file.endswith((".toml", ".txt", ".jsonl", ".json", ".npy")):
            inside[folder].add(file)
    found = {}
    for folder, names in inside.items():
        if RUN_FILE in names and names & RUN_HISTORY:
            found[folder] = "run"
        elif holds_store(names):
            found[folder] = "store"
    return found


class Source(ABC):
    """The images under one path, in one order on every machine: sorted by relative name.

    `names`, `ignored`, the files that are not images, and `own`, the folders of runs and stores,
    which hold no pictures of the user's, are relative, with forward slashes.
    """

    kind: ClassVar[str]
    unreadable: Sequence[Skipped] = ()  # folders that cannot be listed
    label_files: Sequence[str] = ()
    label_fault = ""  # why labels that are there cannot be used

    def __init__(self, path: Path, files: Iterable[str], include: Sequence[str] = ()) -> None:
        self.path = path
        self.include = tuple(include)
        found = sorted(files)
        if not found:
            raise ValueError(f"the {self.kind} {readable(path)} is empty; see datasets/README.md")
        self.own = runs_and_stores(found)
        if kind := self.own.get(""):
            raise ValueError(
                f"{readable(path)} is a {kind}, not a {self.kind} of pictures; give the pictures"
            )
        if own := tuple(f"{folder}/" for folder in self.own):
            found = [name for name in found if not name.startswith(own)]
        self.label_files = [name for name in (JSON, CSV) if name in found]
        if include:
            labels = {label for name in found if (label := first_folder(name)) is not None}
            if missing := [label for label in include if label not in labels]:
                known = listed([readable(label) for label in sorted(labels)], 20, ", ")
                raise ValueError(
                    f"no sub-folder {', '.join(map(repr, missing))} in {readable(path)}; "
                    f"available: {known or 'none'}"
                )
            found = [name for name in found if first_folder(name) in include]
        self.names = [name for name in found if is_image(name)]
        used = {*self.label_files, *filter(is_image, found)}
        self.ignored = [name for name in found if name not in used]
        if not self.names:
            others = f"found {kinds_of(self.ignored)}" if found else "found no other files"
            raise ValueError(
                f"no images under {readable(path)}: {'; '.join([others, *self.notes()])}; names of "
                f"images end in {' '.join(extensions())}; see datasets/README.md"
            )

    @functools.cached_property
    def labels(self) -> Labels | None:
        """Labels of `names`, of a file of labels or else of the first sub-folders; None if those of
        a file cannot be used, for which `label_fault` says why."""
        try:
            return self.read_labels()
        except (OSError, ValueError) as error:
            self.label_fault = f"{reason_of(error)} ({readable(self.path)})"
            return None

    def read_labels(self) -> Labels:
        """ValueError, in one line, for a file of labels with a fault."""
        if len(self.label_files) > 1:
            raise ValueError(f"there are labels in {JSON} and in {CSV}; take one of them away")
        if self.label_files:
            return read_labels(self.label_files[0], self.read(self.label_files[0]), self.names)
        return of_classes([first_folder(name) for name in self.names])

    def why_no_labels(self) -> str:
        """The reason, for a message, if the images have none."""
        return self.label_fault if self.labels is None else NO_LABELS.format(readable(self.path))

    def notes(self) -> list[str]:
        """What a user should know about the files, a sentence each."""
        lines = []
        if self.own:
            own = [f"{readable(folder)} (a {kind})" for folder, kind in sorted(self.own.items())]
            lines.append(f"not pictures, so left out whole: {listed(own, 4, ', ')}")
        if self.label_files and self.names:
            of_file = f"labels are those in {self.label_files[0]}"
            of_file += ", not the sub-folders" if any("/" in name for name in self.names) else ""
            lines.append(f"no labels: {self.label_fault}" if self.labels is None else of_file)
        for kind, endings, remedy in PHONES:
            if few := [name for name in self.ignored if name.lower().endswith(endings)]:
                lines.append(f"{count(len(few), kind)} left out; {remedy} to read them")
        return lines

    def open(self, name: str) -> BinaryIO:
        """One file, to be read and closed."""
        return io.BytesIO(self.read(name))

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of one file."""

    def head(self, name: str) -> tuple[int, int, str]:
        """Upright width and height, and Pillow's mode, of an image that need not be sound."""
        with self.open(name) as file:
            return head(file, name)

    def fingerprint(self, names: Sequence[str] | None = None) -> str:
        """A hash that changes when an image, or one of `names`, is added, removed, renamed or
        written again."""
        digest = hashlib.sha256(str(self.path.resolve()).encode("utf-8", "surrogateescape"))
        for line in self.listing(self.names if names is None else names):
            digest.update(repr(line).encode())
        return digest.hexdigest()

    @abstractmethod
    def listing(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """What shows that one of these files has changed."""


class FolderSource(Source):
    """Images in a folder and its sub-folders."""

    kind = "folder"

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        self.unreadable: list[Skipped] = []
        super().__init__(path, walk(path, self.unreadable), include)

    def open(self, name: str) -> BinaryIO:
        path = self.path / name
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device might never end
            raise ValueError(f"{name}: not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise ValueError(f"{name}: larger than {MAX_FILE_BYTES} bytes")
        return open(path, "rb")

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def listing(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        for name in [*names, *self.label_files]:
            try:
                status = status_of(self.path / name)
            except OSError as error:  # a dangling link; reading it fails with the reason
                yield name, error.errno
            else:
                yield name, *status


class ZipSource(Source):
    """Images in a zip."""

    kind = "zip"

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        self.archive = open_zip(path)
        names = {info: info.filename.replace("\\", "/") for info in self.archive.infolist()}
        self.members = {
            name: info
            for info, name in names.items()
            if not name.endswith("/") and not any(map(hidden, name.split("/")))
        }
        super().__init__(path, self.members, include)

    def open(self, name: str) -> BinaryIO:
        info = self.members[name]
        with reading(name):
            if info.file_size > MAX_FILE_BYTES:
                raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
            return cast(BinaryIO, self.archive.open(info))

    def read(self, name: str) -> bytes:
        with self.open(name) as file, reading(name):
            return file.read(self.members[name].file_size)  # a false size fails its checksum

    def listing(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        yield status_of(self.path)
        for name in [*names, *self.label_files]:
            yield name, self.members[name].file_size, self.members[name].CRC


class TFRecordSource(Source):
    """The images of TFRecords at the highest resolution; the others are their averages."""

    kind = "set of TFRecords"

    def __init__(self, path: Path, files: Sequence[Path], include: Sequence[str] = ()) -> None:
        firsts = {file: next(tfrecords.records(file, MAX_FILE_BYTES), None) for file in files}
        shapes = {
            file: tfrecords.pixels(file, *first).shape for file, first in firsts.items() if first
        }
        largest = max((math.prod(shape[1:]) for shape in shapes.values()), default=0)
        found = [file for file, shape in shapes.items() if math.prod(shape[1:]) == largest]
        if len(found) != 1:
            several = listed([readable(file.name) for file in found], 3, ", ") or "empty ones"
            raise ValueError(f"{readable(path)} holds several sets ({several}); give one file")
        self.file = found[0]
        self.records = list(tfrecords.records(self.file, MAX_FILE_BYTES))
        self.shape = shapes[self.file]
        super().__init__(path, (f"{i:09}.tif" for i in range(len(self.records))), include)
        if labels := tfrecords.labels_file_of(self.file):
            self.label_files = [str(labels)]

    def read(self, name: str) -> bytes:
        """The image, uncompressed."""
        record = self.records[int(name.removesuffix(".tif"))]
        try:
            image = tfrecords.pixels(self.file, *record)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        return tiff(from_array(image.transpose(1, 2, 0)))

    def head(self, name: str) -> tuple[int, int, str]:
        """Those of the first image: all of a set are alike."""
        channels, height, width = self.shape
        return width, height, MODES[channels]

    def read_labels(self) -> Labels:
        if not self.label_files:
            return of_classes([None] * len(self.names))
        return tfrecords.read_labels(Path(self.label_files[0]), len(self.names))

    def listing(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        for file in (self.file, *map(Path, self.label_files)):
            yield file.name, *status_of(file)


def open_source(path: str | Path, *, include: Sequence[str] = ()) -> Source:
    """The images of a folder, a zip, or TFRecords (a file or a folder of them); `include` keeps
    only these first-level sub-folders."""
    path = Path(path)
    if path.is_dir():
        records = sorted([*path.glob("*.tfrecords"), *path.glob("*/*.tfrecords")])
        if records and not any(map(is_image, walk(path, []))):
            return TFRecordSource(path, records, include)
        return FolderSource(path, include)
    if path.is_file():
        is_record = path.suffix == ".tfrecords"
        return TFRecordSource(path, [path], include) if is_record else ZipSource(path, include)
    raise FileNotFoundError(
        f"there is no folder, zip or store at {readable(path)}; see datasets/README.md"
    )


def status_of(path: Path) -> tuple[int, int, int]:
    """What changes when a file is written again: size, times of modification and of change."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def first_folder(name: str) -> str | None:
    """The first sub-folder of a relative name."""
    folder, slash, _ = name.partition("/")
    return folder if slash else None


def kinds_of(names: Iterable[str], most: int = 6) -> str:
    """How many files there are of each kind, for a message."""
    kinds = Counter(map(kind_of, names)).most_common()
    return listed([count(n, kind) for kind, n in kinds], most, ", ")


def reasons_of(skipped: Sequence[Skipped]) -> str:
    """Names and reasons for a message, the first few of them."""
    return listed([readable(f"{name} ({reason})") for name, reason in skipped], most=5)


def hidden(part: str) -> bool:
    return part.startswith(".") or part == "__MACOSX"


def walk(root: Path, unreadable: list[Skipped]) -> Iterator[str]:
    """Relative names of all files. Links to folders are followed, but no folder is read twice:
    those that lie here come first, then those behind links, in the order of their names.

    Folders that cannot be listed are added to `unreadable`; of `root` that is an OSError.
    """
    seen: set[tuple[int, int]] = set()
    folders, links = [""], list[str]()
    while folders or links:
        prefix = folders.pop() if folders else heapq.heappop(links)
        try:
            status = os.stat(os.path.join(root, prefix))
            if (identity := (status.st_dev, status.st_ino)) in seen:
                continue
            seen.add(identity)
            with os.scandir(os.path.join(root, prefix)) as entries:
                found = [entry for entry in entries if not hidden(entry.name)]
        except OSError as error:
            if not prefix:
                raise
            unreadable.append(Skipped(prefix, reason_of(error)))
            continue
        for entry in found:
            if not is_folder(entry):
                yield prefix + entry.name
            elif entry.is_symlink():
                heapq.heappush(links, f"{prefix}{entry.name}/")
            else:
                folders.append(f"{prefix}{entry.name}/")


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle; reading it as a file fails with the reason
        return False


def open_zip(path: Path) -> zipfile.ZipFile:
    """ValueError, in one line, for what is not a sound zip."""
    try:
        if zipfile.is_zipfile(path):
            return zipfile.ZipFile(path)
    except Exception as error:  # a damaged directory can raise almost anything
        reason = readable(reason_of(error))
        raise ValueError(f"{readable(path)} is a damaged zip: {reason}; copy it again") from error
    raise ValueError(f"{readable(path)} is neither a folder nor a zip; see datasets/README.md")
