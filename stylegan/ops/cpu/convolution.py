"""3x3 convolutions that keep, double or halve the size, as bilinear maps.

`Direct` is PyTorch's convolution. `Im2colConv` is one matrix product, for images smaller than the
weight; `Im2colTapMajorConv` is the same for larger ones in half precision. The module `winograd`
has the one with few multiplications.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..bilinear import BilinearMap, Convolution, InputGrads, Needed
from ..constants import constant

Resize = Literal["same", "double", "half"]  # of the output, relative to the input
PART_BYTES = 2**24  # of windows or planes in memory at a time: they fit into a cache


def output_shape(x: Tensor, weight: Tensor, size: Resize) -> tuple[int, int, int, int]:
    n, _, h, w = x.shape
    if size == "double":
        return n, weight.shape[1], 2 * h, 2 * w
    by = 2 if size == "half" else 1
    return n, weight.shape[0], h // by, w // by


def input_shape(grad: Tensor, weight: Tensor, size: Resize) -> tuple[int, int, int, int]:
    """Shape of the input, from the gradient of the output."""
    n, _, h, w = grad.shape
    if size == "double":
        return n, weight.shape[0], h // 2, w // 2
    by = 2 if size == "half" else 1
    return n, weight.shape[1], by * h, by * w


def is_large(size: Resize, *, first: bool) -> bool:
    """Whether the input (`first`) of a convolution, or else its output, is the larger image.

    With "same" the input counts as the larger one.
    """
    return not first if size == "double" else first


def empty_image(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Allocate a channels-last image; not a view, so that it can be changed in place."""
    order = torch.channels_last
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=order)


def to_channels_last(x: Tensor) -> Tensor:
    """Convert images or weights to channels-last memory, the fast order."""
    return x.contiguous(memory_format=torch.channels_last)


def to_nhwc(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H, W, C), contiguous: a view if x is channels-last."""
    return x.permute(0, 2, 3, 1).contiguous()


@dataclass(frozen=True)
class Direct(BilinearMap):
    """PyTorch's convolution, with a 4x4 kernel where the size changes."""

    size: Resize
    scale: float

    def prepare(self, x: Tensor, weight: Tensor) -> Tensor | None:
        return self.kernel(x, weight)

    def output(self, x: Tensor, weight: Tensor, prepared: Tensor | None = None) -> Tensor:
        kernel = self.kernel(x, weight) if prepared is None else prepared
        return self.convolution().output(x, kernel)

    def gradients(
        self, x: Tensor | None, w: Tensor, grad: Tensor, needed: Needed, prepared: Tensor | None
    ) -> InputGrads:
        if x is None:  # only its shape is read; PyTorch would copy the one of `Convolution`
            x = empty_image(grad, input_shape(grad, w, self.size))
        kernel = self.kernel(x, w) if prepared is None else prepared
        grad_x, grad_kernel = self.convolution().gradients(x, kernel, grad, needed, None)
        return grad_x, None if grad_kernel is None else self.grad_weight(grad_kernel, w)

    def convolution(self) -> Convolution:
        return Convolution(1 if self.size == "same" else 2, transposed=self.size == "double")

    def kernel(self, x: Tensor, weight: Tensor) -> Tensor:
        """The prepared weight: a kernel 3x3 or 4x4 in the dtype of x."""
        if self.size == "same":
            return to_channels_last((weight * self.scale).to(x.dtype))
        wide = (weight.reshape(-1, 9) @ self.spread(weight)).to(x.dtype)
        return to_channels_last(wide.reshape(*weight.shape[:2], 4, 4))

    def grad_weight(self, grad_kernel: Tensor, weight: Tensor) -> Tensor:
        grad_kernel = grad_kernel.to(weight.dtype)
        if self.size == "same":
            return grad_kernel * self.scale
        spread = self.spread(weight)
        return (grad_kernel.reshape(-1, 16) @ spread.t()).reshape(weight.shape)

    def spread(self, weight: Tensor) -> Tensor:
        make = constant(box_spread, weight)
        return make(self.size, weight.dtype, weight.device) * self.scale


@lru_cache
def box_spread(size: Resize, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Matrix (9, 16) that sums a 3x3 kernel into a 4x4 one at the four shifts of a 2x2 box.

    "half": their average. "double": of the flipped kernel, as transposed convolutions need.
    """
    spread = torch.zeros(3, 3, 4, 4, device="cpu")
    for y, x, dy, dx in itertools.product(range(3), range(3), range(2), range(2)):
        spread[y, x, y + dy, x + dx] = 1
    spread = spread / 4 if size == "half" else spread.flip(0, 1)
    with torch.inference_mode(False):
        return spread.reshape(9, 16).to(device, dtype, copy=True)


@dataclass(frozen=True)
class Im2colConv(BilinearMap):
    """One matrix product with the weight in its own order, for images smaller than the weight.

    Each pixel of the small image is multiplied with nine numbers of the large one, its window.
    "same": the pixels around it. "half": the means of the nine 2x2 boxes around its 2x2 pixels.
    "double": their sums, flipped, because the small image is the input.
    """

    size: Resize
    scale: float

    def prepare(self, x: Tensor, weight: Tensor) -> Tensor | None:
        return None if weight.dtype == x.dtype else self.kernel(weight, x.dtype)

    def output(self, x: Tensor, weight: Tensor, prepared: Tensor | None = None) -> Tensor:
        kernel = self.kernel(weight, x.dtype) if prepared is None else prepared
        y = empty_image(x, output_shape(x, weight, self.size))
        for part in self.chunks(x, y):
            self.multiply(x[part], kernel, y[part], first=True)
        return y

    def gradients(
        self, x: Tensor | None, w: Tensor, grad: Tensor, needed: Needed, prepared: Tensor | None
    ) -> InputGrads:
        grad_x = grad_weight = None
        if needed[0]:
            kernel = self.kernel(w, grad.dtype) if prepared is None else prepared
            grad_x = empty_image(grad, input_shape(grad, w, self.size))
            for part in self.chunks(grad_x, grad):
                self.multiply(grad[part], kernel, grad_x[part], first=False)
        if needed[1] and x is not None:
            small, large = (x, grad) if self.size == "double" else (grad, x)
            for part in self.chunks(x, grad):
                product = small.new_empty(len(w), w[0].numel())
                self.scaled_product(pixels(small[part]).t(), self.windows(large[part]), product)
                more = self.grad_weight(product, w)
                grad_weight = more if grad_weight is None else grad_weight.add_(more)
        return grad_x, grad_weight

    def kernel(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """The prepared weight, which windows are multiplied with: (a, b, 3, 3) -> (a, b 9)."""
        return weight.to(dtype).flatten(1)

    def grad_weight(self, grad_kernel: Tensor, weight: Tensor) -> Tensor:
        return grad_kernel.view(weight.shape).to(weight.dtype)

    def chunks(self, *images: Tensor) -> list[slice]:
        return [slice(None)]

    def multiply(self, image: Tensor, kernel: Tensor, out: Tensor, *, first: bool) -> None:
        """Write the image on the other side of the convolution; `first` if `image` is its input."""
        if is_large(self.size, first=first):
            self.scaled_product(self.windows(image), kernel.t(), pixels(out))
        else:
            windows = image.new_empty(len(pixels(image)), kernel.shape[1])
            self.scaled_product(pixels(image), kernel, windows)
            self.add_windows(windows, out)

    def scaled_product(self, a: Tensor, b: Tensor, out: Tensor) -> None:
        scale = self.scale / 4 if self.size == "half" else self.scale
        torch.addmm(out, a, b, beta=0, alpha=scale, out=out)

    def windows(self, large: Tensor) -> Tensor:
        """Large image (N, C, H, W) -> (pixels of the small image, C 9), zeros beyond the border."""
        image = F.pad(to_nhwc(large), (0, 0, 1, 1, 1, 1))
        image = image if self.size == "same" else box_sums(image)
        n, c, h, w = small_shape(large, self.size)
        windows = large.new_empty(n * h * w, 9 * c)
        of_taps = self.of_taps(windows, (n, h, w))
        for tap, place in self.places(h, w):
            of_taps[tap].copy_(image[place])
        return windows

    def add_windows(self, windows: Tensor, out: Tensor) -> None:
        """Transpose of `windows`, into an image (N, C, H, W)."""
        n, c, h, w = small_shape(out, self.size)
        border = 2 if self.size == "same" else 1
        image = windows.new_zeros(n, out.shape[2] + border, out.shape[3] + border, c)
        of_taps = self.of_taps(windows, (n, h, w))
        for tap, place in self.places(h, w):
            image[place].add_(of_taps[tap])
        to_nhwc(out).copy_(image[:, 1:-1, 1:-1] if border == 2 else box_sums(image))

    def of_taps(self, windows: Tensor, shape: tuple[int, int, int]) -> Tensor:
        """View (9, n, h, w, C) of the windows, for small images of `shape` (n, h, w)."""
        return windows.view(*shape, -1, 9).movedim(-1, 0)

    def places(self, h: int, w: int) -> Iterator[tuple[int, tuple[slice, ...]]]:
        """Each tap of the kernel, with the index of its numbers in the large image."""
        step = 1 if self.size == "same" else 2
        for tap, (y, x) in enumerate(itertools.product(range(3), repeat=2)):
            y, x = (2 - y, 2 - x) if self.size == "double" else (y, x)
            rows = slice(y, y + step * (h - 1) + 1, step)
            columns = slice(x, x + step * (w - 1) + 1, step)
            yield tap, (slice(None), rows, columns)


class Im2colTapMajorConv(Im2colConv):
    """`Im2colConv` with the channels of a tap adjacent, which is faster to copy for larger images.

    The weight is converted to that order. Images are processed in parts that fit into a cache; the
    weight's gradient is summed in the dtype of the weight, also for half-precision images.
    """

    def kernel(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        return weight.flatten(2).transpose(1, 2).to(dtype).reshape(len(weight), -1)

    def grad_weight(self, grad_kernel: Tensor, weight: Tensor) -> Tensor:
        by_tap = grad_kernel.view(len(weight), 9, -1).transpose(1, 2)
        return by_tap.to(weight.dtype).reshape(weight.shape)

    def chunks(self, *images: Tensor) -> list[slice]:
        return parts(9 if self.size == "same" else 9 / 4, *images)

    def of_taps(self, windows: Tensor, shape: tuple[int, int, int]) -> Tensor:
        return windows.view(*shape, 9, -1).movedim(-2, 0)


def parts(factor: float, *images: Tensor) -> list[slice]:
    """Ranges of a batch whose windows or planes, `factor` times the larger image, fit a cache."""
    each = max(math.prod(x.shape[1:]) * x.element_size() for x in images)
    at_once = max(1, int(PART_BYTES // (factor * each)))
    return [slice(i, i + at_once) for i in range(0, max(map(len, images)), at_once)]


def small_shape(large: Tensor, size: Resize) -> tuple[int, int, int, int]:
    """Shape of the small image, with the channels of the large one."""
    n, c, h, w = large.shape
    return (n, c, h, w) if size == "same" else (n, c, h // 2, w // 2)


def box_sums(image: Tensor) -> Tensor:
    """Sum all 2x2 boxes: (N, H, W, C) -> (N, H - 1, W - 1, C)."""
    rows = image[:, :-1] + image[:, 1:]
    return rows[:, :, :-1] + rows[:, :, 1:]


def pixels(image: Tensor) -> Tensor:
    """(N, C, H, W) -> (N H W, C), a view if the image is channels-last."""
    return to_nhwc(image).view(-1, image.shape[1])
