"""The mathematics of the networks as functions, without parameters."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .convolution import conv2d as conv2d
from .convolution import fast_format as fast_format
from .filters import blur as blur
from .linear import dense as dense
from .precision import at_least_float32, full_precision, traced
from .precision import without_autocast as without_autocast

Activation = Literal["lrelu", "relu"]

CACHED_NUMBERS = 2**20  # stay in a processor's cache
LARGE_IMAGE = 2**17  # numbers, from which on one by one is faster than in another order
LARGEST_PSI = torch.finfo(torch.float32).max
STRIP = 2**15  # pixels; heights are powers of two, so that all strips are of a size


class LeakyReLU(torch.autograd.Function):
    """Writes over its input, of which nothing else is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
        ctx.mark_dirty(x)
        y = F.leaky_relu_(x, slope)
        ctx.slope = slope
        ctx.save_for_backward(y.detach())  # itself would hold its own graph
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return LeakyReLUGradient.apply(grad, *ctx.saved_tensors, ctx.slope), None


class LeakyReLUGradient(torch.autograd.Function):
    """`grad` where y >= 0, `slope * grad` elsewhere; and so is its own gradient."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, y: Tensor, slope: float) -> Tensor:
        ctx.slope = slope
        ctx.save_for_backward(y)
        # so small a number moves nothing but 0, which it puts on the steep side; the smallest of
        # all is slow on CPUs, but the next is too large in float16
        numbers = torch.finfo(y.dtype)
        little = numbers.tiny * (numbers.eps if y.dtype == torch.float16 else 1)
        if y.numel() <= CACHED_NUMBERS or y.device.type != "cpu":
            return torch.ops.aten.leaky_relu_backward(grad, y + little, slope, False)
        out = torch.empty_like(grad)
        for part in parts(y):
            torch.ops.aten.leaky_relu_backward.grad_input(
                grad[part], y[part] + little, slope, False, grad_input=out[part]
            )
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return LeakyReLUGradient.apply(grad, *ctx.saved_tensors, ctx.slope), None, None


def parts(x: Tensor) -> Iterator[slice]:
    """Ranges along dim 0, of at most `CACHED_NUMBERS` or one row."""
    rows = max(1, CACHED_NUMBERS * len(x) // x.numel())
    return (slice(start, start + rows) for start in range(0, len(x), rows))


def leaky_relu_(x: Tensor, slope: float = 0.2) -> Tensor:
    """`max(x, slope * x)` in place, whose derivative at exactly 0 is 1; torch's own takes `slope`.

    For values that nothing else uses, such as those of a layer just before.
    """
    if torch.is_grad_enabled() and x.requires_grad:
        y: Tensor = LeakyReLU.apply(x, slope)
        return y
    return F.leaky_relu_(x, slope)


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"lrelu": leaky_relu_, "relu": F.relu_}


def activate_with_noise(
    x: Tensor,
    noise: Tensor | None,
    strength: Tensor | None,
    bias: Tensor,
    activation: Callable[[Tensor], Tensor],
) -> Tensor:
    """activation(x + noise * strength + bias); x (N, C, H, W) may be written over, noise
    (1 or N, 1, H, W) or None, strength and bias (C,)."""
    n, c, h, w = x.shape
    if noise is None or strength is None:
        return activation(x + bias.to(x.dtype)[:, None, None])
    if x.device.type != "cpu" or not full_precision(x):
        strength, bias = (v.to(x.dtype)[:, None, None] for v in (strength, bias))
        return activation(torch.addcmul(x, noise.to(x.dtype), strength).add_(bias))
    # channels last: one matrix product adds both, where the channels alone are a short way to go
    pixels = noise.to(x.dtype).expand(n, 1, h, w).reshape(-1)
    left = torch.stack([pixels, torch.ones_like(pixels)], dim=1)
    right = torch.stack([strength, bias]).to(x.dtype)
    rows = x.permute(0, 2, 3, 1).reshape(-1, c)
    if torch.is_grad_enabled() and (x.requires_grad or right.requires_grad):
        rows = torch.addmm(rows, left, right)
    else:
        rows.addmm_(left, right)
    return activation(rows).view(n, h, w, c).permute(0, 3, 1, 2)


def pixel_norm(x: Tensor, eps: float = 1e-8) -> Tensor:
    """Scale every feature vector (dim 1) to unit mean square. Karras et al. 2018, section 4.2."""
    wide = at_least_float32(x)
    return (wide * torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + eps)).to(x.dtype)


def adain(
    x: Tensor, scale: Tensor, bias: Tensor, eps: float = 1e-8, *, overwrite: bool = False
) -> Tensor:
    """Adaptive instance normalization, equation 1: every channel of every image gets the asked
    standard deviation and mean.

    x (N, C, H, W), which may be written over if `overwrite`; scale and bias (N, C). It is batch
    normalization of images one by one, or of one image with N * C channels, which has a fused
    kernel everywhere and keeps its statistics in float32.
    """
    n, c, h, w = x.shape
    scale, bias = at_least_float32(scale), at_least_float32(bias)
    normalize = partial(F.batch_norm, running_mean=None, running_var=None, training=True, eps=eps)
    one_by_one = n == 1 or c * h * w >= LARGE_IMAGE  # then channels last can stay
    if x.device.type == "cpu" and not traced() and one_by_one:
        each = zip(x.split(1), scale, bias, strict=True)
        if overwrite and not torch.is_grad_enabled() and full_precision(x) and is_channels_last(x):
            for image, s, b in each:
                adain_large_(image, s, b, eps)
            return x
        images = [normalize(image, weight=s, bias=b) for image, s, b in each]
        return images[0] if n == 1 else torch.cat(images)
    flat = x.reshape(1, n * c, h, w)
    return normalize(flat, weight=scale.reshape(-1), bias=bias.reshape(-1)).reshape(n, c, h, w)


def is_channels_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def adain_large_(image: Tensor, scale: Tensor, bias: Tensor, eps: float) -> None:
    """`adain` of one image (1, C, H, W), channels last, in place: fresh memory costs more here
    than arithmetic."""
    mean, variance = statistics(image)
    factor = scale * torch.rsqrt(variance + eps)
    rows = image.permute(0, 2, 3, 1)
    torch.addcmul(bias - mean * factor, rows, factor, out=rows)


def statistics(image: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (C,) of the channels of one image (1, C, H, W).

    The kernel adds up one pixel after the other, and loses four digits over a million of them in
    float32. Hence it is given strips, whose statistics are put together.
    """
    height, width = image.shape[2:]
    strips = [
        torch.ops.aten.batch_norm_update_stats(strip, None, None, 0.0)
        for strip in image.tensor_split(max(1, height * width // STRIP), dim=2)
    ]
    means, variances = (torch.stack(parts) for parts in zip(*strips, strict=True))
    mean = means.mean(dim=0)
    return mean, (variances + (means - mean).square()).mean(dim=0)


def instance_norm(x: Tensor, eps: float = 1e-8, *, overwrite: bool = False) -> Tensor:
    """Zero mean and unit mean square for every channel of every image."""
    n, c = x.shape[:2]
    return adain(x, x.new_ones(n, c), x.new_zeros(n, c), eps, overwrite=overwrite)


def style_modulation(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """`x * scale + bias` per channel; x (N, C, H, W), scale and bias (N, C)."""
    return torch.addcmul(bias[:, :, None, None], x, scale[:, :, None, None]).to(x.dtype)


def upsample(x: Tensor) -> Tensor:
    """Twice the height and width, nearest neighbour."""
    return F.interpolate(x, scale_factor=2, mode="nearest")


def downsample(x: Tensor) -> Tensor:
    """Half the height and width, 2x2 averages."""
    return F.avg_pool2d(x, 2)


def minibatch_deviation(x: Tensor, group_size: int, features: int = 1) -> Tensor:
    """Append to `x` how much the images of its group differ. Karras et al. 2018, section 3.

    x (N, C, H, W) -> (N, C + features, H, W). With M = N / group_size groups, image i belongs to
    group i mod M. Feature n averages the standard deviations over the n-th range of C / features
    channels and all pixels. Groups are never larger than the batch.
    """
    n, c, h, w = x.shape
    group_size = min(group_size, n)
    if n % group_size:
        raise ValueError(f"batch of {n} images does not split into groups of {group_size}")
    if c % features:
        raise ValueError(f"{c} channels do not split into {features} deviation features")
    groups = at_least_float32(x).reshape(group_size, n // group_size, features, -1)
    variance = (groups - groups.mean(dim=0)).square().mean(dim=0)  # `var` is slow over dim 0
    deviation = (variance + 1e-8).sqrt().mean(dim=2)  # (M, features)
    deviation = deviation.repeat(group_size, 1).to(x.dtype)[:, :, None, None]
    return torch.cat([x, deviation.expand(n, features, h, w)], dim=1)


def fade(coarse: Tensor, fine: Tensor, alpha: float) -> Tensor:
    """`fine` with weight `alpha` against `coarse`: the growth of a new resolution."""
    return torch.lerp(coarse, fine, alpha)


def truncate(ws: Tensor, w_avg: Tensor, psi: float, cutoff: int | None) -> Tensor:
    """Pull the first `cutoff` rows of `ws` (N, rows, w_dim) toward the average: section B.

    psi = 1 changes nothing, 0 gives the average image; None as cutoff means every row. ValueError
    for a psi that float32 cannot hold, and for a cutoff that is no number of rows.
    """
    if not abs(psi) <= LARGEST_PSI:
        raise ValueError(f"psi must be a finite number of float32, not {psi}")
    if cutoff is not None and not hasattr(cutoff, "__index__"):
        raise ValueError(f"cutoff must be None or a whole number, not {cutoff!r}")
    if cutoff is not None and cutoff < 0:
        raise ValueError(f"cutoff must be None or at least 0, not {cutoff}")
    if psi == 1 or cutoff == 0:
        return ws
    near = torch.lerp(w_avg.to(ws.dtype), ws[:, :cutoff], psi)
    return near if cutoff is None else torch.cat([near, ws[:, cutoff:]], dim=1)
