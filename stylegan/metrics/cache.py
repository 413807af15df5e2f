"""Arrays that can be made again, kept by everything that defines them; and big ones on the disk."""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from torch import Tensor

from stylegan import distributed
from stylegan.atomic import replacing
from stylegan.distributed import from_rank0, on_all_ranks
from stylegan.metrics.subject import share_of

BYTES_AT_ONCE = 2**24  # that are hashed, written, or travel between processes


class Entry(NamedTuple):
    """One array of a cache: plain numbers, and after them their SHA-256."""

    path: Path
    kind: str  # `<f4`, `<f8`
    shape: tuple[int, ...]

    def read(self, tell: Callable[[str], None]) -> np.ndarray | None:
        """The array, in pages of the file; None, and a call of `tell`, if it is damaged."""
        if not self.path.is_file():
            return None
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            left = math.prod(self.shape) * np.dtype(self.kind).itemsize
            while left > 0 and (some := file.read(min(left, BYTES_AT_ONCE))):
                digest.update(some)
                left -= len(some)
            sound = left == 0 and file.read() == digest.digest()
        if not sound:
            tell(f"{self.path} is damaged and made again")
            return None
        return np.memmap(self.path, self.kind, "c", shape=self.shape)

    def write(self, array: np.ndarray) -> None:
        """Atomically. OSError if there is no room."""
        rows = np.ascontiguousarray(array, self.kind).reshape(-1).view(np.uint8)
        digest = hashlib.sha256()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as file:
            for start in range(0, len(rows), BYTES_AT_ONCE):
                some = rows[start : start + BYTES_AT_ONCE].tobytes()
                digest.update(some)
                file.write(some)
            file.write(digest.digest())

    def keep(self, array: np.ndarray, tell: Callable[[str], None]) -> None:
        """Write it, if there is room."""
        try:
            self.write(array)
        except OSError as error:
            tell(f"{self.path.name} could not be kept ({error}); going on")


def entry(
    folder: Path, name: str, about: Mapping[str, Any], kind: str, shape: tuple[int, ...]
) -> Entry:
    """The place of an array that `name` and `about` (JSON) define."""
    defined = json.dumps([name, about, kind, shape], sort_keys=True)
    key = hashlib.sha256(defined.encode()).hexdigest()[:24]
    return Entry(folder / f"{name}-{key}.bin", kind, shape)


Arrays = dict[str, np.ndarray | None]


def cached(
    entries: Mapping[str, Entry], make: Callable[[set[str]], Arrays], tell: Callable[[str], None]
) -> Arrays:
    """Arrays by name in the first process, None in others: read there, or else made by all."""
    found: Arrays = dict.fromkeys(entries)

    def read() -> set[str]:
        found.update({name: place.read(tell) for name, place in entries.items()})
        return {name for name, array in found.items() if array is None}

    missing = from_rank0(read)
    made = make(missing) if missing else {}
    for name, array in made.items():
        if array is not None:
            entries[name].keep(array, tell)
    return found | made


class Rows:
    """Rows of numbers of all images in their order. They wait in a file, not in memory."""

    def __init__(self, images: int, dim: int, folder: Path) -> None:
        self.images, self.dim, self.folder = images, dim, folder

    @cached_property
    def file(self) -> IO[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self.folder)

    def add(self, rows: Tensor) -> None:
        """rows (n, dim), of the next images of this process's part."""
        self.file.write(rows.detach().cpu().numpy().astype("<f4").tobytes())
        self.file.flush()  # a full disk is an error here

    def gathered(self) -> np.ndarray | None:
        """float32 (images, dim) in pages of a file, in the first process; None in others."""
        with self.file:
            shape = (self.images, self.dim)
            if distributed.world_size() == 1:
                return np.memmap(self.file, "<f4", "r+", shape=shape)
            return self.merged(shape)

    def merged(self, shape: tuple[int, int]) -> np.ndarray | None:
        """`gathered` of several processes."""
        whole: np.ndarray | None = None

        def make() -> None:
            nonlocal whole
            if distributed.rank() == 0:
                whole = self.blank(shape)

        on_all_ranks(make, at_once=True)
        parts = [share_of(self.images, rank) for rank in range(distributed.world_size())]
        self.file.seek(0)
        rows_at_once = max(1, BYTES_AT_ONCE // (4 * self.dim))
        for done in range(0, max(map(len, parts)), rows_at_once):
            some = np.frombuffer(self.file.read(rows_at_once * self.dim * 4), "<f4")
            for part, rows in zip(parts, distributed.gather(some), strict=True):
                if whole is not None and len(rows):
                    start = part.start + done
                    whole[start : start + len(rows) // self.dim] = rows.reshape(-1, self.dim)
        return whole

    def blank(self, shape: tuple[int, int]) -> np.ndarray:
        """float32 zeros in a file that vanishes with them. OSError if the disk has no room."""
        with tempfile.TemporaryFile(dir=self.folder) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, max(1, 4 * math.prod(shape)))
            return np.memmap(file, "<f4", "w+", shape=shape)
