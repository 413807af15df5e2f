"""What would fail on day three fails before the first step, and how long it all will take."""

import resource
import shutil
from collections.abc import Callable, Mapping

import torch

from stylegan import distributed
from stylegan.config import TrainConfig
from stylegan.messages import about, aligned, duration, gib
from stylegan.run_folder import RunFolder
from stylegan.schedule import ScheduleConfig, coming, phases
from stylegan.training.cost import Cost, Trial, installed_memory, state_bytes, step_flops


def try_out(config: TrainConfig, device: torch.device, folder: RunFolder) -> list[str]:
    """What a user should know before a run in `folder` begins, or goes on: threads, time, memory,
    the disk. A new run chooses its threads. ValueError if a CPU has too little memory."""
    begun = distributed.largest(folder.saved())
    stages = coming(config.schedule, begun)
    trial = Trial(config, device).run(stages, choose_threads=not begun)
    if device.type == "cpu" and stages:
        stage = max(stages, key=lambda stage: trial.costs[stage.resolution].memory_bytes)
        needed, here = (
            trial.costs[stage.resolution].memory_bytes,
            distributed.processes_of_machine(),
        )
        if distributed.largest(needed * here > installed_memory()):  # of any machine
            raise ValueError(
                f"not enough memory at resolution {stage.resolution}, batch {stage.batch_size}: "
                f"{here} x {gib(needed)} estimated, {gib(installed_memory())} installed; try "
                "--batch-gpu, -o checkpoint_activations=true, a smaller batch, or --no-preflight "
                "if you know better"
            )
    return [*trial.threads, *outlook(trial, begun), *disk_warning(config, folder)]


def outlook(trial: Trial, images_seen: int) -> list[str]:
    """How long it will take, and how much memory."""
    costs, device = trial.costs, trial.device
    if not costs:
        return []
    left = seconds_left(
        trial.config.schedule, images_seen, lambda resolution: costs[resolution].seconds_per_image
    )
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


def seconds_left(
    plan: ScheduleConfig, images_seen: int, seconds_per_image: Callable[[int], float]
) -> float:
    """Time to train from image `images_seen` to the end; `seconds_per_image` at a resolution."""
    return sum(
        (end - max(first, images_seen)) * seconds_per_image(stage.resolution)
        for first, end, stage in phases(plan)
        if end > images_seen
    )


def disk_warning(config: TrainConfig, folder: RunFolder) -> list[str]:
    """A warning if the states that a run keeps will not fit on the disk of `folder`."""
    path = folder.path
    begun = next(path for path in (path, *path.absolute().parents) if path.exists())
    one = state_bytes(config.network)
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
        self.config = config
        self.known: dict[int, float] = {}  # seconds per image, by resolution

    def seconds(self, images_seen: int, resolution: int, images_per_second: float) -> float:
        """To the end, with the speed that `resolution` has now."""
        self.known[resolution] = 1 / images_per_second
        per_flop = self.known[resolution] / step_flops(self.config, resolution)

        def seconds_per_image(r: int) -> float:
            return self.known.get(r, per_flop * step_flops(self.config, r))

        return seconds_left(self.config.schedule, images_seen, seconds_per_image)


def plan_lines(config: TrainConfig, costs: Mapping[int, Cost], device: torch.device) -> list[str]:
    """The plan as a table to print."""
    rows = [["kimg", "resolution", "batch", "G rate", "D rate", "steps", "memory", "time"]]
    for first, end, stage in phases(config.schedule):
        cost, images = costs[stage.resolution], end - first
        kimg = "-".join(f"{n / 1000:,.10g}" for n in (first, end))
        fades = " fades in" if stage.alpha < 1 else ""
        rates = [f"{rate:g}" for rate in (stage.g_lr, stage.d_lr)]
        row = [kimg, f"{stage.resolution}{fades}", str(stage.batch_size), *rates]
        mark = "" if cost.measured else "~"
        time = mark + duration(cost.seconds_per_image * images)
        steps = f"{-(-images // stage.batch_size):,}"
        rows.append([*row, steps, gib(cost.memory_bytes), time])
    kind = "measured" if device.type == "cuda" else "estimated"
    return [*aligned(rows), f"memory is that of one step, {kind}; ~ = guessed from a smaller step"]
