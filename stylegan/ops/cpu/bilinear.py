"""Maps of images and weights that only a CPU computes so."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..bilinear import BilinearMap, ByInputs, Maybe, Needed
from ..constants import filtered


@dataclass(frozen=True)
class Dense(BilinearMap):
    """Every gradient by the weight is made in the weight's own order.

    Differentiated twice, PyTorch's linear layer makes some transposed, which take long to add.
    """

    scale: float

    def output(self, x: Tensor, weight: Tensor, prepared: Maybe = None) -> Tensor:
        return torch.mm(x * self.scale, weight.t())

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: Needed, prepared: Maybe = None
    ) -> ByInputs:
        grad = grad * self.scale
        by_x = torch.mm(grad, weight) if needed[0] else None
        return by_x, torch.mm(grad.t(), x) if needed[1] and x is not None else None


class Blur(torch.autograd.Function):
    """The filter is its own transpose; the libraries would differentiate it by the kernel too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return filtered(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        by_x: Tensor = Blur.apply(grad)
        return by_x
