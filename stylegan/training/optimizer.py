"""The official Adam on torch's own kernels."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Adam(torch.optim.Adam):
    """Adam that adds epsilon to the *uncorrected* root of the second moment, as TensorFlow's.

    That is torch's Adam with `eps / sqrt(1 - beta2^t)`, set before step t. It matters for the
    mapping network, whose gradients are small.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], *, betas: tuple[float, float], eps: float
    ) -> None:
        super().__init__(params, lr=0.0, betas=betas, eps=eps, fused=True)
        self.param_groups[0] |= {"uncorrected_eps": eps, "updates": 0}

    def clear(self) -> None:
        """Forget both moments and start counting anew."""
        self.state.clear()
        self.param_groups[0]["updates"] = 0

    def update(self, lr: float) -> None:
        """One step with the gradients as they are; a missing one counts as zero."""
        (group,) = self.param_groups
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        group["updates"] += 1
        correction = 1 - group["betas"][1] ** group["updates"]
        group["eps"] = group["uncorrected_eps"] / math.sqrt(correction)
        group["lr"] = lr
        moving = [p for p in group["params"] if p.grad is not None]
        first = bool(group["betas"][0])
        for parameter in moving:
            self.make_room(parameter, first=first)
        self.step()
        for parameter in [] if first else moving:
            del self.state[parameter]["exp_avg"]

    def make_room(self, parameter: nn.Parameter, *, first: bool) -> None:
        """The moments of a parameter, if there are none yet. With beta1 = 0 the `first` is the
        gradient: it needs no memory of its own."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            if first:
                state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        if not first:
            state["exp_avg"] = parameter.grad


def all_finite(params: Iterable[nn.Parameter]) -> bool:
    """Whether no gradient holds an infinity or a NaN.

    The sum of squares is quick, but overflows before its parts do; then the maximum decides.
    """
    grads: list[Tensor] = [p.grad for p in params if p.grad is not None]
    if all(g.device.type == "cpu" for g in grads):  # twice as fast as the norm there
        flat = (g.flatten() for g in grads)
        quick = sum((torch.dot(f, f) for f in flat), torch.zeros((), dtype=torch.float64))
    else:
        quick = torch.nn.utils.get_total_norm(grads, norm_type=2.0)
    if bool(quick.isfinite().item()):
        return True
    return bool(torch.nn.utils.get_total_norm(grads, norm_type=math.inf).isfinite().item())


def guarded_update(optimizer: Adam, scaler: torch.amp.GradScaler, lr: float) -> bool:
    """Unscale the gradients and step; a non-finite one skips the whole update, count included.

    True if the update was made.
    """
    scaler.unscale_(optimizer)
    finite = all_finite(optimizer.param_groups[0]["params"])
    if finite:
        optimizer.update(lr)
    scaler.update()
    return finite
