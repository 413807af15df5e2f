"""Whether memory stays flat over thousands of training steps."""

import os
from pathlib import Path

import click
import psutil
import torch
from contest import conditions, number, on_gpu, options, save

from stylegan.cli.common import Command
from stylegan.config import load_config
from stylegan.schedule import Stage
from stylegan.training import Share, TrainState, draw, train_step

PARTS = 8
GROWTH = {"cuda": 0, "cpu": 2**23}  # bytes that may come after the first quarter


def in_use(device: str) -> int:
    """Bytes that tensors occupy on a GPU; of the whole process on a CPU."""
    if on_gpu(device):
        return torch.cuda.memory_allocated(device)
    return int(psutil.Process().memory_info().rss)


@click.command(cls=Command)
@click.option("--steps", type=click.IntRange(min=PARTS), default=2000, show_default=True)
@options("device", "threads", "out")
def main(steps: int, device: str, threads: int, out: Path) -> None:
    """Train a small network at 8x8 and show the memory in use; growth is an error."""
    torch.set_num_threads(threads)
    config = load_config("quickstart", ["network.max_channels=16"])
    state, share = TrainState.create(config, device=device), Share(device=device)
    stage = Stage(8, 0.5, batch_size=8, g_lr=1e-3, d_lr=1e-3, tick_kimg=1)
    reals = torch.rand(8, 3, 8, 8).to(device)
    used = []
    for _ in range(PARTS):
        for _ in range(steps // PARTS):
            draws = draw(config, state.images_seen, stage, None, share)
            train_step(state, reals, None, stage, draws)
        used.append(in_use(device))
    grown = used[-1] - used[PARTS // 4 - 1]
    about = conditions({**os.environ, "OMP_NUM_THREADS": str(threads)}, device)
    record = {"conditions": about, "steps": steps, "bytes": used, "grown_bytes": grown}
    row = {str((i + 1) * (steps // PARTS)): number(n / 2**20) for i, n in enumerate(used)}
    title = f"Memory in use after so many steps, MiB; {grown:,} bytes more since a quarter of them"
    click.echo(save(out, "flat", title, record, [row]))
    if grown > GROWTH["cuda" if on_gpu(device) else "cpu"]:
        raise ValueError(f"memory grew by {grown:,} bytes in {steps} steps")


if __name__ == "__main__":
    main()
