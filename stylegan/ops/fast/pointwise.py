"""Activations, noise and normalization that pass over an image as seldom as possible."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..precision import at_least_float32, differentiated, full_precision, traced

CACHED_NUMBERS = 2**20  # stay in a processor's cache
LARGE_IMAGE = 2**17  # numbers; from so many on, image by image beats a change of memory order
STRIP = 2**15  # pixels; heights are powers of two, so that all strips are of a size


class LeakyReLU(torch.autograd.Function):
    """Keeps only its result, which may take the place of its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float, in_place: bool) -> Tensor:
        if in_place:
            ctx.mark_dirty(x)
        y = F.leaky_relu(x, slope, in_place)
        ctx.slope = slope
        ctx.save_for_backward(y.detach())  # itself would hold its own graph
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return LeakyReLUGradient.apply(grad, *ctx.saved_tensors, ctx.slope), None, None


class LeakyReLUGradient(torch.autograd.Function):
    """`grad` where y >= 0, `slope * grad` elsewhere; and so is its own gradient."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, y: Tensor, slope: float) -> Tensor:
        ctx.slope = slope
        ctx.save_for_backward(y)
        # ATen uses the slope at y = 0, officially it is 1: add so small a number that it moves
        # nothing but 0. Subnormal numbers are slow on CPUs, but in float16 only they are so small.
        numbers = torch.finfo(y.dtype)
        little = numbers.tiny * (numbers.eps if y.dtype == torch.float16 else 1)
        gradient = torch.ops.aten.leaky_relu_backward
        if y.numel() <= CACHED_NUMBERS or y.device.type != "cpu":
            return gradient(grad, y + little, slope, False)
        out = torch.empty_like(grad)
        rows = max(1, CACHED_NUMBERS * len(y) // y.numel())  # the sum stays in the cache
        for g, part, o in zip(grad.split(rows), y.split(rows), out.split(rows), strict=True):
            gradient.grad_input(g, part + little, slope, False, grad_input=o)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return LeakyReLUGradient.apply(grad, *ctx.saved_tensors, ctx.slope), None, None


def leaky_relu(x: Tensor, slope: float, *, in_place: bool) -> Tensor:
    if differentiated(x):
        y: Tensor = LeakyReLU.apply(x, slope, in_place)
        return y
    return F.leaky_relu(x, slope, in_place)


def with_noise_(
    x: Tensor,
    noise: Tensor | None,
    strength: Tensor | None,
    bias: Tensor,
    activate_: Callable[[Tensor], Tensor],
) -> Tensor:
    """activate(x + noise * strength + bias); x may be written over."""
    n, c, h, w = x.shape
    if noise is None or strength is None:
        return activate_(x + bias.to(x.dtype)[:, None, None])
    if x.device.type != "cpu" or not full_precision(x):
        strength, bias = (v.to(x.dtype)[:, None, None] for v in (strength, bias))
        return activate_(torch.addcmul(x, noise.to(x.dtype), strength).add_(bias))
    # Memory is channels last: one matrix product adds noise and bias; broadcasting over channels,
    # a short run of memory, would be slow.
    pixels = noise.to(x.dtype).expand(n, 1, h, w).reshape(-1)
    left = torch.stack([pixels, torch.ones_like(pixels)], dim=1)
    right = torch.stack([strength, bias]).to(x.dtype)
    rows = x.permute(0, 2, 3, 1).reshape(-1, c)
    if traced() or (torch.is_grad_enabled() and (x.requires_grad or right.requires_grad)):
        rows = torch.addmm(rows, left, right)
    else:
        rows.addmm_(left, right)
    return activate_(rows).view(n, h, w, c).permute(0, 3, 1, 2)


def adain(x: Tensor, scale: Tensor, bias: Tensor, eps: float, *, in_place: bool) -> Tensor:
    """AdaIN by F.batch_norm, image by image or as one image of N * C channels: its kernel is fused
    everywhere, its statistics are float32. x may be written over if `in_place`."""
    n, c, h, w = x.shape
    scale, bias = at_least_float32(scale), at_least_float32(bias)
    normalize = partial(F.batch_norm, running_mean=None, running_var=None, training=True, eps=eps)
    one_by_one = n == 1 or c * h * w >= LARGE_IMAGE  # then channels last can stay
    if x.device.type != "cpu" or traced() or not one_by_one:
        flat = x.reshape(1, n * c, h, w)
        return normalize(flat, weight=scale.reshape(-1), bias=bias.reshape(-1)).reshape(n, c, h, w)
    each = zip(x.split(1), scale, bias, strict=True)
    last = x.is_contiguous(memory_format=torch.channels_last)
    if in_place and last and full_precision(x) and not torch.is_grad_enabled():
        for image, s, b in each:
            adain_(image, s, b, eps)
        return x
    images = [normalize(image, weight=s, bias=b) for image, s, b in each]
    return images[0] if n == 1 else torch.cat(images)


def adain_(image: Tensor, scale: Tensor, bias: Tensor, eps: float) -> None:
    """One image (1, C, H, W), channels last, in place: fresh memory costs more here than
    arithmetic."""
    mean, variance = statistics(image)
    factor = scale * torch.rsqrt(variance + eps)
    rows = image.permute(0, 2, 3, 1)
    torch.addcmul(bias - mean * factor, rows, factor, out=rows)


def statistics(image: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance (C,) of the channels of one image (1, C, H, W).

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
