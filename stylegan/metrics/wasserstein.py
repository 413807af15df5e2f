"""Sliced Wasserstein distance of patches of Laplacian pyramids. Karras et al. 2018, section 5.

Each level of the pyramid shows one range of scales: the finest noise and sharpness, the coarsest
colors and layout. Each set's channels are normalized, so brightness and contrast of all its images
together do not show.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan import streams
from stylegan.machine.console import SILENT, Console
from stylegan.machine.distributed import from_rank0
from stylegan.metrics.cache import gathered_rows
from stylegan.metrics.features import Scores
from stylegan.metrics.measurement import Measurement
from stylegan.metrics.sources import share_of
from stylegan.metrics.statistics import GROUPS, interval_95

PATCH = 7  # pixels, both ways
PATCHES = 128  # of every level of every image
DIRECTIONS = 512
COMPARED_AGAIN = 64  # of these, without each group of images
COARSEST = 16  # resolution of the last level, but where images are smaller
SMALLEST = 8  # resolution of images: the smallest power of two that holds a patch
VALUES_AT_ONCE = 2**26  # of projections or patches in memory: few passes over the patches


def swd(m: Measurement) -> Scores:
    """Measure `swd`, the average of the levels, and each of them, as `swd-32`, times 1000 as in the
    official code, with intervals over the samples. If the data has fewer images, they are used
    again with other patches. Patches wait in files, 25 C kB for each image and level."""
    channels = m.require_reals().store.channels
    sizes = level_sizes(m.resolution)
    widths = [PATCHES * channels * PATCH**2] * len(sizes)
    tables = [
        gathered_rows(
            level_patches(images, m.num, len(sizes), m.samples.seed), widths, m.num, m.tools.cache
        )
        for images in (m.real_batches(m.num, evenly=True), m.fake_batches(m.num))
    ]

    def compare() -> dict[str, np.ndarray]:
        by_level = {}
        for level, (size, *both) in enumerate(zip(sizes, *tables, strict=True)):
            reals, fakes = (normalized(table, channels) for table in both)
            rng = streams.directions(m.samples.seed, level)
            apart = distances(reals, fakes, rng, m.console, f"compared at {size}")
            by_level[f"swd-{size}"] = 1000 * apart
        return {"swd": np.mean(list(by_level.values()), axis=0), **by_level}

    found = from_rank0(compare)
    intervals = {name: interval_95(estimates) for name, estimates in found.items()}
    protocol = {
        "patches": f"{PATCHES} of {PATCH}x{PATCH} pixels of each image and level",
        "directions": DIRECTIONS,
        "patch_seed": m.samples.seed,
        "images": m.num,
        "reals": {**m.about_reals(), "chosen": "evenly"},
        # of fewer images some groups are empty, so leaving them out shows nothing
        "interval_95": intervals if m.num >= GROUPS else {},
    }
    return Scores({name: float(estimates[0]) for name, estimates in found.items()}, protocol)


def level_sizes(resolution: int) -> list[int]:
    """Return the resolutions of the levels, the finest first. Raise ValueError if none fits."""
    if resolution < SMALLEST:
        raise ValueError(
            f"images of {resolution}x{resolution} are too small for swd, whose patches have "
            f"{PATCH}x{PATCH} pixels; it needs {SMALLEST}x{SMALLEST} or more"
        )
    return [resolution >> i for i in range(max(1, int(math.log2(resolution / COARSEST)) + 1))]


def level_patches(
    images: Iterable[Tensor], num: int, levels: int, seed: int
) -> Iterator[list[Tensor]]:
    """Draw, for each batch of this process's part of `num` images, the patches at each level: rows
    of PATCHES * C * 49 numbers, one per image."""
    index = share_of(num).start
    for batch in images:
        draws = [streams.patches(seed, index + i) for i in range(len(batch))]
        index += len(batch)
        rows = []
        for level in laplacian_pyramid(batch.float(), levels):
            last = level.shape[-1] - PATCH
            places = np.array([rng.integers(0, last + 1, (2, PATCHES)) for rng in draws])
            y, x = torch.from_numpy(places).unbind(1)
            windows = level.unfold(2, PATCH, 1).unfold(3, PATCH, 1)  # (n, C, rows, cols, 7, 7)
            patches = windows[torch.arange(len(batch))[:, None], :, y, x]
            rows.append(patches.flatten(1))  # (n, patches * C * 7 * 7)
        yield rows


def laplacian_pyramid(images: Tensor, levels: int) -> Iterator[Tensor]:
    """Yield each level, from the finest on, less the content of the next one; the coarsest
    keeps everything. Burt and Adelson 1983."""
    for _ in range(levels - 1):
        coarser = binomial(images)[:, :, ::2, ::2]
        spread = torch.zeros_like(images)
        spread[:, :, ::2, ::2] = coarser
        yield images - binomial(spread) * 4
        images = coarser
    yield images


def binomial(images: Tensor) -> Tensor:
    """Filter [1, 4, 6, 4, 1] / 16 both ways, mirrored at the border; made of sums, so that an
    image's result does not depend on those beside it."""
    for axis in (2, 3):
        ends = (0, 0, 2, 2) if axis == 2 else (2, 2, 0, 0)
        padded = F.pad(images, ends, mode="reflect")
        taps = [padded.narrow(axis, i, images.shape[axis]) for i in range(5)]
        images = (taps[0] + taps[4] + 4 * (taps[1] + taps[3]) + 6 * taps[2]) / 16
    return images


def normalized(rows: np.ndarray | None, channels: int) -> np.ndarray:
    """Bring each channel of patches (n, C * 49) to mean 0 and variance 1 over all, in place."""
    assert rows is not None
    patches = rows.reshape(-1, channels, PATCH**2)
    step = VALUES_AT_ONCE // (channels * PATCH**2)
    parts = [patches[start : start + step] for start in range(0, len(patches), step)]
    count = len(patches) * PATCH**2
    nothing = np.zeros(channels)
    mean = sum((part.sum(axis=(0, 2), dtype=np.float64) for part in parts), nothing) / count
    centered = (np.square(part - mean[:, None]).sum(axis=(0, 2)) for part in parts)
    deviation = np.sqrt(sum(centered, nothing) / count)
    scale = np.where(deviation > 0, deviation, 1)  # a channel that is constant stays 0
    for part in parts:
        part[:] = (part - mean[:, None]) / scale[:, None]
    return patches.reshape(len(patches), -1)


def distances(
    a: np.ndarray,
    b: np.ndarray,
    rng: np.random.Generator,
    console: Console = SILENT,
    label: str = "compared",
) -> np.ndarray:
    """Return the mean over random directions of the Wasserstein-1 distance of the projections onto
    them, and the same without each group of b's images, onto fewer; a and b are (n, dim)."""
    directions = rng.normal(size=(DIRECTIONS, a.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions = directions.astype(np.float32)
    step = min(max(1, VALUES_AT_ONCE // len(a)), COMPARED_AGAIN)
    group = (np.arange(len(b)) // PATCHES % GROUPS).astype(np.int8)
    total = 0.0
    without = np.zeros(GROUPS)
    again = -(-COMPARED_AGAIN // step) * step
    for start in range(0, DIRECTIONS, step):
        part = directions[start : start + step]
        ours = part @ a.T
        theirs = part @ b.T
        ours.sort(axis=1)
        if start < again:
            order = theirs.argsort(axis=1)
            theirs = np.take_along_axis(theirs, order, axis=1)
            for i in range(GROUPS):
                rest = theirs[group[order] != i].reshape(len(part), -1)
                # rest has fewer rows: compare order statistics at equal quantiles
                same_share = (np.arange(rest.shape[1]) + 0.5) * len(a) // rest.shape[1]
                apart = np.abs(ours[:, same_share.astype(np.int64)] - rest)
                without[i] += apart.mean(axis=1, dtype=np.float64).sum()
        else:
            theirs.sort(axis=1)
        total += float(np.abs(ours - theirs).mean(axis=1, dtype=np.float64).sum())
        console.progress(label, min(start + step, DIRECTIONS), DIRECTIONS)
    return np.array([total / DIRECTIONS, *without / again])
