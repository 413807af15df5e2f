"""What a run will do, before it begins: phases, steps, memory and time."""

import dataclasses
from collections.abc import Mapping

import torch

from stylegan.config import TrainConfig
from stylegan.fitting import MEMORY_SHARE
from stylegan.messages import aligned, duration, gib
from stylegan.schedule import Stage, coming, phases
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


def fit_lines(config: TrainConfig, memory_gib: float) -> list[str]:
    """What fits on a GPU of that memory, by resolution: all images of a step at once, or how many,
    and how many would."""
    room, processes = MEMORY_SHARE * memory_gib * 2**30, config.schedule.num_processes
    rows = [("resolution", "batch", "memory", "fits")]
    needed: list[tuple[bool, int]] = []  # recomputation, images at once
    for stage in coming(config.schedule, 0):
        n = stage.batch_size // processes
        at_once = min(config.batch_gpu or n, n)
        group = min(max(config.network.deviation_group, 1), at_once)
        parts = [m for m in range(at_once, 0, -1) if n % m == m % group == 0]
        again = config.checkpoint_activations
        tries = [(a, m) for a in dict.fromkeys((again, True)) for m in parts]

        def size(again: bool, m: int, stage: Stage = stage, n: int = n) -> int:
            tried = dataclasses.replace(
                config, checkpoint_activations=again, batch_gpu=m if m < n else 0
            )
            return memory_estimate(tried, stage, processes, "cuda")

        whole = size(again, at_once)
        if whole <= room:
            larger = dataclasses.replace(stage, batch_size=8 * stage.batch_size)
            slope = (memory_estimate(config, larger, processes, "cuda") - whole) / (7 * n)
            most = int(n + (room - whole) / max(slope, 1))
            answer = "yes" if config.batch_gpu else f"yes, about {most - most % group:,} at once"
        else:
            found = next((each for each in tries if size(*each) <= room), None)
            answer = "no" if found is None else f"{found[1]} at once" + ", recomputed" * found[0]
            needed.append(found or (True, 0))
        rows.append((str(stage.resolution), str(n), gib(whole), answer))
    end = "it fits as it is"
    if needed:
        recomputed, fewest = max(again for again, _ in needed), min(m for _, m in needed)
        end = f"it fits with --batch-gpu {fewest}" + " --checkpoint-activations" * recomputed
        end = end if fewest else "it does not fit"
    return [
        f"on a GPU of {memory_gib:g} GiB, where the tensors of a step may take {MEMORY_SHARE:.0%} "
        "(counted without a GPU; kernels take the rest), per process:",
        *aligned(rows),
        end,
    ]


def kimg(images: int) -> str:
    return f"{images / 1000:,.10g}"
