"""The official Adam, on torch's kernels."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.optimizer import StateDict


class Adam(torch.optim.Adam):
    """Adam that adds epsilon to the *uncorrected* root of the second moment, as TensorFlow does.

    This is torch's Adam with `eps / sqrt(1 - beta2^t)`, set before step t. It matters for the
    mapping network, whose gradients are small.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], *, betas: tuple[float, float], eps: float
    ) -> None:
        super().__init__(params, lr=0.0, betas=betas, eps=eps, fused=True)
        self.param_groups[0] |= {"uncorrected_eps": eps, "updates": 0}

    def clear(self) -> None:
        """Reset both moments and the step count."""
        self.state.clear()
        self.param_groups[0]["updates"] = 0

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load moments, the number of updates, and the learning rate and epsilon of the last one.

        Settings stay those of the configuration. Raises ValueError for moments that are not finite
        or have another shape, which torch would accept.
        """
        own = {name: x for name, x in self.param_groups[0].items() if name != "params"}
        super().load_state_dict(state_dict)
        last = state_dict["param_groups"][0]
        own |= {"updates": int(last["updates"]), "lr": float(last["lr"]), "eps": float(last["eps"])}
        self.param_groups[0] |= own
        for parameter, moments in self.state.items():
            for name, value in moments.items():
                expected = torch.Size() if name == "step" else parameter.shape
                if value.shape != expected or not value.isfinite().all():
                    raise ValueError(
                        f"{name} of the optimizer must be finite, of shape {tuple(expected)}"
                    )

    @torch.no_grad()
    def update(self, lr: float, skip: Tensor | None = None) -> None:
        """Take a step with the gradients as they are; a missing one counts as zero.

        If the tensor `skip` is 1, the kernel leaves weights and moments unchanged. The host does
        not wait for the result, so t advances anyway, and epsilon is slightly too small for a few
        hundred steps.
        """
        (group,) = self.param_groups
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        beta1, beta2 = group["betas"]
        group["updates"] += 1
        group["eps"] = group["uncorrected_eps"] / math.sqrt(1 - beta2 ** group["updates"])
        group["lr"] = lr
        moving = [p for p in group["params"] if p.grad is not None]
        grads = [p.grad for p in moving]
        states = [self.moments(p) for p in moving]
        adam(
            moving,
            grads,
            [s["exp_avg"] for s in states] if beta1 else grads,  # the first moment if beta1 is 0
            [s["exp_avg_sq"] for s in states],
            [],
            [s["step"] for s in states],
            fused=True,
            found_inf=skip,  # GradScaler's protocol
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=lr,
            weight_decay=0.0,
            eps=group["eps"],
            maximize=False,
        )

    def moments(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """State of a parameter, zeros at first; it lacks the first moment if beta1 is 0."""
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        if not self.param_groups[0]["betas"][0]:
            state.pop("exp_avg", None)
        return state


def guarded_update(optimizer: Adam, scaler: torch.amp.GradScaler, lr: float) -> Tensor:
    """Unscale the gradients and step; skip the whole update if their norm is not finite.

    Returns whether the update was made, bool () on the gradients' device. The norm also overflows
    for finite gradients that would overflow the second moment.
    """
    scaler.unscale_(optimizer)
    parameters = optimizer.param_groups[0]["params"]
    grads = [p.grad for p in parameters if p.grad is not None]
    finite = torch.nn.utils.get_total_norm(grads).isfinite()
    if not host_decides(finite.device):
        optimizer.update(lr, skip=1 - finite.float())
    elif finite:
        optimizer.update(lr)
    scaler.update()
    return finite


def host_decides(device: torch.device) -> bool:
    """Whether the host decides to skip an update.

    On a GPU the kernel does, since the host would have to wait. CPUs have no queue; the kernels of
    MPS cannot skip.
    """
    return device.type in ("cpu", "mps")
