"""What a run will do, before it begins: phases, steps, memory and time."""

import torch

from stylegan.config import TrainConfig
from stylegan.messages import aligned, duration, gib
from stylegan.schedule import phases
from stylegan.training.cost import step_costs, step_flops
from stylegan.training.kernels import kernels


class TimeLeft:
    """Expected time to the end: each resolution at its last known speed, those to come at the
    present one's, scaled by their operations."""

    def __init__(self, config: TrainConfig) -> None:
        self.phases = phases(config.schedule)
        self.flops = step_flops(config)
        self.rates: dict[int, float] = {}

    def seconds(self, images_seen: int, resolution: int, images_per_second: float) -> float:
        """To the end, with the speed that `resolution` has now."""
        if images_seen >= self.phases[-1][1]:  # the run was made shorter
            return 0.0
        self.rates[resolution] = images_per_second
        work = images_per_second * self.flops[resolution]
        left = 0.0
        for first, end, stage in self.phases:
            rate = self.rates.get(stage.resolution, work / self.flops[stage.resolution])
            left += max(end - max(first, images_seen), 0) / rate
        return left


def plan_lines(config: TrainConfig, device: torch.device) -> list[str]:
    """The plan as a table to print."""
    with kernels(config):
        costs = step_costs(config, device)
    rows = [("kimg", "resolution", "batch", "G rate", "D rate", "steps", "memory", "time")]
    total = 0.0
    for first, end, stage in phases(config.schedule):
        cost = costs[stage.resolution]
        seconds = cost.seconds_per_image * (end - first)
        total += seconds
        mark = "" if cost.measured else "~"
        fades = " fades in" if stage.alpha < 1 else ""
        rows.append(
            (
                f"{first / 1000:g}-{end / 1000:g}",
                f"{stage.resolution}{fades}",
                str(stage.batch_size),
                f"{stage.g_lr:g}",
                f"{stage.d_lr:g}",
                f"{-(-(end - first) // stage.batch_size):,}",
                gib(cost.memory_bytes),
                mark + duration(seconds),
            )
        )
    kind = "measured" if device.type == "cuda" else "estimated"
    note = f"Time on this {device.type}, from one measured step (~: estimated from a smaller one)"
    notes = [f"{note}; memory of each process {kind}.", f"In all about {duration(total)}."]
    return aligned(rows) + notes
