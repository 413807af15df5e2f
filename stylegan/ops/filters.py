"""The low-pass filter of the resampling layers."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .bilinear import Maybe, Way


def low_pass(x: Tensor, out: Tensor | None = None) -> Tensor:
    """The filter itself; `out` may be x."""
    if out is not None:
        for image, result in zip(x.split(1), out.split(1), strict=True):
            result.copy_(low_pass(image))
        return out
    # 1, 2, 1 made where x is: a copy from the host would stall a GPU
    taps = 2 - torch.arange(-1, 2, device=x.device, dtype=x.dtype).abs()
    kernel = taps[:, None] * taps / 16
    channels = x.shape[1]
    return F.conv2d(x, kernel.expand(channels, 1, 3, 3), padding=1, groups=channels)


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
    """A bilinear map of the blurred image, which is not kept but made again."""

    way: Way

    def output(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.way.output(low_pass(x), weight)

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: tuple[bool, bool]
    ) -> tuple[Maybe, Maybe]:
        blurred = low_pass(x) if x is not None and needed[1] else None
        by_x, by_weight = self.way.gradients(blurred, weight, grad, needed)
        if by_x is not None:
            by_x = low_pass(by_x, out=by_x if by_x.device.type == "cpu" else None)
        return by_x, by_weight
