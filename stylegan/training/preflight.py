"""What would fail on day three fails before the first step, and how long it all will take."""

import resource
import shutil
from collections.abc import Mapping

import torch

from stylegan import distributed
from stylegan.config import TrainConfig
from stylegan.messages import about, aligned, duration, gib
from stylegan.run_folder import RunFolder
from stylegan.schedule import ScheduleConfig, Stage, coming, phases
from stylegan.training.cost import Cost, Trial, installed_memory, state_bytes, step_flops


def try_out(config: TrainConfig, device: torch.device, folder: RunFolder) -> list[str]:
    """What a user should know before a run in `folder` begins, or goes on: threads, time, memory,
    the disk. A new run chooses its threads. ValueError if a CPU has too little memory."""
    begun = distributed.largest(folder.saved())
    stages = coming(config.schedule, begun)
    trial = Trial(config, device).run(stages, choose_threads=not begun)
    if device.type == "cpu" and stages:
        check_memory(trial.costs, stages)
    return [*trial.threads, *outlook(trial, begun), *disk_warning(config, folder)]


def check_memory(costs: dict[int, Cost], stages: list[Stage]) -> None:
    """ValueError if the processes of this machine need more memory than it has."""
    stage = max(stages, key=lambda stage: costs[stage.resolution].memory_bytes)
    needed, here = costs[stage.resolution].memory_bytes, distributed.processes_of_machine()
    if distributed.largest(needed * here > installed_memory()):  # of any machine
        raise ValueError(
            f"not enough memory at resolution {stage.resolution}, batch {stage.batch_size}: "
            f"{here} x {gib(needed)} estimated, {gib(installed_memory())} installed; try "
            "--batch-gpu, -o checkpoint_activations=true, a smaller batch, or --no-preflight if "
            "you know better"
        )


def outlook(trial: Trial, images_seen: int) -> list[str]:
    """How long it will take, and how much memory."""
    costs, device, plan = trial.costs, trial.device, trial.config.schedule
    if not costs:
        return []
    left = seconds_between(plan, costs, images_seen, plan.total_images)
    resolution = max(costs, key=lambda r: costs[r].memory_bytes)
    here = f"this {'GPU' if device.type == 'cuda' else device.type.upper()}"
    here += " while other programs use its cores" if trial.shared else ""
    each = " for each process" if distributed.world_size() > 1 else ""
    needed = costs[resolution].memory_bytes
    if device.type != "cuda":  # what this process takes by now comes on top
        needed += 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return [
        f"about {about(left)} on {here}; memory{each}: about {gib(needed)}, at "
        f"{resolution}x{resolution}"
    ]


def seconds_between(plan: ScheduleConfig, costs: dict[int, Cost], first: int, end: int) -> float:
    """Time to train from image `first` to image `end`."""
    return sum(
        max(min(last, end) - max(begin, first), 0) * costs[stage.resolution].seconds_per_image
        for begin, last, stage in phases(plan)
        if last > first
    )


def disk_warning(config: TrainConfig, folder: RunFolder) -> list[str]:
    """A warning if the states that a run keeps will not fit on the disk of `folder`."""
    path = folder.path
    begun = next(path for path in (path, *path.absolute().parents) if path.exists())
    one = state_bytes(config)
    there = min(len(folder.states()), config.keep_states)
    needed, free = (config.keep_states + 1 - there) * one, shutil.disk_usage(begun).free
    if free > needed:
        return []
    return [
        f"warning: {config.keep_states} states of {gib(one)} (keep_states) and a new one need "
        f"{gib(needed)}, {gib(free)} are free at {begun}"
    ]


class TimeLeft:
    """Expected time to the end: each resolution at its last known speed, those to come at the
    present one's, scaled by their operations."""

    def __init__(self, config: TrainConfig) -> None:
        self.phases = phases(config.schedule)
        self.config = config
        self.rates: dict[int, float] = {}

    def seconds(self, images_seen: int, resolution: int, images_per_second: float) -> float:
        """To the end, with the speed that `resolution` has now."""
        if images_seen >= self.phases[-1][1]:  # the run was made shorter
            return 0.0
        self.rates[resolution] = images_per_second
        work = images_per_second * step_flops(self.config, resolution)
        left = 0.0
        for first, end, stage in self.phases:
            rate = self.rates.get(
                stage.resolution, work / step_flops(self.config, stage.resolution)
            )
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
    return [*aligned(rows), f"memory is that of one step, {kind}; ~ = guessed from a smaller step"]


def kimg(images: int) -> str:
    return f"{images / 1000:,.10g}"
