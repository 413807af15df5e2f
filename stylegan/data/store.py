"""The store: one plain NumPy file per resolution, memory-mapped, that training reads."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from stylegan.messages import readable
from stylegan.schedule import check_resolution, resolutions

from .images import MODES, Crop, Fit, unpremultiply
from .labels import Labels

FORMAT: Literal["stylegan-store"] = "stylegan-store"
VERSION: Literal[1] = 1
META = "meta.json"
CLASSES, VECTORS = "labels.npy", "label_vectors.npy"  # a store has one of these, or neither
LEVEL = re.compile(r"\d{4}\.npy")
ORIGIN = "origin.json"  # only in the cache: what the store is of, and by its time the last use
FILES = {META, CLASSES, VECTORS, "names.txt", ORIGIN}  # of a store, beside its levels
NO_LABELS = (
    "the images of {} do not all lie in sub-folders; put each kind into its own, or train without "
    "labels"
)
HASHED_AT_ONCE = 2**24  # bytes
NPY_MAGIC = b"\x93NUMPY\x01\x00"
NPY_START = struct.Struct("<8sH")  # and the length of the header that follows


class Skipped(NamedTuple):
    """An image that was left out."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class StoreMeta:
    """Everything about a store but its pixels; `meta.json`."""

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}
    source: str  # name of the folder or zip
    fingerprint: str  # of its files
    num_images: int
    resolution: int
    channels: int
    crop: Crop
    # rows from top to bottom, columns from left to right, ends excluded; None: the whole square
    active_rectangle: tuple[int, int, int, int] | None
    label_names: list[str]  # of classes, or of the numbers of vectors; empty: no labels
    skipped: list[Skipped]
    num_ignored: int  # files that were no images
    pixel_hashes: dict[str, str]  # file name -> SHA-256 of its pixels
    premultiplied: bool = False  # colours are multiplied by alpha
    filter: str = "lanczos to full resolution, then 2x2 box averages"
    format: Literal["stylegan-store"] = FORMAT
    version: Literal[1] = VERSION

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        if self.num_images < 1 or self.channels not in MODES:
            raise ValueError(f"no store has {self.num_images} images of {self.channels} channels")
        if self.crop.startswith("tiles "):  # made before: squares that are images like others
            object.__setattr__(self, "crop", "center")
        Fit.of(self.crop)
        if self.active_rectangle is not None:
            top, bottom, left, right = self.active_rectangle
            if not (0 <= top < bottom <= self.resolution and 0 <= left < right <= self.resolution):
                raise ValueError(
                    f"the active rectangle {self.active_rectangle} is not in the image"
                )
        for resolution in resolutions(self.resolution):
            if file_name(resolution) not in self.pixel_hashes:
                raise ValueError(f"the hash of {file_name(resolution)} is missing")

    def write(self, path: Path) -> None:
        """As JSON, which says `premultiplied` only if it is: older versions do not know it."""
        said = dataclasses.asdict(self)
        said |= {} if said.pop("premultiplied") is False else {"premultiplied": True}
        path.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "StoreMeta":
        """From JSON; ValueError if it is not of this format, OtherVersion if of one to come."""
        from pydantic import TypeAdapter, ValidationError

        content = path.read_bytes()
        if (version := version_in(content)) not in (None, VERSION):
            raise OtherVersion(f"is of version {version!r:.20}, and this program reads {VERSION}")
        try:
            return TypeAdapter(cls).validate_json(content)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"]) or "meta.json"
            raise ValueError(f"{where!r:.100}: {fault['msg']}") from error


class OtherVersion(ValueError):
    """A store that another version of this program has written."""


def version_in(meta: bytes) -> object:
    """The version that `meta.json` states; None if it does not state one."""
    try:
        return json.loads(meta)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def in_utf8(name: str) -> str:
    """A file name as text that every file can hold: bytes that are not UTF-8 as `\\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def file_name(resolution: int) -> str:
    """`0064.npy`"""
    return f"{resolution:04d}.npy"


def holds_store(names: Collection[str]) -> bool:
    """Whether the files of a folder, by their names, are those of a store, sound or not."""
    return META in names and any(map(LEVEL.fullmatch, names))


def is_store(path: str | Path) -> bool:
    """Whether the folder is a store, sound or not."""
    return (Path(path) / META).is_file() and holds_store(os.listdir(path))


def remove_files(folder: Path) -> None:
    """Remove the files of a store: nothing that has another name, and no link. The folder goes too
    unless something is left in it."""
    for file in folder.iterdir():
        known = file.name in FILES or LEVEL.fullmatch(file.name)
        if known and not file.is_symlink() and file.is_file():
            file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


class Store:
    """A prepared data set. Opening one checks that its files are complete.

    The files: `0004.npy` ... up to the full resolution, uint8 (N, C, r, r); `labels.npy`, int64
    (N,), where every image has a class, or `label_vectors.npy`, float32 (N, numbers), where every
    image has numbers; `names.txt`; `meta.json`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = self.origin = Path(path)  # `origin`: what the user named, if prepared from it
        if not is_store(self.path):
            raise FileNotFoundError(
                f"there is no store at {readable(path)}; make one with stylegan prepare"
            )
        try:
            meta = StoreMeta.read(self.path / META)
            self.meta = meta
            self.num_images, self.channels = meta.num_images, meta.channels
            self.resolution = meta.resolution  # the largest
            self.active_rectangle = meta.active_rectangle
            self.label_names = meta.label_names  # empty without labels
            self.skipped = meta.skipped  # images of the source that could not be used
            self._images = {r: self.map(r) for r in resolutions(meta.resolution)}
            self.labels = self.read_labels()
            self.why_no_labels = NO_LABELS.format(readable(meta.source))
        except OtherVersion as error:
            raise ValueError(
                f"the store {readable(path)} {error}; update it (pip install --upgrade stylegan), "
                "or prepare the images again"
            ) from error
        except (OSError, ValueError) as error:
            raise self.damaged(str(error)) from error

    def __len__(self) -> int:
        return self.num_images

    @functools.cached_property
    def names(self) -> list[str]:
        """Where each image came from, relative to the source; a line break is written as `\\n`."""
        text = (self.path / "names.txt").read_bytes().decode("utf-8", "surrogateescape")
        names = text.split("\n")[:-1]
        if len(names) != self.num_images:
            raise self.damaged(f"names.txt has {len(names)} lines for {self.num_images} images")
        return names

    def images(self, resolution: int) -> np.memmap:
        """All images at one resolution: uint8 (N, C, r, r), read from disk where touched."""
        if resolution not in self._images:
            known = ", ".join(map(str, self._images))
            raise ValueError(
                f"the store {readable(self.path)} has no resolution {resolution}; it has {known}"
            )
        return self._images[resolution]

    def pictures(self, images: np.ndarray) -> np.ndarray:
        """Rows of `images` uint8 (..., C, r, r) as they look: alpha does not count in colours."""
        return unpremultiply(images) if self.meta.premultiplied else images

    def identity(self, resolution: int) -> str:
        """Names the images at `resolution`: the SHA-256 of their pixels."""
        return self.meta.pixel_hashes[file_name(resolution)]

    def training_identity(self, resolution: int, *, labels: bool) -> str:
        """Names all that a run up to `resolution` sees: the images and, with `labels`, their
        classes and the names of those. Averages of larger images differ from averages of images
        that were rounded at `resolution`, so every level counts unless that is the largest."""
        levels = resolutions(resolution) if resolution < self.resolution else [resolution]
        seen: list[Any] = [self.identity(r) for r in levels]
        if labels:
            seen += [self.require_labels().tolist(), self.label_names]
        return seen[0] if len(seen) == 1 else hashlib.sha256(json.dumps(seen).encode()).hexdigest()

    def one_hot(self, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """Class indices as label vectors: float32 (len(labels), number of classes). Vectors are
        given back as they are.

        Those of some images are `one_hot(labels[images])`.
        """
        self.require_labels()
        if np.ndim(labels) == 2:
            return np.asarray(labels, np.float32)
        rows = np.zeros((len(labels), len(self.label_names)), np.float32)
        rows[np.arange(len(labels)), np.asarray(labels, np.int64)] = 1
        return rows

    def sample_labels(self, n: int) -> np.ndarray:
        """Labels to show what was learned, float32 (n, label_dim): the classes in turn, or the
        vectors of images that are evenly spread over the store."""
        if self.vectors:
            return self.one_hot(self.require_labels()[np.arange(n) * self.num_images // n])
        return self.one_hot(np.arange(n) % max(len(self.label_names), 1))

    @property
    def vectors(self) -> bool:
        """Whether the labels are vectors, not classes."""
        return self.labels is not None and self.labels.ndim == 2

    @property
    def labelled(self) -> Labels | None:
        """The labels with their names."""
        return None if self.labels is None else Labels(self.label_names, self.labels)

    def require_labels(self) -> np.ndarray:
        """The class of every image, or its vector; ValueError if the store has none."""
        if self.labels is None:
            raise ValueError(f"labels are asked for, but {self.why_no_labels}")
        return self.labels

    def verify(self) -> None:
        """Read all pixels and compare them with their hashes."""
        for resolution, images in self._images.items():
            digest = hashlib.sha256()
            step = max(HASHED_AT_ONCE // images[0].nbytes, 1)
            for start in range(0, len(images), step):
                digest.update(images[start : start + step].data)
            name = file_name(resolution)
            if digest.hexdigest() != self.meta.pixel_hashes[name]:
                raise self.damaged(f"{name} has changed")

    def damaged(self, fault: str) -> ValueError:
        return ValueError(
            f"the store {readable(self.path)} is damaged ({readable(fault)}); delete it and "
            "prepare it again"
        )

    def map(self, resolution: int) -> np.memmap:
        shape = (self.num_images, self.channels, resolution, resolution)
        return read_array(self.path / file_name(resolution), "|u1", shape)

    def read_labels(self) -> np.ndarray | None:
        if not self.label_names:
            return None
        if (self.path / VECTORS).exists():
            shape = (self.num_images, len(self.label_names))
            vectors = np.array(read_array(self.path / VECTORS, "<f4", shape))
            if not np.isfinite(vectors).all():
                raise ValueError(f"{VECTORS} has numbers that are not finite")
            return vectors
        labels = np.array(read_array(self.path / CLASSES, "<i8", (self.num_images,)))
        if labels.min() < 0 or labels.max() >= len(self.label_names):
            raise ValueError(f"{CLASSES} goes beyond the {len(self.label_names)} classes")
        return labels


def read_array(path: Path, kind: str, shape: tuple[int, ...]) -> np.memmap:
    """The array of a .npy file, memory-mapped; ValueError unless it is of this kind and shape.

    The header is compared, not parsed: NumPy's own parser does much for whoever wrote the file.
    """
    with open(path, "rb") as file:
        start = file.read(NPY_START.size)
        magic, length = NPY_START.unpack(start.ljust(NPY_START.size))
        found = file.read(length).replace(b" ", b"").replace(b",}", b"}").strip()
        size = file.seek(0, os.SEEK_END)
    expected = repr({"descr": kind, "fortran_order": False, "shape": shape}).replace(" ", "")
    offset = NPY_START.size + length
    if magic != NPY_MAGIC or found != expected.encode():
        raise ValueError(f"{path.name} does not begin as an array {kind} of shape {shape}")
    if size != offset + math.prod(shape) * np.dtype(kind).itemsize:
        raise ValueError(f"{path.name} has {size} bytes, which is not what shape {shape} takes")
    return np.memmap(path, kind, "r", offset, shape)
