"""Effect of the noise inputs: figures 4 and 5 of the paper."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from stylegan import sampling
from stylegan.figures.layout import image_table, span
from stylegan.figures.points import LatentPoints, generate_images
from stylegan.networks import NetworkConfig
from stylegan.sampling.pretrained import Pretrained
from stylegan.schedule import resolutions

REALIZATIONS = 100  # of noise, for the standard deviation, as in the paper
EXAMPLES = 5
ZOOMED_FROM = 128  # resolution from which details are enlarged
ZOOM = 4
FINE = 64  # noise counts as fine from this resolution on, in networks that reach it


def noise_detail(loaded: Pretrained, points: LatentPoints) -> Image.Image:
    """Figure 4 of the paper: for each point an image, 4 with other noise, and the standard
    deviation of each pixel over 100.

    From 128 pixels on, the others show the part that varies most, enlarged four times and framed
    in the first image. Noise n is drawn from seed n."""
    check_noise(loaded.generator.config)
    zoom = ZOOM if loaded.resolution >= ZOOMED_FROM else 1
    measured = [deviation(loaded, ws) for ws in points.ws.split(1)]
    largest = max(float(deviations.max()) for deviations in measured)
    rows = []
    for ws, varying in zip(points.ws.split(1), measured, strict=True):
        first, *others = loaded.generate(ws=ws.expand(EXAMPLES, -1, -1), noise="random")
        part = liveliest(varying, zoom)
        scaled = np.floor(varying / max(largest, 1e-9) * 255 + 0.5).astype(np.uint8)
        whole = framed(first, part) if zoom > 1 else first
        rows.append([whole, *(image[part] for image in others), scaled[:, :, None]])
    columns = [*(f"noise {n}" for n in range(EXAMPLES)), f"st. dev., 0-{largest:.0f}"]
    return image_table(rows, columns=columns, names=points.names)


def deviation(loaded: Pretrained, ws: Tensor, realizations: int = REALIZATIONS) -> np.ndarray:
    """Standard deviation of pixels (H, W) over noise, RMS over channels; ws (1, layers, w_dim)."""
    total, squares = np.zeros((2, 1, 1, 1), np.int64)
    for image in loaded.generate(ws=ws.expand(realizations, -1, -1), noise="random"):
        levels = image.astype(np.int64)
        total = total + levels
        squares = squares + np.square(levels)
    variance = (squares - total * total / realizations) / realizations
    deviations: np.ndarray = np.sqrt(variance.clip(0).mean(axis=2))
    return deviations


def liveliest(varying: np.ndarray, zoom: int) -> tuple[slice, slice]:
    """The part of an image (H, W), 1 / zoom of both sides, with the largest mean square."""
    height, width = (side // zoom for side in varying.shape)
    sums = np.pad(np.square(varying).cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    inside = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width]
    inside += sums[:-height, :-width]
    top, left = (int(i) for i in np.unravel_index(inside.argmax(), inside.shape))
    return slice(top, top + height), slice(left, left + width)


def framed(pixels: np.ndarray, part: tuple[slice, slice]) -> Image.Image:
    image = sampling.to_pil(sampling.over_checkerboard(pixels)).convert("RGB")
    rows, columns = part
    width = math.ceil(max(image.size) / 256)
    box = columns.start, rows.start, columns.stop - 1, rows.stop - 1
    ImageDraw.Draw(image).rectangle(box, outline=(255, 255, 255), width=width)
    return image


def noise_components(loaded: Pretrained, points: LatentPoints) -> Image.Image:
    """Figure 5 of the paper: points with all noise, none, that of fine and of coarse layers."""
    config = loaded.generator.config
    size = loaded.settings.synthesis_resolution
    check_noise(config)
    if isinstance(points.noise, str) and points.noise == "none":
        raise ValueError('noise must be "const" or "random" to show its components, got "none"')
    sizes = resolutions(size)
    if len(sizes) < 2:
        raise ValueError("resolution must be at least 8: at 4x4 there are no fine layers")
    fine = FINE if size >= FINE else sizes[len(sizes) // 2]  # below 64 px: the upper half
    maps: Sequence[Tensor | None]
    if points.noise == "random":
        maps = sampling.noise_from_seeds(points.seeds, config, size)
    else:
        maps = loaded.generator.synthesis.noise_maps(len(points.ws), size, points.noise)
    components = {
        "all noise": sizes,
        "no noise": [],
        f"fine, {span(fine, size)}": [r for r in sizes if r >= fine],
        f"coarse, {span(4, fine // 2)}": [r for r in sizes if r < fine],
    }
    columns = []
    for noisy_sizes in components.values():
        noise = [m * (m.shape[-1] in noisy_sizes) for m in maps if m is not None]
        columns.append(generate_images(loaded, replace(points, noise=noise)))
    return image_table(
        list(zip(*columns, strict=True)), columns=list(components), names=points.names
    )


def check_noise(config: NetworkConfig) -> None:
    if not config.noise:
        raise ValueError("the network has no noise inputs (network.noise is off)")
