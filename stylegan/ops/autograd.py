"""What autograd says about the backward pass under way."""

from typing import Any

import torch


def is_wanted(ctx: Any, tensor: int) -> bool:
    """True if the pass needs the gradient by a tensor, counted among those that `apply` took.

    R1's first pass does not need the gradients by weights. The engine knows, but says so in no
    public call. A torch without this one computes the gradient in vain; results are the same.
    """
    will_execute = getattr(torch._C, "_will_engine_execute_node", None)
    try:
        return will_execute is None or will_execute(ctx.next_functions[tensor][0])
    except RuntimeError:  # a leaf that `torch.autograd.grad` was asked for
        return True
