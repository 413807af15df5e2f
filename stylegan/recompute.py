"""Blocks whose inner results are computed again when gradients need them, instead of kept.

`torch.utils.checkpoint` does so for first derivatives. R1 differentiates a gradient, whose graph
would keep everything that was computed again; here no graph keeps more than the inputs of each
block and the gradient at its output, and the graph of one block exists at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from stylegan.ops import autocast, autocast_dtype

Maybe = Tensor | None
Needed = Sequence[bool]  # whether the gradient by each tensor is needed


def recompute(block: nn.Module, *inputs: Maybe) -> Tensor:
    """`block(*inputs)`, which must be one tensor without chance in it, twice differentiable.

    Less memory for more time: the block runs again for its gradients, and for their own. They
    are the same but for round-off, as sums over several uses of a tensor may change their order.
    """
    named = dict(block.named_parameters())
    tensors = [x for x in (*inputs, *named.values()) if x is not None]
    if not torch.is_grad_enabled() or not any(x.requires_grad for x in tensors):
        plain: Tensor = block(*inputs)
        return plain
    kind = tensors[0].device.type
    run = Run(block, tuple(named), kind, autocast_dtype(kind))
    return Recompute.apply(run, *inputs, *named.values())


@dataclass(frozen=True)
class Run:
    """A block and the precision in which it was called: all but the tensors that go in."""

    block: nn.Module
    names: tuple[str, ...]  # of its parameters, the last of the tensors
    kind: str  # of device
    autocast_dtype: torch.dtype | None

    def __call__(self, tensors: Sequence[Maybe], needed: Needed) -> tuple[Tensor, list[Maybe]]:
        """The output, with a graph of its own, and the leaves of that graph: one per tensor."""
        leaves = [
            None if x is None else x.detach().requires_grad_(need)
            for x, need in zip(tensors, needed, strict=True)
        ]
        n = len(leaves) - len(self.names)
        parameters: dict[str, Any] = dict(zip(self.names, leaves[n:], strict=True))
        with torch.enable_grad(), autocast(self.kind, self.autocast_dtype, cache=False):
            return functional_call(self.block, parameters, tuple(leaves[:n])), leaves


class Recompute(torch.autograd.Function):
    """The output of a block, of which only the inputs are kept."""

    @staticmethod
    def forward(ctx: Any, run: Run, *tensors: Maybe) -> Tensor:
        ctx.run = run
        ctx.save_for_backward(*tensors)
        # with a graph, though nobody keeps it: what `requires_grad` decides must not change
        output, _ = run(tensors, ctx.needs_input_grad[1:])
        return output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Maybe, ...]:
        needed = ctx.needs_input_grad[1:]
        return None, *RecomputeGradient.apply(ctx.run, needed, grad, *ctx.saved_tensors)


class RecomputeGradient(torch.autograd.Function):
    """The gradients of the tensors that went into a block; it keeps those and `grad` alone."""

    @staticmethod
    def forward(
        ctx: Any, run: Run, needed: Needed, grad: Tensor, *tensors: Maybe
    ) -> tuple[Maybe, ...]:
        ctx.run, ctx.needed = run, needed
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(grad, *tensors)
        output, leaves = run(tensors, needed)
        return derivatives([output], leaves, [grad], needed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *weights: Maybe) -> tuple[Maybe, ...]:
        grad, *tensors = ctx.saved_tensors
        grad = grad.detach().requires_grad_()
        output, leaves = ctx.run(tensors, ctx.needed)
        weighted = [weight is not None for weight in weights]
        firsts = derivatives([output], leaves, [grad], weighted, create_graph=True)
        seconds = derivatives(firsts, [grad, *leaves], weights, [True, *ctx.needed])
        return None, None, *seconds


def derivatives(
    outputs: Sequence[Maybe],
    leaves: Sequence[Maybe],
    weights: Sequence[Maybe],
    needed: Needed,
    *,
    create_graph: bool = False,
) -> tuple[Maybe, ...]:
    """Gradient by every leaf of the `outputs` times their `weights`, summed; None if not needed."""
    terms = [(o, w) for o, w in zip(outputs, weights, strict=True) if o is not None]
    asked = [leaf for leaf, need in zip(leaves, needed, strict=True) if leaf is not None and need]
    if not terms or not asked:
        return (None,) * len(leaves)
    outs, grads = zip(*terms, strict=True)
    found = torch.autograd.grad(outs, asked, grads, create_graph=create_graph, allow_unused=True)
    rest = iter(found)
    return tuple(next(rest) if need else None for need in needed)
