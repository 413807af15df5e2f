"""3x3 convolutions, alone or with a change of size, as bilinear maps.

`Direct` leaves them to the libraries of PyTorch. `Unfolded` is one matrix product, for images
smaller than the weight. The module `winograd` has the one with few multiplications.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..constants import constant
from .bilinear import BilinearMap, Maybe, Needed, Pair

Size = Literal["same", "double", "half"]  # of the result, relative to the image


def image_shape(grad: Tensor, weight: Tensor, size: Size) -> tuple[int, int, int, int]:
    """Of what was convolved, from the gradient of the result."""
    n, _, h, w = grad.shape
    if size == "double":
        return n, weight.shape[0], h // 2, w // 2
    by = 2 if size == "half" else 1
    return n, weight.shape[1], by * h, by * w


def empty_image(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """An image in the order that is fast; no view, so that it can be changed in place."""
    order = torch.channels_last
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=order)


def fast_format(x: Tensor) -> Tensor:
    """Images or weights in the order in memory that is fast: channels last."""
    return x.contiguous(memory_format=torch.channels_last)


def channels_last(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H, W, C), contiguous: a view of what `empty_image` made."""
    return x.permute(0, 2, 3, 1).contiguous()


@dataclass(frozen=True)
class Direct(BilinearMap):
    """One convolution of the libraries, with a 4x4 kernel where the size changes."""

    size: Size
    scale: float

    def prepare(self, x: Tensor, weight: Tensor) -> Maybe:
        return self.kernel(x, weight)

    def output(self, x: Tensor, weight: Tensor, cached_weight: Maybe = None) -> Tensor:
        kernel = self.kernel(x, weight) if cached_weight is None else cached_weight
        if self.size == "double":
            return F.conv_transpose2d(x, kernel, stride=2, padding=1)
        return F.conv2d(x, kernel, stride=2 if self.size == "half" else 1, padding=1)

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: Needed, cached_weight: Maybe = None
    ) -> Pair:
        if x is None:  # only its shape counts
            x = empty_image(grad, image_shape(grad, weight, self.size))
        stride = 1 if self.size == "same" else 2
        transposed = self.size == "double"
        by_x, by_kernel, _ = torch.ops.aten.convolution_backward(
            grad,
            x,
            self.kernel(x, weight) if cached_weight is None else cached_weight,
            None,
            [stride, stride],
            [1, 1],
            [1, 1],
            transposed,
            [0, 0],
            1,
            [*needed, False],
        )
        return by_x, self.by_weight(by_kernel, weight) if needed[1] else None

    def kernel(self, x: Tensor, weight: Tensor) -> Tensor:
        """What the images are convolved with, in their precision."""
        if self.size == "same":
            return fast_format((weight * self.scale).to(x.dtype))
        wide = (weight.reshape(-1, 9) @ self.spread(weight)).to(x.dtype)
        return fast_format(wide.reshape(*weight.shape[:2], 4, 4))

    def by_weight(self, by_kernel: Tensor, weight: Tensor) -> Tensor:
        by_kernel = by_kernel.to(weight.dtype)
        if self.size == "same":
            return by_kernel * self.scale
        spread = self.spread(weight)
        return (by_kernel.reshape(-1, 16) @ spread.t()).reshape(weight.shape)

    def spread(self, weight: Tensor) -> Tensor:
        make = constant(box_spread, weight)
        return make(self.size, weight.dtype, weight.device) * self.scale


@lru_cache
def box_spread(size: Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The (9, 16) matrix that adds a 3x3 kernel into a 4x4 one at the four shifts of a 2x2 box.

    "half": their average. "double": of the kernel turned around, as transposed convolutions want.
    """
    spread = torch.zeros(3, 3, 4, 4, device="cpu")
    for y, x, dy, dx in itertools.product(range(3), range(3), range(2), range(2)):
        spread[y, x, y + dy, x + dx] = 1
    spread = spread / 4 if size == "half" else spread.flip(0, 1)
    with torch.inference_mode(False):
        return spread.reshape(9, 16).to(device, dtype, copy=True)


@dataclass(frozen=True)
class Unfolded(BilinearMap):
    """One matrix product with the weight as it is, which is larger than the images."""

    size: Size  # "same"
    scale: float

    def output(self, x: Tensor, weight: Tensor, cached_weight: Maybe = None) -> Tensor:
        n, _, h, w = x.shape
        y = empty_image(x, (n, len(weight), h, w))
        rows = channels_last(y).view(-1, len(weight))
        torch.mm(self.neighborhoods(x), weight.flatten(1).t(), out=rows)
        return y

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: Needed, cached_weight: Maybe = None
    ) -> Pair:
        n, _, h, w = grad.shape
        rows = channels_last(grad).view(-1, len(weight))
        by_x = by_w = None
        if needed[0]:
            columns = torch.mm(rows * self.scale, weight.flatten(1)).view(n, h, w, -1, 9)
            by_x = empty_image(grad, image_shape(grad, weight, self.size)).zero_()
            image = channels_last(by_x)
            for tap, here, there in shifts(h, w):
                image[there].add_(columns[here][..., tap])
        if needed[1] and x is not None:
            by_w = torch.mm(rows.t(), self.neighborhoods(x)).view(weight.shape)
        return by_x, by_w

    def neighborhoods(self, x: Tensor) -> Tensor:
        """x (N, C, H, W) -> scaled (N H W, C 9), zeros beyond the border."""
        image = channels_last(x) * self.scale
        n, h, w, c = image.shape
        neighbors = image.new_zeros(n, h, w, c, 9)
        for tap, here, there in shifts(h, w):
            neighbors[here][..., tap] = image[there]
        return neighbors.view(n * h * w, c * 9)


Window = tuple[slice, ...]  # of images (N, H, W, C)


def shifts(h: int, w: int) -> Iterator[tuple[int, Window, Window]]:
    """For each tap of a 3x3 kernel: pixels, and the neighbors there that it multiplies."""
    for tap, (dy, dx) in enumerate(itertools.product((-1, 0, 1), repeat=2)):
        spans = [(max(0, -d), size - max(0, d), d) for d, size in ((dy, h), (dx, w))]
        here, there = (
            [slice(first + by * d, end + by * d) for first, end, d in spans] for by in (0, 1)
        )
        yield tap, (slice(None), *here), (slice(None), *there)
