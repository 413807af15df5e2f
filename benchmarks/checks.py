"""Runs of the training step that must not go wrong on a device: each says so, or fails."""

import itertools
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import torch
from contest import conditions, environment_for, number, on_gpu, options, save

from stylegan.cli.common import Command
from stylegan.config import load_config
from stylegan.schedule import stage_at
from stylegan.training import Share, Stopped, TrainingProgress, TrainState, draw, start, train_step
from stylegan.training.rehearsal import Witness

SETTINGS = click.option("-o", "settings", multiple=True, metavar="KEY=VALUE")
GROWING = (  # every step of the memory has R1 and fades in
    "r1_interval=1",
    "schedule.stable_kimg=4",
    "schedule.fade_kimg=4",
)
STEPS, BEFORE = 24, 12  # of the memory; steps until every kind of step has come
RUN = (  # 8 and 16 px that grow in, in steps of 8 images
    "schedule.total_kimg=0.24",
    "schedule.stable_kimg=0.048",
    "schedule.fade_kimg=0.048",
    "log_kimg=0.008",
)
STOP_AT = 120  # images: within a stage that grows in
Payload = dict[str, Any]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Memory that stays flat, a resume with the same bits, images beside real steps."""


@main.command(cls=Command)
@options("device")
@SETTINGS
def memory(device: str, settings: Sequence[str]) -> None:
    """Fail unless the tensors of the quickstart's training take the same room after every step."""
    config = load_config("quickstart", ["style_mixing=0.5", *GROWING, *settings])
    state, stage = TrainState.create(config, device=device), stage_at(6000, config.schedule)
    share, used = Share(device=state.device), []
    size = (stage.batch_size, config.network.image_channels, stage.resolution, stage.resolution)
    reals = torch.rand(size).to(share.device) * 2 - 1
    with nullcontext() if on_gpu(device) else Witness(device) as witness:
        for _ in range(STEPS):
            draws = draw(config, state.images_seen, stage, None, share)
            metrics = train_step(state, reals, None, stage, draws)
            del draws, metrics
            state.read()
            used.append(witness.bytes if witness else torch.cuda.memory_allocated(device))
    flat = used[BEFORE:]
    click.echo(f"bytes after step {BEFORE}: {flat[0]:,}; most after {STEPS}: {max(flat):,}")
    if max(flat) > flat[0]:
        raise click.ClickException("memory grows from step to step")


@main.command(cls=Command)
@options("device")
@SETTINGS
def resume(device: str, settings: Sequence[str]) -> None:
    """Fail unless a deterministic run that is stopped and goes on ends with the bits of another."""
    with tempfile.TemporaryDirectory() as folder:
        whole = trained(Path(folder, "whole"), device, settings)
        stopped = trained(Path(folder, "parts"), device, settings, STOP_AT)
        again = trained(Path(folder, "parts"), device, settings)
    pairs = list(zip(numbers(whole), numbers(again), strict=True))
    differ = [path for (path, a), (_, b) in pairs if not torch.equal(a, b)]
    click.echo(
        f"stopped at image {stopped['images_seen']}, ended at {again['images_seen']}; "
        f"{len(pairs)} tensors, {len(differ)} differ"
    )
    if differ or stopped["images_seen"] != STOP_AT:
        raise click.ClickException(f"not the same bits: {', '.join(differ[:5])}")


def trained(out: Path, device: str, settings: Sequence[str], stop_at: int | None = None) -> Payload:
    """What the run in `out` holds at its end, or after image `stop_at`."""

    def stop(progress: TrainingProgress) -> None:
        if progress.images_seen == stop_at:
            signal.raise_signal(signal.SIGINT)

    config = load_config("quickstart", ["deterministic=true", *RUN, *settings])
    try:
        state = start(
            config, data(), out, device=device, report=stop, preflight=False, track="none"
        )
    except Stopped as stopped:
        state = stopped.state
    return state.to_payload()


def data() -> Path:
    """The bundled emoji."""
    return Path(__file__).parents[1] / "datasets" / "emoji-32.zip"


def numbers(payload: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor and number of a state."""
    if isinstance(payload, dict):
        for name in sorted(payload, key=str):
            yield from numbers(payload[name], f"{path}/{name}")
    elif isinstance(payload, list | tuple):
        for i, part in enumerate(payload):
            yield from numbers(part, f"{path}/{i}")
    elif isinstance(payload, torch.Tensor):
        yield path, payload
    elif isinstance(payload, int | float):
        yield path, torch.tensor(payload)


@main.command(cls=Command)
@click.option("--config", default="quickstart", show_default=True)
@click.option("--photographs", type=int, help="Width of made pictures, in place of the emoji.")
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
    from loading import COUNTS, make_source

    source, seen = data(), list[TrainingProgress]()
    with tempfile.TemporaryDirectory() as folder:
        if photographs:
            source = make_source(Path(folder), photographs, COUNTS[photographs])
        start(
            load_config(config, settings),
            source,
            Path(folder, "run"),
            device=device,
            report=seen.append,
            preflight=False,
            track="none",
        )
    rows = []
    for resolution, group in itertools.groupby(seen, lambda one: one.stage.resolution):
        last = list(group)[-1]  # the first line of a resolution has its start in it
        rows.append(
            {
                "px": str(resolution),
                "batch": str(last.stage.batch_size),
                "img/s": number(last.images_per_second),
                "waiting for images": f"{last.data_wait:.1%}",
            }
        )
    record = {"conditions": conditions(environment_for(threads, "default"), device), "rows": rows}
    click.echo(save(out, "training", f"A real run of {config}", record, rows))


if __name__ == "__main__":
    main()
