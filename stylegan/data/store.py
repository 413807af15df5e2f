"""The store that training reads: one plain NumPy file per resolution, memory-mapped."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from stylegan.schedule import resolutions
from stylegan.utils.console import SILENT, Console
from stylegan.utils.filesystem import as_value_error, attach_filename
from stylegan.utils.text import command_line
from stylegan.utils.validation import PositiveInt, validate_json

from .images import MODES, Crop, Fit, Preparation, unpremultiply

META = "meta.json"
NAMES = "names.txt"
# A store has one of these two, or neither.
CLASSES = "labels.npy"
VECTORS = "label_vectors.npy"
STAMPS = "read.json"  # of older versions, no longer read
BLOCK = 2**22  # bytes to read at a time
ORIGIN = "origin.json"  # of a cached store: the source; modified at the last use
LEVEL = re.compile(r"\d{4}\.npy")
NO_LABELS = (
    "the images of {} are not all in sub-folders; put each class into its own, or train without "
    "labels"
)


class Skipped(NamedTuple):
    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class StoreMeta:
    """Everything about a store except its pixels and labels: `meta.json`."""

    source: str  # name of the folder or zip
    fingerprint: str  # of its files
    num_images: PositiveInt
    resolution: int
    channels: int
    crop: Crop
    # top, bottom, left, right, the ends excluded; None: the whole square
    active_rectangle: tuple[int, int, int, int] | None
    label_names: list[str]  # of classes, or of the numbers of a vector; empty: no labels
    skipped: list[Skipped]
    num_ignored: int  # files that are not images
    pixel_hashes: dict[str, str]  # file name -> SHA-256, without the header of image files
    premultiplied: bool = False  # colors times alpha
    filter: str = "lanczos to full resolution, then 2x2 box averages"
    format: Literal["stylegan-store"] = "stylegan-store"
    version: Literal[2] = 2
    # CRC-32 of files, of older versions, no longer read
    checksums: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        preparation = Preparation(self.resolution, self.crop, self.channels, self.premultiplied)
        levels = {*map(file_name, resolutions(self.resolution))}
        if missing := levels - self.pixel_hashes.keys():
            raise ValueError(f"pixel_hashes lacks {min(missing)}")
        if unknown := self.pixel_hashes.keys() - levels - {NAMES, CLASSES, VECTORS}:
            raise ValueError(f"pixel_hashes has an unknown file {min(unknown)!r:.100}")
        rectangle = preparation.fit.active_rectangle(self.resolution)
        if self.active_rectangle not in (None, rectangle):
            raise ValueError(f"active_rectangle does not match crop {self.crop}")

    def write(self, path: Path) -> None:
        """Write JSON; bytes of names that are not UTF-8 become question marks."""
        plain = dataclasses.asdict(self)
        del plain["checksums"]
        text = json.dumps(plain, indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8", errors="replace")

    @classmethod
    def read(cls, path: Path) -> "StoreMeta":
        """Read JSON. Raises ValueError, in one line, if it is not of this format."""
        return validate_json(cls, path.read_bytes(), META)


def file_name(resolution: int) -> str:
    return f"{resolution:04d}.npy"


def is_store(path: str | Path) -> bool:
    """Whether a folder is a store, intact or damaged."""
    return (Path(path) / META).is_file() and any(map(LEVEL.fullmatch, os.listdir(path)))


def identity_of(levels: Sequence[str], labels: np.ndarray | None, names: Sequence[str]) -> str:
    """Hash of what a run sees: hashes of the images at each resolution, and labels with names."""
    if len(levels) == 1 and labels is None:
        return levels[0]
    of_labels = [] if labels is None else [labels.tolist(), list(names)]
    return hashlib.sha256(json.dumps([*levels, *of_labels]).encode()).hexdigest()


def remove_files(folder: Path) -> None:
    """Remove the files of a store, but no others and no links; then the folder if it is empty."""
    known = {META, CLASSES, VECTORS, NAMES, ORIGIN, STAMPS}
    for file in folder.iterdir():
        if (file.name in known or LEVEL.fullmatch(file.name)) and not file.is_symlink():
            file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


class Store:
    """A prepared data set. Opening it checks the sizes of its files; `verify` reads them all.

    Its files are `0004.npy` up to the full resolution, uint8 (N, C, r, r); `labels.npy`, int64
    (N,), or `label_vectors.npy`, float32 (N, numbers); `names.txt`; `meta.json`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = self.origin = Path(path)  # `origin`: the source, if it was prepared on the fly
        if not is_store(self.path):
            raise FileNotFoundError(f"no store at {path}; make one with stylegan prepare")
        try:
            self.meta = meta = StoreMeta.read(self.path / META)
            self.num_images = meta.num_images
            self.channels = meta.channels
            self.resolution = meta.resolution  # the largest
            self.active_rectangle = meta.active_rectangle
            self.label_names = meta.label_names  # empty without labels
            self.skipped = meta.skipped  # unusable images of the source
            self._images = {
                r: self.array(file_name(r), np.uint8, self.channels, r, r)
                for r in resolutions(meta.resolution)
            }
            self.labels = self.read_labels() if meta.label_names else None
            for name in meta.pixel_hashes:
                (self.path / name).stat()  # an error if it is gone
        except (FileNotFoundError, ValueError) as error:
            raise self.damaged(error) from error
        self.why_no_labels = NO_LABELS.format(meta.source)

    def array(self, name: str, kind: type, *shape: int) -> np.memmap:
        """Map the array of a file, a row per image. Raises ValueError for another type or shape."""
        if not (self.path / name).is_file():  # opening a pipe might never end
            raise FileNotFoundError(f"{name} is missing or not a file")
        with as_value_error(name, "is not an array"):
            array = np.lib.format.open_memmap(self.path / name, mode="r")
        if (array.dtype, array.shape) != (kind, (self.num_images, *shape)):
            raise ValueError(f"{name} holds {array.dtype} {array.shape}")
        if array.offset + array.nbytes != (size := (self.path / name).stat().st_size):
            raise ValueError(f"{name} has {size} bytes")
        return array

    def read_labels(self) -> np.ndarray:
        if (self.path / VECTORS).exists():
            return np.array(self.array(VECTORS, np.float32, len(self.label_names)))
        labels = np.array(self.array(CLASSES, np.int64))
        if labels.min() < 0 or labels.max() >= len(self.label_names):
            raise ValueError(f"{CLASSES} exceeds the {len(self.label_names)} classes")
        return labels

    def damaged(self, fault: object) -> ValueError:
        return ValueError(
            f"the store {self.path} is damaged ({fault}); delete it and prepare it again"
        )

    def __len__(self) -> int:
        return self.num_images

    def images(self, resolution: int) -> np.memmap:
        """All images at one resolution, uint8 (N, C, r, r), read from disk on access."""
        if resolution not in self._images:
            raise ValueError(
                f"the store {self.path} has no resolution {resolution}; it has "
                f"{', '.join(map(str, self._images))}"
            )
        images = self._images[resolution]
        length = images._mmap.size()  # type: ignore[attr-defined]  # of the file, also a removed one
        if length < images.offset + images.nbytes:  # reading beyond its end would be a SIGBUS
            raise self.damaged(f"{file_name(resolution)} was truncated")
        return images

    def unpremultiplied(self, images: np.ndarray) -> np.ndarray:
        """Rows of `images`, uint8 (..., C, r, r), with colors that are not premultiplied."""
        return unpremultiply(images) if self.meta.premultiplied else images

    def pixel_hash(self, resolution: int) -> str:
        """SHA-256 of the pixels at `resolution`."""
        return self.meta.pixel_hashes[file_name(resolution)]

    def training_hash(self, resolution: int, *, labels: bool) -> str:
        """Hash of all that a run up to `resolution` sees: images and, with `labels`, labels."""
        rows = self.require_labels() if labels else None
        return identity_of(self.identities(resolution), rows, self.label_names)

    def identities(self, resolution: int) -> list[str]:
        """Hashes of the images at each resolution that a run up to `resolution` sees."""
        # the full resolution determines all others; a lower one, rounded, does not
        levels = resolutions(resolution) if resolution < self.resolution else [self.resolution]
        return [self.pixel_hash(r) for r in levels]

    def require_labels(self) -> np.ndarray:
        """The class or vector of every image. Raises ValueError if the store has none."""
        if self.labels is None:
            raise ValueError(f"labels were asked for, but {self.why_no_labels}")
        return self.labels

    @property
    def has_vector_labels(self) -> bool:
        """Whether labels are vectors, not classes."""
        return self.labels is not None and self.labels.ndim == 2

    def one_hot(self, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """Labels as input of the networks, float32 (n, label_dim): classes become one-hot."""
        self.require_labels()
        if np.ndim(labels) == 2:
            return np.asarray(labels, np.float32)
        rows = np.zeros((len(labels), len(self.label_names)), np.float32)
        rows[np.arange(len(labels)), np.asarray(labels, np.int64)] = 1
        return rows

    def sample_labels(self, n: int) -> np.ndarray:
        """Labels to show, float32 (n, label_dim): alternating classes, or evenly spaced vectors."""
        labels = self.require_labels()
        if labels.ndim == 2:
            return self.one_hot(labels[np.arange(n) * self.num_images // n])
        return self.one_hot(np.arange(n) % len(self.label_names))

    def verify(self, console: Console = SILENT) -> None:
        """Hash all files and raise ValueError if one has changed."""
        starts = {file_name(r): images.offset for r, images in self._images.items()}
        done = 0  # bytes, reported as images in proportion
        try:
            paths = {name: self.path / name for name in self.meta.pixel_hashes}
            total = sum(path.stat().st_size - starts.get(name, 0) for name, path in paths.items())
            for name, path in paths.items():
                digest = hashlib.sha256()
                with attach_filename(path), open(path, "rb", buffering=0) as file:
                    file.seek(starts.get(name, 0))  # after the header of an image file
                    while block := file.read(BLOCK):
                        digest.update(block)
                        done += len(block)
                        console.progress("read", done * len(self) // total, len(self))
                if digest.hexdigest() != self.meta.pixel_hashes[name]:
                    raise ValueError(f"{name} has changed")
        except (FileNotFoundError, ValueError) as error:
            raise self.damaged(error) from error

    def check_fits(self, preparation: Preparation) -> None:
        """Raise ValueError unless the store was prepared like this, or at a higher resolution."""
        meta = self.meta
        wanted = preparation
        problem = option = ""
        if (wanted.resolution or 0) > meta.resolution:
            problem = f"has resolution {meta.resolution}, but {wanted.resolution} is requested"
        elif wanted.channels != meta.channels:
            problem = f"has {meta.channels} channels, but {wanted.channels} are requested"
            option = f"--channels {MODES[meta.channels]}"
        elif wanted.premultiplied != meta.premultiplied:
            problem = "is premultiplied" if meta.premultiplied else "is not premultiplied"
        elif wanted.fit != Fit.parse(meta.crop):
            problem = f"has crop {meta.crop}, but {wanted.crop} is requested"
            option = command_line("-o", f'data.crop="{meta.crop}"')
        elif wanted.include:
            folders = ", ".join(wanted.include)
            problem = f"is prepared; sub-folders ({folders}) must be chosen before"
        if problem:
            ways = f"train with {option}, or " if option else ""
            raise ValueError(f"the store {self.path} {problem}; {ways}prepare the images again")
