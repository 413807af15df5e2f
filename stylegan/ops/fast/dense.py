"""Dense layers, as matrix products that leave their weights as they are."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .bilinear import BilinearMap, Maybe, Needed, Pair


@dataclass(frozen=True)
class Dense(BilinearMap):
    """Every gradient by the weight is made in the weight's own order.

    Differentiated twice, PyTorch's linear layer makes some transposed, which take long to add.
    """

    scale: float

    def output(self, x: Tensor, weight: Tensor, cached_weight: Maybe = None) -> Tensor:
        return torch.mm(x * self.scale, weight.t())

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: Needed, cached_weight: Maybe = None
    ) -> Pair:
        grad = grad * self.scale
        by_x = torch.mm(grad, weight) if needed[0] else None
        return by_x, torch.mm(grad.t(), x) if needed[1] and x is not None else None
