"""Large arrays on disk: rows collected in unnamed files, and a cache of arrays."""

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from torch import Tensor

from stylegan.metrics.comparison import rank_range
from stylegan.metrics.features import Tools
from stylegan.utils.caches import Kind, entries, evict
from stylegan.utils.distributed import all_gather, rank, run_on_all_ranks, run_on_rank0, world_size
from stylegan.utils.filesystem import ALLOW_OVERWRITE

CHUNK_BYTES = 2**24  # sent between processes
MAX_BYTES = 2**33  # of the cache; beyond that, the least recently used arrays are deleted
HASHED = b"content is hashed: "  # prefix of the keys of files that end with a hash
HASH_BYTES = 32
FEATURES = Kind(
    re.compile(r"[a-z]+-features-[0-9a-f]{24}\.npy"),
    lambda _: ("", "", "features of metrics"),
    partial(Path.unlink, missing_ok=True),
)


def cached(
    tools: Tools, name: str, key_parts: Mapping[str, object], make: Callable[[], np.ndarray | None]
) -> np.ndarray | None:
    """The array of `name` and `key_parts` (JSON) in rank 0, None in the others: read from
    `tools.cache`, or made by all processes and saved there with a hash of key and content."""
    key = json.dumps(key_parts, sort_keys=True).encode()
    old, path = (
        tools.cache / f"{name}-{hashlib.sha256(prefix + key).hexdigest()[:24]}.npy"
        for prefix in (b"", HASHED)
    )
    array: np.ndarray | None = None

    def read() -> bool:
        nonlocal array
        for file in filter(Path.is_file, (path, old)):
            with contextlib.suppress(OSError, ValueError):
                found = np.lib.format.open_memmap(file, mode="c")  # fails if cut short
                if file == path:
                    kept = np.memmap(file, mode="r")[-HASH_BYTES:].tobytes()
                    sound = kept == hash_of(key, found)
                else:  # of an earlier version
                    tools.console.info(f"{file} has no hash yet: its content is not checked")
                    sound = found.dtype == np.float32 and found.ndim == 2
                    sound = sound and len(found) == key_parts["number"]
                if sound:
                    array = found
                    with contextlib.suppress(OSError):  # the cache of another user
                        os.utime(file)  # the time of the last use
                    return True
            tools.console.info(f"{file} is damaged and made again")
        return False

    if run_on_rank0(read):
        return array
    array = make()
    if array is not None:
        try:
            with ALLOW_OVERWRITE.file(path) as file:
                np.save(file, array)
                file.write(hash_of(key, array))
            evict(entries(tools.cache, FEATURES), MAX_BYTES, keep=path)
        except OSError as error:
            tools.console.info(f"{path.name} could not be kept ({error}); going on")
    return array


def hash_of(key: bytes, array: np.ndarray) -> bytes:
    digest = hashlib.sha256(repr((key, array.dtype.str, array.shape)).encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def gathered_rows(
    batches: Iterable[Sequence[Tensor]], widths: Sequence[int], images: int, folder: Path
) -> list[np.ndarray | None]:
    """Gather a table, float32 (images, width), for each of `widths` in rank 0; None in the others.

    `batches` yields the next rows (n, width) of each table for this process's part of the images.
    Rows are written to unnamed files in `folder`, which are memory-mapped in the end.
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
                    for _ in range(0, 4 * width * len(rank_range(images, owner)), CHUNK_BYTES):
                        block = part.read(CHUNK_BYTES) if rank() == owner else b""
                        run_on_rank0(partial(append, whole, all_gather(block)[owner]))
            part = whole
        with part:  # the mapping keeps the file
            return None if rank() else np.memmap(part, "<f4", "r+", shape=(images, width))

    parts = run_on_all_ranks(collect, concurrent=True)
    return [joined(part, width) for part, width in zip(parts, widths, strict=True)]


def unnamed_file(folder: Path) -> IO[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=folder)


def append(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.flush()  # a full disk is an error here
