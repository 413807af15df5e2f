"""3x3 convolutions, alone or with a change of size, that can be differentiated any number of times.

There are three ways to compute one. `Direct` leaves it to the libraries of PyTorch. `Unfolded` is
one matrix product, for images smaller than the weight. `Winograd` multiplies less (minimal
filtering, Lavin and Gray 2015): 16 times instead of
36 for four pixels of a plain convolution, 9 times instead of 16 where the size doubles or halves.
It adds more, but as often for one pair of channels as for all; so it pays on CPUs where they are
many.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from . import winograd
from .bilinear import Maybe, product
from .filters import OfBlurred
from .precision import traced

Size = Literal["same", "double", "half"]

PART_BYTES = 2**24  # of the planes that exist at a time, about: they stay in a cache

MANY_CHANNELS = 256
FEW_PIXELS = 128
KEPT_PIXELS = 2048  # of a batch; for more, planes are made again: it costs little beside the rest


def conv2d(
    x: Tensor, weight: Tensor, scale: float, *, size: Size = "same", blur_first: bool = False
) -> Tensor:
    """Convolution of x (N, C, H, W), as it is or blurred, with `scale` times a 3x3 kernel, zeros
    beyond the border.

    "same": weight (K, C, 3, 3) -> (N, K, H, W). "half": and 2x2 averages, (N, K, H/2, W/2).
    "double": of the image enlarged by nearest neighbour; weight (C, K, 3, 3) -> (N, K, 2H, 2W).
    """
    kind = x.device.type
    if size == "half" and (x.shape[2] % 2 or x.shape[3] % 2):
        raise ValueError(f"height and width must be even to be halved, not {tuple(x.shape[2:])}")
    if x.dtype != torch.float64 and kind != "meta" and torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))
    x = fast_format(x)
    way = choose(x, weight, size)(size, scale)
    return product(OfBlurred(way) if blur_first else way, x, weight)


def constant(make: Callable[..., Tensor], like: Tensor) -> Callable[..., Tensor]:
    """A function with a cache, without it for tensors that are not real (fake ones of tracers)."""
    return make if type(like) in (Tensor, torch.nn.Parameter) else make.__wrapped__  # type: ignore


def fast_format(x: Tensor) -> Tensor:
    """Images in the order of numbers in memory that convolutions like: on CPUs, channels last."""
    return x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x


def choose(x: Tensor, weight: Tensor, size: Size) -> "type[Direct | Winograd | Unfolded]":
    """The fastest way that there is for it; measured, see docs/performance.md."""
    if traced():
        return Direct
    n, _, h, w = x.shape
    exact = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if not exact or min(weight.shape[:2]) < MANY_CHANNELS:
        return Direct
    if size == "same" and n * h * w <= FEW_PIXELS:
        return Unfolded
    even = size == "double" or (h % 2 == 0 and w % 2 == 0)
    return Winograd if even else Direct


def result_shape(x: Tensor, weight: Tensor, size: Size) -> tuple[int, int, int, int]:
    n, _, h, w = x.shape
    if size == "double":
        return n, weight.shape[1], 2 * h, 2 * w
    by = 2 if size == "half" else 1
    return n, weight.shape[0], h // by, w // by


def image_shape(grad: Tensor, weight: Tensor, size: Size) -> tuple[int, int, int, int]:
    """Of what was convolved, from the gradient of the result."""
    n, _, h, w = grad.shape
    if size == "double":
        return n, weight.shape[0], h // 2, w // 2
    by = 2 if size == "half" else 1
    return n, weight.shape[1], by * h, by * w


def empty_image(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """An image in the order that is fast there; no view, so that it can be changed in place."""
    last = like.device.type == "cpu"
    order = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=order)


@dataclass(frozen=True)
class Direct:
    """One convolution of the libraries, with a 4x4 kernel where the size changes."""

    size: Size
    scale: float

    def output(self, x: Tensor, weight: Tensor) -> Tensor:
        kernel = self.kernel(x, weight)
        if self.size == "double":
            return F.conv_transpose2d(x, kernel, stride=2, padding=1)
        return F.conv2d(x, kernel, stride=2 if self.size == "half" else 1, padding=1)

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: tuple[bool, bool]
    ) -> tuple[Maybe, Maybe]:
        if x is None:  # only its shape counts
            x = empty_image(grad, image_shape(grad, weight, self.size))
        stride, transposed = 1 if self.size == "same" else 2, self.size == "double"
        by_x, by_kernel, _ = torch.ops.aten.convolution_backward(
            grad,
            x,
            self.kernel(x, weight),
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
            return (weight * self.scale).to(x.dtype)
        spread = self.spread(weight)
        wide = (weight.reshape(-1, 9) @ spread).to(x.dtype)
        return wide.reshape(*weight.shape[:2], 4, 4)

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
class Unfolded:
    """One matrix product with the weight as it is, which is larger than the images."""

    size: Size  # "same"
    scale: float

    def output(self, x: Tensor, weight: Tensor) -> Tensor:
        n, _, h, w = x.shape
        y = empty_image(x, (n, len(weight), h, w))
        rows = channels_last(y).view(-1, len(weight))
        torch.mm(self.neighbourhoods(x), weight.flatten(1).t(), out=rows)
        return y

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: tuple[bool, bool]
    ) -> tuple[Maybe, Maybe]:
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
            by_w = torch.mm(rows.t(), self.neighbourhoods(x)).view(weight.shape)
        return by_x, by_w

    def neighbourhoods(self, x: Tensor) -> Tensor:
        """x (N, C, H, W) -> scaled (N H W, C 9), zeros beyond the border."""
        image = channels_last(x) * self.scale
        n, h, w, c = image.shape
        found = image.new_zeros(n, h, w, c, 9)
        for tap, here, there in shifts(h, w):
            found[here][..., tap] = image[there]
        return found.view(n * h * w, c * 9)


Window = tuple[slice, ...]  # of images (N, H, W, C)


def shifts(h: int, w: int) -> Iterator[tuple[int, Window, Window]]:
    """For each tap of a 3x3 kernel: pixels, and the neighbours there that it multiplies."""
    for tap, (dy, dx) in enumerate(itertools.product((-1, 0, 1), repeat=2)):
        spans = [(max(0, -d), size - max(0, d), d) for d, size in ((dy, h), (dx, w))]
        here, there = (
            [slice(first + by * d, end + by * d) for first, end, d in spans] for by in (0, 1)
        )
        yield tap, (slice(None), *here), (slice(None), *there)


@dataclass
class Winograd:
    """Products of planes, see the module `winograd`; images go through it in parts.

    A convolution that changes the size leads from a large image to a small one or back, and so do
    its derivatives. For "same", the first image of the convolution counts as the large one.
    """

    size: Size
    scale: float
    kept: tuple[Tensor, Tensor] | None = field(default=None, init=False)  # weight, its planes

    def output(self, x: Tensor, weight: Tensor) -> Tensor:
        y = empty_image(x, result_shape(x, weight, self.size))
        kernels = self.kernels(weight, pixels(x, y))
        x, out = map(channels_last, (x, y))
        for part in self.parts(x, out):
            self.multiply(self.planes(x[part], first=True), kernels, out[part], first=True)
        return y

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: tuple[bool, bool]
    ) -> tuple[Maybe, Maybe]:
        shape = image_shape(grad, weight, self.size)
        by_x = empty_image(grad, shape if needed[0] else (0, *shape[1:]))
        by_kernels = None
        kernels = self.kernels(weight, pixels(by_x, grad)) if needed[0] else None
        inner, outer = channels_last(by_x), channels_last(grad)
        images = None if x is None else channels_last(x)
        for part in self.parts(by_x, grad):
            planes = self.planes(outer[part], first=False)
            if kernels is not None:
                self.multiply(planes, kernels, inner[part], first=False)
            if needed[1] and images is not None:
                small, large = planes, self.planes(images[part], first=True)
                if self.size == "double":
                    small, large = large, small
                by_kernels = add_product(by_kernels, small.transpose(1, 2), large)
        by_w = None if by_kernels is None else self.by_weight(by_kernels, weight)
        return by_x if needed[0] else None, by_w

    def parts(self, *images: Tensor) -> Iterator[slice]:
        """Ranges of the images whose planes fit into a cache together."""
        each = max(math.prod(x.shape[1:]) * x.element_size() for x in images) * 4
        at_once, n = max(1, PART_BYTES // each), max(map(len, images))
        return (slice(i, i + at_once) for i in range(0, n, at_once))

    def planes(self, image: Tensor, *, first: bool) -> Tensor:
        """Of the first image of the convolution, or of (the gradient of) the second."""
        along = 4 if self.size == "same" else 3
        large = first != (self.size == "double")
        return winograd.large_planes(image, along) if large else winograd.small_planes(image, along)

    def multiply(self, planes: Tensor, kernels: Tensor, out: Tensor, *, first: bool) -> None:
        """From the planes of one image to the other image."""
        if first != (self.size == "double"):
            winograd.from_small_planes(torch.bmm(planes, kernels.transpose(1, 2)), out)
        else:
            winograd.from_large_planes(torch.bmm(planes, kernels), out)

    def kernels(self, weight: Tensor, num_pixels: int) -> Tensor:
        """weight (a, b, 3, 3) -> (planes, a, b), a of the small image and b of the large one.

        Those of the first weight are kept for its derivatives, as long as autograd keeps both.
        """
        if self.kept is not None and self.kept[0] is weight:
            return self.kept[1]
        planes = self.transform(weight)
        if self.kept is None and num_pixels <= KEPT_PIXELS:
            self.kept = weight, planes
        return planes

    def transform(self, weight: Tensor) -> Tensor:
        planes = torch.mm(self.numbers(weight), weight.reshape(-1, 9).t())
        return planes.view(-1, *weight.shape[:2])

    def by_weight(self, by_kernels: Tensor, weight: Tensor) -> Tensor:
        return torch.mm(by_kernels.flatten(1).t(), self.numbers(weight)).view(weight.shape)

    def numbers(self, weight: Tensor) -> Tensor:
        """The (planes, 9) matrix from a weight to what the images' planes are multiplied with."""
        return constant(winograd.kernel_matrix, weight)(self.size, weight.dtype) * self.scale


def channels_last(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H, W, C), contiguous."""
    return x.permute(0, 2, 3, 1).contiguous()


def pixels(*images: Tensor) -> int:
    """Of the largest batch."""
    return max(len(x) * math.prod(x.shape[2:]) for x in images)


def add_product(total: Maybe, a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b) if total is None else torch.baddbmm(total, a, b, out=total)
