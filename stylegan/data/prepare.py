"""From a source to a store: decode, fit into a square, average down, write."""

import contextlib
import dataclasses
import functools
import hashlib
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from stylegan.schedule import MAX_RESOLUTION, MIN_RESOLUTION, resolutions
from stylegan.utils.console import SILENT, Console
from stylegan.utils.filesystem import atomic_folder, check_folder, is_of_system
from stylegan.utils.limits import limits
from stylegan.utils.lineage import sha256_of
from stylegan.utils.text import error_reason, pluralize

from .images import Fit, Preparation, normalize, premultiply, quiet_decoding, to_chw
from .sources import Images, SequenceSource, Source, open_source, summarize_skipped
from .store import CLASSES, META, NAMES, VECTORS, Skipped, Store, StoreMeta, file_name

HEADER = 128  # bytes of the header of a file of images, whatever their number
DEFAULT_PREPARATION = Preparation()
SMALL = "image smaller than the resolution"
Item = TypeVar("Item")
Result = TypeVar("Result")


def prepare(
    source: str | Path | Source,
    out: str | Path,
    preparation: Preparation = DEFAULT_PREPARATION,
    *,
    strict: bool = False,
    workers: int | None = None,
    console: Console = SILENT,
) -> Store:
    """Make a store of all images that `open_source` finds, sorted by name.

    Images that cannot be read or are too small are skipped and listed in the store; with `strict`
    they raise ValueError. Labels are stored if every image has one.
    """
    out = Path(out)
    check_folder(out, empty=True)
    source = open_source(source, include=preparation.include)
    fingerprint = source.fingerprint()  # first, as files may change meanwhile
    resolution = preparation.resolution or detect_resolution(source, preparation.fit)
    preparation = dataclasses.replace(preparation, resolution=resolution)
    waiting = f"another process prepares {out}: waiting for it"
    with atomic_folder(out, lambda: console.info(waiting)) as folder:  # removes unfinished ones
        console.info(f"preparing {check_disk_space(out, len(source.names), preparation)}")
        load = functools.partial(levels_of, source, preparation)
        places: list[int] = []  # in the source, of the images that are in the store
        skipped: list[Skipped] = []

        def usable() -> Iterator[dict[int, np.ndarray]]:
            decoded = decode_all(load, source.names, workers, console, "prepared")
            for i, levels in enumerate(decoded):
                if isinstance(levels, Skipped):
                    skipped.append(levels)
                else:
                    places.append(i)
                    yield levels

        hashes = write_levels(folder, usable(), preparation)
        if not places:
            small = all(reason.startswith(SMALL) for _, reason in skipped)
            raise ValueError(
                f"none of the {len(skipped)} images under {source.path} is usable: "
                f"{summarize_skipped(skipped)}" + ("; choose a smaller resolution" if small else "")
            )
        if strict:
            refuse_skipped(skipped, len(places), source.path)
        lines = [source.names[i].replace("\n", "\\n") + "\n" for i in places]
        (folder / NAMES).write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
        others = [NAMES]
        labels = source.labels.subset(places) if source.labels is not None else None
        if labels is not None:
            others.append(VECTORS if labels.are_vectors else CLASSES)
            np.save(folder / others[-1], labels.rows)
        hashes |= {name: sha256_of(folder / name) for name in others}
        StoreMeta(
            source=source.path.name or source.path.resolve().name,
            fingerprint=fingerprint,
            num_images=len(places),
            resolution=resolution,
            channels=preparation.channels,
            crop=str(preparation.fit),
            premultiplied=preparation.premultiplied,
            active_rectangle=preparation.fit.active_rectangle(resolution),
            label_names=labels.names if labels else [],
            skipped=skipped,
            num_ignored=len(source.ignored),
            pixel_hashes=hashes,
        ).write(folder / META)
    return Store(out)


def prepare_images(
    images: Images,
    out: str | Path,
    preparation: Preparation = DEFAULT_PREPARATION,
    *,
    labels: Sequence[str] | None = None,
    strict: bool = False,
    workers: int = 1,
    console: Console = SILENT,
) -> Store:
    """Make a store of a sequence of images, whose classes are `labels`.

    `workers` threads access each `images[i]` only when it is needed, so it may be created then.
    """
    source = SequenceSource(images, labels, Path(out))
    return prepare(source, out, preparation, strict=strict, workers=workers, console=console)


def levels_of(source: Source, preparation: Preparation, name: str) -> dict[int, np.ndarray]:
    """An image at all resolutions, uint8 (C, r, r). Raises ValueError if it cannot be used."""
    image = normalize(source.image(name), channels=preparation.channels, name=name)
    if fault := too_small(image.size, preparation):
        raise ValueError(fault)
    return pyramid(largest_level(image, preparation))


def largest_level(image: Image.Image, preparation: Preparation) -> np.ndarray:
    """Pixels of a decoded image at full resolution, uint8 (C, r, r)."""
    assert preparation.resolution is not None
    square = to_chw(preparation.fit.square(image, preparation.resolution))
    return premultiply(square) if preparation.premultiplied else square


def write_levels(
    folder: Path, images: Iterable[dict[int, np.ndarray]], preparation: Preparation
) -> dict[str, str]:
    """Write all images, a file per resolution. Returns file name -> SHA-256 of the pixels."""
    assert preparation.resolution is not None
    num_images = 0
    hashes = {r: hashlib.sha256() for r in resolutions(preparation.resolution)}
    with contextlib.ExitStack() as stack:
        files = {r: stack.enter_context(open(folder / file_name(r), "wb")) for r in hashes}
        for file in files.values():
            file.seek(HEADER)
        for levels in images:
            num_images += 1
            for r, pixels in levels.items():
                files[r].write(pixels.data)
                hashes[r].update(pixels.data)
        for r, file in files.items():
            file.seek(0)
            header = {
                "descr": "|u1",
                "fortran_order": False,
                "shape": (num_images, preparation.channels, r, r),
            }
            np.lib.format.write_array_header_1_0(file, header)
    return {file_name(r): digest.hexdigest() for r, digest in hashes.items()}


def detect_resolution(source: Source, fit: Fit) -> int:
    """Largest power of two, up to 1024, that the first usable image fills."""

    def size_of(name: str) -> int:
        width, height, _ = source.head(name)
        size = fit.native_size(width, height)
        if size < MIN_RESOLUTION:
            least = f"the smallest resolution is {MIN_RESOLUTION}"
            raise ValueError(f"{width}x{height} pixels; {least}")
        return min(size, MAX_RESOLUTION)

    skipped: list[Skipped] = []
    for size in decode_all(size_of, source.names, workers=1):
        if not isinstance(size, Skipped):
            return 1 << (size.bit_length() - 1)
        skipped.append(size)
    raise ValueError(f"no image under {source.path} can be used: {summarize_skipped(skipped)}")


def pyramid(image: np.ndarray) -> dict[int, np.ndarray]:
    """Box-average uint8 images (..., r, r) to every power of two from r down to 4.

    As in the official code, each level is rounded (half to even) from exact averages, not from the
    rounded level above.
    """
    resolution = image.shape[-1]
    if image.ndim < 2 or image.shape[-2] != resolution:
        raise ValueError(f"images must have shape (..., r, r), got {image.shape}")
    levels = {resolution: image}
    exact = image.astype(np.float32)  # exact for averages of up to 1024 x 1024 bytes
    while exact.shape[-1] > MIN_RESOLUTION:
        rows = exact[..., 0::2, :] + exact[..., 1::2, :]
        exact = (rows[..., 0::2] + rows[..., 1::2]) * np.float32(0.25)
        levels[exact.shape[-1]] = np.rint(exact).astype(np.uint8)
    return levels


def check_disk_space(folder: Path, num_images: int, preparation: Preparation) -> str:
    """Describe the disk space that a store takes. Raises OSError if it does not fit."""
    assert preparation.resolution is not None
    resolution = preparation.resolution
    pixels = preparation.channels * sum(r * r for r in resolutions(resolution))
    needed = num_images * (pixels + 128) + 65536  # with names, label and meta
    existing = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(existing).free
    images = f"{pluralize(num_images, 'image')} at {resolution}x{resolution}"
    if free < needed:
        raise OSError(
            f"no disk space: {images} need {format_bytes(needed)} in {folder}, which has "
            f"{format_bytes(free)}; free some (see stylegan cache), or choose another folder "
            "(STYLEGAN_CACHE) or resolution"
        )
    return f"{images}: {format_bytes(needed)} in {folder} ({format_bytes(free)} free)"


def format_bytes(size: int) -> str:
    """Format bytes in MiB or GiB."""
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"


def prefetch_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    ahead: int,
    begin: Callable[[], None] | None = None,
) -> Iterator[Result]:
    """Map on threads, in order: at most `ahead` results are computed before they are requested.

    Each thread first calls `begin`.
    """
    coming = iter(items)
    pool = ThreadPoolExecutor(workers, initializer=begin)
    try:
        waiting = deque(pool.submit(function, item) for item in islice(coming, ahead))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(function, item) for item in islice(coming, 1))
    finally:
        pool.shutdown(cancel_futures=True)


def decode_all(
    function: Callable[[str], Result],
    names: Sequence[str],
    workers: int | None = None,
    console: Console = SILENT,
    what: str = "",
) -> Iterator[Result | Skipped]:
    """Map a decoding function over image names, on threads, in order.

    A ValueError or a Pillow OSError yields `Skipped` with the reason. OSErrors from the system are
    raised: a failing drive must not shrink the data set. Pillow's decoders release the GIL.
    """

    def attempt(name: str) -> Result | Skipped:
        try:
            return function(name)
        except (OSError, ValueError) as error:
            if is_of_system(error):
                raise
            return Skipped(name, error_reason(error).removeprefix(f"{name}: "))

    if not workers:  # a large image takes up to 2 GiB while it is decoded
        cores, memory = limits()
        workers = max(min(cores, 16, int(memory // 2**31)), 1)
    with quiet_decoding():
        for done, result in enumerate(prefetch_map(attempt, names, workers, 2 * workers), start=1):
            yield result
            console.progress(what, done, len(names))


def too_small(size: tuple[int, int], preparation: Preparation) -> str:
    """The reason if an image of this width and height is too small, else ""."""
    resolution = preparation.resolution or MIN_RESOLUTION
    enough = preparation.fit.native_size(*size) >= resolution
    return "" if enough else f"{SMALL} {resolution}: {size[0]}x{size[1]}"


def refuse_skipped(skipped: Sequence[Skipped], num_usable: int, source: object) -> None:
    """Raise ValueError if images were skipped; `num_usable` others were not."""
    if skipped:
        raise ValueError(
            f"{len(skipped)} of {len(skipped) + num_usable} images of {source} cannot be used, and "
            f"strict allows none: {summarize_skipped(skipped)}"
        )
