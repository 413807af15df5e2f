"""Faster ways to compute some formulas. Here they are chosen; the other files compute.

The public functions have the names, the arguments and, up to round-off, the values and derivatives
of those in `formulas`; `activate` may also write over its input. docs/performance.md says what the
faster ways gain.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import formulas
from ..formulas import Activation, Style
from ..precision import autocast_dtype, differentiated, full_precision, traced
from . import pointwise
from .bilinear import Blur, Dense, OfBlurred, filtered, product
from .convolution import Direct, Size, Unfolded, fast_format
from .winograd import Winograd

MANY_CHANNELS = 256  # from so many on, Winograd and Unfolded are faster than Direct
FEW_PIXELS = 128  # height * width * images, up to which Unfolded is taken: the weight is larger
LARGE_WEIGHT = 2**20  # from so many numbers on, the memory order of the gradient costs time


def dense(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    if not full_precision(x):
        return F.linear(x, weight * scale, bias)
    weight, bias = weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
    if x.device.type != "cpu" or weight.numel() < LARGE_WEIGHT:
        return F.linear(x * scale, weight, bias)  # the input is smaller than the weight
    y = product(Dense(scale), x, weight)
    return y if bias is None else y + bias


def conv2d(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    if weight.shape[-1] == 1:
        bias = None if bias is None else bias.to(x.dtype)
        return F.conv2d(fast_format(x), (weight * scale).to(x.dtype), bias)
    return convolve(x, weight, scale, bias, "same")


def upsample_conv2d(x: Tensor, weight: Tensor, scale: float) -> Tensor:
    return convolve(x, weight, scale, None, "double")


def conv2d_downsample(
    x: Tensor, weight: Tensor, scale: float, bias: Tensor | None = None, *, blur_first: bool = False
) -> Tensor:
    if x.shape[2] % 2 or x.shape[3] % 2:
        raise ValueError(f"height and width must be even to be halved, not {tuple(x.shape[2:])}")
    return convolve(x, weight, scale, bias, "half", blur_first=blur_first)


def convolve(
    x: Tensor,
    weight: Tensor,
    scale: float,
    bias: Tensor | None,
    size: Size,
    *,
    blur_first: bool = False,
) -> Tensor:
    """A 3x3 convolution in the fastest way, and in autocast's precision."""
    half = autocast_dtype(x.device.type)
    if x.dtype != torch.float64 and half is not None:
        x = x.to(half)
    x = fast_format(x)
    op = choose(x, weight, size)(size, scale)
    y = product(OfBlurred(op) if blur_first else op, x, weight)
    return y if bias is None else y.add_(bias.to(y.dtype)[:, None, None])


def choose(x: Tensor, weight: Tensor, size: Size) -> type[Direct | Winograd | Unfolded]:
    n, _, h, w = x.shape
    exact = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if traced() or not exact or min(weight.shape[:2]) < MANY_CHANNELS:
        return Direct
    if size == "same" and n * h * w <= FEW_PIXELS:
        return Unfolded
    even = size == "double" or (h % 2 == 0 and w % 2 == 0)
    return Winograd if even else Direct


def blur(x: Tensor) -> Tensor:
    y: Tensor = Blur.apply(x) if differentiated(x) else filtered(x)
    return y


def leaky_relu(x: Tensor, slope: float = 0.2) -> Tensor:
    return pointwise.leaky_relu(x, slope, in_place=False)


def activate(x: Tensor, activation: Activation, *, in_place: bool = False) -> Tensor:
    if activation == "lrelu":
        return pointwise.leaky_relu(x, 0.2, in_place=in_place)
    return F.relu(x, in_place)


def adain(x: Tensor, scale: Tensor, bias: Tensor, eps: float = 1e-8) -> Tensor:
    return pointwise.adain(x, scale, bias, eps, in_place=False)


def epilogue(
    x: Tensor,
    noise: Tensor | None,
    strength: Tensor | None,
    bias: Tensor,
    style: Style | None,
    *,
    activation: Activation = "lrelu",
    normalize_pixels: bool = False,
    normalize_channels: bool = True,
) -> Tensor:
    activate_ = partial(activate, activation=activation, in_place=True)
    x = pointwise.with_noise_(x, noise, strength, bias, activate_)
    x = formulas.pixel_norm(x) if normalize_pixels else x
    if not normalize_channels:
        return x if style is None else formulas.style_modulation(x, *style)
    style = (x.new_ones(x.shape[:2]), x.new_zeros(x.shape[:2])) if style is None else style
    return pointwise.adain(x, *style, 1e-8, in_place=True)
