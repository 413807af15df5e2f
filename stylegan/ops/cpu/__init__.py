"""Functions that are faster on a CPU than the operations for GPUs.

They have the names, arguments, values and derivatives (up to round-off) of those in `formulas`.
docs/performance.md says what they gain. Images stay in channels-last order.

| implementation | used for |
|---|---|
| `Im2colConv`: one matrix product | 3x3, 256 channels or more, even sizes, few pixels |
| `Winograd`: few multiplications | the same with more pixels |
| `Im2colTapMajorConv`: one product, too | either of these in half precision, where it pays |
| `Direct`: PyTorch's convolution | every other 3x3 convolution |
| `F.conv2d`, also its second derivative | 1x1: colors only, hardly any time |
| `Dense`: gradients in the weight's order | 2^20 weights or more |
| `AdaIN`: keeps the memory order | batches of images below 2^17 numbers, full precision |
| `adain_`, `batch_norm_`: in place | other images, if no gradient is needed |
| leaky ReLU's gradient in tiles | more than 2^20 numbers |

Half precision without fast instructions is computed in float32 and rounded (`emulate_slow_half`).
What R1 differentiates twice has a function for its gradient: `Bilinear` has `BilinearGradients`,
`LeakyReLU` has `LeakyReLUGradient`, `LinearMap` is its own.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

import torch
import torch.nn.functional as F
from torch import Tensor

from ..bilinear import BlurredInput, Dense, LinearMap, product
from ..constants import cached_blur
from ..precision import (
    HALF,
    autocast_dtype,
    capabilities,
    has_fast_matmul,
    is_full_precision,
    is_tracing,
    matmul_dtype,
    needs_custom_grad,
    without_autocast,
)
from .convolution import Direct, Im2colConv, Im2colTapMajorConv, Resize, to_channels_last
from .pointwise import adain, leaky_relu, noise_bias_act
from .winograd import Winograd

P = ParamSpec("P")

MANY_CHANNELS = 256  # channels from which Winograd and Im2colConv beat Direct
# Pixels of a batch, counted in the smaller of input and output, up to which the weight has more
# numbers than the images.
FEW_PIXELS = 128
FEW_PIXELS_HALF = 256  # the same in half precision
LARGE_WEIGHT = 2**20  # numbers from which the memory order of the gradient costs time


def uses_cpu_kernels(x: Tensor) -> bool:
    """Whether `x` is on a CPU and not traced: traced operations may run elsewhere."""
    return x.device.type == "cpu" and not is_tracing()


def emulate_slow_half(
    op: Callable[Concatenate[Tensor, P], Tensor],
) -> Callable[Concatenate[Tensor, P], Tensor]:
    """Decorator: compute in float32 and round where the CPU has no fast half-precision kernels."""

    @wraps(op)
    def of_processor(x: Tensor, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        dtype = matmul_dtype(x)
        if has_fast_matmul(dtype):
            return op(x, *args, **kwargs)
        with without_autocast(x):
            return op(x.to(dtype).float(), *args, **kwargs).to(dtype)

    return of_processor


@emulate_slow_half
def dense(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    if not is_full_precision(x):
        if torch.float16 in (x.dtype, autocast_dtype("cpu")):  # its unscaled gradients overflow
            return F.linear(x, weight * scale, bias)
        return F.linear(x * scale, weight, bias)  # the input is smaller than the weight
    weight = weight.to(x.dtype)
    bias = None if bias is None else bias.to(x.dtype)
    if weight.numel() < LARGE_WEIGHT:
        return F.linear(x * scale, weight, bias)
    y = product(Dense(scale), x, weight)
    return y if bias is None else y + bias


@emulate_slow_half
def conv2d(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    if weight.shape[-1] == 1:
        bias = None if bias is None else bias.to(x.dtype)
        return F.conv2d(to_channels_last(x), (weight * scale).to(x.dtype), bias)
    return convolve(x, weight, scale, bias, "same", blur_first=False)


@emulate_slow_half
def upsample_conv2d(x: Tensor, weight: Tensor, scale: float) -> Tensor:
    return convolve(x, weight, scale, None, "double", blur_first=False)


@emulate_slow_half
def conv2d_downsample(
    x: Tensor, weight: Tensor, scale: float, bias: Tensor | None = None, *, blur_first: bool = False
) -> Tensor:
    return convolve(x, weight, scale, bias, "half", blur_first=blur_first)


def convolve(
    x: Tensor, weight: Tensor, scale: float, bias: Tensor | None, size: Resize, *, blur_first: bool
) -> Tensor:
    """Compute a 3x3 convolution by the fastest implementation, in autocast's dtype if active."""
    x = to_channels_last(x.to(matmul_dtype(x)))
    if weight.dtype in HALF.values():  # of a network that was converted as a whole
        weight = weight.to(x.dtype)
    op = choose_convolution(x, weight, size)(size, scale)
    y = product(BlurredInput(op) if blur_first else op, x, weight)
    return y if bias is None else y.add_(bias.to(y.dtype)[:, None, None])


def choose_convolution(
    x: Tensor, weight: Tensor, size: Resize
) -> type[Direct | Winograd | Im2colConv]:
    """Choose the fastest implementation for these shapes, this dtype and this CPU."""
    n, _, h, w = x.shape
    even = h % 2 == 0 and w % 2 == 0
    if min(weight.shape[:2]) < MANY_CHANNELS or not (even or size == "double"):
        return Direct
    pixels = n * h * w // (4 if size == "half" else 1)
    if x.dtype in (torch.float32, torch.float64):
        return Im2colConv if pixels <= FEW_PIXELS else Winograd
    # A 4x4 kernel takes 16 multiplications, windows take 9; but AMX multiplies faster than windows
    # can be copied.
    resized = size != "same" and not has_matrix_units()
    return Im2colTapMajorConv if resized or pixels <= FEW_PIXELS_HALF else Direct


def has_matrix_units() -> bool:
    return bool(capabilities().get("amx_bf16", False))


@emulate_slow_half
def blur(x: Tensor) -> Tensor:
    if not needs_custom_grad(x):
        return cached_blur(x)
    # The filter is its own transpose; PyTorch would also differentiate with respect to the kernel.
    return LinearMap.apply(x, cached_blur, cached_blur)
