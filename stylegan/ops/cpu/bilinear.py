"""Bilinear maps of images and weights that can be differentiated any number of times.

The derivatives of a bilinear map are made of the map and its two transposes, and so are theirs,
which R1 needs: two autograd functions serve every such map, whatever the way to compute it.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..autograd import is_wanted
from ..constants import filtered
from ..precision import differentiated, without_autocast

Maybe = Tensor | None
Needed = tuple[bool, bool]  # which gradients: by x, by the weight
ByInputs = tuple[Maybe, Maybe]  # the gradients by these


class BilinearMap(Protocol):
    """A bilinear map of x and a weight, and its two transposes, computed in some way."""

    def prepare(self, x: Tensor, weight: Tensor) -> Maybe:
        """Return the form of the weight that is multiplied, made once and kept for the derivatives;
        None: nothing worth keeping, it is made again. The other methods take it as `prepared`."""
        return None

    def output(self, x: Tensor, weight: Tensor, prepared: Maybe = None) -> Tensor: ...

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: Needed, prepared: Maybe = None
    ) -> ByInputs:
        """By x and by the weight, where needed; x is None if only its own gradient is needed."""


def product(op: BilinearMap, x: Tensor, weight: Tensor) -> Tensor:
    """`op.output(x, weight)`, differentiable; in the precision of x, also inside autocast."""
    with without_autocast(x):
        if differentiated(x, weight):
            y: Tensor = Bilinear.apply(op, x, weight)
            return y
        return op.output(x, weight)


class Bilinear(torch.autograd.Function):
    """A bilinear map; only what goes into it is kept, and x only for the weight's gradient.

    `Convolution` and `ConvolutionGradients` of ops/convolution.py are the same scheme for PyTorch's
    own convolution on every device; this one takes any map, and a weight prepared once.
    """

    @staticmethod
    def forward(
        ctx: Any, op: BilinearMap, x: Tensor, weight: Tensor, prepared: Maybe = None
    ) -> Tensor:
        prepared = op.prepare(x, weight) if prepared is None else prepared
        ctx.op = op
        ctx.save_for_backward(x if ctx.needs_input_grad[2] else None, weight, prepared)
        return op.output(x, weight, prepared)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Maybe, ...]:
        # `needs_input_grad` counts all arguments of `forward`, `is_wanted` the tensors among them.
        needed = ctx.needs_input_grad[1], ctx.needs_input_grad[2] and is_wanted(ctx, 1)
        x, weight, prepared = ctx.saved_tensors
        return None, *BilinearGradients.apply(ctx.op, needed, x, weight, grad, prepared), None


class BilinearGradients(torch.autograd.Function):
    """The gradients of a bilinear map B by x and by the weight, and their own gradients.

    With u and v the gradients that arrive for the two, what is differentiated by x, w and grad is
    <grad, B(u, w)> + <grad, B(x, v)>: again values and gradients of B.
    """

    @staticmethod
    def forward(
        ctx: Any,
        op: BilinearMap,
        needed: Needed,
        x: Maybe,
        w: Tensor,
        grad: Tensor,
        prepared: Maybe,
    ) -> ByInputs:
        ctx.op = op
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w, grad, prepared)
        with without_autocast(grad):
            return op.gradients(x, w, grad, needed, prepared)

    @staticmethod
    def backward(ctx: Any, u: Maybe, v: Maybe) -> tuple[Maybe, ...]:
        op: BilinearMap = ctx.op
        x, w, grad, prepared = ctx.saved_tensors
        x_needed, w_needed, grad_needed = ctx.needs_input_grad[2:5]
        of_x = of_w = of_grad = None
        with without_autocast(grad):
            if u is not None:
                if grad_needed:
                    of_grad = Bilinear.apply(op, u, w, prepared)
                if w_needed:
                    of_w = BilinearGradients.apply(op, (False, True), u, w, grad, prepared)[1]
            if v is not None:
                if x_needed:
                    of_x = BilinearGradients.apply(op, (True, False), None, v, grad, None)[0]
                if grad_needed:
                    more = Bilinear.apply(op, x, v)
                    of_grad = more if of_grad is None else of_grad + more
        return None, None, of_x, of_w, of_grad, None


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


@dataclass(frozen=True)
class OfBlurred(BilinearMap):
    """A bilinear map of the blurred image, which is not kept but made again.

    That takes a hundredth of the map's time and saves an image per layer and derivative.
    """

    op: BilinearMap

    def prepare(self, x: Tensor, weight: Tensor) -> Maybe:
        return self.op.prepare(x, weight)

    def output(self, x: Tensor, weight: Tensor, prepared: Maybe = None) -> Tensor:
        return self.op.output(filtered(x), weight, prepared)

    def gradients(
        self, x: Maybe, weight: Tensor, grad: Tensor, needed: Needed, prepared: Maybe = None
    ) -> ByInputs:
        blurred = filtered(x) if x is not None and needed[1] else None
        by_x, by_weight = self.op.gradients(blurred, weight, grad, needed, prepared)
        return None if by_x is None else filtered(by_x), by_weight
