"""Activations, noise and normalization in as few passes over an image as possible."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import formulas
from ..formulas import Activation
from ..precision import is_full_precision, needs_custom_grad

CACHED_NUMBERS = 2**20  # numbers that fit into a CPU's cache
LARGE_IMAGE = 2**17  # numbers from which image by image beats a change of memory order
STRIP = 2**15  # pixels of a strip; heights are powers of two, so all strips have one size


class LeakyReLU(torch.autograd.Function):
    """Leaky ReLU that saves only its output, which may overwrite its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float, in_place: bool) -> Tensor:
        if in_place:
            ctx.mark_dirty(x)
        y = F.leaky_relu(x, slope, in_place)
        ctx.slope = slope
        ctx.save_for_backward(y.detach())  # y itself would keep its own graph alive
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return LeakyReLUGradient.apply(grad, *ctx.saved_tensors, ctx.slope), None, None


class LeakyReLUGradient(torch.autograd.Function):
    """`grad` where y >= 0, `slope * grad` elsewhere; its own gradient has the same form."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, y: Tensor, slope: float) -> Tensor:
        ctx.slope = slope
        ctx.save_for_backward(y)
        # At y = 0 ATen's derivative is the slope, the official one is 1: add a number so small that
        # it changes nothing but 0. Subnormal numbers are slow on CPUs, so only float16 uses one.
        numbers = torch.finfo(y.dtype)
        little = numbers.tiny * (numbers.eps if y.dtype == torch.float16 else 1)
        gradient = torch.ops.aten.leaky_relu_backward
        if y.numel() <= CACHED_NUMBERS:
            return gradient(grad, y + little, slope, False)
        out = torch.empty_like(grad)
        rows = max(1, CACHED_NUMBERS * len(y) // y.numel())  # so that the sum stays in the cache
        for g, part, o in zip(grad.split(rows), y.split(rows), out.split(rows), strict=True):
            gradient.grad_input(g, part + little, slope, False, grad_input=o)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return LeakyReLUGradient.apply(grad, *ctx.saved_tensors, ctx.slope), None, None


def leaky_relu(x: Tensor, slope: float, *, in_place: bool) -> Tensor:
    if needs_custom_grad(x):
        return LeakyReLU.apply(x, slope, in_place)
    return F.leaky_relu(x, slope, in_place)


def noise_bias_act(
    x: Tensor, noise: Tensor, strength: Tensor, bias: Tensor, activation: Activation
) -> Tensor:
    """Activation of `x + noise * strength + bias`; x may be overwritten."""
    n, c, h, w = x.shape
    # Memory is channels-last, so one matrix product adds noise and bias. Broadcasting over the
    # channels, short runs of memory, would be slow: in bfloat16 ten times as slow.
    pixels = noise.to(x.dtype).expand(n, 1, h, w).reshape(-1)
    left = torch.stack([pixels, torch.ones_like(pixels)]).t()
    right = torch.stack([strength, bias]).to(x.dtype)
    rows = x.permute(0, 2, 3, 1).reshape(-1, c)
    if torch.is_grad_enabled() and (x.requires_grad or right.requires_grad):
        rows = torch.addmm(rows, left, right)
    else:
        rows.addmm_(left, right)
    rows = leaky_relu(rows, 0.2, in_place=True) if activation == "lrelu" else F.relu_(rows)
    return as_images(rows, x)


def adain(x: Tensor, scale: Tensor, bias: Tensor, eps: float, *, in_place: bool) -> Tensor:
    """AdaIN: small images in their memory order, large ones one by one; float32 statistics."""
    n, c, h, w = x.shape
    small = c * h * w < LARGE_IMAGE
    if small and n > 1 and is_full_precision(x):
        return AdaIN.apply(x, scale.to(x.dtype), bias.to(x.dtype), eps)
    normalize = partial(F.batch_norm, running_mean=None, running_var=None, training=True, eps=eps)
    if small and n > 1:
        flat = x.reshape(1, n * c, h, w)
        return normalize(flat, weight=scale.reshape(-1), bias=bias.reshape(-1)).reshape(n, c, h, w)
    each = zip(x.split(1), scale, bias, strict=True)
    is_channels_last = x.is_contiguous(memory_format=torch.channels_last)
    if in_place and is_channels_last and not torch.is_grad_enabled():
        in_its_place = adain_ if is_full_precision(x) else batch_norm_
        for image, s, b in each:
            in_its_place(image, s, b, eps)
        return x
    images = [normalize(image, weight=s, bias=b) for image, s, b in each]
    return images[0] if n == 1 else torch.cat(images)


class AdaIN(torch.autograd.Function):
    """AdaIN that keeps channels-last order, which `F.batch_norm` would change and restore."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, bias: Tensor, eps: float) -> Tensor:
        rows = pixel_rows(x)
        mean = rows.mean(dim=1, keepdim=True)
        y = rows - mean
        inverse_deviation = torch.rsqrt(y.square().mean(dim=1, keepdim=True) + eps)
        ctx.eps = eps
        ctx.save_for_backward(x, scale, bias, mean, inverse_deviation)
        torch.addcmul(bias[:, None], y, inverse_deviation * scale[:, None], out=y)
        return as_images(y, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, bias, mean, inverse_deviation = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated again
            # Scale and bias may depend on x. Views give each input a node of its own: otherwise the
            # gradient with respect to x would include that path, which autograd adds by itself.
            # (`torch.func.vjp` would do it, but refuses saved-tensor hooks.)
            inputs = [v.view_as(v) for v in (x, scale, bias)]
            x, scale, bias = inputs
            y = formulas.adain(x, scale, bias, ctx.eps)
            needed = ctx.needs_input_grad
            wanted = [v for v, need in zip(inputs, needed, strict=False) if need]
            gradients = iter(torch.autograd.grad(y, wanted, grad, create_graph=True))
            return (*(next(gradients) if need else None for need in needed),)
        rows = pixel_rows(grad)
        normed = torch.addcmul(-mean * inverse_deviation, pixel_rows(x), inverse_deviation)
        grad_bias = rows.sum(dim=1)
        grad_scale = (rows * normed).sum(dim=1)
        # With g the gradient, z the normalized x and means over pixels, grad_x is
        # scale / deviation * (g - mean(g) - z * mean(g * z)).
        factor = inverse_deviation * scale[:, None]
        share = factor / -rows.shape[1]
        grad_x = torch.addcmul(share * grad_bias[:, None], rows, factor)
        grad_x.addcmul_(normed, share * grad_scale[:, None])
        return as_images(grad_x, x), grad_scale, grad_bias, None


def pixel_rows(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H W, C), a view if images are channels-last."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def as_images(rows: Tensor, like: Tensor) -> Tensor:
    """Inverse of `pixel_rows`, with the shape of `like`, channels-last."""
    n, c, h, w = like.shape
    return rows.view(n, h, w, c).permute(0, 3, 1, 2)


def adain_(image: Tensor, scale: Tensor, bias: Tensor, eps: float) -> None:
    """AdaIN of a channels-last image (1, C, H, W) in place: new memory costs more than the sums."""
    mean, variance = statistics(image)
    factor = scale * torch.rsqrt(variance + eps)
    rows = image.permute(0, 2, 3, 1)
    torch.addcmul(bias - mean * factor, rows, factor, out=rows)


def batch_norm_(image: Tensor, scale: Tensor, bias: Tensor, eps: float) -> None:
    """`F.batch_norm` of a half-precision image (1, C, H, W) in place: statistics come first."""
    unused = torch.empty_like(scale), torch.empty_like(scale)
    torch.native_batch_norm(image, scale, bias, None, None, True, 0.0, eps, out=(image, *unused))


def statistics(image: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance (C,) of the channels of one image (1, C, H, W).

    The kernel adds pixels one by one in float32 and loses four digits over a million of them, so it
    is called on strips, whose statistics are combined.
    """
    height, width = image.shape[2:]
    strips = [
        torch.ops.aten.batch_norm_update_stats(strip, None, None, 0.0)
        for strip in image.tensor_split(max(1, height * width // STRIP), dim=2)
    ]
    means, variances = (torch.stack(parts) for parts in zip(*strips, strict=True))
    mean = means.mean(dim=0)
    return mean, (variances + (means - mean).square()).mean(dim=0)
