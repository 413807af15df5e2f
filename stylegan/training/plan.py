"""What a run will do, before it begins: phases, steps, memory and time."""

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from stylegan import distributed, losses
from stylegan.config import TrainConfig
from stylegan.networks import Discriminator, Generator
from stylegan.schedule import Stage, phases
from stylegan.training.draws import Share, draw
from stylegan.training.health import explained
from stylegan.training.state import TrainState
from stylegan.training.step import train_step

MEASURED_SECONDS = 5.0  # a step that is expected to take longer is only estimated


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one training step at one resolution."""

    seconds_per_image: float
    memory_bytes: int
    measured: bool


def step_flops(config: TrainConfig) -> dict[int, float]:
    """Floating-point operations per image of a step, by resolution, counted in passes forward.

    The generator passes once for the discriminator's step and, with its gradients (twice the
    work), once for its own. The discriminator passes forward and backward with the fakes (3), with
    the reals and back through the gradient of R1 (6), and for the generator's gradients (2).
    """
    n = max(config.network.deviation_group, 1)
    flops = {}
    with torch.device("meta"):
        generator, discriminator = Generator(config.network), Discriminator(config.network)
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


class TimeLeft:
    """Expected time to the end: each resolution at the speed it was seen to have, those to come
    at the present one's, scaled by their operations."""

    def __init__(self, config: TrainConfig) -> None:
        self.phases = phases(config.schedule)
        self.flops = step_flops(config)
        self.rates: dict[int, float] = {}

    def seconds(self, images_seen: int, resolution: int, images_per_second: float) -> float:
        """After telling the speed that `resolution` has now."""
        self.rates[resolution] = images_per_second
        work = images_per_second * self.flops[resolution]
        left = 0.0
        for first, end, stage in self.phases:
            rate = self.rates.get(stage.resolution, work / self.flops[stage.resolution])
            left += max(end - max(first, images_seen), 0) / rate
        return left


def example_labels(config: TrainConfig, n: int) -> Tensor | None:
    return torch.zeros(n, config.network.label_dim) if config.network.label_dim else None


class KeptTensors:
    """Counts the bytes that graphs keep for their gradients, each storage once."""

    def __init__(self) -> None:
        self.holders: Counter[int] = Counter()
        self.bytes = self.most = 0

    def pack(self, x: Tensor) -> "KeptTensor":
        return KeptTensor(self, x)


class KeptTensor:
    """What a graph keeps instead of a tensor, which is counted until the graph is gone."""

    def __init__(self, counter: KeptTensors, x: Tensor) -> None:
        self.counter, self.x = counter, x
        self.storage = x.untyped_storage()
        counter.holders[self.storage._cdata] += 1
        if counter.holders[self.storage._cdata] == 1:
            counter.bytes += self.storage.nbytes()
            counter.most = max(counter.most, counter.bytes)

    def __del__(self) -> None:
        self.counter.holders[self.storage._cdata] -= 1
        if not self.counter.holders[self.storage._cdata]:
            self.counter.bytes -= self.storage.nbytes()


def memory_estimate(config: TrainConfig, stage: Stage, processes: int) -> int:
    """Bytes of weights, optimizer state and the larger graph: of the reals with R1, or of the
    generator's pass through the discriminator."""
    n = stage.batch_size // processes
    n = min(config.batch_gpu or n, n)
    with torch.device("meta"), torch.autograd.set_detect_anomaly(False):
        generator, discriminator = Generator(config.network), Discriminator(config.network)
        for network in (generator.synthesis, discriminator):
            network.recompute_blocks = config.checkpoint_activations
        labels = example_labels(config, n)
        shape = (n, config.network.image_channels, stage.resolution, stage.resolution)
        reals = torch.empty(shape, requires_grad=True)
        with graph_bytes() as reals_kept:
            losses.r1_penalty(discriminator(reals, labels), reals).backward()
        discriminator.requires_grad_(False)
        z = torch.empty(n, config.network.z_dim)
        with graph_bytes() as fakes_kept:
            fakes = generator(z, labels, resolution=stage.resolution, alpha=stage.alpha)
            discriminator(fakes, labels).sum().backward()
    g, d = (sum(p.numel() for p in network.parameters()) for network in (generator, discriminator))
    kept = max(reals_kept.most, fakes_kept.most)
    return kept + 4 * (4 * g + 3 * d)  # weights, gradients, second moments; and the average


@contextmanager
def graph_bytes() -> Iterator[KeptTensors]:
    """Counts what the graphs made inside keep."""
    kept = KeptTensors()
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda packed: packed.x):
        yield kept


def one_step(state: TrainState, stage: Stage, share: Share) -> None:
    """A training step with random images."""
    config, device = state.config, state.device
    n = stage.batch_size // share.world_size
    with explained(config, stage, 0):
        shape = (n, config.network.image_channels, stage.resolution, stage.resolution)
        reals = torch.rand(shape, device=device) * 2 - 1
        labels = example_labels(config, n)
        labels = None if labels is None else labels.to(device)
        pool = example_labels(config, 1)
        train_step(state, reals, labels, stage, draw(config, 0, stage, pool, share))


def measure_step(state: TrainState, stage: Stage, share: Share) -> tuple[float, int]:
    """Seconds (the best of three, after one to warm up) and peak bytes of a step."""
    device = state.device
    seconds = []
    for _ in range(4):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        one_step(state, stage, share)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    best = torch.tensor(min(seconds[1:]), device=device)
    return distributed.mean(best).item(), memory  # all processes must plan the same


def step_costs(config: TrainConfig, device: torch.device, share: Share) -> dict[int, Cost]:
    """By resolution: measured by a real step where that takes seconds, else estimated from it."""
    state = TrainState.create(config, device=device)
    costs: dict[int, Cost] = {}
    all_flops = step_flops(config)
    rate = 0.0  # operations per second of the last measured step
    for _, _, stage in phases(config.schedule):
        if stage.resolution in costs:
            continue
        flops = all_flops[stage.resolution]
        memory = memory_estimate(config, stage, share.world_size)
        expected = flops * stage.batch_size / rate if rate else 0.0
        if expected > MEASURED_SECONDS:
            costs[stage.resolution] = Cost(expected / stage.batch_size, memory, False)
            continue
        seconds, used = measure_step(state, dataclasses.replace(stage, alpha=1.0), share)
        rate = flops * stage.batch_size / seconds
        costs[stage.resolution] = Cost(seconds / stage.batch_size, used or memory, True)
    return costs


def plan_lines(config: TrainConfig, device: torch.device, share: Share) -> list[str]:
    """The plan as a table to print."""
    costs = step_costs(config, device, share)
    head = ("kimg", "resolution", "batch", "G rate", "D rate", "steps", "memory", "time")
    rows = [head]
    total = 0.0
    for first, end, stage in phases(config.schedule):
        cost = costs[stage.resolution]
        seconds = cost.seconds_per_image * (end - first)
        total += seconds
        mark = "" if cost.measured else "~"
        fades = " fades in" if stage.alpha < 1 else ""
        rows.append(
            (
                f"{first / 1000:g}-{end / 1000:g}",
                f"{stage.resolution}{fades}",
                str(stage.batch_size),
                f"{stage.g_lr:g}",
                f"{stage.d_lr:g}",
                f"{-(-(end - first) // stage.batch_size):,}",
                f"{cost.memory_bytes / 2**30:.2f} GiB",
                mark + duration(seconds),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    kind = "measured" if device.type == "cuda" else "estimated"
    note = f"Time on this {device.type}, from one measured step (~: estimated from a smaller one)"
    return [*lines, f"{note}; memory of each process {kind}.", f"In all about {duration(total)}."]


def duration(seconds: float) -> str:
    """`3d 04h`, `4h 05m`, `5m 06s` or `7s`."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days}d {h:02d}h"
    if hours:
        return f"{h}h {m:02d}m"
    return f"{m}m {s:02d}s" if minutes else f"{s}s"
