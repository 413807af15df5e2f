"""Effect of the noise inputs: figures 4 and 5 of the paper."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from stylegan import sampling
from stylegan.figures.layout import chart, span
from stylegan.figures.points import Points, pictures
from stylegan.files.loaded import LoadedGenerator
from stylegan.networks import NetworkConfig
from stylegan.schedule import resolutions

REALIZATIONS = 100  # draws of noise to measure the deviation, as in the paper
EXAMPLES = 4
ZOOMED_FROM, ZOOM = 128, 4  # pictures from this resolution on have their details enlarged so much
FINE = 64  # noise counts as fine from this resolution on, in networks that reach it


def noise_detail(loaded: LoadedGenerator, points: Points) -> Image.Image:
    """A row for each point: its picture, 4 with other noise, and the standard deviation of each
    pixel over 100. Figure 4 of the paper.

    From 128 pixels on the examples show the part that varies most, four times enlarged and framed
    in the picture. Seed n draws noise n.
    """
    check_noise(loaded.generator.config)
    zoom = ZOOM if loaded.resolution >= ZOOMED_FROM else 1
    measured = [deviation(loaded, ws) for ws in points.ws.split(1)]
    largest = max(float(some.max()) for some in measured)
    rows = []
    for ws, varying in zip(points.ws.split(1), measured, strict=True):
        some = with_noise(loaded, ws, range(EXAMPLES + 1))
        part = liveliest(varying, zoom)
        scaled = np.floor(varying / max(largest, 1e-9) * 255 + 0.5).astype(np.uint8)
        first = framed(some[0], part) if zoom > 1 else some[0]
        rows.append([first, *(picture[part] for picture in some[1:]), scaled[:, :, None]])
    columns = [*(f"noise {n}" for n in range(EXAMPLES + 1)), f"st. dev., 0-{largest:.0f}"]
    return chart(rows, columns=columns, names=points.names)


def with_noise(loaded: LoadedGenerator, ws: Tensor, seeds: Sequence[int]) -> np.ndarray:
    """Pictures uint8 (len(seeds), H, W, C) of one style ws (1, num_styles, w_dim)."""
    several = ws.expand(len(seeds), -1, -1)
    return np.stack(list(loaded.pictures(seeds, ws=several, noise="random")))


def deviation(loaded: LoadedGenerator, ws: Tensor, realizations: int = REALIZATIONS) -> np.ndarray:
    """Standard deviation of each pixel (H, W) over noise, in gray levels; root mean square over
    channels."""
    batch = sampling.default_batch(loaded.resolution)
    total, squares = np.int64(0), np.int64(0)
    for start in range(0, realizations, batch):
        seeds = range(start, min(start + batch, realizations))
        some = with_noise(loaded, ws, seeds).astype(np.int64)
        total, squares = total + some.sum(axis=0), squares + np.square(some).sum(axis=0)
    variance = (squares - total * total / realizations) / realizations
    found: np.ndarray = np.sqrt(variance.clip(0).mean(axis=2))
    return found


def liveliest(varying: np.ndarray, zoom: int) -> tuple[slice, slice]:
    """The part of (H, W), 1 / zoom of both sides, whose mean square is largest."""
    height, width = (side // zoom for side in varying.shape)
    sums = np.pad(np.square(varying).cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    inside = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width]
    inside += sums[:-height, :-width]
    top, left = (int(i) for i in np.unravel_index(inside.argmax(), inside.shape))
    return slice(top, top + height), slice(left, left + width)


def framed(pixels: np.ndarray, part: tuple[slice, slice]) -> Image.Image:
    """The picture with a frame around a part of it."""
    image = sampling.picture(sampling.over_squares(pixels)).convert("RGB")
    rows, columns = part
    width = math.ceil(max(image.size) / 256)
    box = columns.start, rows.start, columns.stop - 1, rows.stop - 1
    ImageDraw.Draw(image).rectangle(box, outline=(255, 255, 255), width=width)
    return image


def noise_components(loaded: LoadedGenerator, points: Points) -> Image.Image:
    """A row for each point: with all noise, none, that of fine layers alone, that of coarse layers
    alone. Figure 5 of the paper."""
    config = loaded.generator.config
    check_noise(config)
    if isinstance(points.noise, str) and points.noise == "none":
        raise ValueError("noise has no components without noise: choose const or random")
    first_fine = fine_from(loaded.resolution)
    maps: Sequence[Tensor | None]
    if points.noise == "random":
        maps = sampling.seed_noise(points.seeds, config, loaded.resolution)
    else:
        synthesis, n = loaded.generator.synthesis, len(points.ws)
        maps = synthesis.noise_maps(n, loaded.resolution, points.noise)
    kept: dict[str, Callable[[int], bool]] = {
        "all noise": lambda r: True,
        "no noise": lambda r: False,
        f"fine, {span(first_fine, loaded.resolution)}": lambda r: r >= first_fine,
        f"coarse, {span(4, first_fine // 2)}": lambda r: r < first_fine,
    }
    columns = []
    for keep in kept.values():
        noise = [m * keep(m.shape[-1]) for m in maps if m is not None]
        columns.append(pictures(loaded, replace(points, noise=noise)))
    return chart(list(zip(*columns, strict=True)), columns=list(kept), names=points.names)


def fine_from(resolution: int) -> int:
    """The smallest resolution whose noise counts as fine: 64 as in the paper; in smaller networks
    the upper half of the resolutions does."""
    sizes = resolutions(resolution)
    if len(sizes) < 2:
        raise ValueError("at 4x4 all layers are coarse, none are fine")
    return FINE if resolution >= FINE else sizes[len(sizes) // 2]


def check_noise(config: NetworkConfig) -> None:
    if not config.noise:
        raise ValueError("this network has no noise inputs (network.noise is off)")
