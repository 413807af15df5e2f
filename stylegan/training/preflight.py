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
from stylegan.threads import busy
from stylegan.training.cost import Cost, installed_memory, state_bytes, step_costs, step_flops


def try_out(config: TrainConfig, device: torch.device, folder: RunFolder) -> list[str]:
    """What a user should know before a run in `folder` begins, or goes on: time, memory, samples,
    the disk. ValueError if the memory is not enough."""
    begun = distributed.largest(folder.saved())
    costs = try_steps(config, device, begun)
    return [*outlook(config, costs, device, begun), *disk_warning(config, folder)]


def try_steps(config: TrainConfig, device: torch.device, images_seen: int = 0) -> dict[int, Cost]:
    """The costs of real steps at every resolution still to come after `images_seen`; nothing is
    left behind. ValueError if a CPU has too little memory, naming resolution, batch and what helps.
    """
    stages = coming(config.schedule, images_seen)
    if not stages:
        return {}
    with torch.random.fork_rng([device.index] if device.type == "cuda" else []):
        costs = step_costs(config, device, stages)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "cpu":
        check_memory(costs, stages)
    return costs


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


def outlook(
    config: TrainConfig,
    costs: dict[int, Cost],
    device: torch.device,
    images_seen: int,
) -> list[str]:
    """How long it will take, and how much memory."""
    if not costs:
        return []
    plan = config.schedule
    left = seconds_between(plan, costs, images_seen, plan.total_images)
    resolution = max(costs, key=lambda r: costs[r].memory_bytes)
    # under torchrun the siblings are at work, too
    shared = device.type == "cpu" and distributed.world_size() == 1 and busy()
    here = f"this {'GPU' if device.type == 'cuda' else device.type.upper()}"
    here += " while other programs use its cores" if shared else ""
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
