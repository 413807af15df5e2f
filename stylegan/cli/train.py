"""`stylegan train`: from a folder of images to a generator."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stylegan.cli import common, options, values
from stylegan.cli.common import first_process, progress_bar, say
from stylegan.cli.setup import DEFAULT_CONFIG, advice, looked_at, resolve_setup, usual_folder

if TYPE_CHECKING:
    import torch

    from stylegan.cli.setup import TrainSetup
    from stylegan.config import TrainConfig
    from stylegan.run_folder import RunFolder
    from stylegan.training import TrainingProgress


@click.command(cls=common.Command)
@options.data_option("the bundled faces")
@click.option(
    "--config",
    "config_name",
    type=values.SOURCE,
    metavar="NAME",
    help="Name (`stylegan configs` lists them), TOML file, or auto: fitted to data and machine.  "
    f"[default: that of the run, else auto with --data, {DEFAULT_CONFIG} without]",
)
@options.path_option("--out", "Run folder.  [default: runs/<config>]")
@options.count_option(
    "--resolution", "Width and height of pictures: 32, 64, ...", least=4, most=1024
)
@options.number_option("--kimg", "Length, in thousands of pictures shown.", least=0.001)
@options.count_option("--width", "Largest number of channels of a layer.")
@click.option(
    "-o",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any other option (`stylegan configs quickstart` shows all).",
)
@click.option("--labels", is_flag=True, help="Condition on the class of each image.")
@click.option("--mirror", is_flag=True, help="Flip half of the images left to right.")
@options.SHAPE
@options.channels_option()
@click.option("--strict", is_flag=True, help="Refuse data with images that cannot be used.")
@click.option(
    "--init-from",
    type=values.SOURCE,
    metavar="SOURCE",
    help="Weights to start from, as for generate.",
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "tf32", "bf16", "fp16"]),
    help="Arithmetic.  [default: auto, which is tf32 on GPUs that have it, else fp32]",
)
@options.count_option("--batch-gpu", "Number of images at once per process.")
@options.count_option("--seed", "Seed of all random numbers.", least=0, most=2**63 - 1)
@options.DEVICE
@options.count_option(
    "--workers", "Number of threads that read ahead.", default=1, least=0, most=1000
)
@click.option("--dry-run", is_flag=True, help="Print the whole plan, train nothing.")
@click.option("--preflight/--no-preflight", default=True, help="Try steps before training.")
@options.number_option(
    "--hang-minutes",
    "End a hanging process, if there are several; 0 = never.",
    default=30,
    least=0,
    most=10_080,
)
@click.option("--tensorboard/--no-tensorboard", default=True, help="Write curves for TensorBoard.")
@click.option("--metrics", "names", help="Metrics to measure while training, as in eff-fd2k,swd2k.")
@options.number_option(
    "--metrics-every",
    "Thousands of images between two measurements.  [default: with every generator file]",
    least=0.001,
)
@options.FEATURE_WEIGHTS
@click.option(
    "--debug", is_flag=True, help="Detect anomalies, launch synchronously, show tracebacks."
)
def train(
    data: Path | None,
    config_name: str | None,
    out: Path | None,
    overrides: tuple[str, ...],
    aspect: str | None,
    strict: bool,
    device: str,
    dry_run: bool,
    hang_minutes: float,
    names: str | None,
    metrics_every: float | None,
    feature_weights: Path | None,
    debug: bool,
    **given: Any,
) -> None:
    """Train, or continue a run: the same command does both, as does --out RUN alone.

    \b
    stylegan train                                   the bundled data, a few minutes
    stylegan train --data photos/ --dry-run          what it would do with your pictures
    stylegan train --data photos/ --out runs/mine
    stylegan train --out runs/mine --kimg 200        longer
    torchrun --nproc-per-node 8 train.py --data photos/ --config ffhq-1024
    """
    import torch

    from stylegan import training
    from stylegan.data import cached_store
    from stylegan.distributed import on_all_ranks, process_group
    from stylegan.metrics.evaluation import evaluation_of
    from stylegan.run_folder import RunFolder
    from stylegan.training.interrupts import nothing_to_save
    from stylegan.training.preflight import memory_and_cores
    from stylegan.training.run import check_unchanged, fit_to_data, preparation_for

    if debug:
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        torch.autograd.set_detect_anomaly(True)
    if metrics_every and not names:
        raise ValueError("--metrics-every needs --metrics: what to measure")
    chosen = common.use_device(device)
    run = RunFolder(out or usual_folder(config_name, data))
    given["crop"] = options.crop_of(given["crop"], aspect)
    with nothing_to_save(), process_group(chosen, hang_minutes):
        asked = run, config_name, data, overrides, given
        machine = chosen.type, *memory_and_cores(chosen)
        setup = on_all_ranks(partial(resolve_setup, *asked, *machine))
        print_hint(*setup.lines)
        if dry_run:
            show_plan(setup, run, chosen)
            return
        check_unchanged(run, setup.config)  # before images are prepared
        begun = run.saved()
        with progress_bar("img") as progress:
            store = cached_store(
                setup.source,
                preparation_for(setup.config),
                labels=setup.config.data.labels,
                strict=strict,
                progress=progress,
                tell=print_hint,
            )
        config = fit_to_data(setup.config, store)
        if setup.own and not begun:
            print_hint(*advice(store.num_images, config, started=setup.start is not None))
        tools, bars = common.measuring_tools(feature_weights), common.ImageBars()
        measured = run, config.data.mirror, store, tools, bars
        try:
            with status_line(config) as report:
                state = training.start(
                    config,
                    store,
                    run.path,
                    device=chosen,
                    init_from=setup.start or given["init_from"],
                    evaluation=evaluation_of(names, metrics_every, *measured) if names else None,
                    tell=print_hint,
                    report=report,
                    hang_minutes=hang_minutes,
                    **{name: given[name] for name in ("preflight", "workers", "tensorboard")},
                )
        except training.Stopped as stopped:
            print_hint(str(stopped))
            sys.exit(stopped.exit_code)
        if first_process() and not (run.report_file.exists() and state.images_seen == begun):
            write_page(run.path, chosen)
        label = store.label_names[0] if config.network.label_dim else None
        print_hint(*closing_lines(run, config, label))


def show_plan(setup: "TrainSetup", run: "RunFolder", device: "torch.device") -> None:
    """Print what would be left out, and the whole plan. Nothing is written."""
    from stylegan.data.check import grouped
    from stylegan.schedule import coming
    from stylegan.training.preflight import Trial, outlook, plan_lines
    from stylegan.training.run import (
        backend_flags,
        fit_to_data,
        keep_threads,
        newest_state,
        with_precision,
    )

    found = looked_at(setup.source, setup.config, decode=True)
    config = with_precision(fit_to_data(setup.config, found), device, run)
    print_hint(*found.notes, *(f"left out: {line}" for line in grouped(found.skipped)))
    if setup.own:
        print_hint(*advice(found.num_good, config, started=setup.start is not None))
    begun = run.saved()
    with backend_flags(config):
        kept = keep_threads(newest_state(run)[1] if begun else {}, device)
        trial = Trial(config, device).run(coming(config.schedule, 0), choose_threads=not begun)
    plan = plan_lines(config, trial.costs, device)
    print_hint(*plan, *kept, *trial.threads, *outlook(trial, begun))


def write_page(out: Path, device: "torch.device") -> None:
    """The report of a finished run; one that cannot be written is a message."""
    from stylegan.files.loading import open_weights
    from stylegan.report import Drawings, truncation_sweep, write_report

    try:
        loaded = open_weights(out, map_location=device).require_loaded()
        write_report(out, Drawings(truncation_sweep(loaded)))
    except (OSError, ValueError) as error:
        say(f"the report of {out} could not be written: {error}")


def closing_lines(run: "RunFolder", config: "TrainConfig", label: str | None) -> list[str]:
    """How to look at a finished run, use it, go on and measure; how good it is."""
    path, longer = shlex.quote(str(run.path)), f"{2 * config.schedule.total_kimg:.10g}"
    of_class = f" --class {shlex.quote(label)}" if label else ""
    return [
        f"look:      {run.report_file if run.report_file.exists() else run.samples}",
        f"generate:  stylegan generate {path} --seeds 0-31{of_class} --out pictures/",
        f"film:      stylegan video walk {path} --out walk.webp",
        f"play:      stylegan explore {path}",
        f"go on:     stylegan train --out {path} --kimg {longer}",
        f"measure:   stylegan metrics {path}",
        "No loss tells how good it is: compare samples/ with reals.png, or measure.",
    ]


def print_hint(*lines: str) -> None:
    """Print advice for the user; a closed terminal must not end the training."""
    with suppress(OSError):
        say(*lines)


@contextmanager
def status_line(config: "TrainConfig") -> "Iterator[Callable[[TrainingProgress], None]]":
    """A progress bar with speed, time left, stage, meters of overfitting and losses."""
    from tqdm import tqdm

    from stylegan.messages import duration
    from stylegan.training.preflight import time_left

    total, known = config.schedule.total_images, dict[int, float]()
    bar: tqdm[Any] | None = None

    def show(progress: "TrainingProgress") -> None:
        nonlocal bar
        bar = bar or tqdm(
            total=total / 1000,
            bar_format="{percentage:3.0f}%|{bar:12}| {desc}",
            dynamic_ncols=True,  # cuts what does not fit
            disable=not first_process(),
        )
        stage, speed = progress.stage, progress.images_per_second
        left = duration(time_left(config, progress, known))
        fade = f" fade {stage.alpha:.2f}" if stage.alpha < 1 else ""
        bar.n = min(progress.images_seen, total) / 1000
        texts = [f"{bar.n:.1f}/{total / 1000:.1f} kimg", f"{speed:.0f} img/s", f"left {left}"]
        texts += [f"res {stage.resolution}{fade}"]
        texts += short_values(progress, augmented=config.augment.kind != "none")
        with suppress(OSError):
            bar.set_description_str("  ".join(texts))

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


SHORT = {  # what comes first, in this order
    "d/real_signs": "r_t",
    "augment/probability": "p",
    "data": "data",  # waiting for it
    "d/real_logits": "D(real)",
    "d/fake_logits": "D(fake)",
}


def short_values(progress: "TrainingProgress", *, augmented: bool) -> list[str]:
    """Names and values: whether the discriminator overfits, waiting for data, logits, losses."""
    found = {name: f"{value:.2f}" for name, value in progress.metrics.items()}
    found["data"] = f"{100 * progress.data_wait:.0f}%"
    if not augmented:
        found.pop("augment/probability", None)
    losses = {name: name.partition("/")[2] for name in sorted(found.keys() - SHORT)}
    return [f"{text} {found[n]}" for n, text in (SHORT | losses).items() if n in found]
