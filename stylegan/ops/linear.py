"""Dense layers, as matrix products that leave their weights as they are."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .bilinear import Maybe, product
from .precision import full_precision

LARGE_WEIGHT = 2**20  # numbers, from which on the order of a gradient's numbers matters


def dense(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """x (N, in) times `scale` times a weight (out, in), plus a bias (out,)."""
    if not full_precision(x):
        return F.linear(x, weight * scale, bias)
    weight, bias = weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
    if x.device.type != "cpu" or weight.numel() < LARGE_WEIGHT:
        return F.linear(x * scale, weight, bias)  # the input is smaller than the weight
    y = product(Dense(scale), x, weight)
    return y if bias is None else y + bias


@dataclass(frozen=True)
class Dense:
    """Every gradient by the weight is made in the weight's own order.

    Differentiated twice, PyTorch's linear layer makes some transposed, which take long to add.
    """

    scale: float

    def output(self, x: Tensor, weight: Tensor) -> Tensor:
        return torch.mm(x * self.scale, weight.t())

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: tuple[bool, bool]
    ) -> tuple[Maybe, Maybe]:
        grad = grad * self.scale
        by_x = torch.mm(grad, weight) if needed[0] else None
        return by_x, torch.mm(grad.t(), x) if needed[1] and x is not None else None
