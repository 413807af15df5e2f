"""3x3 convolutions, alone or with a change of size, that can be differentiated any number of times.

The derivatives of a bilinear map are made of the map and its two transposes, and so are theirs,
which R1 needs: two autograd functions serve every way to compute a convolution. There are three.
`Direct` leaves it to the libraries of PyTorch. `Unfolded` is one matrix product, for images smaller
than the weight. `Few` multiplies less: 16 times instead of 36 for
four pixels of a plain convolution, 9 times instead of 16 where the size doubles or halves. It adds
more, but as often for one pair of channels as for all; so it pays on CPUs where they are many.
"""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from . import few
from .precision import without_autocast

Maybe = Tensor | None
Size = Literal["same", "double", "half"]

PART_BYTES = 2**24  # of the planes that exist at a time, about: they stay in a cache

MANY_CHANNELS = 256
FEW_PIXELS = 128

_inputs_only = False  # see gradients_by_inputs_only
_planes_of_weights: dict[tuple[int, int, "Few"], tuple[Tensor, Tensor]] | None = None


def conv2d(x: Tensor, weight: Tensor, scale: float, *, size: Size = "same") -> Tensor:
    """Convolution of x (N, C, H, W) with `scale` times a 3x3 kernel, zeros beyond the border.

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
    with without_autocast(x):
        if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
            y: Tensor = Product.apply(way, x, weight)
            return y
        return way.output(x, weight)


def fast_format(x: Tensor) -> Tensor:
    """Images in the order of numbers in memory that convolutions like: on CPUs, channels last."""
    return x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x


def choose(x: Tensor, weight: Tensor, size: Size) -> "type[Direct | Few | Unfolded]":
    """The fastest way that there is for it; measured, see docs/performance.md."""
    n, _, h, w = x.shape
    exact = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if not exact or min(weight.shape[:2]) < MANY_CHANNELS:
        return Direct
    if size == "same" and n * h * w <= FEW_PIXELS:
        return Unfolded
    even = size == "double" or (h % 2 == 0 and w % 2 == 0)
    return Few if even else Direct


@contextmanager
def gradients_by_inputs_only() -> Iterator[None]:
    """Backward passes inside leave out the gradients by kernels, if nobody asks for them.

    An autograd function is not told which of its gradients are wanted.
    """
    global _inputs_only
    before, _inputs_only = _inputs_only, True
    try:
        yield
    finally:
        _inputs_only = before


@contextmanager
def unchanged_weights() -> Iterator[None]:
    """Weights do not change inside: what `Few` makes of them is made once."""
    global _planes_of_weights
    before, _planes_of_weights = _planes_of_weights, {}
    try:
        yield
    finally:
        _planes_of_weights = before


class Product(torch.autograd.Function):
    """A convolution; only what goes into it is kept, and x only for the weight's gradient."""

    @staticmethod
    def forward(ctx: Any, way: "Way", x: Tensor, weight: Tensor) -> Tensor:
        ctx.way = way
        ctx.save_for_backward(x if ctx.needs_input_grad[2] else None, weight)
        return way.output(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Maybe, ...]:
        needed = ctx.needs_input_grad[1], ctx.needs_input_grad[2] and not _inputs_only
        return None, *Gradients.apply(ctx.way, needed, *ctx.saved_tensors, grad)


class Gradients(torch.autograd.Function):
    """The gradients of a convolution by image and kernel."""

    @staticmethod
    def forward(
        ctx: Any, way: "Way", needed: tuple[bool, bool], x: Maybe, w: Tensor, grad: Tensor
    ) -> tuple[Maybe, Maybe]:
        ctx.way = way
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w, grad)
        with without_autocast(grad):
            return way.gradients(x, w, grad, needed)

    @staticmethod
    def backward(ctx: Any, by_x: Maybe, by_w: Maybe) -> tuple[Maybe, ...]:
        way: Way = ctx.way
        x, w, grad = ctx.saved_tensors
        x_needed, w_needed, grad_needed = ctx.needs_input_grad[2:]
        of_x = of_w = of_grad = None
        with without_autocast(grad):
            if by_x is not None:
                if grad_needed:
                    of_grad = Product.apply(way, by_x, w)
                if w_needed:
                    of_w = Gradients.apply(way, (False, True), by_x, w, grad)[1]
            if by_w is not None:
                if x_needed:
                    of_x = Gradients.apply(way, (True, False), None, by_w, grad)[0]
                if grad_needed:
                    more = Product.apply(way, x, by_w)
                    of_grad = more if of_grad is None else of_grad + more
        return None, None, of_x, of_w, of_grad


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
        spread = box_spread(self.size, weight.dtype, weight.device) * self.scale
        wide = (weight.reshape(-1, 9) @ spread).to(x.dtype)
        return wide.reshape(*weight.shape[:2], 4, 4)

    def by_weight(self, by_kernel: Tensor, weight: Tensor) -> Tensor:
        by_kernel = by_kernel.to(weight.dtype)
        if self.size == "same":
            return by_kernel * self.scale
        spread = box_spread(self.size, weight.dtype, weight.device) * self.scale
        return (by_kernel.reshape(-1, 16) @ spread.t()).reshape(weight.shape)


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
            columns = torch.mm(rows * self.scale, weight.flatten(1)).view(n, h * w, -1)
            by_x = F.fold(columns.transpose(1, 2), (h, w), 3, padding=1)
        if needed[1] and x is not None:
            by_w = torch.mm(rows.t(), self.neighbourhoods(x)).view(weight.shape)
        return by_x, by_w

    def neighbourhoods(self, x: Tensor) -> Tensor:
        """x (N, C, H, W) -> scaled (N H W, 9 C)."""
        columns = F.unfold(x * self.scale, 3, padding=1)
        return columns.transpose(1, 2).reshape(-1, columns.shape[1])


@dataclass(frozen=True)
class Few:
    """Products of planes, see the module `few`; images go through it in parts.

    A convolution that changes the size leads from a large image to a small one or back, and so do
    its derivatives. For "same", the first image of the convolution counts as the large one.
    """

    size: Size
    scale: float

    def output(self, x: Tensor, weight: Tensor) -> Tensor:
        y = empty_image(x, result_shape(x, weight, self.size))
        kernels, (x, out) = self.kernels(weight), map(channels_last, (x, y))
        for part in self.parts(x, out):
            self.multiply(self.planes(x[part], first=True), kernels, out[part], first=True)
        return y

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: tuple[bool, bool]
    ) -> tuple[Maybe, Maybe]:
        shape = image_shape(grad, weight, self.size)
        by_x = empty_image(grad, shape if needed[0] else (0, *shape[1:]))
        by_kernels = None
        kernels = self.kernels(weight) if needed[0] else None
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
        return few.large_planes(image, along) if large else few.small_planes(image, along)

    def multiply(self, planes: Tensor, kernels: Tensor, out: Tensor, *, first: bool) -> None:
        """From the planes of one image to the other image."""
        if first != (self.size == "double"):
            few.from_small_planes(torch.bmm(planes, kernels.transpose(1, 2)), out)
        else:
            few.from_large_planes(torch.bmm(planes, kernels), out)

    def kernels(self, weight: Tensor) -> Tensor:
        """weight (a, b, 3, 3) -> (planes, a, b), a of the small image and b of the large one."""
        kept = _planes_of_weights if isinstance(weight, torch.nn.Parameter) else None
        if kept is None:
            return self.transform(weight)
        key = weight.data_ptr(), weight._version, self
        if key not in kept:
            kept[key] = weight, self.transform(weight)  # the address is its own while it lives
        return kept[key][1]

    def transform(self, weight: Tensor) -> Tensor:
        planes = torch.mm(self.numbers(weight), weight.reshape(-1, 9).t())
        return planes.view(-1, *weight.shape[:2])

    def by_weight(self, by_kernels: Tensor, weight: Tensor) -> Tensor:
        return torch.mm(by_kernels.flatten(1).t(), self.numbers(weight)).view(weight.shape)

    def numbers(self, weight: Tensor) -> Tensor:
        """The (planes, 9) matrix from a weight to what the images' planes are multiplied with."""
        return few.kernel_matrix(self.size, weight.dtype) * self.scale


def channels_last(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H, W, C), contiguous."""
    return x.permute(0, 2, 3, 1).contiguous()


def add_product(total: Maybe, a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b) if total is None else torch.baddbmm(total, a, b, out=total)


Way = Direct | Unfolded | Few
