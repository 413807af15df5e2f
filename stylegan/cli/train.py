"""`stylegan train`: from a folder of images to a generator."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import torch

from stylegan import config as configuration
from stylegan import distributed
from stylegan.cli.common import Command, count, data_option, prepared_store, use_device
from stylegan.cli.measuring import evaluation_of
from stylegan.config import TrainConfig, bundled
from stylegan.data import Store
from stylegan.run_folder import RunFolder, images_of
from stylegan.training import LoopSettings, Progress, Share
from stylegan.training import train as run_training
from stylegan.training.folder import (
    check_same_settings,
    fit_to_data,
    open_run,
)
from stylegan.training.plan import TimeLeft, duration, plan_lines
from stylegan.training.preflight import disk_warning
from stylegan.training.preflight import preflight as preflight_steps

BUNDLED_DATA = "datasets/emoji-32.zip"
DEFAULT_CONFIG = "quickstart"
WEEK_MINUTES = 7 * 24 * 60


@click.command(cls=Command, handles_signals=True)
@data_option("the bundled emoji")
@click.option(
    "--config",
    "config_name",
    help=f"Name under configs/, or a TOML file.  [default: {DEFAULT_CONFIG}]",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Run folder.  [default: runs/<config>]"
)
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one option.")
@click.option("--cond", is_flag=True, help="Condition on the sub-folder of each image.")
@click.option("--mirror", is_flag=True, help="Flip half of the images left to right.")
@click.option("--crop", type=click.Choice(["center", "pad"]), help="Square, or padded 4:3.")
@click.option("--strict", is_flag=True, help="Refuse data with images that cannot be used.")
@click.option(
    "--init-from", metavar="SOURCE", help="Start from these weights: all that generate takes."
)
@click.option("--precision", type=click.Choice(["fp32", "tf32", "bf16", "fp16"]))
@click.option("--batch-gpu", type=click.IntRange(min=1), help="Images at once per process.")
@click.option("--checkpoint-activations", is_flag=True, help="Less memory, more time.")
@click.option("--deterministic", is_flag=True, help="The same bits on a GPU every time.")
@click.option("--save-minutes", type=click.FloatRange(min=0), help="Between saved states.")
@click.option("--seed", type=click.IntRange(min=0))
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:2, mps.")
@click.option("--workers", type=click.IntRange(min=0), default=1, help="Threads that read ahead.")
@click.option("--dry-run", is_flag=True, help="Print the whole plan, train nothing.")
@click.option("--preflight/--no-preflight", default=True, show_default=True, help="Try steps.")
@click.option(
    "--hang-minutes",
    type=click.FloatRange(min=0, max=WEEK_MINUTES),
    default=30,
    show_default=True,
    help="End a process of several that makes no progress; 0 = never.",
)
@click.option("--tensorboard/--no-tensorboard", default=True, show_default=True)
@click.option("--histograms", is_flag=True, help="Weights and gradients in TensorBoard.")
@click.option("--graph", is_flag=True, help="The generator's graph in TensorBoard.")
@click.option("--metrics", "names", help="Measured while training, as in fid5k,swd,own-fd.")
@click.option(
    "--metrics-every",
    "every_kimg",
    type=click.FloatRange(min=0.001),
    help="How often, in thousands of images.  [default: with every generator file]",
)
@click.option(
    "--weights", type=click.Path(path_type=Path), help="Of public networks, for --metrics."
)
@click.option("--debug", is_flag=True, help="Anomaly detection, synchronous launches, tracebacks.")
def train(
    data: Path | None,
    config_name: str | None,
    out: Path | None,
    overrides: tuple[str, ...],
    device: str,
    debug: bool,
    init_from: str | None,
    dry_run: bool,
    strict: bool,
    preflight: bool,
    workers: int,
    hang_minutes: float,
    tensorboard: bool,
    histograms: bool,
    graph: bool,
    names: str | None,
    every_kimg: float | None,
    weights: Path | None,
    **settings: Any,
) -> None:
    """Train, or continue a run: the same command does both.

    \b
    python train.py                                  the bundled data, a few minutes
    python train.py --data photos/ --config ffhq-256 --out runs/mine
    torchrun --nproc-per-node 8 train.py --data photos/ --config ffhq-1024
    """
    if debug:
        enable_debugging()
    if every_kimg and not names:
        raise ValueError("--metrics-every says how often; pass --metrics too, to say what")
    chosen = use_device(device)
    name = config_name or DEFAULT_CONFIG
    out = out or Path("runs") / Path(name).stem
    asked = [*overrides, *as_overrides(**settings)]
    if data is not None and config_name is None:
        asked.insert(0, "data.include=[]")  # the quickstart's choice is of the bundled pictures
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until there is something to save
    with distributed.process_group(chosen, hang_minutes + 30 if hang_minutes else WEEK_MINUTES):
        run = RunFolder(out)
        stored = run.stored_config()
        processes = stored.schedule.num_processes if stored else distributed.world_size()
        config = configuration.load_config(name, asked, processes)
        data = data or bundled(BUNDLED_DATA)
        store = open_store(data, config, strict)
        config = fit_to_data(config, store)
        set_precision(config)
        measured = run, config.data.mirror, store, weights
        evaluation = evaluation_of(names, every_kimg, *measured) if names else None
        share = Share(distributed.rank(), distributed.world_size(), chosen)
        if dry_run:
            say("\n".join(plan_lines(config, chosen, share)))
            return
        check_same_settings(out, stored, config)
        checks = try_steps(config, chosen, share, out) if preflight else []
        state, resumed = open_run(out, config, store, chosen, init_from=init_from, tell=say)
        announce(config, store, out, resumed, chosen)
        say("\n".join(checks))
        if share.rank == 0:
            run.remember_data(data)
        begun = state.images_seen
        loop = LoopSettings(workers, tensorboard, histograms, graph, hang_minutes)
        with status_line(config, state.images_seen) as report:
            stopped_by = run_training(
                state, store, out, settings=loop, report=report, tell=say, evaluation=evaluation
            )
        if stopped_by:
            say(f"stopped after {state.images_seen} images; the same command continues")
            sys.exit(128 + stopped_by)
        if share.rank == 0 and state.images_seen > begun:
            write_page(out, chosen)
        say(f"{out} is finished, with {state.images_seen} images seen")
        say(f"samples are in {run.samples}; for more: python generate.py {out} --seeds 0-31")


def write_page(out: Path, device: torch.device) -> None:
    """The report of a finished run; that it cannot be written is told."""
    from stylegan.files.loading import load_run
    from stylegan.report import Drawings, truncation_sweep, write_report

    try:
        page = write_report(out, Drawings(truncation_sweep(load_run(out, device))))
    except (OSError, ValueError) as error:
        say(f"the report of {out} could not be written: {error}")
    else:
        say(f"its report is {page}")


def as_overrides(
    *,
    cond: bool,
    mirror: bool,
    crop: str | None,
    precision: str | None,
    batch_gpu: int | None,
    checkpoint_activations: bool,
    deterministic: bool,
    save_minutes: float | None,
    seed: int | None,
) -> list[str]:
    """Options of the command line that are options of the configuration."""
    asked = ["data.labels=true"] if cond else []
    asked += ["data.mirror=true"] if mirror else []
    asked += [f'data.crop="{crop}"'] if crop else []
    asked += [f'precision="{precision}"'] if precision else []
    asked += [f"batch_gpu={batch_gpu}"] if batch_gpu else []
    asked += ["checkpoint_activations=true"] if checkpoint_activations else []
    asked += ["deterministic=true"] if deterministic else []
    asked += [f"save_minutes={save_minutes}"] if save_minutes is not None else []
    return asked + ([f"seed={seed}"] if seed is not None else [])


def say(text: str) -> None:
    """Only one process speaks."""
    if text and distributed.rank() == 0:
        click.echo(text)


def enable_debugging() -> None:
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    torch.autograd.set_detect_anomaly(True)


def set_precision(config: TrainConfig) -> None:
    """Full float32 unless tf32 is asked for: cuDNN's default is tf32. Kernels that give the same
    bits every time, if that is asked for."""
    tf32 = config.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = not config.deterministic
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def try_steps(config: TrainConfig, device: torch.device, share: Share, out: Path) -> list[str]:
    """What the preflight tells, of a run that may have begun."""
    begun = [images_of(path) for path in RunFolder(out).states()]
    told = preflight_steps(config, device, share, distributed.largest(max(begun, default=0)))
    return [line for line in (told, disk_warning(config, out)) if line]


def open_store(data: Path, config: TrainConfig, strict: bool) -> Store:
    """The prepared images, as the configuration wants them."""
    return prepared_store(
        data,
        resolution=config.network.resolution,
        crop=config.data.crop,
        channels=config.network.image_channels,
        include=config.data.include,
        strict=strict,
    )


def announce(
    config: TrainConfig, store: Store, out: Path, resumed: Path | None, device: torch.device
) -> None:
    """What is about to be trained on what, where."""
    classes = f", {len(store.label_names)} labels" if config.data.labels else ""
    say(f"{store.num_images} images of {store.meta.source}{classes}; run {out} on {device}")
    if store.label_names and not config.data.labels and len(store.label_names) > 1:
        say(f"{len(store.label_names)} labels found, ignored; pass --cond to train on them")
    if store.skipped:
        say(f"{count(len(store.skipped), 'image')} left out as unusable; see {out}/skipped.txt")
    if resumed is not None:
        say(f"continuing from {resumed}")


@contextmanager
def status_line(config: TrainConfig, start: int) -> Iterator[Callable[[Progress], None]]:
    """A bar with resolution, fade, losses, speed, waiting for data and the time that is left."""
    from tqdm import tqdm

    total = config.schedule.total_images
    form = "{percentage:3.0f}%|{bar:20}| {n:.1f}/{total:.1f} kimg  {desc}"
    hidden = distributed.rank() > 0
    time_left = TimeLeft(config)
    with tqdm(
        total=total / 1000, initial=min(start, total) / 1000, bar_format=form, disable=hidden
    ) as bar:

        def show(progress: Progress) -> None:
            stage, values = progress.stage, progress.metrics
            left = time_left.seconds(
                progress.images_seen, stage.resolution, progress.images_per_second
            )
            fade = f" fade {stage.alpha:.2f}" if stage.alpha < 1 else ""
            losses = "  ".join(
                f"{name.split('/')[1]} {value:.2f}" for name, value in sorted(values.items())
            )
            bar.n = min(progress.images_seen, total) / 1000
            bar.set_description_str(
                f"res {stage.resolution}{fade}  {losses}  "
                f"{progress.images_per_second:.0f} img/s  "
                f"data {100 * progress.data_wait_share:.0f}%  left {duration(left)}"
            )

        yield show
