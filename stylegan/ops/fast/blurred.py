"""The low-pass filter, and maps of images that it has been applied to."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import formulas
from .bilinear import BilinearMap, Maybe, Needed, Pair


class Blur(torch.autograd.Function):
    """The filter is its own transpose; the libraries would differentiate it by the kernel too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return formulas.blur(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        by_x: Tensor = Blur.apply(grad)
        return by_x


@dataclass(frozen=True)
class OfBlurred(BilinearMap):
    """A bilinear map of the blurred image, which is not kept but made again.

    On CPUs that takes a hundredth of the map's time and saves an image per layer and derivative;
    not measured on a GPU.
    """

    op: BilinearMap

    def prepare(self, x: Tensor, weight: Tensor) -> Maybe:
        return self.op.prepare(x, weight)

    def output(self, x: Tensor, weight: Tensor, cached_weight: Maybe = None) -> Tensor:
        return self.op.output(formulas.blur(x), weight, cached_weight)

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: Needed, cached_weight: Maybe = None
    ) -> Pair:
        blurred = formulas.blur(x) if x is not None and needed[1] else None
        by_x, by_weight = self.op.gradients(blurred, weight, grad, needed, cached_weight)
        return None if by_x is None else formulas.blur(by_x), by_weight
