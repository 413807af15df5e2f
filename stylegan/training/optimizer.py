"""The official Adam on torch's own kernels."""

import math
from collections.abc import Iterable
from typing import Any

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
        self.before: dict[str, Any] = {}  # what the last update changed, but for tensors

    def clear(self) -> None:
        """Forget both moments and start counting anew."""
        self.state.clear()
        self.param_groups[0]["updates"] = 0

    def update(self, lr: float, skip: Tensor | None = None) -> None:
        """One step with the gradients as they are; a missing one counts as zero. If the tensor
        `skip` holds 1, the kernel leaves weights and moments alone; call `uncount` then."""
        (group,) = self.param_groups
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.before = {name: group[name] for name in ("updates", "eps", "lr")}
        group["updates"] += 1
        correction = 1 - group["betas"][1] ** group["updates"]
        group["eps"] = group["uncorrected_eps"] / math.sqrt(correction)
        group["lr"] = lr
        moving = [p for p in group["params"] if p.grad is not None]
        momentum = bool(group["betas"][0])
        for parameter in moving:
            self.make_room(parameter, momentum=momentum)
        # Fused Adam skips on the device where this is 1 (GradScaler's protocol).
        self.found_inf = skip
        self.step()
        # beta1 = 0: exp_avg only aliased the gradient; neither keep nor save it.
        for parameter in [] if momentum else moving:
            del self.state[parameter]["exp_avg"]

    def uncount(self) -> None:
        """Take back the count of the last update, which was skipped."""
        self.param_groups[0] |= self.before

    def make_room(self, parameter: nn.Parameter, *, momentum: bool) -> None:
        """The moments of a parameter, if there are none yet. Without `momentum` (beta1 = 0) the
        first moment is the gradient and needs no memory."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            if momentum:
                state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        if not momentum:
            state["exp_avg"] = parameter.grad


def all_finite(params: Iterable[nn.Parameter]) -> Tensor:
    """Whether no gradient holds an infinity or a NaN: bool (), where they are."""
    grads: list[Tensor] = [p.grad for p in params if p.grad is not None]
    if all(g.device.type == "cpu" for g in grads):  # twice as fast as the maximum there
        flat = (g.flatten() for g in grads)
        quick = sum((torch.dot(f, f) for f in flat), torch.zeros((), dtype=torch.float64))
        if quick.isfinite():  # else a square may have overflowed, where no gradient did
            return torch.tensor(True)
    return torch.nn.utils.get_total_norm(grads, norm_type=math.inf).isfinite()


def guarded_update(optimizer: Adam, scaler: torch.amp.GradScaler, lr: float) -> Tensor:
    """Unscale the gradients and step; a non-finite one skips the whole update.

    Returns whether the update was made: bool (). On a GPU a skipped update is counted, too, until
    `TrainState.count_update` takes it back.
    """
    scaler.unscale_(optimizer)
    finite = all_finite(optimizer.param_groups[0]["params"])
    if not host_decides(finite.device):
        optimizer.update(lr, skip=1 - finite.float())
    elif finite:
        optimizer.update(lr)
    scaler.update()
    return finite


def host_decides(device: torch.device) -> bool:
    """Whether the host skips updates. A GPU skips by itself, because asking it would make the host
    wait. CPUs have no queue; the kernels of MPS cannot skip."""
    return device.type in ("cpu", "mps")
