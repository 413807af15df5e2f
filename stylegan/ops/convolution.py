"""Dense layers and convolutions, as every device except a CPU computes them."""

import torch
import torch.nn.functional as F
from torch import Tensor

from . import cpu
from .bilinear import BilinearMap, BlurredInput, Convolution, product
from .constants import blur_kernel
from .precision import HALF, is_full_precision, matmul_dtype


def dense(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    if cpu.uses_cpu_kernels(x):
        return cpu.dense(x, weight, scale, bias)
    if not is_full_precision(x):
        return F.linear(x, weight * scale, bias)
    bias = None if bias is None else bias.to(x.dtype)
    return F.linear(x * scale, weight.to(x.dtype), bias)  # the input is smaller than the weight


def conv2d(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    if cpu.uses_cpu_kernels(x):
        return cpu.conv2d(x, weight, scale, bias)
    return convolved(Convolution(), x, weight * scale, bias)


def upsample_conv2d(x: Tensor, weight: Tensor, scale: float) -> Tensor:
    """One transposed convolution: its 4x4 kernel sums the flipped 3x3 kernel at 2x2 shifts."""
    if cpu.uses_cpu_kernels(x):
        return cpu.upsample_conv2d(x, weight, scale)
    kernel = F.avg_pool2d(weight.flip(2, 3), 2, 1, 1) * (4 * scale)
    return convolved(Convolution(stride=2, transposed=True), x, kernel)


def conv2d_downsample(
    x: Tensor, weight: Tensor, scale: float, bias: Tensor | None = None, *, blur_first: bool = False
) -> Tensor:
    """One convolution: its 4x4 kernel averages the 3x3 kernel at 2x2 shifts."""
    if x.shape[2] % 2 or x.shape[3] % 2:
        raise ValueError(f"height and width must be even, got {tuple(x.shape[2:])}")
    if cpu.uses_cpu_kernels(x):
        return cpu.conv2d_downsample(x, weight, scale, bias, blur_first=blur_first)
    halving = Convolution(stride=2)
    kernel = F.avg_pool2d(weight, 2, 1, 1) * scale
    return convolved(BlurredInput(halving) if blur_first else halving, x, kernel, bias)


def blur(x: Tensor) -> Tensor:
    if cpu.uses_cpu_kernels(x):
        return cpu.blur(x)
    return convolved(Convolution(groups=x.shape[1]), x, blur_kernel(x))


def convolved(op: BilinearMap, x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve in the dtype of x, or in autocast's, and add the bias (K,)."""
    dtype = matmul_dtype(x)
    # tensor cores read channels-last
    order = torch.channels_last if dtype in HALF.values() else torch.preserve_format
    y = product(op, x.to(dtype, memory_format=order), kernel.to(dtype, memory_format=order))
    return y if bias is None else y.add_(bias.to(dtype)[:, None, None])
