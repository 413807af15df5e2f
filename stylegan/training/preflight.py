"""Trial steps before training: what a step costs in memory and time, how long all will take."""

import dataclasses
import functools
import gc
import math
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import psutil
import torch

from stylegan import distributed
from stylegan.config import TrainConfig
from stylegan.messages import about, aligned, duration, gib
from stylegan.networks import NetworkConfig, make_discriminator, make_generator
from stylegan.published import published_rate, published_seconds, seconds_left, step_flops
from stylegan.run_folder import RunFolder
from stylegan.schedule import Stage, batch_size_at, coming, phases, resolutions
from stylegan.threads import busy
from stylegan.training.draws import Share, draw
from stylegan.training.health import explained
from stylegan.training.progress import TrainingProgress
from stylegan.training.state import TrainState
from stylegan.training.step import train_step
from stylegan.training.terms import has_penalty

MOST_SECONDS = 5.0  # a step that is expected to take longer is made of few images
MOST_STEPS = 6  # to measure one kind of step
TRIED_PROBABILITY = 0.5  # of each transform of an adaptive augmentation
CPU_RATE = 2e11  # operations per second of a step; a first guess, too high so that steps are tried
# of a step, for each number that a layer gives; counted in the configurations that ship
ACTIVATION_BYTES = {"auto": 27, "fp32": 27, "tf32": 27, "bf16": 17, "fp16": 17}
PENALIZED_FP16_BYTES = 20  # where a gradient penalty's pass is in float32


def memory_estimate(config: TrainConfig, stage: Stage, processes: int) -> int:
    """Bytes that a step takes, to a factor of 1.3: activations, inputs, weights with their average,
    gradients and moments. What kernels take for themselves is not in it."""
    network = config.network
    n = stage.batch_size // processes
    outputs = sum(network.channels(r) * r**2 for r in resolutions(stage.resolution))
    each = ACTIVATION_BYTES[config.precision]
    if config.precision == "fp16" and has_penalty(config):
        each = PENALIZED_FP16_BYTES
    activations = each * min(config.batch_gpu or n, n) * outputs
    return activations + 36 * n * stage.resolution**2 + round(1.3 * state_bytes(network))


@functools.lru_cache
def state_bytes(config: NetworkConfig) -> int:
    """Size of the weights, the average and the second moments in a state file."""
    with torch.device("meta"):
        networks = make_generator(config), make_discriminator(config)
    g, d = (sum(p.numel() for p in network.parameters()) for network in networks)
    return 4 * (3 * g + 2 * d)


def largest_step(config: TrainConfig) -> int:
    """Bytes that each process is expected to need for the largest step."""
    processes = config.schedule.num_processes
    stages = (stage for _, _, stage in phases(config.schedule))
    return max(memory_estimate(config, stage, processes) for stage in stages)


def timed_step(state: TrainState, stage: Stage) -> float:
    """Seconds of a training step with random images, augmented as those of a run; averaged over the
    processes, as all must plan the same."""
    config = state.config
    network = state.config.network
    like = state.generator.w_avg
    share = Share.of_process(like.device, like.dtype)
    n = stage.batch_size // share.world_size
    labels = like.new_zeros(n, network.label_dim) if network.label_dim else None
    pool = None if labels is None else torch.zeros(1, network.label_dim)
    adaptive = config.augment.adaptive  # begins without any augmentation
    probability = TRIED_PROBABILITY if adaptive else state.strength.probability
    wait = torch.cuda.synchronize if like.is_cuda else lambda device: None
    wait(like.device)
    started = time.perf_counter()
    with explained(state, stage):
        reals = like.new_empty(n, network.image_channels, stage.resolution, stage.resolution)
        draws = draw(config, 0, stage, pool, share, probability)
        train_step(state, reals.uniform_(-1, 1), labels, stage, draws)
    wait(like.device)
    return distributed.mean(like.new_tensor(time.perf_counter() - started)).item()


def installed_memory() -> int:
    """Bytes."""
    return psutil.virtual_memory().total


def memory_and_cores(device: torch.device) -> tuple[float, int]:
    """Bytes of the device and cores that each process has at least, of all processes."""
    if device.type == "cuda":
        memory: float = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = installed_memory() / distributed.processes_of_machine()
    memories, cores = zip(*distributed.gather((memory, torch.get_num_threads())), strict=True)
    return min(memories), min(cores)


class Cost(NamedTuple):
    """Of one training step at one resolution."""

    seconds_per_image: float
    memory_bytes: int
    measured: bool


def costs_of(config: TrainConfig, device: torch.device, stages: Sequence[Stage]) -> dict[int, Cost]:
    """What a step costs at the resolutions of these stages, tried with random images. Nothing is
    left behind."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng([device.index] if cuda else []):
        costs = measured_costs(config, device, stages)
    if cuda:
        gc.collect()  # networks and graphs may hold each other
        torch.cuda.empty_cache()
    return costs


def measured_costs(
    config: TrainConfig, device: torch.device, stages: Sequence[Stage]
) -> dict[int, Cost]:
    """The costs: measured by steps with the whole batch, on a CPU with few images where those
    would take long; estimated from the steps before where both would, or where the machine
    has too little memory."""
    processes = distributed.world_size()
    cpu = device.type == "cpu"
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    few = processes * max(config.network.deviation_group, 1) if cpu else math.inf
    rate = CPU_RATE if cpu else math.inf  # operations per second of a process
    most_memory = installed_memory() / distributed.processes_of_machine()
    state: TrainState | None = None  # made for the first step
    costs: dict[int, Cost] = {}
    for stage in stages:
        flops = step_flops(config, stage.resolution) / processes
        memory = memory_estimate(config, stage, processes)
        seconds_per_image = flops / rate
        measured_images = 0
        too_large = distributed.largest(memory > most_memory)  # a step needs every process
        batches = [] if too_large else sorted({int(min(few, stage.batch_size)), stage.batch_size})
        for batch_size in batches:
            if batch_size * seconds_per_image < MOST_SECONDS:
                state = state or TrainState.create(config, device=device)
                tried = dataclasses.replace(stage, batch_size=batch_size)
                seconds_per_image = median_step(state, tried) / batch_size
                measured_images = batch_size
                if cuda:
                    memory = torch.cuda.max_memory_reserved(device)
        rate = flops / seconds_per_image
        measured = measured_images == stage.batch_size
        costs[stage.resolution] = Cost(seconds_per_image, memory, measured)
    return costs


def median_step(state: TrainState, stage: Stage) -> float:
    """Seconds of a step: the median of those after the first, which also allocates memory and
    chooses kernels."""
    seconds: list[float] = []
    while len(seconds) < 3 or (len(seconds) < MOST_STEPS and sum(seconds) < MOST_SECONDS):
        seconds.append(timed_step(state, stage))
    return statistics.median(seconds[1:])


def try_out(
    config: TrainConfig, device: torch.device, folder: RunFolder, tell: Callable[[str], None]
) -> list[str]:
    """What a user should know before a run in `folder` begins, or goes on: time, memory, the disk.
    ValueError if a CPU has too little memory. Nothing of a finished run."""
    begun = distributed.largest(folder.saved())
    stages = coming(config.schedule, begun)
    if not stages:
        return []
    tell("trying steps at every resolution to come, for their time and memory")
    costs = costs_of(config, device, stages)
    if device.type == "cpu":
        check_memory(config, costs)
    return [*outlook(config, costs, device, begun), *disk_warning(config, folder)]


def check_memory(config: TrainConfig, costs: Mapping[int, Cost]) -> None:
    """ValueError if a step of these costs, by resolution, does not fit into a machine."""
    here = distributed.processes_of_machine()
    needed = max((cost.memory_bytes for cost in costs.values()), default=0)
    if distributed.largest(needed * here > installed_memory()):  # of any machine
        resolution = max(costs, key=lambda resolution: costs[resolution].memory_bytes)
        batch_size = batch_size_at(resolution, config.schedule)
        raise ValueError(
            f"not enough memory at resolution {resolution}, batch {batch_size}: "
            f"{here} x {gib(needed)} estimated, {gib(installed_memory())} installed; try "
            "--batch-gpu, -o checkpoint_activations=true, a smaller batch, or --no-preflight "
            "if you know better"
        )


def outlook(
    config: TrainConfig, costs: Mapping[int, Cost], device: torch.device, images_seen: int
) -> list[str]:
    """How long it will take, and how much memory."""
    if not costs:
        return []
    left = seconds_left(config.schedule, images_seen, lambda r: costs[r].seconds_per_image)
    resolution = max(costs, key=lambda r: costs[r].memory_bytes)
    here = f"this {'GPU' if device.type == 'cuda' else device.type.upper()}"
    # under torchrun the siblings are at work, too
    if device.type == "cpu" and distributed.world_size() == 1 and busy():
        here += " while other programs use its cores"
    each = " for each process" if distributed.world_size() > 1 else ""
    needed = costs[resolution].memory_bytes
    if device.type != "cuda":  # what this process takes by now comes on top
        needed += psutil.Process().memory_info().rss
    memory = f"about {gib(needed)}, at {resolution}x{resolution}"
    return [f"about {about(left)} on {here}; memory{each}: {memory}"]


def published_costs(config: TrainConfig, processes: int) -> dict[int, Cost]:
    """Of a step at each resolution to come, on GPUs that are not at hand: nothing is tried."""
    rate = published_rate(config.network.resolution, processes)
    return {
        stage.resolution: Cost(
            step_flops(config, stage.resolution) / rate,
            memory_estimate(config, stage, processes),
            measured=False,
        )
        for stage in coming(config.schedule, 0)
    }


def published_outlook(
    config: TrainConfig, costs: Mapping[int, Cost], processes: int, images_seen: int
) -> list[str]:
    """How long the rest will take there, and how much memory."""
    seconds = published_seconds(config, images_seen, processes)
    gpus = f"{processes} V100s" if processes > 1 else "one V100"
    most = max(costs, key=lambda resolution: costs[resolution].memory_bytes)
    return [
        f"about {about(seconds)} on {gpus}, by the published times of the official program; an "
        "A100 or H100 was not measured and takes a part of that",
        f"memory of each GPU: about {gib(costs[most].memory_bytes)}, at {most}x{most}; kernels "
        "take more",
    ]


def disk_warning(config: TrainConfig, folder: RunFolder) -> list[str]:
    """A warning if the states that a run keeps will not fit on the disk of `folder`."""
    path = folder.path
    begun = next(path for path in (path, *path.absolute().parents) if path.exists())
    state_size = state_bytes(config.network)
    there = min(len(folder.states()), config.keep_states)
    needed = (config.keep_states + 1 - there) * state_size
    free = shutil.disk_usage(begun).free
    if free > needed:
        return []
    return [
        f"warning: {config.keep_states} states of {gib(state_size)} (keep_states) and a new one "
        f"need {gib(needed)}, {gib(free)} are free at {begun}"
    ]


def time_left(config: TrainConfig, progress: TrainingProgress, known: dict[int, float]) -> float:
    """Seconds to the end, with the last `known` seconds per image of each resolution, to which
    those of `progress` are added; resolutions to come are scaled by their operations."""
    now = progress.stage.resolution
    known[now] = 1 / progress.images_per_second
    per_flop = known[now] / step_flops(config, now)
    return seconds_left(
        config.schedule,
        progress.images_seen,
        lambda resolution: known.get(resolution, per_flop * step_flops(config, resolution)),
    )


def plan_lines(config: TrainConfig, costs: Mapping[int, Cost], device: torch.device) -> list[str]:
    rows = [["kimg", "resolution", "batch", "G rate", "D rate", "steps", "memory", "time"]]
    for first, end, stage in phases(config.schedule):
        cost = costs[stage.resolution]
        images = end - first
        kimg = "-".join(f"{n / 1000:,.10g}" for n in (first, end))
        resolution = f"{stage.resolution}{' fades in' if stage.alpha < 1 else ''}"
        row = [kimg, resolution, str(stage.batch_size), f"{stage.g_lr:g}", f"{stage.d_lr:g}"]
        row += [f"{-(-images // stage.batch_size):,}", gib(cost.memory_bytes)]
        mark = "" if cost.measured else "~"
        rows.append([*row, mark + duration(cost.seconds_per_image * images)])
    lines = aligned(rows)
    if ramp := config.schedule.ramp_kimg:
        lines.append(f"rates rise linearly from 0 over the first {ramp:,.10g} kimg (ramp_kimg)")
    kind = "measured" if device.type == "cuda" else "estimated"
    legend = f"precision {config.precision}; memory is that of one step, {kind}"
    if not all(cost.measured for cost in costs.values()):
        legend += "; ~ = guessed from a smaller step"
    return [*lines, legend]
