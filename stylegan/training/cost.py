"""What a training step costs: operations, memory and time."""

import dataclasses
import math
import os
import time
import weakref
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from stylegan import augment, distributed, losses
from stylegan.config import TrainConfig
from stylegan.networks import make_discriminator, make_generator
from stylegan.schedule import Stage, phases
from stylegan.training.health import explained
from stylegan.training.rehearsal import random_inputs
from stylegan.training.state import TrainState
from stylegan.training.step import train_step

MOST_SECONDS = 5.0  # a step that is expected to take longer is made of few images
LONG_STEP_SECONDS = 1.0  # a longer one is made once
CPU_RATE = 2e10  # operations per second of a step on one core, for a first guess


def step_flops(config: TrainConfig) -> dict[int, float]:
    """Floating-point operations per image of a step, by resolution, counted in passes forward.

    The generator passes once for the discriminator's step and, with its gradients (twice the
    work), once for its own. The discriminator passes forward and backward with the fakes (3), with
    the reals and back through the gradient of R1 (6), and for the generator's gradients (2).
    """
    n = max(config.network.deviation_group, 1)
    flops = {}
    with torch.device("meta"):
        generator, discriminator = (
            make_generator(config.network),
            make_discriminator(config.network),
        )
        generator.requires_grad_(False)
        discriminator.requires_grad_(False)
        z, labels = torch.empty(n, config.network.z_dim), example_labels(config, n)
        for resolution in sorted({stage.resolution for _, _, stage in phases(config.schedule)}):
            with FlopCounterMode(display=False) as g_flops:
                images = generator(z, labels, resolution=resolution)
            with FlopCounterMode(display=False) as d_flops:
                discriminator(images, labels)
            total = 4 * g_flops.get_total_flops() + 11 * d_flops.get_total_flops()
            flops[resolution] = total / n
    return flops


def example_labels(config: TrainConfig, n: int) -> Tensor | None:
    return torch.zeros(n, config.network.label_dim) if config.network.label_dim else None


class GraphMemory:
    """Counts the bytes that graphs made inside keep for their gradients, each storage once."""

    def __init__(self) -> None:
        self.holders: Counter[int] = Counter()
        self.bytes = self.peak = 0
        self.hooks = saved_tensors_hooks(self.pack, lambda held: held.tensor)

    def pack(self, x: Tensor) -> "Held":
        storage, held = x.untyped_storage(), Held(x)
        self.hold(storage._cdata, 1, storage.nbytes())
        weakref.finalize(held, self.hold, storage._cdata, -1, storage.nbytes())
        return held

    def hold(self, storage: int, change: int, size: int) -> None:
        """A graph begins (1) or ceases (-1) to keep a storage."""
        before = self.holders[storage]
        self.holders[storage] += change
        self.bytes += size * (bool(before + change) - bool(before))
        self.peak = max(self.peak, self.bytes)

    def __enter__(self) -> "GraphMemory":
        self.hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.hooks.__exit__(*error)


class Held:
    """What a graph keeps instead of a tensor; gone when the graph is."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def memory_estimate(config: TrainConfig, stage: Stage, processes: int, device: str) -> int:
    """Bytes of weights, optimizer state and the larger graph, of the reals with R1 or of the
    generator's pass through the discriminator, and of what augmentation takes on a device of that
    type when it is strongest."""
    batch = stage.batch_size // processes
    n = min(config.batch_gpu or batch, batch)
    shape = (n, config.network.image_channels, stage.resolution, stage.resolution)
    drawn = augment.draw(shape, config.augment, 1.0, torch.Generator().manual_seed(0))
    transform = augment.part(drawn, slice(None), lambda values: values.to("meta"))
    with torch.device("meta"), torch.autograd.set_detect_anomaly(False):
        generator, discriminator = (
            make_generator(config.network),
            make_discriminator(config.network),
        )
        for network in (generator.synthesis, discriminator):
            network.recompute_blocks = config.checkpoint_activations
        labels = example_labels(config, n)
        reals = torch.empty(shape, requires_grad=True)
        with GraphMemory() as reals_kept:
            logits = discriminator(augment.apply(reals, transform), labels)
            losses.r1_penalty(logits, reals).backward()
        discriminator.requires_grad_(False)
        z = torch.empty(n, config.network.z_dim)
        with GraphMemory() as fakes_kept:
            fakes = generator(z, labels, resolution=stage.resolution, alpha=stage.alpha)
            discriminator(augment.apply(fakes, transform), labels).sum().backward()
    g, d = (sum(p.numel() for p in network.parameters()) for network in (generator, discriminator))
    kept = max(reals_kept.peak, fakes_kept.peak)
    kept += augment.working_bytes(shape, config.augment, device, deterministic=config.deterministic)
    if transform is not None:  # is drawn for the whole batch and all three passes
        tensors = [x for x in vars(transform).values() if isinstance(x, Tensor)]
        kept += 3 * batch * sum(x.nbytes for x in tensors) // n
    return kept + 4 * (4 * g + 3 * d)  # weights, gradients, second moments; and the average


def state_bytes(config: TrainConfig) -> int:
    """Size of the weights, the average and the second moments in a state file."""
    with torch.device("meta"):
        networks = make_generator(config.network), make_discriminator(config.network)
    g, d = (sum(p.numel() for p in network.parameters()) for network in networks)
    return 4 * (3 * g + 2 * d)


def one_step(state: TrainState, stage: Stage) -> None:
    """A training step with random images, augmented as those of a run."""
    with explained(state, stage):
        reals, labels, draws = random_inputs(state, stage)
        train_step(state, reals, labels, stage, draws)


def measure_step(state: TrainState, stage: Stage) -> tuple[float, int]:
    """Seconds and peak bytes (of a GPU) of a step: the best of three after the first, which counts
    itself if it is long."""
    device = state.device
    seconds: list[float] = []
    while len(seconds) < 4 and not (seconds and seconds[0] > LONG_STEP_SECONDS):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        one_step(state, stage)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took = torch.tensor(time.perf_counter() - started, device=device)
        seconds.append(distributed.mean(took).item())  # all processes must plan the same
    memory = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0
    return min(seconds[1:] or seconds), memory


def installed_memory() -> float:
    """Bytes, or what a container allows of them; infinite where the system does not tell."""
    if not hasattr(os, "sysconf"):
        return math.inf
    return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), container_memory())


def container_memory(root: Path = Path("/")) -> float:
    """The lowest limit of the control groups (version 1 or 2) that this process is in, in bytes;
    infinite without one."""
    limits = [math.inf]
    mounted, groups = root / "sys/fs/cgroup", root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        name, top = (
            ("memory.limit_in_bytes", mounted / "memory")
            if controllers
            else ("memory.max", mounted)
        )
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(top) and (file := folder / name).is_file():
                limits += [int(text) for text in [file.read_text().strip()] if text.isdecimal()]
    return min(limits)


def memory_and_cores(device: torch.device) -> tuple[float, int]:
    """Bytes of the device and cores that each process has at least, of all processes."""
    if device.type == "cuda":
        memory: float = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = installed_memory() / distributed.processes_of_machine()
    memories, cores = zip(*distributed.gather((memory, torch.get_num_threads())), strict=True)
    return min(memories), min(cores)


def largest_step(config: TrainConfig, device: str) -> int:
    """Bytes that each process is expected to need, on a device of that type, for the step with the
    most pixels at once."""
    processes = config.schedule.num_processes

    def size(stage: Stage) -> tuple[int, int, bool]:
        n = stage.batch_size // processes
        channels = config.network.channels(stage.resolution)
        pixels = min(config.batch_gpu or n, n) * stage.resolution**2 * channels
        return pixels, stage.resolution, stage.alpha < 1

    stage = max((stage for _, _, stage in phases(config.schedule)), key=size)
    return memory_estimate(config, stage, processes, device)


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
    all_flops = step_flops(config)
    for stage in stages:
        flops = all_flops[stage.resolution] / processes
        memory = memory_estimate(config, stage, processes, device.type)
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
