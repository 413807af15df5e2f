"""From a source to a store: decode, fit into a square, average down, write."""

import contextlib
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from stylegan.disk import atomic_folder, check_folder
from stylegan.messages import count, readable, reason_of
from stylegan.schedule import MAX_RESOLUTION, MIN_RESOLUTION, check_resolution, resolutions

from .images import MODES, Crop, Fit, normalize, planes, premultiplied, quiet_decoding
from .sources import Pictures, SequenceSource, Source, open_source, reasons_of
from .store import CLASSES, META, VECTORS, Skipped, Store, StoreMeta, file_name

ProgressCallback = Callable[[int, int], None]  # images done, images in all
HEADER = 128  # bytes of the header of a .npy file of images, however many
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
    tell: Callable[[str], None] = lambda text: None,
) -> Store:
    """Make a store of all images of a folder, zip or TFRecords, in the order of their names.

    Without a resolution, the largest power of two (at most 1024) that the first readable image
    offers; `images.Fit` has the ways of cropping. `premultiply` multiplies colours by alpha (of 4
    channels), so that averages are right. Images that cannot be read or are too small are left out
    and listed in the store; `strict` refuses them. Labels are stored if every image has one.
    """
    out, fit = Path(out), Fit.of(crop)
    check_settings(resolution, crop, channels, premultiply)
    check_folder(out, empty=True)
    source = source if isinstance(source, Source) else open_source(source, include=include)
    fingerprint = source.fingerprint(source.names)  # first: files may change meanwhile
    full = resolution or offered_resolution(source, crop)

    def load(name: str) -> dict[int, np.ndarray]:
        image = normalize(source.picture(name), channels=channels, name=name)
        if fault := too_small(image.size, fit, full):
            raise ValueError(fault)
        square = planes(fit.square(image, full))
        return pyramid(premultiplied(square) if premultiply else square)

    tell(f"preparing {space_for(out, len(source.names), full, channels)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(out) as folder:
        loaded = decoded(load, source.names, workers, progress)
        kept, skipped, hashes = write_levels(folder, loaded, full, channels)
        skipped = [*source.unreadable, *skipped]
        if not kept:
            what = f"none of the {len(skipped)} images under {readable(source.path)} is usable"
            small = all(reason.startswith(SMALL) for _, reason in skipped)
            advice = "; choose a smaller resolution" if small else ""
            raise ValueError(f"{what}: {reasons_of(skipped)}{advice}")
        if strict:
            refuse_skipped(skipped, len(kept), readable(source.path))
        lines = [source.names[i].replace("\n", "\\n") + "\n" for i in kept]
        (folder / "names.txt").write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
        labels = source.labels.of(kept) if source.labels is not None else None
        if labels is not None:
            np.save(folder / (VECTORS if labels.vectors else CLASSES), labels.rows)
        StoreMeta(
            source=source.path.name or source.path.resolve().name,
            fingerprint=fingerprint,
            num_images=len(kept),
            resolution=full,
            channels=channels,
            crop=str(fit),
            premultiplied=premultiply,
            active_rectangle=fit.active_rectangle(full),
            label_names=labels.names if labels else [],
            skipped=skipped,
            num_ignored=len(source.ignored),
            pixel_hashes=hashes,
        ).write(folder / META)
    return Store(out)


def prepare_images(
    images: Pictures,
    out: str | Path,
    *,
    labels: Sequence[str] | None = None,
    workers: int = 1,
    **settings: Any,
) -> Store:
    """As `prepare`, of the images of a sequence, whose classes are `labels`. `images[i]` is asked
    for when its turn comes, by `workers` threads, so that the sequence may read or draw it then."""
    return prepare(SequenceSource(images, labels, Path(out)), out, workers=workers, **settings)


def write_levels(
    folder: Path, loaded: Iterable[dict[int, np.ndarray] | Skipped], resolution: int, channels: int
) -> tuple[list[int], list[Skipped], dict[str, str]]:
    """Write the pixels of all images; their places in `loaded`, the others, a hash of each file."""
    kept: list[int] = []
    skipped = []
    hashes = {r: hashlib.sha256() for r in resolutions(resolution)}
    with contextlib.ExitStack() as stack:
        files = {r: stack.enter_context(open(folder / file_name(r), "wb")) for r in hashes}
        for file in files.values():
            file.seek(HEADER)
        for i, levels in enumerate(loaded):
            if isinstance(levels, Skipped):
                skipped.append(levels)
                continue
            kept.append(i)
            for r, pixels in levels.items():
                files[r].write(pixels.data)
                hashes[r].update(pixels.data)
        for r, file in files.items():
            file.seek(0)
            shape = len(kept), channels, r, r
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
    return kept, skipped, {file_name(r): digest.hexdigest() for r, digest in hashes.items()}


def check_settings(resolution: int | None, crop: Crop, channels: int, premultiply: bool) -> None:
    """ValueError for a store that cannot be."""
    if resolution is not None:
        check_resolution(resolution)
    Fit.of(crop)
    if channels not in MODES:
        raise ValueError(f"images have 1, 3 or 4 channels, not {channels}")
    if premultiply and channels != 4:
        raise ValueError(f"images of {channels} channels have no alpha to multiply colours by")


def offered_resolution(source: Source, crop: Crop) -> int:
    """The largest power of two, up to 1024, that the first usable image fills."""
    problem, least = "", f"the smallest resolution is {MIN_RESOLUTION}"
    for name in source.names:
        try:
            width, height, _ = source.head(name)
            size = min(Fit.of(crop).native_size(width, height), MAX_RESOLUTION)
            if size >= MIN_RESOLUTION:
                return 1 << (size.bit_length() - 1)
            problem = problem or f"{name} has {width}x{height} pixels; {least}"
        except (OSError, ValueError) as error:
            problem = problem or str(error)
    what = f"no image under {readable(source.path)} can be used"
    raise ValueError(f"{what}; the first problem: {readable(problem)}")


def pyramid(image: np.ndarray) -> dict[int, np.ndarray]:
    """An image uint8 (..., r, r) at all sizes from 4 to r, averaged 2x2 as officially: rounded
    where a level is stored, to nearest, ties to even, not from one level to the next."""
    resolution = image.shape[-1]
    if image.ndim < 2 or image.shape[-2] != resolution:
        raise ValueError(f"images are (..., r, r), channels first, not {image.shape}")
    levels = {resolution: image}
    sums, count = np.ascontiguousarray(image), 1  # of pixels in a sum
    while sums.shape[-1] > MIN_RESOLUTION:
        bits, count = 8 * sums.itemsize, 4 * count
        # two neighbours as one little-endian integer: low half + high half = their sum
        pairs = sums.view(f"u{2 * sums.itemsize}")
        rows = (pairs >> bits) + (pairs & (2**bits - 1))
        kind = np.uint16 if 255 * count < 2**16 else np.uint32
        sums = (rows[..., 0::2, :] + rows[..., 1::2, :]).astype(kind, copy=False)
        levels[sums.shape[-1]] = np.rint(sums / np.float32(count)).astype(np.uint8)
    return levels


def space_for(folder: Path, num_images: int, resolution: int, channels: int) -> str:
    """The disk space that a store in this folder takes, as text; OSError if it does not fit."""
    pixels = sum(r * r for r in resolutions(resolution))
    needed = num_images * (pixels * channels + 128) + 65536  # with names, label and meta
    existing = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(existing).free
    what = f"{count(num_images, 'image')} at {resolution}x{resolution}"
    if free < needed:
        raise OSError(
            f"no disk space: {what} need {mib(needed)} in {readable(folder)}, {mib(free)} are "
            "free; free some (stylegan cache lists stores that can be cleared), choose another "
            "folder (of the cache: STYLEGAN_CACHE) or a smaller resolution"
        )
    return f"{what}: {mib(needed)} in {readable(folder)} ({mib(free)} free)"


def mib(size: int) -> str:
    """A number of bytes, in binary mega- or gigabytes."""
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, ahead: int
) -> Iterator[Result]:
    """Like `map`, on threads: at most `ahead` results are made before they are asked for."""
    coming, pool = iter(items), ThreadPoolExecutor(workers)
    try:
        waiting = deque(pool.submit(function, item) for item in islice(coming, ahead))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(function, item) for item in islice(coming, 1))
    finally:
        pool.shutdown(cancel_futures=True)


def decoded(
    function: Callable[[str], Result],
    names: Sequence[str],
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> Iterator[Result | Skipped]:
    """What a function that decodes an image gives for each name; its OSErrors and ValueErrors are
    reasons to leave one out. On threads: Pillow's decoders release the interpreter lock."""

    def attempt(name: str) -> Result | Skipped:
        try:
            return function(name)
        except (OSError, ValueError) as error:
            return Skipped(name, reason_of(error).removeprefix(f"{name}: "))

    workers = workers or min(os.cpu_count() or 1, 16)
    with quiet_decoding():
        for done, result in enumerate(map_ahead(attempt, names, workers, 2 * workers), start=1):
            yield result
            if progress is not None:
                progress(done, len(names))


def too_small(size: tuple[int, int], fit: Fit, resolution: int) -> str:
    """Why an image of this width and height cannot have the resolution; empty if it can."""
    enough = fit.native_size(*size) >= resolution
    return "" if enough else f"{SMALL} {resolution}: {size[0]}x{size[1]}"


def refuse_skipped(skipped: Sequence[Skipped], kept: int, source: str) -> None:
    """ValueError if images are left out, and `kept` others are not."""
    if skipped:
        what = f"{len(skipped)} of {len(skipped) + kept} images of {source} cannot be used"
        raise ValueError(f"{what}, and strict allows none: {reasons_of(skipped)}")
