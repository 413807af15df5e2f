"""What a training step costs: operations, memory and time."""

import dataclasses
import functools
import math
import os
import statistics
import time

import torch

from stylegan import distributed
from stylegan.config import TrainConfig
from stylegan.messages import count
from stylegan.networks import NetworkConfig, make_discriminator, make_generator
from stylegan.schedule import Stage, phases, resolutions
from stylegan.threads import busy
from stylegan.training.draws import Share, draw
from stylegan.training.health import explained
from stylegan.training.state import TrainState
from stylegan.training.step import train_step

MOST_SECONDS = 5.0  # a step that is expected to take longer is made of few images
MOST_STEPS = 6  # to measure one kind of step
LONG_STEP_SECONDS = 0.5  # by the first guess: a step of a wide network, for which every core pays
WORTH_A_THREAD = 1.1  # more threads must be faster by this, as they suffer when others come
TRIED_PROBABILITY = 0.5  # of each transform of an adaptive augmentation
CPU_RATE = 2e11  # operations per second of a step; a first guess, too high so that steps are tried


def step_flops(config: TrainConfig, resolution: int) -> float:
    """Floating-point operations per image of a step, to a tenth: nearly all are those of the two
    3x3 convolutions per resolution. In passes forward, the generator makes one for the
    discriminator's step and three for its own, the discriminator eleven, with R1."""
    channels = config.network.channels
    pairs = ((r, channels(r), channels(max(r // 2, 4))) for r in resolutions(resolution))
    return 10 * sum(18 * c * (c + lower) * r**2 for r, c, lower in pairs)


# of a step, for each number that a layer gives; counted in the configurations that ship
ACTIVATION_BYTES = {"fp32": 27, "tf32": 27, "bf16": 17, "fp16": 17}


def memory_estimate(config: TrainConfig, stage: Stage, processes: int) -> int:
    """Bytes that a step takes, to a factor of 1.3: activations, inputs, weights with their average,
    gradients and moments. What kernels take for themselves is not in it."""
    network, n = config.network, stage.batch_size // processes
    outputs = sum(network.channels(r) * r**2 for r in resolutions(stage.resolution))
    activations = ACTIVATION_BYTES[config.precision] * min(config.batch_gpu or n, n) * outputs
    return activations + 36 * n * stage.resolution**2 + round(1.3 * state_bytes(config))


def state_bytes(config: TrainConfig) -> int:
    """Size of the weights, the average and the second moments in a state file."""
    g, d = weight_counts(config.network)
    return 4 * (3 * g + 2 * d)


@functools.lru_cache
def weight_counts(config: NetworkConfig) -> list[int]:
    """Numbers of the generator and of the discriminator that are trained."""
    with torch.device("meta"):
        networks = make_generator(config), make_discriminator(config)
    return [sum(p.numel() for p in network.parameters()) for network in networks]


def one_step(state: TrainState, stage: Stage) -> None:
    """A training step with random images, augmented as those of a run."""
    config, network, like = state.config, state.config.network, state.generator.w_avg
    share = Share.of_process(state.device, like.dtype)
    n = stage.batch_size // share.world_size
    shape = n, network.image_channels, stage.resolution, stage.resolution
    labels = like.new_zeros(n, network.label_dim) if network.label_dim else None
    pool = None if labels is None else torch.zeros(1, network.label_dim)
    adaptive = config.augment.adaptive  # begins without any augmentation
    probability = TRIED_PROBABILITY if adaptive else state.strength.probability
    with explained(state, stage):
        reals = torch.rand(shape, device=like.device, dtype=like.dtype) * 2 - 1
        draws = draw(config, 0, stage, pool, share, probability)
        train_step(state, reals, labels, stage, draws)


def measure_step(state: TrainState, stage: Stage) -> tuple[float, int]:
    """Seconds and peak bytes (of a GPU) of a step: the median of those after the first, which also
    allocates memory and chooses kernels."""
    seconds = [timed_step(state, stage)]
    while len(seconds) < 3 or (len(seconds) < MOST_STEPS and sum(seconds) < MOST_SECONDS):
        seconds.append(timed_step(state, stage))
    device = state.device
    memory = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0
    return statistics.median(seconds[1:]), memory


def timed_step(state: TrainState, stage: Stage) -> float:
    """Seconds of one step, averaged over the processes: all must plan the same."""
    device = state.device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    one_step(state, stage)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return distributed.mean(torch.tensor(time.perf_counter() - started, device=device)).item()


def choose_threads(config: TrainConfig, stages: list[Stage]) -> str | None:
    """Train on one thread from here on unless all of torch's are clearly faster in real steps; what
    was chosen and why. None, and no change, if there is nothing to choose."""
    most = torch.get_num_threads()
    if most == 1 or not stages:
        return None
    stage = max(stages, key=lambda stage: step_flops(config, stage.resolution))
    if stage.batch_size * step_flops(config, stage.resolution) / CPU_RATE > LONG_STEP_SECONDS:
        return f"{most} threads: with long steps every core pays"
    others = busy()
    state = TrainState.create(config)
    seconds: dict[int, list[float]] = {most: [], 1: []}
    while len(seconds[1]) < 2 or (len(seconds[1]) < MOST_STEPS and sum(seconds[1]) < MOST_SECONDS):
        for threads, measured in seconds.items():  # in turns: what others do changes
            torch.set_num_threads(threads)
            measured.append(timed_step(state, stage))
    all_threads, one = (statistics.median(each[1:]) for each in seconds.values())
    chosen = most if WORTH_A_THREAD * all_threads < one else 1
    torch.set_num_threads(chosen)
    why = f"{one / all_threads:.1f} times as fast as one"
    if chosen == 1:
        why = f"{most} are hardly faster" if all_threads < one else f"{most} are slower"
        why += " while other programs use the cores" * others
    return f"{count(chosen, 'thread')}: {why}"


def installed_memory() -> int:
    """Bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_and_cores(device: torch.device) -> tuple[float, int]:
    """Bytes of the device and cores that each process has at least, of all processes."""
    if device.type == "cuda":
        memory: float = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = installed_memory() / distributed.processes_of_machine()
    memories, cores = zip(*distributed.gather((memory, torch.get_num_threads())), strict=True)
    return min(memories), min(cores)


def largest_step(config: TrainConfig) -> int:
    """Bytes that each process is expected to need for the largest step."""
    processes = config.schedule.num_processes
    stages = (stage for _, _, stage in phases(config.schedule))
    return max(memory_estimate(config, stage, processes) for stage in stages)


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one training step at one resolution."""

    seconds_per_image: float
    memory_bytes: int
    measured: bool


def step_costs(config: TrainConfig, device: torch.device, stages: list[Stage]) -> dict[int, Cost]:
    """By resolution: measured by steps with the whole batch, on a CPU with few images where
    those would take long; estimated from the steps before where both would, or where the machine
    has too little memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    processes = distributed.world_size()
    few = processes * max(config.network.deviation_group, 1)
    most_memory = installed_memory() / distributed.processes_of_machine()
    rate = CPU_RATE if device.type == "cpu" else math.inf  # operations per second of a process
    state: TrainState | None = None
    costs: dict[int, Cost] = {}
    for stage in stages:
        flops = step_flops(config, stage.resolution) / processes
        memory = memory_estimate(config, stage, processes)
        seconds_per_image, measured = flops / rate, 0
        sizes = [few, stage.batch_size] if device.type == "cpu" else [stage.batch_size]
        too_large = distributed.largest(memory > most_memory)  # a step needs every process
        for n in dict.fromkeys([] if too_large else sizes):
            if n * seconds_per_image < MOST_SECONDS:
                state = state or TrainState.create(config, device=device)
                seconds, used = measure_step(state, dataclasses.replace(stage, batch_size=n))
                seconds_per_image, memory, measured = seconds / n, used or memory, n
        rate = flops / seconds_per_image
        costs[stage.resolution] = Cost(seconds_per_image, memory, measured == stage.batch_size)
    return costs
