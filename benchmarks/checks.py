"""Runs of the training step that must not go wrong on a device: each says so, or fails."""

import gc
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from contest import conditions, environment_for, number, on_gpu, options, save
from loader import make_source

from stylegan.cli.common import Command
from stylegan.config import load_config
from stylegan.schedule import stage_at
from stylegan.training import Share, Stopped, TrainingProgress, TrainState, draw, start, train_step

SETTINGS = click.option("-o", "settings", multiple=True, metavar="KEY=VALUE")
PEOPLE = Path(__file__).parents[1] / "datasets" / "people-64.zip"
GROWING = ("r1_interval=1", "schedule.stable_kimg=0.048", "schedule.fade_kimg=0.048")
STEPS, BEFORE = 24, 12  # of the memory; steps until every kind of step has come
STOP_AT = 160  # images: within a stage that grows in


@click.group()
def main() -> None:
    """Memory that stays flat, a resume with the same bits, images beside real steps."""


def bytes_in_use(device: str) -> int:
    """Of all tensors: a GPU's as allocated, otherwise of those that Python knows."""
    if on_gpu(device):
        return torch.cuda.memory_allocated(device)
    tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in tensors}
    return sum(storage.nbytes() for storage in storages.values())


@main.command(cls=Command)
@options("device")
@SETTINGS
def memory(device: str, settings: Sequence[str]) -> None:
    """Fail unless the tensors of the quickstart's training take the same room after every step."""
    config = load_config("quickstart", ["style_mixing=0.5", *GROWING, *settings])
    state, stage = TrainState.create(config, device=device), stage_at(72, config.schedule)
    share, used = Share(device=state.device), []
    size = (stage.batch_size, config.network.image_channels, stage.resolution, stage.resolution)
    reals = torch.rand(size).to(share.device) * 2 - 1
    for _ in range(STEPS):
        draws = draw(config, state.images_seen, stage, None, share)
        metrics = train_step(state, reals, None, stage, draws)
        del draws, metrics
        used.append(bytes_in_use(device))
    flat = used[BEFORE:]
    click.echo(f"bytes after step {BEFORE}: {flat[0]:,}; most after {STEPS}: {max(flat):,}")
    if max(flat) > flat[0]:
        raise click.ClickException("memory grows from step to step")


@main.command(cls=Command)
@options("device")
@SETTINGS
def resume(device: str, settings: Sequence[str]) -> None:
    """Fail unless a deterministic run that is stopped and goes on ends with the bits of another."""
    own = ["deterministic=true", *GROWING, "schedule.total_kimg=0.24", "log_kimg=0.008"]
    config = load_config("quickstart", [*own, *settings])

    def trained(out: Path, stop_at: int | None = None) -> dict[str, Any]:
        def stop(progress: TrainingProgress) -> None:
            if progress.images_seen == stop_at:
                signal.raise_signal(signal.SIGINT)

        try:
            state = start(config, PEOPLE, out, device=device, report=stop, preflight=False)
        except Stopped as stopped:
            state = stopped.state
        return state.to_payload()

    with tempfile.TemporaryDirectory() as folder:
        whole = trained(Path(folder, "whole"))
        stopped = trained(Path(folder, "parts"), STOP_AT)
        again = trained(Path(folder, "parts"))
    parts = ("generator", "discriminator", "generator_ema")
    pairs = [(whole[part][name], again[part][name]) for part in parts for name in whole[part]]
    differ = sum(not torch.equal(a, b) for a, b in pairs)
    click.echo(f"stopped at image {stopped['images_seen']}; {len(pairs)} tensors, {differ} differ")
    if differ or stopped["images_seen"] != STOP_AT:
        raise click.ClickException("not the same bits")


@main.command(cls=Command)
@click.option("--config", default="quickstart", show_default=True)
@click.option("--photographs", type=int, help="Width of made pictures, in place of the faces.")
@options("device", "threads", "out")
@SETTINGS
def training(
    config: str,
    photographs: int | None,
    device: str,
    threads: int,
    out: Path,
    settings: Sequence[str],
) -> None:
    """Speed of a real run, and the part of its time in which it waits for images."""
    seen = dict[int, TrainingProgress]()  # the last line of each resolution

    def report(progress: TrainingProgress) -> None:
        seen[progress.stage.resolution] = progress

    with tempfile.TemporaryDirectory() as folder:
        source = make_source(Path(folder), photographs) if photographs else PEOPLE
        own, run = load_config(config, settings), Path(folder, "run")
        start(own, source, run, device=device, report=report, preflight=False)
    rows = [
        {
            "px": str(resolution),
            "batch": str(last.stage.batch_size),
            "img/s": number(last.images_per_second),
            "waiting for images": f"{last.data_wait:.1%}",
        }
        for resolution, last in seen.items()
    ]
    record = {"conditions": conditions(environment_for(threads, "default"), device), "rows": rows}
    click.echo(save(out, "training", f"A real run of {config}", record, rows))


if __name__ == "__main__":
    main()
