"""Convolutions with few multiplications: minimal filtering, Lavin and Gray 2015.

Four pixels of a plain convolution take 16 multiplications instead of 36; where the size doubles or
halves, 9 instead of 16. There are more additions, but their number does not grow with the pairs of
channels: so it pays on CPUs where channels are many.

Along one axis, a kernel (a, b, c) is applied to pairs (e, o) of even and odd pixels of an image,
with o- before and e+ after a pair. The image gives four planes, the kernel four numbers:

    o- - o,   e + o,       e+ - e,   o - e
    a,        (a+b+c)/2,   c,        (a-b+c)/2

With their products p, q, r, s, the convolution is p + q + s at e and q + r - s at o (F(2, 3)), and
the mean of both is p/2 + q + r/2: three products. In two dimensions there are 4 x 4 or 3 x 3
planes. Images in this module are (N, H, W, C), contiguous.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ..bilinear import BilinearMap, InputGrads, Needed
from ..constants import constant
from .convolution import Resize, empty_image, input_shape, is_large, output_shape, parts, to_nhwc

KEPT_PIXELS = 2048  # of a batch; with more pixels, converting the weight again costs little

KERNEL_NUMBERS = {  # coefficients of (a, b, c) for each plane
    "same": [[1.0, 0, 0], [0.5, 0.5, 0.5], [0, 0, 1.0], [0.5, -0.5, 0.5]],
    "half": [[0.5, 0, 0], [0.5, 0.5, 0.5], [0, 0, 0.5]],
    "double": [[0, 0, 1.0], [1.0, 1.0, 1.0], [1.0, 0, 0]],  # "half" of a flipped kernel, times 2
}


@lru_cache
def filter_transform(size: str, dtype: torch.dtype) -> Tensor:
    """Matrix (planes, 9) from a 3x3 kernel to its numbers for all planes."""
    with torch.inference_mode(False):
        numbers = torch.tensor(KERNEL_NUMBERS[size], dtype=dtype, device="cpu")
        return torch.einsum("px,qy->pqyx", numbers, numbers).reshape(len(numbers) ** 2, 9)


def pairs(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Even and odd positions along an axis, as views."""
    split = x.unflatten(dim, (-1, 2))
    return split.select(dim + 1, 0), split.select(dim + 1, 1)


def drop_first(x: Tensor, dim: int) -> Tensor:
    return x.narrow(dim, 1, x.shape[dim] - 1)


def drop_last(x: Tensor, dim: int) -> Tensor:
    return x.narrow(dim, 0, x.shape[dim] - 1)


def input_transform(x: Tensor, dim: int, along: int) -> Tensor:
    """Three or four planes along one axis: (..., 2h, ...) -> (along, ..., h, ...)."""
    e, o = pairs(x, dim)
    out = x.new_empty(along, *e.shape)
    torch.sub(drop_last(o, dim), drop_first(o, dim), out=drop_first(out[0], dim))
    torch.neg(o.narrow(dim, 0, 1), out=out[0].narrow(dim, 0, 1))
    torch.add(e, o, out=out[1])
    torch.sub(drop_first(e, dim), drop_last(e, dim), out=drop_last(out[2], dim))
    torch.neg(e.narrow(dim, -1, 1), out=out[2].narrow(dim, -1, 1))
    if along == 4:
        torch.sub(o, e, out=out[3])
    return out


def image_planes_transposed(planes: Tensor, dim: int, out: Tensor) -> Tensor:
    e, o = pairs(out, dim)
    torch.sub(planes[1], planes[2], out=e)
    torch.sub(planes[1], planes[0], out=o)
    drop_first(e, dim).add_(drop_last(planes[2], dim))
    drop_last(o, dim).add_(drop_first(planes[0], dim))
    if len(planes) == 4:
        e.sub_(planes[3])
        o.add_(planes[3])
    return out


def output_transform(planes: Tensor, dim: int, out: Tensor) -> Tensor:
    """Combine products of four planes along one axis: (4, ..., h, ...) -> (..., 2h, ...)."""
    e, o = pairs(out, dim)
    torch.add(planes[0], planes[1], out=e)
    e.add_(planes[3])
    torch.add(planes[1], planes[2], out=o)
    o.sub_(planes[3])
    return out


def sums_transposed(y: Tensor, dim: int) -> Tensor:
    e, o = pairs(y, dim)
    out = y.new_empty(4, *e.shape)
    out[0].copy_(e)
    torch.add(e, o, out=out[1])
    out[2].copy_(o)
    torch.sub(e, o, out=out[3])
    return out


def large_planes(x: Tensor, along: int) -> Tensor:
    """Planes of the large image: x (N, 2h, 2w, C) -> (along^2, N h w, C)."""
    planes = input_transform(input_transform(x, 1, along), 3, along)
    return planes.reshape(along**2, -1, x.shape[-1])


def from_large_planes(planes: Tensor, out: Tensor) -> None:
    """Transpose of `large_planes`, written to `out` (N, 2h, 2w, C)."""
    n, h, w, c = out.shape
    along = 3 if len(planes) == 9 else 4
    planes = planes.view(along, along, n, h // 2, w // 2, c)
    rows = image_planes_transposed(planes, 3, out.new_empty(along, n, h // 2, w, c))
    image_planes_transposed(rows, 1, out)


def small_planes(y: Tensor, along: int) -> Tensor:
    """Transpose of `from_small_planes`: y (N, h, w, K) -> (along^2, N h w / 4 or N h w, K)."""
    if along == 3:
        return y.reshape(1, -1, y.shape[-1]).expand(9, -1, -1)
    return sums_transposed(sums_transposed(y, 1), 3).reshape(16, -1, y.shape[-1])


def from_small_planes(products: Tensor, out: Tensor) -> None:
    """Combine products of all planes into the small image `out` (N, h, w, K)."""
    if len(products) == 9:
        torch.sum(products, 0, out=out.view(products.shape[1:]))
        return
    n, h, w, k = out.shape
    products = products.view(4, 4, n, h // 2, w // 2, k)
    output_transform(output_transform(products, 3, out.new_empty(4, n, h // 2, w, k)), 1, out)


@dataclass(frozen=True)
class Winograd(BilinearMap):
    """Products of planes, for a few images at a time.

    A convolution that changes the size maps a large image to a small one or back, and so do its
    derivatives; `is_large` says which is which.
    """

    size: Resize
    scale: float

    def prepare(self, x: Tensor, weight: Tensor) -> Tensor | None:
        pixels = len(x) * math.prod(x.shape[2:]) * (4 if self.size == "double" else 1)
        return self.kernels(weight) if pixels <= KEPT_PIXELS else None

    def output(self, x: Tensor, weight: Tensor, prepared: Tensor | None = None) -> Tensor:
        y = empty_image(x, output_shape(x, weight, self.size))
        kernels = self.kernels(weight) if prepared is None else prepared
        x, out = map(to_nhwc, (x, y))
        for part in parts(4, x, out):
            self.multiply(self.planes(x[part], first=True), kernels, out[part], first=True)
        return y

    def gradients(
        self, x: Tensor | None, w: Tensor, grad: Tensor, needed: Needed, prepared: Tensor | None
    ) -> InputGrads:
        shape = input_shape(grad, w, self.size)
        grad_x = empty_image(grad, shape if needed[0] else (0, *shape[1:]))
        grad_kernels = None
        kernels = self.kernels(w) if needed[0] and prepared is None else prepared
        inner = to_nhwc(grad_x)
        outer = to_nhwc(grad)
        images = None if x is None else to_nhwc(x)
        for part in parts(4, grad_x, grad):
            planes = self.planes(outer[part], first=False)
            if needed[0] and kernels is not None:
                self.multiply(planes, kernels, inner[part], first=False)
            if needed[1] and images is not None:
                small = planes
                large = self.planes(images[part], first=True)
                if self.size == "double":
                    small, large = large, small
                grad_kernels = add_product(grad_kernels, small.transpose(1, 2), large)
        grad_w = None if grad_kernels is None else self.grad_weight(grad_kernels, w)
        return grad_x if needed[0] else None, grad_w

    def planes(self, image: Tensor, *, first: bool) -> Tensor:
        """Planes of the input of the convolution (`first`), or of the gradient of its output."""
        along = 4 if self.size == "same" else 3  # one axis
        large = is_large(self.size, first=first)
        return large_planes(image, along) if large else small_planes(image, along)

    def multiply(self, planes: Tensor, kernels: Tensor, out: Tensor, *, first: bool) -> None:
        """Write the product of one image's planes to the other image."""
        if is_large(self.size, first=first):
            from_small_planes(torch.bmm(planes, kernels.transpose(1, 2)), out)
        else:
            from_large_planes(torch.bmm(planes, kernels), out)

    def kernels(self, weight: Tensor) -> Tensor:
        """The prepared weight: (a, b, 3, 3) -> (planes, a, b); the small image has a channels."""
        planes = torch.mm(self.numbers(weight), weight.reshape(-1, 9).t())
        return planes.view(-1, *weight.shape[:2])

    def grad_weight(self, grad_kernels: Tensor, weight: Tensor) -> Tensor:
        return torch.mm(grad_kernels.flatten(1).t(), self.numbers(weight)).view(weight.shape)

    def numbers(self, weight: Tensor) -> Tensor:
        """Matrix (planes, 9) from a 3x3 weight to the numbers that planes are multiplied with."""
        return constant(filter_transform, weight)(self.size, weight.dtype) * self.scale


def add_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b) if total is None else torch.baddbmm(total, a, b, out=total)
