"""Dense layers and convolutions, with derivatives that can be differentiated any number of times.

PyTorch differentiates a convolution's derivative, which R1 needs, by twice the operations that it
takes. A convolution is linear in the image and in the kernel, so its derivatives are made of itself
and its two transposes, and so are theirs: two autograd functions serve them all.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import cpu
from .autograd import is_wanted
from .constants import blur_kernel, filtered
from .precision import differentiated, full_precision, product_dtype, without_autocast

Maybe = Tensor | None
Needed = tuple[bool, bool, bool]  # which gradients: by the image, by the kernel, by the bias
ByInputs = tuple[Maybe, Maybe, Maybe]  # the gradients by these


class Way(NamedTuple):
    """How a kernel meets an image."""

    stride: int = 1  # 2 halves the size, or doubles it if transposed
    transposed: bool = False
    groups: int = 1
    blur_first: bool = False  # the blurred image is not kept, but made again


def dense(x: Tensor, weight: Tensor, scale: float, bias: Maybe) -> Tensor:
    if cpu.uses_cpu_kernels(x):
        return cpu.dense(x, weight, scale, bias)
    if not full_precision(x):
        return F.linear(x, weight * scale, bias)
    bias = None if bias is None else bias.to(x.dtype)
    return F.linear(x * scale, weight.to(x.dtype), bias)  # the input is smaller than the weight


def conv2d(x: Tensor, weight: Tensor, scale: float, bias: Maybe = None) -> Tensor:
    if cpu.uses_cpu_kernels(x):
        return cpu.conv2d(x, weight, scale, bias)
    return convolve(*cast_operands(x, weight * scale, bias), Way())


def upsample_conv2d(x: Tensor, weight: Tensor, scale: float) -> Tensor:
    """One transposed convolution: its 4x4 kernel is the turned 3x3 one, added at 2x2 shifts."""
    if cpu.uses_cpu_kernels(x):
        return cpu.upsample_conv2d(x, weight, scale)
    kernel = F.avg_pool2d(weight.flip(2, 3), 2, 1, 1) * (4 * scale)
    return convolve(*cast_operands(x, kernel, None), Way(stride=2, transposed=True))


def conv2d_downsample(
    x: Tensor, weight: Tensor, scale: float, bias: Maybe = None, *, blur_first: bool = False
) -> Tensor:
    """One convolution: its 4x4 kernel is the average of the 3x3 one at 2x2 shifts."""
    if x.shape[2] % 2 or x.shape[3] % 2:
        raise ValueError(f"height and width must be even to be halved, not {tuple(x.shape[2:])}")
    if cpu.uses_cpu_kernels(x):
        return cpu.conv2d_downsample(x, weight, scale, bias, blur_first=blur_first)
    kernel = F.avg_pool2d(weight, 2, 1, 1) * scale
    return convolve(*cast_operands(x, kernel, bias), Way(stride=2, blur_first=blur_first))


def blur(x: Tensor) -> Tensor:
    if cpu.uses_cpu_kernels(x):
        return cpu.blur(x)
    return convolve(*cast_operands(x, blur_kernel(x), None), Way(groups=x.shape[1]))


def cast_operands(x: Tensor, kernel: Tensor, bias: Maybe) -> tuple[Tensor, Tensor, Maybe]:
    """Return all in the precision of x, or in autocast's; half precision in channels-last order,
    which is what tensor cores read."""
    dtype = product_dtype(x)
    half = dtype in (torch.float16, torch.bfloat16)
    order = torch.channels_last if half else torch.preserve_format
    x, kernel = (v.to(dtype, memory_format=order) for v in (x, kernel))
    return x, kernel, None if bias is None else bias.to(dtype)


def convolve(x: Tensor, kernel: Tensor, bias: Maybe, way: Way) -> Tensor:
    if differentiated(*(v for v in (x, kernel, bias) if v is not None)):
        y: Tensor = Convolution.apply(x, kernel, bias, way)
        return y
    x = filtered(x) if way.blur_first else x
    padding = (kernel.shape[-1] - 1) // 2
    if way.transposed:
        return F.conv_transpose2d(x, kernel, bias, way.stride, padding)
    return F.conv2d(x, kernel, bias, way.stride, padding, groups=way.groups)


class Convolution(torch.autograd.Function):
    """`convolve`; it keeps what goes in, and x only for the kernel's gradient.

    `Bilinear` and `BilinearGradients` of ops/cpu/bilinear.py are the same scheme for any bilinear
    map, with a weight prepared once; this one is for PyTorch's convolution, on every device.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, bias: Maybe, way: Way) -> Tensor:
        ctx.way = way
        ctx.shape = x.shape
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, kernel)
        return convolve(x, kernel, bias, way)  # which computes: gradients are off in here

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Maybe, ...]:
        x, kernel = ctx.saved_tensors
        by_x, by_kernel, by_bias, _ = ctx.needs_input_grad
        needed = by_x, by_kernel and is_wanted(ctx, 1), by_bias and is_wanted(ctx, 2)
        with without_autocast(grad):
            return *gradients(x, ctx.shape, kernel, grad, ctx.way, needed), None


def gradients(
    x: Maybe, shape: torch.Size, kernel: Tensor, grad: Tensor, way: Way, needed: Needed
) -> ByInputs:
    """By x, which only the kernel's needs beyond its shape, by the kernel and by the bias."""
    if torch.is_grad_enabled():  # they will be differentiated, too
        inputs = x, shape, kernel, grad, way, (needed[0], needed[1], False)
        by_x, by_kernel = ConvolutionGradients.apply(*inputs)
        return by_x, by_kernel, grad.sum((0, 2, 3)) if needed[2] else None
    if x is None or not needed[1]:
        x = grad.new_empty(()).expand(shape)  # only its shape counts
    elif way.blur_first:
        x = filtered(x)
    stride = [way.stride] * 2
    padding = [(kernel.shape[-1] - 1) // 2] * 2
    by_x, by_kernel, by_bias = torch.ops.aten.convolution_backward(
        grad,
        x,
        kernel,
        [kernel.shape[1 if way.transposed else 0]],  # shape of the bias
        stride,
        padding,
        [1, 1],  # dilation
        way.transposed,
        [0, 0],  # padding of the output
        way.groups,
        needed,
    )
    return filtered(by_x) if way.blur_first and needed[0] else by_x, by_kernel, by_bias


class ConvolutionGradients(torch.autograd.Function):
    """The gradients of a convolution B by x and by the kernel k, and their own gradients.

    With u and v the gradients that arrive for the two, what is differentiated by x, k and grad is
    <grad, B(u, k)> + <grad, B(x, v)>: again values and gradients of B.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Maybe,
        shape: torch.Size,
        kernel: Tensor,
        grad: Tensor,
        way: Way,
        needed: Needed,
    ) -> tuple[Maybe, Maybe]:
        ctx.way = way
        ctx.shape = shape
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, kernel, grad)
        by_x, by_kernel, _ = gradients(x, shape, kernel, grad, way, needed)
        return by_x, by_kernel

    @staticmethod
    def backward(ctx: Any, u: Maybe, v: Maybe) -> tuple[Maybe, ...]:
        x, kernel, grad = ctx.saved_tensors
        way = ctx.way
        shape = ctx.shape
        x_needed, _, kernel_needed, grad_needed = ctx.needs_input_grad[:4]
        of_x = of_kernel = of_grad = None
        with without_autocast(grad):
            if u is not None:
                if grad_needed:
                    of_grad = convolve(u, kernel, None, way)
                if kernel_needed:
                    of_kernel = gradients(u, shape, kernel, grad, way, (False, True, False))[1]
            if v is not None:
                if x_needed:
                    of_x = gradients(None, shape, v, grad, way, (True, False, False))[0]
                if grad_needed:
                    more = convolve(x, v, None, way)
                    of_grad = more if of_grad is None else of_grad + more
        return of_x, None, of_kernel, of_grad, None, None
