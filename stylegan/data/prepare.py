"""From a source to a store: decode, fit into a square, average down, write."""

import contextlib
import functools
import hashlib
import os
import secrets
import shutil
import struct
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, TypeVar, get_args

import numpy as np

from stylegan.messages import readable
from stylegan.schedule import MAX_RESOLUTION, MIN_RESOLUTION, check_resolution, resolutions

from .images import (
    MODES,
    Crop,
    active_rows,
    decode,
    fit_square,
    native_size,
    quiet_decoding,
    to_array,
)
from .sources import Source, label_of, open_source
from .store import (
    Rectangle,
    Skipped,
    Store,
    StoreMeta,
    file_name,
    is_store,
)

Progress = Callable[[int, int], None]  # images done, images in all
ABANDONED_SECONDS = 3600  # an unfinished store that nobody wrote to for so long was interrupted
NPY_HEADER_BYTES = 128
NAMED_AT_MOST = 5  # skipped images in one message
Item = TypeVar("Item")
Result = TypeVar("Result")


def prepare(
    source: str | Path | Source,
    out: str | Path,
    *,
    resolution: int | None = None,
    crop: Crop = "center",
    channels: int = 3,
    include: Sequence[str] = (),
    strict: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Store:
    """Make a store of all images of a folder or zip, in the order of their names.

    Without a resolution, the largest power of two (at most 1024) that the first readable image
    offers; its shorter side decides, with `pad` the width of its 4:3 part. Images that cannot be
    read or are smaller than the resolution are left out and listed in the store; `strict` refuses
    them. Labels are stored if every image lies in a sub-folder. `out` appears only when complete.
    """
    out = Path(out)
    validate_settings(resolution, crop, channels)
    _require_free_path(out)
    if not isinstance(source, Source):
        source = open_source(source, include=include)
    fingerprint = source.fingerprint()  # now: whoever changes a file meanwhile gets a new store
    with quiet_decoding():
        resolution = resolution or offered_resolution(source, crop)
        out.parent.mkdir(parents=True, exist_ok=True)
        require_space(out.parent, len(source.names), resolution, channels)
        with _unfinished(out) as folder:
            load = functools.partial(_load, source, resolution, crop, channels)
            loaded = ordered_map(load, source.names, workers or default_workers())
            with contextlib.closing(loaded), StoreWriter(folder, resolution, channels) as writer:
                for done, (name, levels) in enumerate(zip(source.names, loaded, strict=True), 1):
                    if isinstance(levels, Skipped):
                        writer.skipped.append(levels)
                    else:
                        writer.add(name, levels)
                    if progress is not None:
                        progress(done, len(source.names))
                _judge(source, writer, strict)
                writer.finish(source, fingerprint, crop)
            if out.is_dir():
                out.rmdir()  # it is empty, or another process was faster: then this fails
            folder.rename(out)
    return Store(out)


def validate_settings(resolution: int | None, crop: str, channels: int) -> None:
    """ValueError for a store that cannot be."""
    if resolution is not None:
        check_resolution(resolution)
    if crop not in get_args(Crop):
        raise ValueError(f"crop must be {' or '.join(get_args(Crop))}, not {crop!r}")
    if channels not in MODES:
        raise ValueError(f"images have 1, 3 or 4 channels, not {channels}")


def offered_resolution(source: Source, crop: Crop) -> int:
    """The largest power of two, up to 1024, that the first readable image fills."""
    reason = ""
    for name in source.names:
        try:
            image = decode(source.read(name), name=name)
        except (OSError, ValueError) as error:
            reason = reason or str(error)
            continue
        size = min(native_size(image.width, image.height, crop), MAX_RESOLUTION)
        if size < MIN_RESOLUTION:
            raise ValueError(
                f"{readable(name)} has {image.width}x{image.height} pixels; "
                f"the smallest resolution is {MIN_RESOLUTION}"
            )
        return 1 << (size.bit_length() - 1)
    raise ValueError(
        f"no image under {source.path} can be read; the first problem: {readable(reason)}"
    )


def pyramid(image: np.ndarray) -> dict[int, np.ndarray]:
    """An image (..., r, r) at all sizes from 4 to r, averaged 2x2 as officially.

    The averages are not rounded from one level to the next, only where a level is stored: to
    nearest, ties to even. float32 holds these sums of 8-bit values exactly.
    """
    level = image.astype(np.float32)
    levels = {image.shape[-1]: image}
    while level.shape[-1] > MIN_RESOLUTION:
        level = level[..., 0::2, :] + level[..., 1::2, :]
        level = (level[..., 0::2] + level[..., 1::2]) * np.float32(0.25)
        levels[level.shape[-1]] = np.rint(level).clip(0, 255).astype(np.uint8)
    return levels


def store_bytes(num_images: int, resolution: int, channels: int) -> int:
    """Disk space that a store takes, nearly."""
    pixels = sum(r * r for r in resolutions(resolution))
    return num_images * (pixels * channels + 128) + 65536  # with names, label and meta


def require_space(folder: Path, num_images: int, resolution: int, channels: int) -> None:
    """OSError if the store would not fit on the disk of this folder."""
    needed = store_bytes(num_images, resolution, channels)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"no disk space: {num_images} images at {resolution}x{resolution} need "
            f"{needed / 2**20:,.1f} MiB in {folder}, {free / 2**20:,.1f} MiB are free; "
            "free some, choose another folder or a smaller resolution"
        )


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """Like `map`, on several threads with a bounded number of results waiting.

    Threads are enough: Pillow's decoders and NumPy release the interpreter lock.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def reason_of(name: str, error: Exception) -> str:
    """What is wrong with an image, without its name."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).removeprefix(f"{name}: ") or type(error).__name__


def reasons_of(skipped: Sequence[Skipped]) -> str:
    """Names and reasons for a message, the first few of them."""
    reasons = [readable(f"{name} ({reason})") for name, reason in skipped[:NAMED_AT_MOST]]
    if more := len(skipped) - len(reasons):
        reasons.append(f"and {more} more")
    return "; ".join(reasons)


def default_workers() -> int:
    """Threads that decode."""
    return min(os.cpu_count() or 1, 16)


def too_small(width: int, height: int, crop: Crop, resolution: int) -> str | None:
    """The reason to leave an image of this size out, if there is one."""
    if native_size(width, height, crop) >= resolution:
        return None
    return f"image smaller than the resolution {resolution}: {width}x{height}"


def _load(
    source: Source, resolution: int, crop: Crop, channels: int, name: str
) -> dict[int, np.ndarray] | Skipped:
    if "\n" in name:  # names.txt has one name per line
        return Skipped(name, "line break in the file name")
    try:
        image = decode(source.read(name), channels=channels, name=name)
    except (OSError, ValueError) as error:
        return Skipped(name, reason_of(name, error))
    if reason := too_small(image.width, image.height, crop, resolution):
        return Skipped(name, reason)
    return pyramid(to_array(fit_square(image, resolution, crop)))


def _judge(source: Source, writer: "StoreWriter", strict: bool) -> None:
    """Refuse a store without images, or with `strict` one that lacks some."""
    skipped = writer.skipped
    if not skipped or (writer.names and not strict):
        return
    reasons = reasons_of(skipped)
    if writer.names:
        raise ValueError(
            f"{len(skipped)} of {len(source.names)} images under {source.path} cannot be used, "
            f"and strict allows none: {reasons}"
        )
    if all(reason.startswith("image smaller") for _, reason in skipped):
        reasons += "; choose a smaller resolution"
    raise ValueError(f"none of the {len(skipped)} images under {source.path} is usable: {reasons}")


class StoreWriter:
    """The files of a store while it grows image by image, in constant memory."""

    def __init__(self, folder: Path, resolution: int, channels: int) -> None:
        self.folder = folder
        self.resolution = resolution
        self.channels = channels
        self.names: list[str] = []
        self.skipped: list[Skipped] = []
        self._files: dict[int, BinaryIO] = {}
        self._digests = {r: hashlib.sha256() for r in resolutions(resolution)}

    def __enter__(self) -> "StoreWriter":
        for r in self._digests:
            self._files[r] = open(self.folder / file_name(r), "wb")
            self._files[r].write(bytes(NPY_HEADER_BYTES))  # filled in when the number is known
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files.values():
            file.close()

    def add(self, name: str, levels: dict[int, np.ndarray]) -> None:
        """Append one image, uint8 (C, r, r) at every resolution."""
        for r, file in self._files.items():
            pixels = levels[r].tobytes()
            file.write(pixels)
            self._digests[r].update(pixels)
        self.names.append(name)

    def finish(self, source: Source, fingerprint: str, crop: Crop) -> None:
        """Write all but the pixels; the folder is a store when this returns."""
        for r, file in self._files.items():
            file.seek(0)
            file.write(npy_header((len(self.names), self.channels, r, r)))
            file.flush()
            os.fsync(file.fileno())
        text = "".join(f"{name}\n" for name in self.names)
        (self.folder / "names.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
        labels = [label for name in self.names if (label := label_of(name)) is not None]
        label_names = sorted(set(labels)) if len(labels) == len(self.names) else []
        if label_names:
            classes = {label: i for i, label in enumerate(label_names)}
            np.save(self.folder / "labels.npy", np.array([classes[x] for x in labels], np.int64))
        top, bottom = active_rows(self.resolution, crop)
        whole = bottom - top == self.resolution
        StoreMeta(
            source=source.path.name,
            fingerprint=fingerprint,
            num_images=len(self.names),
            resolution=self.resolution,
            channels=self.channels,
            crop=crop,
            active_rectangle=None if whole else Rectangle(top, bottom, 0, self.resolution),
            label_names=label_names,
            skipped=self.skipped,
            num_ignored=len(source.ignored),
            pixel_hashes={file_name(r): d.hexdigest() for r, d in self._digests.items()},
        ).write(self.folder / "meta.json")


def npy_header(shape: tuple[int, ...]) -> bytes:
    """The first bytes of a .npy file of uint8, always `NPY_HEADER_BYTES` long."""
    text = repr({"descr": "|u1", "fortran_order": False, "shape": shape})
    text = text.ljust(NPY_HEADER_BYTES - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1")


def _require_free_path(out: Path) -> None:
    if is_store(out):
        raise FileExistsError(f"{out} is a store already; delete it or choose another path")
    if out.is_dir() and any(out.iterdir()):
        raise FileExistsError(f"the folder {out} is not empty; choose another path for the store")
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; choose another path for the store")


@contextlib.contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` to write into; whatever still bears its name goes at the end."""
    prefix = f".{out.name}.unfinished-"
    for old in [path for path in out.parent.iterdir() if path.name.startswith(prefix)]:
        with contextlib.suppress(FileNotFoundError):  # its writer has just finished
            newest = max(path.stat().st_mtime for path in (old, *old.iterdir()))
            if time.time() - newest > ABANDONED_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
    folder = out.parent / f"{prefix}{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
