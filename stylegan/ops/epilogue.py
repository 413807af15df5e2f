"""What follows a convolution: noise, bias, activation, normalization, style.

Each is a PyTorch operation. Together they save one image for the gradients: the output of the
activation, which the normalization reads; in channels-last order also a copy of it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from . import cpu, formulas
from .formulas import Activation, Style
from .precision import at_least_float32, has_fast_matmul, is_full_precision


def leaky_relu(x: Tensor, slope: float = 0.2, *, in_place: bool = False) -> Tensor:
    """Leaky ReLU; its derivative at exactly 0 is `slope` on GPUs, and the official 1 on CPUs."""
    if cpu.uses_cpu_kernels(x):
        return cpu.leaky_relu(x, slope, in_place=in_place)
    return F.leaky_relu(x, slope, in_place)


def activate(x: Tensor, activation: Activation, *, in_place: bool = False) -> Tensor:
    if activation == "lrelu":
        return leaky_relu(x, in_place=in_place)
    return F.relu(x, in_place)


def adain(
    x: Tensor, scale: Tensor, bias: Tensor, eps: float = 1e-8, *, in_place: bool = False
) -> Tensor:
    """AdaIN as `F.instance_norm` computes it: one image of N * C channels, float32 statistics.

    Channels-last order costs a copy, which takes no longer than separate sums and products would.
    If `in_place`, x may be overwritten.
    """
    scale = at_least_float32(scale)
    bias = at_least_float32(bias)
    if cpu.uses_cpu_kernels(x):
        return cpu.adain(x, scale, bias, eps, in_place=in_place)
    flat = x.contiguous().view(1, x.shape[0] * x.shape[1], -1)
    scale = scale.reshape(-1)
    bias = bias.reshape(-1)
    return F.batch_norm(flat, None, None, scale, bias, training=True, eps=eps).view(x.shape)


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
    x = noise_bias_act(x, noise, strength, bias, activation)
    x = formulas.pixel_norm(x) if normalize_pixels else x
    if not normalize_channels:
        return x if style is None else formulas.style_modulation(x, *style)
    style = (x.new_ones(x.shape[:2]), x.new_zeros(x.shape[:2])) if style is None else style
    return adain(x, *style, in_place=True)


def noise_bias_act(
    x: Tensor, noise: Tensor | None, strength: Tensor | None, bias: Tensor, activation: Activation
) -> Tensor:
    """Activation of `x + noise * strength + bias`; x may be overwritten."""
    if noise is None or strength is None:
        return activate(x + bias.to(x.dtype).view(-1, 1, 1), activation, in_place=True)
    if cpu.uses_cpu_kernels(x) and (
        is_full_precision(x) or (x.dtype == torch.bfloat16 and has_fast_matmul(x.dtype))
    ):
        return cpu.noise_bias_act(x, noise, strength, bias, activation)
    strength, bias = (v.to(x.dtype).view(-1, 1, 1) for v in (strength, bias))
    x = torch.addcmul(x, noise.to(x.dtype), strength).add_(bias)
    return activate(x, activation, in_place=True)
