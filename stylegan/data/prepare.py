"""From a source to a store: decode, fit into a square, average down, write."""

import contextlib
import hashlib
import os
import secrets
import shutil
import struct
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar, get_args

import numpy as np
from PIL import Image

from stylegan.messages import readable
from stylegan.schedule import MAX_RESOLUTION, MIN_RESOLUTION, check_resolution, resolutions

from .images import (
    MODES,
    Crop,
    active_rows,
    decode,
    fit_square,
    native_size,
    planes,
    quiet_decoding,
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
PART_BYTES = 2**20  # of pixels that a thread handles at once: few enough for its cache
PART_IMAGES = 16
PARTS_WAITING = 8  # to be written; beyond that, whoever brings another waits
WIDER: dict[type, type] = {np.uint8: np.uint16, np.uint16: np.uint32, np.uint32: np.uint64}
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
            with StoreWriter(folder, resolution, channels) as writer:
                _fill(writer, source, crop, workers or default_workers(), progress)
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
    """An image uint8 (..., r, r) at all sizes from 4 to r, averaged 2x2 as officially.

    The averages are not rounded from one level to the next, only where a level is stored: to
    nearest, ties to even. So sums are carried, in 16 bits while these hold them.
    """
    levels = {image.shape[-1]: image}
    sums, halvings = np.ascontiguousarray(image), 0
    while sums.shape[-1] > MIN_RESOLUTION:
        sums, halvings = _block_sums(sums), halvings + 1
        largest = 255 * 4**halvings
        sums = sums.astype(np.uint16 if largest < 2**16 else np.uint32, copy=False)
        levels[sums.shape[-1]] = _rounded_shift(sums, 2 * halvings)
    return levels


def _block_sums(values: np.ndarray) -> np.ndarray:
    """Sums of 2x2 blocks, in the next wider type.

    Neighbours in a row are taken as one number of twice the bits, whose halves are added: so all
    memory is read in order, which is several times faster than every other element.
    """
    wide, bits = WIDER[values.dtype.type], 8 * values.itemsize
    pairs: np.ndarray = values.view(wide)
    sums = pairs >> wide(bits)
    sums += pairs & wide(2**bits - 1)
    return sums[..., 0::2, :] + sums[..., 1::2, :]


def _rounded_shift(sums: np.ndarray, bits: int) -> np.ndarray:
    """sums / 2**bits to nearest, ties to even, as uint8."""
    kind = sums.dtype.type
    rounded = sums >> kind(bits)
    rounded &= kind(1)
    rounded += sums
    rounded += kind(2 ** (bits - 1) - 1)
    rounded >>= kind(bits)
    return rounded.astype(np.uint8)


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


class Part(NamedTuple):
    """Consecutive images of a source, looked at."""

    names: list[str]  # of the good ones
    skipped: list[Skipped]


def _fill(
    writer: "StoreWriter", source: Source, crop: Crop, workers: int, progress: Progress | None
) -> None:
    """All images of the source; the threads do everything from reading to writing."""
    image_bytes = writer.channels * writer.resolution**2
    size = min(max(PART_BYTES // image_bytes, 1), PART_IMAGES)
    total = len(source.names)

    def handle(start: int) -> Part:
        names = source.names[start : start + size]
        part, pixels = _load(source, writer.resolution, crop, writer.channels, names)
        writer.write(start // size, pyramid(pixels))
        return part

    with contextlib.closing(ordered_map(handle, range(0, total, size), workers)) as parts:
        done = 0
        for part in parts:
            writer.enter(part)
            for _ in range(len(part.names) + len(part.skipped)):
                done += 1
                if progress is not None:
                    progress(done, total)


def _load(
    source: Source, resolution: int, crop: Crop, channels: int, names: list[str]
) -> tuple[Part, np.ndarray]:
    """Images that were asked for, and the pixels of the good ones, uint8 (n, C, r, r)."""
    part = Part([], [])
    pixels = np.empty((len(names), channels, resolution, resolution), np.uint8)
    for name in names:
        try:
            image = _open_fitting(source, resolution, crop, channels, name)
        except (OSError, ValueError) as error:
            part.skipped.append(Skipped(name, reason_of(name, error)))
        else:
            pixels[len(part.names)] = planes(fit_square(image, resolution, crop))
            part.names.append(name)
    return part, pixels[: len(part.names)]


def _open_fitting(
    source: Source, resolution: int, crop: Crop, channels: int, name: str
) -> Image.Image:
    """The decoded image; OSError or ValueError with the reason to leave it out."""
    if "\n" in name:  # names.txt has one name per line
        raise ValueError("line break in the file name")
    image = decode(source.read(name), channels=channels, name=name)
    if reason := too_small(image.width, image.height, crop, resolution):
        raise ValueError(reason)
    return image


def _judge(source: Source, writer: "StoreWriter", strict: bool) -> None:
    """Refuse a store without images, or with `strict` one that lacks some."""
    skipped = writer.skipped
    if not skipped or (writer.num_images and not strict):
        return
    reasons = reasons_of(skipped)
    if writer.num_images:
        raise ValueError(
            f"{len(skipped)} of {len(source.names)} images under {source.path} cannot be used, "
            f"and strict allows none: {reasons}"
        )
    if all(reason.startswith("image smaller") for _, reason in skipped):
        reasons += "; choose a smaller resolution"
    raise ValueError(f"none of the {len(skipped)} images under {source.path} is usable: {reasons}")


class LevelFile:
    """The pixels of all images at one resolution: written in order, hashed on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self._file = file
        self._file.write(bytes(NPY_HEADER_BYTES))  # filled in when the number is known
        self._waiting: dict[int, np.ndarray] = {}
        self._next = 0
        self._writing = threading.Lock()

    def write(self, number: int, pixels: np.ndarray) -> None:
        """Take part `number`, which may come before its turn.

        One thread at a time writes all whose turn it is; others leave theirs and go on, unless it
        falls behind.
        """
        self._waiting[number] = pixels
        if self._writing.acquire(blocking=len(self._waiting) > PARTS_WAITING):
            try:
                self._write_waiting()
            finally:
                self._writing.release()

    def _write_waiting(self) -> None:
        while (pixels := self._waiting.pop(self._next, None)) is not None:
            self._file.write(pixels.data)
            self.digest.update(pixels.data)
            self._next += 1

    def finish(self, shape: tuple[int, ...]) -> None:
        """Write the header, and all to the disk; the other threads have ended."""
        self._write_waiting()
        self._file.seek(0)
        self._file.write(npy_header(shape))
        self._file.flush()
        os.fsync(self._file.fileno())


class StoreWriter:
    """The files of a store while it grows part by part, with a few bytes per image in memory."""

    def __init__(self, folder: Path, resolution: int, channels: int) -> None:
        self.folder = folder
        self.resolution = resolution
        self.channels = channels
        self.num_images = 0
        self.skipped: list[Skipped] = []
        self._files = contextlib.ExitStack()
        self._classes: dict[str | None, int] = {}  # in the order of their appearance
        self._labels = array("i")

    def __enter__(self) -> "StoreWriter":
        self._names = self._open("names.txt")
        self._levels = {
            r: LevelFile(self._open(file_name(r))) for r in resolutions(self.resolution)
        }
        return self

    def __exit__(self, *exception: object) -> None:
        self._files.close()

    def _open(self, name: str) -> BinaryIO:
        return self._files.enter_context(open(self.folder / name, "wb"))

    def write(self, number: int, levels: dict[int, np.ndarray]) -> None:
        """The pixels of part `number`, uint8 (n, C, r, r) at every resolution; from any thread."""
        for r, pixels in levels.items():
            self._levels[r].write(number, pixels)

    def enter(self, part: Part) -> None:
        """What is known of a part but its pixels; in order."""
        self.num_images += len(part.names)
        self.skipped += part.skipped
        for name in part.names:
            self._names.write(f"{name}\n".encode("utf-8", "surrogateescape"))
            self._labels.append(self._classes.setdefault(label_of(name), len(self._classes)))

    def finish(self, source: Source, fingerprint: str, crop: Crop) -> None:
        """Write all but the pixels; the folder is a store when this returns."""
        for r, level in self._levels.items():
            level.finish((self.num_images, self.channels, r, r))
        self._names.flush()
        found = [label for label in self._classes if label is not None]
        label_names = sorted(found) if len(found) == len(self._classes) else []
        if label_names:
            classes = np.array([label_names.index(label) for label in found], np.int64)
            np.save(self.folder / "labels.npy", classes[np.frombuffer(self._labels, np.intc)])
        top, bottom = active_rows(self.resolution, crop)
        whole = bottom - top == self.resolution
        StoreMeta(
            source=source.path.name,
            fingerprint=fingerprint,
            num_images=self.num_images,
            resolution=self.resolution,
            channels=self.channels,
            crop=crop,
            active_rectangle=None if whole else Rectangle(top, bottom, 0, self.resolution),
            label_names=label_names,
            skipped=self.skipped,
            num_ignored=len(source.ignored),
            pixel_hashes={file_name(r): x.digest.hexdigest() for r, x in self._levels.items()},
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
