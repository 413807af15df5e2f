"""ADA's random transforms of the images that the discriminator sees.

Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data", appendix B. Every
transform is linear in the images (noise is affine), so an image and its gradients of any order pass
through the same map. A transform whose parameters are 0 changes nothing.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .resampling import Margins, margins_of, reflection_indices, warp


@dataclass(frozen=True)
class Parameter:
    """Distribution of the random numbers of one transform."""

    kind: Literal["choice", "uniform", "normal"]
    size: float  # number of choices from 0, half width around 0, or standard deviation
    count: int = 1  # numbers per image

    def draw(self, n: int, rng: torch.Generator) -> Tensor:
        """Draw float64 (n, count)."""
        shape = n, self.count
        if self.kind == "normal":
            return self.size * torch.randn(shape, generator=rng, dtype=torch.float64)
        return self.at(torch.rand(shape, generator=rng, dtype=torch.float64))

    def at(self, u: Tensor) -> Tensor:
        """Values at percentiles `u` (0 to 1) of the distribution.

        As in the official code, those of a normal distribution lack a factor of sqrt 2.
        """
        if self.kind == "choice":
            return (u * self.size).floor()
        centered = 2 * u - 1
        return self.size * (centered if self.kind == "uniform" else centered.erfinv())


PARAMETERS = {
    "xflip": Parameter("choice", 2),
    "rotate90": Parameter("choice", 4),  # quarter turns, counter-clockwise
    "xint": Parameter("uniform", 0.125, 2),  # shift in x and y, relative to the side; whole pixels
    "scale": Parameter("normal", 0.2),  # log2 of the factor
    "rotate": Parameter("uniform", math.pi, 2),  # before and after `aniso`
    "aniso": Parameter("normal", 0.2),  # log2 of the factor of the width, which divides the height
    "xfrac": Parameter("normal", 0.125, 2),  # shift in x and y, relative to the side
    "brightness": Parameter("normal", 0.2),
    "contrast": Parameter("normal", 0.5),  # log2 of the factor
    "lumaflip": Parameter("choice", 2),
    "hue": Parameter("uniform", math.pi),  # angle
    "saturation": Parameter("normal", 1.0),  # log2 of the factor
    "imgfilter": Parameter("normal", 1.0, 4),  # log2 of the gain of each band
    "noise": Parameter("normal", 0.1),  # standard deviation, of either sign
    # center of the square in x and y, from the middle of the image, relative to the side
    "cutout": Parameter("uniform", 0.5, 2),
}
BLIT = ("xflip", "rotate90", "xint")
GEOMETRY = ("scale", "rotate", "aniso", "xfrac")
COLOR = ("brightness", "contrast", "lumaflip", "hue", "saturation")
GROUPS = {
    "blit": BLIT,
    "geom": GEOMETRY,
    "color": COLOR,
    "bg": BLIT + GEOMETRY,
    "bgc": BLIT + GEOMETRY + COLOR,  # the best for few images: section 4.1
}


@dataclass(frozen=True)
class Transform:
    """Parameters of each transform for N images; None if it is not applied."""

    geometry: Tensor | None = None  # (N, 3, 3): where a pixel comes from, relative to the center
    margins: Margins = (0, 0, 0, 0)  # of reflection, for the whole batch
    color: Tensor | None = None  # (N, 4, 4), applied to (r, g, b, 1)
    bands: Tensor | None = None  # (N, 4): gains of frequency bands, lowest first
    noise: Tensor | None = None  # (N, C, H, W), added
    cutout: Tensor | None = None  # (N, 2): center of the square set to 0, from 0 to 1; nan = none


def parse_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names without groups, in the order of PARAMETERS. Raises ValueError for unknown ones."""
    asked = {name for word in names for name in GROUPS.get(word, (word,))}
    unknown = sorted(asked - PARAMETERS.keys())
    if unknown:
        known = ", ".join([*GROUPS, *PARAMETERS])
        raise ValueError(f"transforms must be among {known}, got {unknown[0]!r}")
    return tuple(name for name in PARAMETERS if name in asked)


def draw(shape: Sequence[int], names: Iterable[str], p: float, rng: torch.Generator) -> Transform:
    """Draw transforms for images of `shape` (N, C, H, W), each with probability `p` per image.

    The parameters drawn do not depend on `p`.
    """
    n = shape[0]
    values = {}
    for name in parse_names(names):
        parameter = PARAMETERS[name]
        values[name] = parameter.draw(n, rng)
        # Two rotations; p_rot = 1 - sqrt(1-p) makes P(any) = p.
        chance = 1 - math.sqrt(max(1 - p, 0)) if name == "rotate" else p
        chances = parameter.count if name in ("rotate", "imgfilter") else 1
        happens = torch.rand(n, chances, generator=rng, dtype=torch.float64) < chance
        values[name] = torch.where(happens, values[name], math.nan if name == "cutout" else 0.0)
    return transform_of(shape, values, rng)


def at_percentile(shape: Sequence[int], names: Iterable[str], u: float) -> Transform:
    """All transforms of `names`, with every random number at percentile `u` and one rotation."""
    values = {}
    for name in parse_names(names):
        percentiles = torch.full((shape[0], PARAMETERS[name].count), u, dtype=torch.float64)
        values[name] = PARAMETERS[name].at(percentiles)
    if "rotate" in values:
        values["rotate"][:, 1] = 0
    return transform_of(shape, values, torch.Generator().manual_seed(0))


def transform_of(shape: Sequence[int], drawn: dict[str, Tensor], rng: torch.Generator) -> Transform:
    """Build a transform from parameters `drawn` (N, count) by name; `rng` draws the noise."""
    n, _, *size = shape
    values = {k: torch.zeros(n, p.count, dtype=torch.float64) for k, p in PARAMETERS.items()}
    values |= drawn
    geometry = None
    color = None
    noise = None
    margins: Margins = (0, 0, 0, 0)
    if drawn.keys() & {*BLIT, *GEOMETRY}:
        geometry = geometry_matrices(values, *size)
        margins = margins_of(geometry, *size)
    if drawn.keys() & {*COLOR}:
        color = color_matrices(values)
    if "noise" in drawn:
        deviation = values["noise"].abs()[:, :, None, None].float()
        noise = torch.randn(tuple(shape), generator=rng) * deviation
    bands = band_gains(values["imgfilter"]) if "imgfilter" in drawn else None
    cutout = values["cutout"] + 0.5 if "cutout" in drawn else None
    return Transform(geometry, margins, color, bands, noise, cutout)


def apply(images: Tensor, transform: Transform) -> Tensor:
    """Transform images (N, C, H, W); color keeps alpha, the last of 2 or 4 channels."""
    if transform.geometry is not None:
        images = warp(images, transform.geometry, transform.margins)
    for change, parameters in (
        (recolor, transform.color),
        (amplify, transform.bands),
        (torch.add, transform.noise),
        (cut_out, transform.cutout),
    ):
        if parameters is not None:
            images = change(images, parameters.to(images))
    return images


# Geometry: from a pixel of the output to where it comes from, one transform after the other


def geometry_matrices(values: dict[str, Tensor], height: int, width: int) -> Tensor:
    """Matrices (N, 3, 3) of the geometric parameters (N, count)."""
    size = torch.tensor([width, height], dtype=torch.float64)
    flip = 1 - 2 * values["xflip"][:, 0]
    log_scale = values["scale"][:, 0]
    log_aniso = values["aniso"][:, 0]
    before, after = values["rotate"].unbind(1)
    matrices = torch.eye(3, dtype=torch.float64).expand(len(flip), 3, 3)
    for step in (
        scaling(flip, 1),
        rotation(-math.pi / 2 * values["rotate90"][:, 0]),
        shift(-(values["xint"] * size).round()),
        scaling(torch.exp2(-log_scale), torch.exp2(-log_scale)),
        rotation(-before),
        scaling(torch.exp2(-log_aniso), torch.exp2(log_aniso)),
        rotation(-after),
        shift(-values["xfrac"] * size),
    ):
        matrices = matrices @ step
    return matrices


def matrix(*entries: Tensor | float) -> Tensor:
    """Stack nine entries, (N,) or numbers, row by row -> (N, 3, 3)."""
    columns = [torch.as_tensor(entry, dtype=torch.float64) for entry in entries]
    return torch.stack(torch.broadcast_tensors(*columns), dim=-1).unflatten(-1, (3, 3))


def scaling(x: Tensor, y: Tensor | float) -> Tensor:
    return matrix(x, 0, 0, 0, y, 0, 0, 0, 1)


def rotation(angle: Tensor) -> Tensor:
    cos = angle.cos()
    sin = angle.sin()
    return matrix(cos, sin, 0, -sin, cos, 0, 0, 0, 1)


def shift(by: Tensor) -> Tensor:
    return matrix(1, 0, by[:, 0], 0, 1, by[:, 1], 0, 0, 1)


# Color: around the gray axis


def color_matrices(values: dict[str, Tensor]) -> Tensor:
    """Matrices (N, 4, 4) of the color parameters (N, 1)."""
    axis = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64) / math.sqrt(3)
    gray = axis[:, None] * axis  # projects to the gray axis
    x, y, z, _ = axis.tolist()
    cross = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    cross = F.pad(cross, (0, 1, 0, 1))
    identity = torch.eye(4, dtype=torch.float64)
    rgb = torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64))
    last = identity - rgb
    contrast, flip, hue, saturation = (values[name][:, :, None] for name in COLOR[1:])

    brighter = identity.repeat(len(hue), 1, 1)
    brighter[:, :3, 3] += values["brightness"]
    matrices = torch.exp2(contrast) * rgb @ brighter + last @ brighter
    matrices = (identity - 2 * flip * gray) @ matrices
    matrices = (gray + last + hue.cos() * (rgb - gray) + hue.sin() * cross) @ matrices
    return (gray + last + torch.exp2(saturation) * (rgb - gray)) @ matrices


def recolor(images: Tensor, matrices: Tensor) -> Tensor:
    """Apply `matrices` (N, 4, 4) to (r, g, b, 1) of every pixel; gray gets their mean."""
    colors = images.shape[1] - (images.shape[1] % 2 == 0)
    if colors == 1:
        mean = matrices[:, :3].mean(dim=1)
        matrices = torch.cat([mean[:, :3].sum(dim=1, keepdim=True), mean[:, 3:]], dim=1)[:, None]
    linear = matrices[:, :colors, :colors]
    offset = matrices[:, :colors, -1]
    flat = torch.baddbmm(offset[:, :, None], linear, images[:, :colors].flatten(2))
    new = flat.unflatten(2, images.shape[2:])
    return new if colors == images.shape[1] else torch.cat([new, images[:, colors:]], dim=1)


# Frequencies: octaves, as differences between images under increasingly strong low-pass filters

POWER = torch.tensor([10, 1, 1, 1], dtype=torch.float64) / 13  # of natural images, by band


def band_gains(log2_gains: Tensor) -> Tensor:
    """Gains (N, 4) of the bands, scaled after each band to keep the expected power."""
    gains = torch.ones_like(log2_gains)
    for band in range(4):
        of_band = torch.ones_like(gains)
        of_band[:, band] = torch.exp2(log2_gains[:, band])
        gains = gains * of_band / (POWER * of_band.square()).sum(dim=1, keepdim=True).sqrt()
    return gains


@functools.cache
def filter_bank(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Impulse responses (4, 43) of the four bands, whose sum is a unit impulse."""
    half_band = torch.tensor([[[-1, 0, 9, 16, 9, 0, -1]]], dtype=torch.float64) / 32
    low = torch.zeros(1, 1, 43, dtype=torch.float64)
    low[..., 21] = 1
    bands = []
    for distance in (1, 2, 4):  # between the taps
        lower = F.conv1d(low, half_band, padding=3 * distance, dilation=distance)
        bands.append(low - lower)
        low = lower
    return torch.cat([low, *bands[::-1]])[:, 0].to(device, dtype)


def amplify(images: Tensor, gains: Tensor) -> Tensor:
    """Multiply frequency bands by `gains` (N, 4), along x and y; borders are reflected."""
    n, c, height, width = images.shape
    kernels = gains @ filter_bank(gains.dtype, gains.device)
    kernels = kernels.repeat_interleave(c, dim=0)  # (N * C, taps)
    margin = kernels.shape[1] // 2
    x = images.reshape(1, n * c, height, width)
    x = x[:, :, reflection_indices(height, margin, margin, x.device)]
    x = x[:, :, :, reflection_indices(width, margin, margin, x.device)]
    x = F.conv2d(x, kernels[:, None, None, :], groups=n * c)
    x = F.conv2d(x, kernels[:, None, :, None], groups=n * c)
    return x.reshape(n, c, height, width)


def cut_out(images: Tensor, centers: Tensor) -> Tensor:
    """Set squares of half the side to 0; centers (N, 2) in x and y from 0 to 1, nan = none."""
    height, width = images.shape[2:]
    x = (torch.arange(width, device=images.device).to(images.dtype) + 0.5) / width
    y = (torch.arange(height, device=images.device).to(images.dtype) + 0.5) / height
    beside_x = ~((x - centers[:, :1]).abs() < 0.25)  # (N, W)
    beside_y = ~((y - centers[:, 1:]).abs() < 0.25)
    return images * (beside_x[:, None, None, :] | beside_y[:, None, :, None])
