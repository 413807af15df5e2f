"""Runs of the training step that must not go wrong on a device: each says so, or fails."""

import gc
import itertools
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import iteration
import numpy as np
import torch
from contest import PRECISIONS, conditions, environment_for, markdown, number, on_gpu, options, save
from PIL import Image
from torch import Tensor

from stylegan.cli.common import Command
from stylegan.config import load_config
from stylegan.schedule import resolutions, stage_at
from stylegan.training import Share, Stopped, TrainingProgress, TrainState, draw, start, train_step
from stylegan.training.run import backend_flags
from stylegan.utils.console import Console

SETTINGS = click.option("-o", "settings", multiple=True, metavar="KEY=VALUE")
CONFIG = click.option("--config", help="Name of the configuration.  [default: the paper's]")
STEPS = click.option("--steps", type=click.IntRange(min=2), default=200, show_default=True)
FACES = Path(__file__).parents[1] / "datasets" / "faces-64.zip"
GROWING = ("r1_interval=1", "schedule.stable_kimg=0.048", "schedule.fade_kimg=0.048")
PHOTOGRAPHS = 300  # that are made
BEFORE = 12  # steps until every kind of step has come
RESERVED = 1.1  # times its memory that a GPU may take in the second half of the steps
ADA = 1.001  # times the same memory: the constants of its transforms differ in size
TWICE = {  # options whose operations on a GPU might not be deterministic
    "paper": (),
    "labels": ("network.label_dim=3",),
    "wgan_gp": ('discriminator_loss="wgan_gp"', 'generator_loss="wgan"'),
    "ada": ('augment.kind="ada"', "augment.probability=0.8"),
    "diffaugment": ('augment.kind="diffaugment"',),
}
STOP_AT = 160  # images: within a stage that grows in
MOST_SKIPPED = 0.1  # of the updates: fp16 skips some until it has found its scale


@click.group()
def main() -> None:
    """What must hold on a device: finite steps, few skipped updates, no waits, memory that stays
    flat, the same bits again."""


def bytes_in_use(device: str) -> int:
    """Of all tensors: a GPU's as allocated, otherwise of those that Python knows."""
    if on_gpu(device):
        return torch.cuda.memory_allocated(device)
    tensors = [tensor for tensor in gc.get_objects() if issubclass(type(tensor), torch.Tensor)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())


def reserved_bytes(device: str) -> int:
    """What a GPU has given, also what is not in use."""
    return torch.cuda.memory_reserved(device) if on_gpu(device) else 0


def prepared(
    config: str | None, device: str, resolution: int, batch: int, overrides: Sequence[str] = ()
) -> tuple[TrainState, Callable[[], dict[str, Tensor]]]:
    """A state at its first step, and what makes a step at a resolution, of made images."""
    settings = {
        "config": config,
        "device": device,
        "alpha": 1.0,
        "resolution": resolution,
        "batch": batch,
        "overrides": ["r1_interval=1", f"schedule.batch_size={{4={batch}}}", *overrides],
    }
    state, stage, reals, share = iteration.prepare(settings)
    classes = state.config.network.label_dim
    pool = torch.eye(classes) if classes else None
    labels = None if pool is None else pool[torch.arange(batch) % classes].to(device)

    def step() -> dict[str, Tensor]:
        strength = state.strength.probability
        draws = draw(state.config, state.images_seen, stage, pool, share, strength)
        metrics = train_step(state, reals, labels, stage, draws)
        state.strength.adapt()
        return metrics

    return state, step


@main.command(cls=Command)
@click.argument("resolutions", type=int, nargs=-1)
@click.option("--batch", type=click.IntRange(min=1), default=128, show_default=True)
@CONFIG
@options("device")
@SETTINGS
def large(
    resolutions: Sequence[int], batch: int, config: str | None, device: str, settings: Sequence[str]
) -> None:
    """Fail unless a step of many images has finite losses at RESOLUTIONS (4 and 8): batch times
    channels is then more than a grid of a GPU may have in its second dimension."""
    for resolution in resolutions or (4, 8):
        _, step = prepared(config, device, resolution, batch, settings)
        losses = {name: float(value) for name, value in step().items()}
        click.echo(f"{resolution} px, batch {batch}: {losses}")
        if not all(torch.tensor(value).isfinite() for value in losses.values()):
            raise click.ClickException(f"a loss at {resolution} px is not finite")


@main.command(cls=Command)
@click.option("--precision", type=click.Choice(PRECISIONS), multiple=True, default=PRECISIONS[1:])
@click.option("--batch", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--resolution", type=int, default=64, show_default=True)
@CONFIG
@STEPS
@options("device", "threads", "out")
@SETTINGS
def skips(
    precision: Sequence[str],
    batch: int,
    resolution: int,
    config: str | None,
    steps: int,
    device: str,
    threads: int,
    out: Path,
    settings: Sequence[str],
) -> None:
    """Train on the bundled faces in each PRECISION; fail if updates are skipped at the end, or a
    tenth of all."""
    rows = []
    failed = []
    sizes = [f"network.resolution={resolution}", f"schedule.initial_resolution={resolution}"]
    sizes += [f"schedule.batch_size={{4={batch}}}", f"schedule.total_kimg={steps * batch / 1000}"]
    for name in precision:
        skipping = load_config(config, [*sizes, f'precision="{name}"', *settings])
        with tempfile.TemporaryDirectory() as folder:
            state = start(skipping, FACES, Path(folder, "run"), device=device, preflight=False)
        counts = state.skipped()
        rows.append({"precision": name, "steps": str(steps)})
        rows[-1] |= {
            "generator": str(counts["skipped_g"]),
            "discriminator": str(counts["skipped_d"]),
        }
        weights = itertools.chain(state.generator.parameters(), state.discriminator.parameters())
        in_a_row = counts["skipped_in_a_row_g"] + counts["skipped_in_a_row_d"]
        many = max(counts["skipped_g"], counts["skipped_d"]) > MOST_SKIPPED * steps
        if in_a_row or many or not all(bool(weight.isfinite().all()) for weight in weights):
            failed.append(name)
    record = {"conditions": conditions(environment_for(threads, "default"), device), "rows": rows}
    click.echo(save(out, "skips", "Skipped updates", record, rows))
    if failed:
        raise click.ClickException(f"weights or too many updates not finite: {', '.join(failed)}")


@main.command(cls=Command)
@CONFIG
@click.option("--resolution", type=int, default=64, show_default=True)
@options("device")
@SETTINGS
def waits(config: str | None, resolution: int, device: str, settings: Sequence[str]) -> None:
    """Fail if the host waits for the GPU in a step."""
    if not on_gpu(device):
        raise click.UsageError(f"only a CUDA GPU tells where the host waits for it, not {device}")
    _, step = prepared(config, device, resolution, 4, settings)
    for mode in ("default", "default", "error"):
        torch.cuda.set_sync_debug_mode(mode)
        step()
    torch.cuda.set_sync_debug_mode("default")


@main.command(cls=Command)
@CONFIG
@click.option("--resolution", type=int, default=16, show_default=True)
@click.option("--batch", type=click.IntRange(min=1), default=8, show_default=True)
@options("device")
@SETTINGS
def twice(
    config: str | None, resolution: int, batch: int, device: str, settings: Sequence[str]
) -> None:
    """Fail unless deterministic steps have the same bits again, with each of some options."""

    def after_steps(switches: Sequence[str]) -> list[Tensor]:
        exact = ["deterministic=true", *switches, *settings]
        state, step = prepared(config, device, resolution, batch, exact)
        with backend_flags(state.config):
            for _ in range(3):
                step()
        weights = itertools.chain(state.generator.parameters(), state.discriminator.parameters())
        return [weight.detach().cpu() for weight in weights]

    rows = []
    for name, switches in TWICE.items():
        pairs = list(zip(after_steps(switches), after_steps(switches), strict=True))
        differ = sum(not torch.equal(a, b) for a, b in pairs)
        rows.append({"options": name, "tensors": str(len(pairs)), "differ": str(differ)})
    click.echo(markdown(rows))
    if any(row["differ"] != "0" for row in rows):
        raise click.ClickException("not the same bits")


@main.command(cls=Command)
@click.option("--steps", type=click.IntRange(min=2 * BEFORE), default=2 * BEFORE)
@options("device")
@SETTINGS
def memory(steps: int, device: str, settings: Sequence[str]) -> None:
    """Fail unless the tensors of the quickstart's training take the same room after every step, and
    a GPU gives hardly more in the second half of the steps."""
    config = load_config("quickstart", ["style_mixing=0.5", *GROWING, *settings])
    state = TrainState.create(config, device=device)
    stage = stage_at(72, config.schedule)
    share = Share(device=state.device)
    used = list[int]()
    reserved = list[int]()
    size = (stage.batch_size, config.network.image_channels, stage.resolution, stage.resolution)
    reals = torch.rand(size).to(share.device) * 2 - 1
    for _ in range(steps):
        probability = state.strength.probability
        draws = draw(config, state.images_seen, stage, None, share, probability)
        metrics = train_step(state, reals, None, stage, draws)
        state.strength.adapt()
        del draws, metrics
        used.append(bytes_in_use(device))
        reserved.append(reserved_bytes(device))
    flat = used[BEFORE:]
    half = reserved[steps // 2]
    most = flat[0] * (ADA if config.augment.kind == "ada" else 1)
    click.echo(f"bytes after step {BEFORE}: {flat[0]:,}; most after {steps}: {max(flat):,}")
    click.echo(f"reserved after step {steps // 2}: {half:,}; after {steps}: {reserved[-1]:,}")
    if max(flat) > most or reserved[-1] > RESERVED * half:
        raise click.ClickException("memory grows from step to step")


@main.command(cls=Command)
@options("device")
@SETTINGS
def resume(device: str, settings: Sequence[str]) -> None:
    """Fail unless a deterministic run that is stopped and goes on ends with the bits of another."""
    options = ["deterministic=true", *GROWING, "schedule.total_kimg=0.24", "log_kimg=0.008"]
    config = load_config("quickstart", [*options, *settings])

    def trained(out: Path, stop_at: int | None = None) -> dict[str, Any]:
        class Stopping(Console):
            def progress(self, what: object, done: int, total: int) -> None:
                if isinstance(what, TrainingProgress) and done == stop_at:
                    signal.raise_signal(signal.SIGINT)

        try:
            state = start(config, FACES, out, device=device, console=Stopping(), preflight=False)
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


def make_source(folder: Path, size: int) -> Path:
    """Synthetic photographs in a new folder, JPEG (quality 92) and PNG in turn."""
    out = folder / f"{size}" / "all"
    out.mkdir(parents=True)
    for i in range(PHOTOGRAPHS):
        image = photograph(np.random.default_rng(i), size)
        if i % 2:
            image.save(out / f"{i:06}.jpg", quality=92)
        else:
            image.save(out / f"{i:06}.png")
    return out.parent


def photograph(rng: np.random.Generator, size: int) -> Image.Image:
    """Noise of all scales, fainter the finer, as photographs have it."""
    values = np.full((size, size, 3), 128, np.float32)
    for scale in resolutions(size):
        noise = rng.normal(0, 60 / scale**0.75, (3, scale, scale)).astype(np.float32)
        for channel, plane in enumerate(noise):
            enlarged = Image.fromarray(plane).resize((size, size), Image.Resampling.BICUBIC)
            values[..., channel] += np.asarray(enlarged)
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


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

    class Noting(Console):
        def progress(self, what: object, done: int, total: int) -> None:
            if isinstance(what, TrainingProgress):
                seen[what.stage.resolution] = what

    with tempfile.TemporaryDirectory() as folder:
        source = make_source(Path(folder), photographs) if photographs else FACES
        of_run = load_config(config, settings)
        run = Path(folder, "run")
        start(of_run, source, run, device=device, console=Noting(), preflight=False)
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
