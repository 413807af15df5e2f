"""From a source to a store: decode, fit into a square, average down, write."""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from stylegan import locks
from stylegan.atomic import sync_folder
from stylegan.destination import check_folder
from stylegan.messages import count, readable, reason_of
from stylegan.schedule import MAX_RESOLUTION, MIN_RESOLUTION, check_resolution, resolutions

from .images import (
    MODES,
    Crop,
    Fit,
    decode,
    planes,
    premultiplied,
    quiet_decoding,
)
from .sources import Source, open_source, reasons_of
from .store import (
    CLASSES,
    META,
    VECTORS,
    Skipped,
    Store,
    StoreMeta,
    file_name,
    in_utf8,
    remove_files,
)

ProgressCallback = Callable[[int, int], None]  # images done, images in all
PART, ORIGIN = "part.json", "origin.json"  # of a part of a store; of a store in the cache
UNFINISHED = ".unfinished-"  # in the name of a store that is being written
ABANDONED = re.compile(rf"\..+\{UNFINISHED}[0-9a-f]{{8}}")
ABANDONED_SECONDS = 3600  # it was interrupted if nobody wrote to it for so long, without locks
SMALL = "image smaller than the resolution"
Item = TypeVar("Item")
Result = TypeVar("Result")


def prepare(
    source: str | Path | Source,
    out: str | Path,
    *,
    resolution: int | None = None,
    crop: Crop = "center",
    channels: int = 3,
    premultiply: bool = False,
    include: Sequence[str] = (),
    strict: bool = False,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
    parts: int = 0,
) -> Store:
    """Make a store of all images of a folder, zip or database, in the order of their names.

    Without a resolution, the largest power of two (at most 1024) that the first readable image
    offers; its shorter side decides, with `pad` the longer side of its part: `images.Fit` has the
    ways of cropping. `premultiply` stores the colours of images with alpha (4 channels) times their
    alpha, so that averages of them are right. Images that cannot be
    read or are smaller than the resolution are left out and listed in the store; `strict` refuses
    them. Labels are stored if every image has one, of its sub-folder or of a file. `out` appears
    only when complete. With `parts`, pixels come from so many that `prepare_part` has made beside
    it of the same source with the same options; the files are those of doing all at once.
    """
    out = Path(out)
    check_settings(resolution, crop, channels, premultiply)
    check_folder(out, empty=True)
    if not isinstance(source, Source):
        source = open_source(source, include=include)
    fingerprint = source.fingerprint()  # now: whoever changes a file meanwhile gets a new store
    with quiet_decoding():
        resolution = resolution or offered_resolution(source, crop)
        out.parent.mkdir(parents=True, exist_ok=True)
        fit = Fit.of(crop)
        require_space(out.parent, len(source.names) * fit.tiles, resolution, channels)
        size = resolution, channels, premultiply, str(fit)
        with becoming(out) as folder, StoreWriter(folder, *size) as writer:
            writer.skipped.extend(source.unreadable)
            if parts:
                join(writer, [part_folder(out, k, parts) for k in range(1, parts + 1)], fingerprint)
            else:
                fill(writer, source, range(len(source.names)), fit, workers, progress)
            check_skipped(writer.skipped, source, strict)
            writer.finish(source, fingerprint, fit)
    return Store(out)


def prepare_part(
    source: str | Path | Source,
    out: str | Path,
    part: tuple[int, int],
    *,
    resolution: int,
    crop: Crop = "center",
    channels: int = 3,
    premultiply: bool = False,
    include: Sequence[str] = (),
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> Path:
    """Read a share of the images, as (3, 16) the third of sixteen, into a folder beside `out`; when
    all are there, `prepare` with `parts` makes the store of them."""
    folder = part_folder(Path(out), *part)
    check_settings(resolution, crop, channels, premultiply)
    check_folder(folder, empty=True)
    if not isinstance(source, Source):
        source = open_source(source, include=include)
    fingerprint, n = source.fingerprint(), len(source.names)
    places = range(n * (part[0] - 1) // part[1], n * part[0] // part[1])
    folder.parent.mkdir(parents=True, exist_ok=True)
    fit = Fit.of(crop)
    size = resolution, channels, premultiply, str(fit)
    require_space(folder.parent, len(places) * fit.tiles, resolution, channels)
    with quiet_decoding(), becoming(folder) as made, StoreWriter(made, *size) as writer:
        fill(writer, source, places, fit, workers, progress)
        writer.finish_part(fingerprint)
    return folder


def part_folder(out: Path, k: int, parts: int) -> Path:
    """Where the k-th of so many parts of the store is made."""
    if not 1 <= k <= parts:
        raise ValueError(f"part {k}/{parts} does not exist; parts are counted from 1")
    return out.with_name(f"{out.name}.part-{k}-of-{parts}")


def join(writer: "StoreWriter", folders: Sequence[Path], fingerprint: str) -> None:
    """Write the pixels of all parts. ValueError for one that is missing, or of other data."""
    missing = [readable(folder) for folder in folders if not (folder / PART).is_file()]
    if missing:
        raise ValueError(f"{count(len(missing), 'part')} missing, the first is {missing[0]}")
    for folder in folders:
        part = json.loads((folder / PART).read_text())
        if part["made_of"] != writer.made_of(fingerprint):
            raise ValueError(
                f"{readable(folder)} was made of other images or with other options; remove it and "
                "make it again"
            )
        files = {r: folder / file_name(r) for r in writer.files if part["places"]}
        levels = {r: np.load(file, mmap_mode="r") for r, file in files.items()}
        for i, place in enumerate(part["places"]):
            writer.write({r: np.ascontiguousarray(level[i]) for r, level in levels.items()}, place)
        writer.skipped.extend(Skipped(*one) for one in part["skipped"])


def check_settings(
    resolution: int | None, crop: Crop, channels: int, premultiply: bool = False
) -> None:
    """ValueError for a store that cannot be."""
    if resolution is not None:
        check_resolution(resolution)
    Fit.of(crop)
    if channels not in MODES:
        raise ValueError(f"images have 1, 3 or 4 channels, not {channels}")
    if premultiply and channels != 4:
        raise ValueError(f"images of {channels} channels have no alpha to multiply colours by")


def offered_resolution(source: Source, crop: Crop) -> int:
    """The largest power of two, up to 1024, that the first image fills that can be used at all."""
    problems = []
    for name in source.names:
        try:
            with quiet_decoding():
                image = decode(source.read(name), name=name)
        except (OSError, ValueError) as error:
            problems.append(str(error))
            continue
        size = min(Fit.of(crop).native_size(image.width, image.height), MAX_RESOLUTION)
        if size >= MIN_RESOLUTION:
            return 1 << (size.bit_length() - 1)
        problems.append(
            f"{name} has {image.width}x{image.height} pixels; the smallest resolution is "
            f"{MIN_RESOLUTION}"
        )
    raise ValueError(
        f"no image under {readable(source.path)} can be used; the first problem: "
        f"{readable(problems[0])}"
    )


def pyramid(image: np.ndarray) -> dict[int, np.ndarray]:
    """An image uint8 (..., r, r) at all sizes from 4 to r, averaged 2x2 as officially.

    The averages are not rounded from one level to the next, only where a level is stored: to
    nearest, ties to even. Sums are carried, of neighbours in a row as the two halves of a wider
    number, which reads memory in order.
    """
    levels = {image.shape[-1]: image}
    sums, count = np.ascontiguousarray(image), 1  # of pixels in a sum
    while sums.shape[-1] > MIN_RESOLUTION:
        bits, count = 8 * sums.itemsize, 4 * count
        pairs = sums.view(f"u{2 * sums.itemsize}")
        rows = (pairs >> bits) + (pairs & (2**bits - 1))
        kind = np.uint16 if 255 * count < 2**16 else np.uint32
        sums = (rows[..., 0::2, :] + rows[..., 1::2, :]).astype(kind, copy=False)
        levels[sums.shape[-1]] = np.rint(sums / np.float32(count)).astype(np.uint8)
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
            f"no disk space: {count(num_images, 'image')} at {resolution}x{resolution} need "
            f"{mib(needed)} in {readable(folder)}, {mib(free)} are free; free some (stylegan cache "
            "lists stores that can be cleared), choose another folder (of the cache: "
            "STYLEGAN_CACHE) or a smaller resolution"
        )


def mib(size: int) -> str:
    """A number of bytes, in binary mega- or gigabytes."""
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None
) -> Generator[Result, None, None]:
    """Like `map`, on several threads with a bounded number of results waiting.

    Threads are enough: Pillow's decoders and NumPy release the interpreter lock.
    """
    workers = workers or min(os.cpu_count() or 1, 16)
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


def unusable(name: str, error: Exception) -> Skipped:
    """An image that raised an error, with the reason, which does not repeat its name."""
    return Skipped(name, reason_of(error).removeprefix(f"{name}: "))


def check_size(width: int, height: int, crop: Crop, resolution: int) -> None:
    """ValueError for an image that is smaller than the resolution."""
    if Fit.of(crop).native_size(width, height) < resolution:
        raise ValueError(f"{SMALL} {resolution}: {width}x{height}")


def fill(
    writer: "StoreWriter",
    source: Source,
    places: range,
    fit: Fit,
    workers: int | None,
    progress: ProgressCallback | None,
) -> None:
    """Write the pixels of the images at those places of the source; threads read, decode and
    average."""

    def load(name: str) -> list[dict[int, np.ndarray]] | Skipped:
        try:
            image = decode(source.read(name), channels=writer.channels, name=name)
            check_size(image.width, image.height, str(fit), writer.resolution)
        except (OSError, ValueError) as error:
            return unusable(name, error)
        squares = map(planes, fit.squares(image, writer.resolution, name))
        return [pyramid(premultiplied(x) if writer.premultiply else x) for x in squares]

    names = [source.names[i] for i in places]
    with contextlib.closing(ordered_map(load, names, workers)) as loaded:
        for i, squares in zip(places, loaded, strict=True):
            if isinstance(squares, Skipped):
                writer.skipped.append(squares)
            else:
                for levels in squares:
                    writer.write(levels, i)
            if progress is not None:
                progress(i + 1 - places.start, len(places))


def check_skipped(skipped: Sequence[Skipped], source: Source, strict: bool) -> None:
    """Refuse a store without images, or with `strict` one that lacks some."""
    total = len(source.names) + len(source.unreadable)
    if not skipped or (len(skipped) < total and not strict):
        return
    reasons = reasons_of(skipped)
    if len(skipped) < total:
        raise ValueError(
            f"{len(skipped)} of {total} images under {readable(source.path)} cannot be used, "
            f"and strict allows none: {reasons}"
        )
    if all(reason.startswith(SMALL) for _, reason in skipped):
        reasons += "; choose a smaller resolution"
    raise ValueError(
        f"none of the {total} images under {readable(source.path)} is usable: {reasons}"
    )


class StoreWriter(contextlib.ExitStack):
    """The files of a store while it grows image by image."""

    def __init__(
        self, folder: Path, resolution: int, channels: int, premultiply: bool, crop: Crop
    ) -> None:
        super().__init__()
        self.folder, self.resolution, self.channels = folder, resolution, channels
        self.premultiply, self.crop = premultiply, crop
        self.kept: list[int] = []  # for each image written, the place of its file in the source
        self.skipped: list[Skipped] = []
        self.hashes = {r: hashlib.sha256() for r in resolutions(resolution)}
        paths = {r: folder / file_name(r) for r in self.hashes}
        self.files = {r: self.enter_context(path.open("wb")) for r, path in paths.items()}
        for r, file in self.files.items():
            self.write_header(r)
            file.flush()  # before meta.json: whatever is newer than that was changed afterwards

    def write_header(self, resolution: int) -> None:
        """The start of a .npy file, as long for any number of images."""
        shape = (len(self.kept), self.channels, resolution, resolution)
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        self.files[resolution].seek(0)
        np.lib.format.write_array_header_1_0(self.files[resolution], header)

    def write(self, levels: dict[int, np.ndarray], place: int) -> None:
        """Add an image, uint8 (C, r, r) at every resolution, of the file at that place."""
        self.kept.append(place)
        for r, pixels in levels.items():
            self.files[r].write(pixels.data)
            self.hashes[r].update(pixels.data)

    def made_of(self, fingerprint: str) -> list[str | int]:
        """What parts of one store have in common."""
        return [fingerprint, self.crop, self.resolution, self.channels, int(self.premultiply)]

    def finish_part(self, fingerprint: str) -> None:
        """Write what a store takes from this part beside the pixels."""
        for r, file in self.files.items():
            self.write_header(r)
            file.flush()
        skipped = [[one.name, one.reason] for one in self.skipped]
        part = {"made_of": self.made_of(fingerprint), "places": self.kept, "skipped": skipped}
        (self.folder / PART).write_text(json.dumps(part))
        for path in self.folder.iterdir():
            sync_file(path)

    def finish(self, source: Source, fingerprint: str, fit: Fit) -> None:
        """Write all but the pixels; the folder is a store when this returns."""
        for r, file in self.files.items():
            self.write_header(r)
            file.flush()  # before meta.json: whatever is newer than that was changed afterwards
        lines = [source.names[i].replace("\n", "\\n") + "\n" for i in self.kept]
        (self.folder / "names.txt").write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
        labels = source.labels.of(self.kept) if source.labels is not None else None
        if labels is not None:
            np.save(self.folder / (VECTORS if labels.vectors else CLASSES), labels.rows)
        StoreMeta(
            source=in_utf8(source.path.name or source.path.resolve().name),
            fingerprint=fingerprint,
            num_images=len(self.kept),
            resolution=self.resolution,
            channels=self.channels,
            crop=str(fit),
            premultiplied=self.premultiply,
            active_rectangle=fit.active_rectangle(self.resolution),
            label_names=[in_utf8(name) for name in labels.names] if labels else [],
            skipped=[Skipped(in_utf8(name), in_utf8(reason)) for name, reason in self.skipped],
            num_ignored=len(source.ignored),
            pixel_hashes={file_name(r): digest.hexdigest() for r, digest in self.hashes.items()},
        ).write(self.folder / META)
        for path in self.folder.iterdir():
            sync_file(path)
        sync_folder(self.folder)


def sync_file(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def becoming(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` to write into, which becomes `out` unless there is an error."""
    remove_unfinished(out.parent, unfinished_name(out))
    folder = out.parent / f"{unfinished_name(out)}{secrets.token_hex(4)}"
    held = None
    try:
        held = made_and_held(folder)
        yield folder
        if out.is_dir():
            out.rmdir()  # it is empty, or another process was faster: then this fails
        locks.share(held)  # whoever sees it may open it
        folder.rename(out)
        sync_folder(out.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        locks.release(held)


def unfinished_name(out: Path) -> str:
    """How the names of folders begin that are to become `out`."""
    return f".{out.name[:40]}{UNFINISHED}"


def made_and_held(folder: Path) -> int | None:
    """The lock of a new folder."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        try:
            held = locks.lock(folder)
        except (FileNotFoundError, BlockingIOError):  # taken for a forgotten one before it was held
            continue
        if locks.is_of(held, folder):
            return held
        locks.release(held)


def remove_unfinished(parent: Path, prefix: str = ".") -> None:
    """Remove what killed preparations have left under names that begin so."""
    for path in list(parent.iterdir()):
        ours = path.name.startswith(prefix) and ABANDONED.fullmatch(path.name)
        if not ours or path.is_symlink() or not path.is_dir():
            continue
        with contextlib.suppress(FileNotFoundError, BlockingIOError), contextlib.ExitStack() as end:
            held = locks.lock(path)  # BlockingIOError: somebody is writing to it
            end.callback(locks.release, held)
            newest = max(part.stat().st_mtime for part in (path, *path.iterdir()))
            if held is not None or time.time() - newest > ABANDONED_SECONDS:
                remove_files(path, [PART, ORIGIN])
