"""Large arrays on the disk: rows that wait in files, and arrays that are kept for the next time."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor

from stylegan.disk import atomic_file
from stylegan.distributed import from_rank0, gather, on_all_ranks, rank, world_size
from stylegan.metrics.features import Tools
from stylegan.metrics.sources import share_of

BYTES_AT_ONCE = 2**24  # sent between processes


def cached(
    tools: Tools, name: str, about: Mapping[str, Any], make: Callable[[], np.ndarray | None]
) -> np.ndarray | None:
    """The array that `name` and `about` (JSON) define, in rank 0; None in the others: read from
    `tools.cache`, or else made by all processes and kept there."""
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]
    path, array = tools.cache / f"{name}-{key}.npy", None

    def read() -> bool:
        nonlocal array
        if path.is_file():
            try:
                array = np.load(path, mmap_mode="c")
            except (ValueError, EOFError):
                tools.tell(f"{path} is damaged and made again")
        return array is not None

    if from_rank0(read):
        return array
    array = make()
    if array is not None:
        try:
            tools.cache.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as file:
                np.save(file, array)
        except OSError as error:
            tools.tell(f"{path.name} could not be kept ({error}); going on")
    return array


def gathered_rows(
    batches: Iterable[Sequence[Tensor]], widths: Sequence[int], images: int, folder: Path
) -> list[np.ndarray | None]:
    """Tables of numbers, float32 (images, width), a row per image, in rank 0; None in the others.

    `batches` gives the rows (n, width) of the next images of this process's part, for each table.
    They wait in files without a name in `folder`, from which the tables are mapped.
    """

    def collect() -> list[IO[bytes]]:
        files = [unnamed_file(folder) for _ in widths]
        for tables in batches:
            for file, rows in zip(files, tables, strict=True):
                append(file, rows.detach().cpu().numpy().astype("<f4").tobytes())
        return files

    def joined(part: IO[bytes], width: int) -> np.ndarray | None:
        if world_size() > 1:
            with part:
                whole = unnamed_file(folder)
                part.seek(0)
                for owner in range(world_size()):
                    for _ in range(0, 4 * width * len(share_of(images, owner)), BYTES_AT_ONCE):
                        own = part.read(BYTES_AT_ONCE) if rank() == owner else b""
                        from_rank0(partial(append, whole, gather(own)[owner]))
            part = whole
        with part:  # the mapping keeps what is in it
            return None if rank() else np.memmap(part, "<f4", "r+", shape=(images, width))

    parts = on_all_ranks(collect, at_once=True)
    return [joined(part, width) for part, width in zip(parts, widths, strict=True)]


def unnamed_file(folder: Path) -> IO[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=folder)


def append(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.flush()  # a full disk is an error here
