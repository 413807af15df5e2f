"""What a run will do, before it begins: phases, steps, memory and time."""

from collections.abc import Mapping

import torch

from stylegan.config import TrainConfig
from stylegan.messages import aligned, duration, gib
from stylegan.schedule import phases
from stylegan.training.cost import Cost, step_flops


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


def plan_lines(config: TrainConfig, costs: Mapping[int, Cost], device: torch.device) -> list[str]:
    """The plan as a table to print."""
    rows = [("kimg", "resolution", "batch", "G rate", "D rate", "steps", "memory", "time")]
    for first, end, stage in phases(config.schedule):
        cost = costs[stage.resolution]
        mark = "" if cost.measured else "~"
        fades = " fades in" if stage.alpha < 1 else ""
        rows.append(
            (
                f"{kimg(first)}-{kimg(end)}",
                f"{stage.resolution}{fades}",
                str(stage.batch_size),
                f"{stage.g_lr:g}",
                f"{stage.d_lr:g}",
                f"{-(-(end - first) // stage.batch_size):,}",
                gib(cost.memory_bytes),
                mark + duration(cost.seconds_per_image * (end - first)),
            )
        )
    kind = "measured" if device.type == "cuda" else "estimated"
    return [*aligned(rows), f"memory: of a step, {kind}; ~: from a smaller step"]


def kimg(images: int) -> str:
    return f"{images / 1000:,.10g}"
