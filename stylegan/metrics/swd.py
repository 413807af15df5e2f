"""Sliced Wasserstein distance of patches in Laplacian pyramids. Karras et al. 2018, section 5.

Each level of the pyramid contains one range of scales: the finest noise and sharpness, the coarsest
colors and layout. The channels of each set are normalized, so its overall brightness and contrast
have no effect.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan import streams
from stylegan.metrics.cache import gathered_rows
from stylegan.metrics.comparison import rank_range
from stylegan.metrics.features import Scores
from stylegan.metrics.measurement import Measurement
from stylegan.metrics.statistics import GROUPS, interval_95
from stylegan.utils.console import SILENT, Console
from stylegan.utils.distributed import run_on_rank0

PATCH = 7  # pixels a side
PATCHES = 128  # per level of an image
DIRECTIONS = 512
COMPARED_AGAIN = 64  # directions used for the jackknife
COARSEST = 16  # resolution of the last level, except of smaller images
MIN_RESOLUTION = 8  # resolution: the smallest power of two that contains a patch
CHUNK_VALUES = 2**26  # of projections or patches in memory, for few passes over the patches


def swd(m: Measurement) -> Scores:
    """Measure `swd-32` and so on for each level, and their average `swd`: multiplied by 1000 as in
    the official code, with intervals over the samples. If there are fewer reals than samples, they
    are used again with other patches. Patches go to files, 25 C kB per image and level."""
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
            rng = streams.slice_rng(m.samples.seed, level)
            apart = distances(reals, fakes, rng, m.console, f"compared at {size}")
            by_level[f"swd-{size}"] = 1000 * apart
        return {"swd": np.mean(list(by_level.values()), axis=0), **by_level}

    found = run_on_rank0(compare)
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
    """Resolutions of the levels, finest first. Raises ValueError if images are too small."""
    if resolution < MIN_RESOLUTION:
        raise ValueError(
            f"images of {resolution}x{resolution} are too small for swd, which compares patches of "
            f"{PATCH}x{PATCH} pixels; at least {MIN_RESOLUTION}x{MIN_RESOLUTION} are needed"
        )
    return [resolution >> i for i in range(max(1, int(math.log2(resolution / COARSEST)) + 1))]


def level_patches(
    images: Iterable[Tensor], num: int, levels: int, seed: int
) -> Iterator[list[Tensor]]:
    """Yield the patches of each batch in this process's part of `num` images: for each level rows
    (n, PATCHES * C * PATCH^2), one per image."""
    index = rank_range(num).start
    for batch in images:
        draws = [streams.patch_rng(seed, index + i) for i in range(len(batch))]
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
    """Yield the levels, finest first, each without the content of the next; the coarsest keeps
    everything. Burt and Adelson 1983."""
    for _ in range(levels - 1):
        coarser = binomial(images)[:, :, ::2, ::2]
        spread = torch.zeros_like(images)
        spread[:, :, ::2, ::2] = coarser
        yield images - binomial(spread) * 4
        images = coarser
    yield images


def binomial(images: Tensor) -> Tensor:
    """Filter rows and columns by [1, 4, 6, 4, 1] / 16, reflected at the border. Written as sums, so
    that the result of an image does not depend on the others of the batch."""
    for axis in (2, 3):
        ends = (0, 0, 2, 2) if axis == 2 else (2, 2, 0, 0)
        padded = F.pad(images, ends, mode="reflect")
        taps = [padded.narrow(axis, i, images.shape[axis]) for i in range(5)]
        images = (taps[0] + taps[4] + 4 * (taps[1] + taps[3]) + 6 * taps[2]) / 16
    return images


def normalized(rows: np.ndarray | None, channels: int) -> np.ndarray:
    """Normalize each channel of patches (n, C * PATCH^2) to mean 0 and variance 1, in place."""
    assert rows is not None
    patches = rows.reshape(-1, channels, PATCH**2)
    step = CHUNK_VALUES // (channels * PATCH**2)
    parts = [patches[start : start + step] for start in range(0, len(patches), step)]
    count = len(patches) * PATCH**2
    nothing = np.zeros(channels)
    mean = sum((part.sum(axis=(0, 2), dtype=np.float64) for part in parts), nothing) / count
    centered = (np.square(part - mean[:, None]).sum(axis=(0, 2)) for part in parts)
    deviation = np.sqrt(sum(centered, nothing) / count)
    scale = np.where(deviation > 0, deviation, 1)  # a constant channel becomes 0
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
    """Sliced Wasserstein-1 distance of patches a and b (n, dim): the mean over random directions;
    then, over fewer directions, without each group of the images of b."""
    directions = rng.normal(size=(DIRECTIONS, a.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions = directions.astype(np.float32)
    step = min(max(1, CHUNK_VALUES // len(a)), COMPARED_AGAIN)
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
                # `rest` is smaller: compare order statistics at equal quantiles
                same_share = (np.arange(rest.shape[1]) + 0.5) * len(a) // rest.shape[1]
                apart = np.abs(ours[:, same_share.astype(np.int64)] - rest)
                without[i] += apart.mean(axis=1, dtype=np.float64).sum()
        else:
            theirs.sort(axis=1)
        total += float(np.abs(ours - theirs).mean(axis=1, dtype=np.float64).sum())
        console.progress(label, min(start + step, DIRECTIONS), DIRECTIONS)
    return np.array([total / DIRECTIONS, *without / again])
