"""Time and memory of training steps: measured, or extrapolated by counting operations."""

import dataclasses
import functools
import gc
import math
import os
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import psutil
import torch

from stylegan.config import TrainConfig
from stylegan.files.run_folder import RunFolder
from stylegan.networks import NetworkConfig, make_discriminator, make_generator
from stylegan.schedule import (
    ScheduleConfig,
    Stage,
    batch_size_at,
    phases,
    remaining_stages,
    resolutions,
)
from stylegan.training.draws import Share, draw
from stylegan.training.health import runtime_errors_explained
from stylegan.training.state import TrainState
from stylegan.training.step import train_step
from stylegan.training.terms import has_penalty
from stylegan.utils import distributed
from stylegan.utils.console import Console
from stylegan.utils.limits import limits, usual_threads
from stylegan.utils.text import approximate_duration, gib, pluralize

MAX_SECONDS = 5.0  # a step that is expected to take longer is tried with few images
MAX_STEPS = 6  # per resolution
TRIED_PROBABILITY = 0.5  # of each transform of an adaptive augmentation
CPU_RATE = 2e11  # operations per second, above that of any CPU; used until a step was tried
# Bytes of a step per number in a layer's output, counted in the configurations that ship.
ACTIVATION_BYTES = {"auto": 27, "fp32": 27, "tf32": 27, "bf16": 17, "fp16": 17}
RECOMPUTED = 0.75  # fraction of these bytes with checkpoint_activations: docs/performance.md
PENALIZED_FP16_BYTES = 20  # for fp16, where the pass of a gradient penalty is in float32


@dataclass(frozen=True)
class Machine:
    """Hardware of a training; memory and cores are the minimum over the ranks."""

    device: torch.device
    memory: float = math.inf  # bytes
    cores: int = 1
    processes: int = 1

    @property
    def on_cpu(self) -> bool:
        return self.device.type == "cpu"

    @classmethod
    def here(cls, device: torch.device) -> Self:
        if device.type == "cuda":
            memory: float = torch.cuda.get_device_properties(device).total_memory
        else:
            memory = limits().memory
        of_all = distributed.all_gather((memory, usual_threads()))
        memories, cores = zip(*of_all, strict=True)
        return cls(device, min(memories), min(cores), len(of_all))


def flops_per_image(config: TrainConfig, resolution: int) -> float:
    """Floating-point operations per image of a step, to 10 %.

    Nearly all are in the two 3x3 convolutions per resolution. In units of a forward pass, G takes
    one for D's update and three for its own; D takes eleven, with R1.
    """
    channels = config.network.channels
    pairs = ((r, channels(r), channels(max(r // 2, 4))) for r in resolutions(resolution))
    return 10 * sum(18 * c * (c + lower) * r**2 for r, c, lower in pairs)


def step_bytes(config: TrainConfig, stage: Stage, processes: int) -> int:
    """Bytes of a step per process, to a factor of 1.3, without the workspace of kernels."""
    n = stage.batch_size // processes
    outputs = sum(config.network.channels(r) * r**2 for r in resolutions(stage.resolution))
    each = ACTIVATION_BYTES[config.precision]
    if config.precision == "fp16" and has_penalty(config):
        each = PENALIZED_FP16_BYTES
    activations = each * config.micro_batch_size(n) * outputs
    if config.checkpoint_activations:
        activations = round(RECOMPUTED * activations)
    return activations + 36 * n * stage.resolution**2 + round(1.3 * state_bytes(config.network))


@functools.lru_cache
def state_bytes(config: NetworkConfig) -> int:
    """Bytes of the weights, the average and the second moments in a state file."""
    with torch.device("meta"):
        networks = make_generator(config), make_discriminator(config)
    g, d = (sum(p.numel() for p in network.parameters()) for network in networks)
    return 4 * (3 * g + 2 * d)


@dataclass(frozen=True)
class StepCosts:
    """Time and memory of a training step, by resolution."""

    seconds: Mapping[int, float]  # per image
    memory: Mapping[int, int]  # bytes per process
    guessed: frozenset[int] = frozenset()  # resolutions where no whole batch was tried

    @classmethod
    def measure(cls, config: TrainConfig, device: torch.device, stages: Sequence[Stage]) -> Self:
        """Time training steps on random images, at the resolution of each stage, and discard them.

        On a CPU, slow steps use few images; where even those are too slow or memory is short, the
        cost is extrapolated from the resolution before.
        """
        processes = distributed.world_size()
        cuda = device.type == "cuda"
        group = processes * max(config.network.deviation_group, 1)
        rate = math.inf if cuda else processes * CPU_RATE
        if cuda:
            torch.cuda.reset_peak_memory_stats(device)
        state: TrainState | None = None  # made for the first step
        seconds: dict[int, float] = {}
        memory: dict[int, int] = {}
        guessed = set()
        for stage in stages:
            resolution = stage.resolution
            work = flops_per_image(config, resolution)
            seconds[resolution] = work / rate
            memory[resolution] = step_bytes(config, stage, processes)
            guessed.add(resolution)
            # A step needs every rank. A GPU that is too small raises an error of its own.
            if not cuda and distributed.max_over_ranks(memory[resolution] > limits().memory):
                continue
            few = stage.batch_size if cuda else min(group, stage.batch_size)
            for batch_size in sorted({few, stage.batch_size}):
                if cuda or batch_size * seconds[resolution] < MAX_SECONDS:
                    with_g = dataclasses.replace(config, d_only_kimg=0)  # G's update takes most
                    state = state or TrainState.create(with_g, device=device)
                    tried = dataclasses.replace(stage, batch_size=batch_size)
                    seconds[resolution] = step_seconds(state, tried) / batch_size
                    if cuda:
                        memory[resolution] = torch.cuda.max_memory_reserved(device)
                    if batch_size == stage.batch_size:
                        guessed.discard(resolution)
            rate = work / seconds[resolution]
        if cuda:
            del state
            gc.collect()  # networks and graphs may refer to each other
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)  # the log reports the run's own peak
        return cls(seconds, memory, frozenset(guessed))

    @classmethod
    def estimate(cls, config: TrainConfig, processes: int) -> Self:
        """Estimate the memory at every resolution, for any machine; times are unknown."""
        stages = remaining_stages(config.schedule, 0)
        memory = {stage.resolution: step_bytes(config, stage, processes) for stage in stages}
        return cls({}, memory, frozenset(memory))

    @classmethod
    def extrapolate(cls, config: TrainConfig, seconds: Mapping[int, float]) -> Self:
        """Extrapolate from the last entry of `seconds`, per image, by the number of operations."""
        *_, last = seconds
        rate = flops_per_image(config, last) / seconds[last]
        others = {
            r: flops_per_image(config, r) / rate for r in resolutions(config.network.resolution)
        }
        return cls({**others, **seconds}, {}, frozenset(others.keys() - seconds.keys()))

    def seconds_left(self, schedule: ScheduleConfig, images_seen: int = 0) -> float:
        """Seconds from image `images_seen` to the end of the schedule."""
        return sum(
            (end - max(first, images_seen)) * self.seconds[stage.resolution]
            for first, end, stage in phases(schedule)
            if end > images_seen
        )

    @property
    def largest(self) -> int:
        """The resolution whose steps take most memory."""
        return max(self.memory, key=self.memory.__getitem__)


def step_seconds(state: TrainState, stage: Stage) -> float:
    """Median duration of training steps on random images, augmented as those of a run.

    The first step is left out: it also chooses kernels. Durations are averaged over the ranks,
    which must all plan the same.
    """
    config = state.config
    network = config.network
    like = state.generator.w_avg
    share = Share.of_process(like.device, like.dtype)
    n = stage.batch_size // share.world_size
    labels = like.new_zeros(n, network.label_dim) if network.label_dim else None
    pool = None if labels is None else torch.zeros(1, network.label_dim)
    adaptive = config.augment.adaptive  # its probability is 0 at first
    probability = TRIED_PROBABILITY if adaptive else state.strength.probability
    wait = torch.cuda.synchronize if like.is_cuda else lambda device: None
    forked = torch.random.fork_rng([like.device] if like.is_cuda else [])
    seconds: list[float] = []
    with forked, runtime_errors_explained(state, stage):
        while len(seconds) < 3 or (len(seconds) < MAX_STEPS and sum(seconds) < MAX_SECONDS):
            wait(like.device)
            started = time.perf_counter()
            reals = like.new_empty(n, network.image_channels, stage.resolution, stage.resolution)
            draws = draw(config, 0, stage, pool, share, probability)
            train_step(state, reals.uniform_(-1, 1), labels, stage, draws)
            wait(like.device)
            taken = like.new_tensor(time.perf_counter() - started)
            seconds.append(distributed.mean_over_ranks(taken).item())
    return statistics.median(seconds[1:])


def cost_lines(
    config: TrainConfig,
    costs: StepCosts,
    device: torch.device,
    folder: RunFolder,
    payload: Mapping[str, Any],
) -> list[str]:
    """Lines on the time, memory and disk space of the rest of a run.

    payload: the state that it resumes from; empty for a new run.
    """
    images_seen = payload.get("images_seen", 0)
    if not remaining_stages(config.schedule, images_seen):
        return ["the run is finished; --kimg makes it longer"]
    here = f"this {'GPU' if device.type == 'cuda' else device.type.upper()}"
    left = approximate_duration(costs.seconds_left(config.schedule, images_seen))
    left += " more" if images_seen else ""
    needed = costs.memory[costs.largest]
    if device.type != "cuda":  # in addition to what this process takes now
        needed += psutil.Process().memory_info().rss
    each = " for each process" if distributed.world_size() > 1 else ""
    size = f"{costs.largest}x{costs.largest}"
    line = f"about {left} on {here}; memory{each}: about {gib(needed)}, at {size}"
    return [line, *busy_warning(device), *disk_warning(config, folder)]


def possible_costs(
    config: TrainConfig,
    device: torch.device,
    stages: Sequence[Stage],
    console: Console,
    tried: StepCosts | None = None,
) -> StepCosts:
    """Costs of the stages, unless they were `tried`. Raises ValueError if a CPU lacks memory."""
    if tried is None:
        console.info("trying steps at every remaining resolution, to estimate time and memory")
    costs = tried or StepCosts.measure(config, device, stages)
    resolution = costs.largest
    needed = costs.memory[resolution]
    if device.type == "cpu" and distributed.max_over_ranks(needed > limits().memory):
        batch_size = batch_size_at(resolution, config.schedule)
        raise ValueError(
            f"not enough memory at resolution {resolution}, batch {batch_size}: estimated "
            f"{gib(needed)} per process, available {gib(limits().memory)}; try --batch-gpu, "
            "-o checkpoint_activations=true, a smaller batch, or --no-preflight to try anyway"
        )
    return costs


def busy_warning(device: torch.device) -> list[str]:
    """A warning if other programs keep the cores busy, so that threads wait for each other."""
    cores = os.cpu_count() or 1
    load = psutil.getloadavg()[0]  # of the last minute, with that of the trial steps
    if device.type != "cpu" or torch.get_num_threads() == 1 or load < 1.5 * cores:
        return []
    return [
        f"warning: other programs are busy, too (load {load:.1f} on {pluralize(cores, 'core')}): "
        "--threads 1 can be several times as fast"
    ]


def disk_warning(config: TrainConfig, folder: RunFolder) -> list[str]:
    """A warning if the states that a run keeps will not fit on the disk of `folder`."""
    path = folder.path
    existing = next(path for path in (path, *path.absolute().parents) if path.exists())
    state_size = state_bytes(config.network)
    there = min(len(folder.states()), config.keep_states)
    needed = (config.keep_states + 1 - there) * state_size
    free = shutil.disk_usage(existing).free
    if free > needed:
        return []
    return [
        f"warning: {config.keep_states} states of {gib(state_size)} (keep_states) and a new one "
        f"need {gib(needed)}, but only {gib(free)} are free at {existing}"
    ]
