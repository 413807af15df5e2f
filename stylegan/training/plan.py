"""What a run will do, before it begins: phases, steps, memory and time."""

import dataclasses
from collections.abc import Mapping

import torch

from stylegan.config import TrainConfig
from stylegan.messages import aligned, duration, gib
from stylegan.schedule import coming, phases
from stylegan.training.cost import Cost, memory_estimate, step_flops


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


def gpu_lines(config: TrainConfig) -> list[str]:
    """The memory of a step on a GPU, by resolution, where there is none to ask."""
    processes = config.schedule.num_processes
    stages = coming(config.schedule, 0)
    needed = {stage: memory_estimate(config, stage, processes, "cuda") for stage in stages}
    each = ", ".join(f"{stage.resolution}: {gib(size)}" for stage, size in needed.items())
    most, half = max(needed, key=lambda stage: needed[stage]), ""
    if config.precision in ("fp32", "tf32"):
        other = dataclasses.replace(config, precision="bf16")
        size = memory_estimate(other, most, processes, "cuda")
        half = f"; with --precision bf16 {gib(size)} at {most.resolution}"
    return [
        f"on a GPU the tensors of a step take {each}{half} (counted without a GPU; what kernels "
        "take for themselves is not in it)"
    ]


def kimg(images: int) -> str:
    return f"{images / 1000:,.10g}"
