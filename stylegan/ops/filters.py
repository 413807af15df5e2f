"""The low-pass filter of the resampling layers."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .bilinear import BilinearMap, Maybe

LARGE_IMAGE = 2**17  # numbers, from which on a second one in memory is worth avoiding


def low_pass(x: Tensor, *, overwrite: bool = False) -> Tensor:
    """The filter itself; `overwrite` writes it to x image by image."""
    # 1, 2, 1 made where x is: a copy from the host would stall a GPU
    taps = 2 - torch.arange(-1, 2, device=x.device, dtype=x.dtype).abs()
    channels = x.shape[1]
    kernel = (taps[:, None] * taps / 16).expand(channels, 1, 3, 3)
    if overwrite:
        for image in x.split(1):
            image.copy_(F.conv2d(image, kernel, padding=1, groups=channels))
        return x
    return F.conv2d(x, kernel, padding=1, groups=channels)


class Blur(torch.autograd.Function):
    """The filter is its own transpose; the libraries would differentiate it by the kernel too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return low_pass(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return blur(grad)


def blur(x: Tensor) -> Tensor:
    """Low-pass filter [1, 2, 1] x [1, 2, 1] / 16 with zeros beyond the border."""
    y: Tensor = Blur.apply(x)
    return y


@dataclass(frozen=True)
class OfBlurred:
    """A bilinear map of the blurred image, which is not kept but made again.

    On CPUs that takes a hundredth of the map's time and saves an image per layer and derivative;
    not measured on a GPU.
    """

    way: BilinearMap

    def output(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.way.output(low_pass(x), weight)

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: tuple[bool, bool]
    ) -> tuple[Maybe, Maybe]:
        blurred = low_pass(x) if x is not None and needed[1] else None
        by_x, by_weight = self.way.gradients(blurred, weight, grad, needed)
        if by_x is not None:
            large = by_x.device.type == "cpu" and by_x[:1].numel() >= LARGE_IMAGE
            by_x = low_pass(by_x, overwrite=large)
        return by_x, by_weight
