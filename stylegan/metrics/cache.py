"""Large arrays on the disk: rows that wait in files, and arrays that are kept for the next time."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor

from stylegan import distributed
from stylegan.disk import atomic_file
from stylegan.distributed import from_rank0
from stylegan.metrics.sources import share_of

BYTES_AT_ONCE = 2**24  # sent between processes


def cached(
    folder: Path,
    name: str,
    about: Mapping[str, Any],
    make: Callable[[], np.ndarray | None],
    tell: Callable[[str], None],
) -> np.ndarray | None:
    """The array that `name` and `about` (JSON) define, in rank 0; None in the others.

    It is read from `folder`, or else made by all processes and kept there.
    """
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]
    path, kept = folder / f"{name}-{key}.npy", None

    def read() -> bool:
        nonlocal kept
        if path.is_file():
            try:
                kept = np.load(path, mmap_mode="c")
            except (ValueError, EOFError):
                tell(f"{path} is damaged and made again")
        return kept is not None

    if from_rank0(read):
        return kept
    made = make()
    if made is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as file:
                np.save(file, made)
        except OSError as error:
            tell(f"{path.name} could not be kept ({error}); going on")
    return made


class Rows:
    """Rows of numbers, one per image, that wait in a file instead of in memory."""

    def __init__(self, images: int, dim: int, folder: Path) -> None:
        self.images, self.dim, self.folder = images, dim, folder

    @cached_property
    def file(self) -> IO[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self.folder)

    def add(self, rows: Tensor) -> None:
        """Append rows (n, dim) of the next images of this process's part."""
        self.write(rows.detach().cpu().numpy().astype("<f4").tobytes())

    def write(self, content: bytes) -> None:
        self.file.write(content)
        self.file.flush()  # a full disk is an error here

    def gathered(self) -> np.ndarray | None:
        """float32 (images, dim), mapped from a file, in rank 0; None in the others."""
        if distributed.world_size() == 1:
            return self.mapped()
        whole = Rows(self.images, self.dim, self.folder)
        with self.file:
            self.file.seek(0)
            for owner in range(distributed.world_size()):
                size = 4 * self.dim * len(share_of(self.images, owner))
                for _ in range(0, size, BYTES_AT_ONCE):
                    own = self.file.read(BYTES_AT_ONCE) if distributed.rank() == owner else b""
                    from_rank0(partial(whole.write, distributed.gather(own)[owner]))
        return whole.mapped() if distributed.rank() == 0 else None

    def mapped(self) -> np.ndarray:
        with self.file:  # the mapping keeps what is in it
            return np.memmap(self.file, "<f4", "r+", shape=(self.images, self.dim))
