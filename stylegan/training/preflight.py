"""What would fail on day three fails before the first step."""

import dataclasses
import shutil
import time

import torch
from torch import Tensor, nn

from stylegan import distributed
from stylegan.config import TrainConfig
from stylegan.messages import gib
from stylegan.run_folder import RunFolder
from stylegan.schedule import ScheduleConfig, Stage, phases, stage_at
from stylegan.training.cost import (
    CPU_RATE,
    installed_memory,
    memory_estimate,
    one_step,
    state_bytes,
    step_flops,
)
from stylegan.training.state import TrainState
from stylegan.training.terms import Batch, discriminator_terms, generator_terms

CPU_SECONDS = 20.0  # a step that should take longer on a CPU is not tried


def try_out(config: TrainConfig, device: torch.device, folder: RunFolder) -> list[str]:
    """What a user should know before a run in `folder` begins, or goes on: memory, the disk."""
    begun = folder.saved()
    tried = try_steps(config, device, distributed.largest(begun))
    return [line for line in (tried, disk_warning(config, folder)) if line]


def try_steps(config: TrainConfig, device: torch.device, images_seen: int = 0) -> str:
    """One real step at every resolution still to come after `images_seen`, with its batch.

    On a CPU one at the last only, if that should take less than `CPU_SECONDS`; its memory is an
    estimate. Returns a sentence on memory, empty if nothing is to come. ValueError if it is not
    enough, naming resolution, batch and what helps. Nothing is left behind.
    """
    stages = coming(config.schedule, images_seen)
    if not stages:
        return ""
    with torch.random.fork_rng([device.index] if device.type == "cuda" else []):
        if device.type == "cuda":
            return on_gpu(config, device, stages)
        return on_cpu(config, device, stages)


def coming(schedule: ScheduleConfig, images_seen: int) -> list[Stage]:
    """A stage of every resolution still to come; while it fades in, if it does, as that takes
    more."""
    stages: dict[int, Stage] = {}
    for _, end, stage in phases(schedule):
        if end > images_seen and not (stage.resolution in stages and stage.alpha == 1):
            stages[stage.resolution] = stage
    return list(stages.values())


def on_gpu(config: TrainConfig, device: torch.device, stages: list[Stage]) -> str:
    state = TrainState.create(config, device=device)
    torch.cuda.reset_peak_memory_stats(device)
    peaks: list[tuple[int, int]] = []
    for stage in stages:
        one_step(state, stage)
        peaks.append((torch.cuda.max_memory_reserved(device), stage.resolution))
    del state
    torch.cuda.empty_cache()
    memory, resolution = max(peaks, key=lambda peak: peak[0])  # the first that needed so much
    whole = torch.cuda.get_device_properties(device).total_memory
    return (
        f"one step at each of {len(stages)} resolutions fits: at most {gib(memory)} of the GPU's "
        f"{gib(whole)}, at {resolution}x{resolution}"
    )


def on_cpu(config: TrainConfig, device: torch.device, stages: list[Stage]) -> str:
    needed, stage = max(
        ((memory_estimate(config, s, distributed.world_size()), s) for s in stages),
        key=lambda pair: pair[0],
    )
    here = distributed.processes_of_machine()
    installed = installed_memory()
    batch = f"resolution {stage.resolution}, batch {stage.batch_size}"
    if needed * here > installed:
        raise ValueError(
            f"not enough memory at {batch}: {here} x {gib(needed)} estimated, {gib(installed)} "
            "installed; try --batch-gpu, --checkpoint-activations, a smaller schedule.batch_size, "
            "or --no-preflight if you know better"
        )
    seconds = step_seconds(config, device, stages[-1])
    tried = not distributed.largest(seconds > CPU_SECONDS)  # a step needs every process
    if tried:
        one_step(TrainState.create(config, device=device), stages[-1])
    step = "a step there was made" if tried else f"a step there takes about {seconds:.0f} s"
    return f"memory of each process: about {gib(needed)} at {batch}; {step}"


def step_seconds(config: TrainConfig, device: torch.device, stage: Stage) -> float:
    """At most what a step takes: as many small steps as make its batch, of which one is timed,
    unless by its operations it would take too long itself."""
    processes = distributed.world_size()
    small = processes * max(config.network.deviation_group, 1)
    count = stage.batch_size / small
    guess = step_flops(config)[stage.resolution] * small / processes / CPU_RATE
    if guess > CPU_SECONDS:
        return guess * count
    state = TrainState.create(dataclasses.replace(config, batch_gpu=0), device=device)
    started = time.perf_counter()
    one_step(state, dataclasses.replace(stage, batch_size=small))
    return (time.perf_counter() - started) * count


def disk_warning(config: TrainConfig, folder: RunFolder) -> str:
    """Says so if the states that a run keeps will not fit on the disk of `folder`; else empty."""
    path = folder.path
    begun = next(path for path in (path, *path.absolute().parents) if path.exists())
    one = state_bytes(config)
    there = min(len(folder.states()), config.keep_states)
    needed, free = (config.keep_states + 1 - there) * one, shutil.disk_usage(begun).free
    if free > needed:
        return ""
    return (
        f"warning: {config.keep_states} states of {gib(one)} (keep_states) and a new one need "
        f"{gib(needed)}, {gib(free)} are free at {begun}"
    )


class Probe(nn.Module):
    """Stands for a discriminator: a logit is the mean of its image."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor, labels: None = None, *, alpha: float = 1.0) -> Tensor:
        return images.mean(dim=(1, 2, 3)) * self.scale


def try_losses(config: TrainConfig, device: torch.device) -> None:
    """ValueError, which names the term, unless the losses can be computed from logits from -2 to 2,
    as many as the first batch has, and have gradients."""
    stage = stage_at(0, config.schedule)
    n = min(config.batch_gpu or stage.batch_size, stage.batch_size)
    shape = (n, config.network.image_channels, stage.resolution, stage.resolution)
    images = torch.linspace(-2, 2, n, device=device)[:, None, None, None].expand(shape)
    probe = Probe().to(device)
    batch = Batch(images, images.flip(0), None, torch.full((n,), 0.5, device=device))
    terms = generator_terms(config, probe(images))
    for group in discriminator_terms(config):
        terms += group(config, probe, batch, stage)
    for name, weight, value in terms:
        (slope,) = torch.autograd.grad(value, probe.scale, retain_graph=True, allow_unused=True)
        if weight and slope is None:
            raise ValueError(f"the loss {name} has no gradient with respect to the logits")
        if weight and not (value.isfinite() and slope.isfinite()):
            raise ValueError(
                f"the loss {name} is {value.item():g}, its slope {slope.item():g}, at logits from "
                "-2 to 2; both must be finite"
            )
