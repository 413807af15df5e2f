"""What one training step needs with micro-batches and with recomputed blocks: memory and time."""

import ctypes
import dataclasses
import multiprocessing
import resource
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import click
import psutil
import torch

from stylegan.config import TrainConfig, load_config
from stylegan.distributed import pick_device
from stylegan.schedule import Stage, stage_at
from stylegan.training import TrainState
from stylegan.training.cost import one_step


def variants(resolution: int, batch: int, precision: str) -> dict[str, TrainConfig]:
    """Configurations by what saves memory, all with the paper's channels."""
    common = [
        f"network.resolution={resolution}",
        f"schedule.batch_size={{4={batch}}}",
        f'precision="{precision}"',
    ]
    recompute, halves = "checkpoint_activations=true", f"batch_gpu={batch // 2}"
    options = {
        "plain": [],
        "--checkpoint-activations": [recompute],
        f"--batch-gpu {batch // 2}": [halves],
        "both": [recompute, halves],
    }
    return {name: load_config(None, [*common, *extra]) for name, extra in options.items()}


def last_stage(config: TrainConfig) -> Stage:
    return stage_at(config.schedule.total_images, config.schedule)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(config: TrainConfig, device: torch.device) -> tuple[int, int]:
    """Bytes of weights, gradients and optimizers at rest, and the most that a step needs beyond.

    On a CPU (with Linux) those of the whole process, which must be fresh, as must be the one that
    started it: its largest size counts.
    """
    if device.type == "cpu":  # freed memory goes back at once: M_MMAP_THRESHOLD of the C library
        ctypes.CDLL(None).mallopt(-3, 65536)
    state, stage = TrainState.create(config, device=device), last_stage(config)
    one_step(state, dataclasses.replace(stage, batch_size=1))  # the optimizers' moments
    if device.type == "cuda":
        rest = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        one_step(state, stage)
        return rest, torch.cuda.max_memory_allocated(device) - rest
    rest = psutil.Process().memory_info().rss
    one_step(state, stage)
    return rest, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rest


def step_seconds(
    configs: Sequence[TrainConfig], device: torch.device, repeats: int
) -> list[list[float]]:
    """Seconds of each configuration's steps, which take turns on one state: of work on a CPU,
    which other programs may share, and of waiting for a GPU."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    state, stage = TrainState.create(configs[0], device=device), last_stage(configs[0])
    seconds: list[list[float]] = [[] for _ in configs]
    for repeat in range(repeats + 1 if repeats else 0):
        for config, measured in zip(configs, seconds, strict=True):
            state.config = config
            for network in (state.generator.synthesis, state.discriminator):
                network.recompute_blocks = config.checkpoint_activations
            synchronize(device)
            started = clock()
            one_step(state, stage)
            synchronize(device)
            if repeat:  # the first warms up
                measured.append(clock() - started)
    return seconds


@click.command()
@click.argument("resolutions", type=int, nargs=-1)
@click.option("--batch", type=click.IntRange(min=2), default=8, show_default=True)
@click.option(
    "--repeats",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Steps to time of each variant, after one to warm up; 0 = memory only.",
)
@click.option("--precision", default="fp32", show_default=True)
@click.option("--device", default="auto", show_default=True)
def main(resolutions: Sequence[int], batch: int, repeats: int, precision: str, device: str) -> None:
    """Print a table of memory and time at RESOLUTIONS (64 and 128 unless given).

    Memory is measured in a fresh process each. Time is the median of steps that take turns in one.

    \b
    python tools/memory.py 64 128 --batch 4
    """
    where = pick_device(device)
    spawn = multiprocessing.get_context("spawn")
    fresh = ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1)
    line = "{:>10}  {:<26} {:>9} {:>10} {:>6} {:>9} {:>6}"
    click.echo(
        line.format("resolution", f"batch {batch}", "at rest", "step adds", "", "seconds", "")
    )
    for resolution in resolutions or (64, 128):
        configs = variants(resolution, batch, precision)
        seconds = fresh.submit(step_seconds, list(configs.values()), where, repeats).result()
        medians = [statistics.median(several) for several in seconds if several]
        first = 0
        for i, (name, config) in enumerate(configs.items()):
            rest, peak = fresh.submit(peak_memory, config, where).result()
            first = first or peak
            click.echo(
                line.format(
                    resolution,
                    name,
                    f"{rest / 2**30:.2f} GiB",
                    f"{peak / 2**30:.2f} GiB",
                    f"{peak / first:.0%}",
                    f"{medians[i]:.1f}" if repeats else "",
                    f"{medians[i] / medians[0]:.2f}x" if repeats else "",
                )
            )


if __name__ == "__main__":
    main()
