"""`stylegan train`: from a folder of images to a generator."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Unpack

import click

from stylegan.cli import common, options, values
from stylegan.cli.common import command, first_process, progress_bar, say
from stylegan.cli.setup import (
    DEFAULT_CONFIG,
    Asked,
    Machine,
    Options,
    advice,
    looked_at,
    resolve_setup,
    resolve_within,
    tried_costs,
    usual_folder,
)

if TYPE_CHECKING:
    import torch

    from stylegan.cli.setup import TrainSetup
    from stylegan.config import TrainConfig
    from stylegan.data import Store
    from stylegan.metrics import Tools
    from stylegan.run_folder import RunFolder
    from stylegan.training import Evaluation, Run, TrainingProgress


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
@options.number_option(
    "--minutes", "Length, in minutes on this machine; steps are tried to find it.", least=0.5
)
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
    "--threads",
    "Number of threads that compute on a CPU.  [default: all, or 1 where other programs use the "
    "cores; those of the run if it has begun]",
    most=1000,
)
@options.count_option(
    "--workers", "Number of threads that read ahead.", default=1, least=0, most=1000
)
@click.option("--dry-run", is_flag=True, help="Print the whole plan, train nothing.")
@options.count_option(
    "--processes", "With --dry-run: plan for so many GPUs, which need not be here."
)
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
    device: str,
    minutes: float | None,
    dry_run: bool,
    processes: int | None,
    names: str | None,
    metrics_every: float | None,
    feature_weights: Path | None,
    debug: bool,
    **others: Unpack[Options],
) -> None:
    """Train, or continue a run: the same command does both, as does --out RUN alone.

    \b
    stylegan train                                   the bundled data, a few minutes
    stylegan train --data photos/ --dry-run          what it would do with your pictures
    stylegan train --data photos/ --out runs/mine
    stylegan train --out runs/mine --kimg 200        longer
    torchrun --nproc-per-node 8 train.py --data photos/ --config ffhq-1024
    stylegan train --data photos/ --config ffhq-1024 --dry-run --processes 8 --device cuda
    """
    import torch

    from stylegan.distributed import on_all_ranks, process_group
    from stylegan.run_folder import RunFolder
    from stylegan.training.interrupts import nothing_to_save
    from stylegan.training.preflight import memory_and_cores

    if debug:
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        torch.autograd.set_detect_anomaly(True)
    if metrics_every and names is None:
        raise ValueError("--metrics-every needs --metrics: what to measure")
    folder = RunFolder(out or usual_folder(config_name, data))
    others["crop"] = options.crop_of(others["crop"], aspect)
    asked = Asked(folder, config_name, data, overrides, others)
    if minutes is not None and asked.asks_for("schedule.total_kimg"):
        raise click.UsageError("--minutes and --kimg both give the length; leave one out")
    if processes is not None:
        if minutes is not None:
            raise click.UsageError(
                "--minutes tries steps, --processes plans without; leave one out"
            )
        if not dry_run:
            raise click.UsageError("--processes needs --dry-run; torchrun starts processes")
        show_published_plan(asked, processes, device)
        return
    place = common.use_device(device)
    with nothing_to_save(), process_group(place, others["hang_minutes"]):
        memory, cores = memory_and_cores(place)
        machine = Machine(place.type, memory, cores)
        if minutes is None:
            setup = on_all_ranks(lambda: resolve_setup(asked, machine))
        else:
            setup = resolve_within(minutes, asked, machine, place)
        print_hint(*setup.lines)
        if dry_run:
            show_plan(setup, folder, place, others["threads"])
            return
        metrics = None
        if names is not None:
            metrics = Measurement.checked(names, metrics_every, feature_weights, place)
        train_as_set_up(setup, asked, place, metrics)


@dataclass(frozen=True)
class Measurement:
    """What is measured while training."""

    names: str
    every_kimg: float | None  # None: with every generator file
    tools: "Tools"

    @classmethod
    def checked(
        cls,
        names: str,
        every_kimg: float | None,
        feature_weights: Path | None,
        device: "torch.device",
    ) -> "Measurement":
        """What is missing, or can never be measured, is told now, not at the first measurement."""
        from stylegan.metrics.engine import require
        from stylegan.metrics.evaluation import measurable

        tools = common.measuring_tools(feature_weights)
        require(measurable(names), tools, device)
        return cls(names, every_kimg, tools)


def train_as_set_up(
    setup: "TrainSetup",
    asked: Asked,
    device: "torch.device",
    metrics: Measurement | None,
) -> None:
    """The training, with its report; and what to do with the generator. One that a signal stops
    ends the program."""
    from stylegan.training import Stopped

    folder = asked.run
    begun = folder.saved()
    try:
        run, images_seen = trained(setup, asked, device, metrics)
    except Stopped as stopped:
        print_hint(str(stopped))
        sys.exit(stopped.exit_code)
    if first_process() and not (folder.report_file.exists() and images_seen == begun):
        write_page(folder.path, device)
    print_hint(*closing_lines(folder, run.config, run.store))


def trained(
    setup: "TrainSetup",
    asked: Asked,
    device: "torch.device",
    metrics: Measurement | None,
) -> tuple["Run", int]:
    """A finished run, and the images that it has seen."""
    from stylegan.training import Run

    folder = asked.run
    begun = folder.saved()
    with progress_bar("img") as progress:
        opened = Run.open(
            setup.config,
            setup.source,
            folder.path,
            device=device,
            init_from=setup.start or asked.options["init_from"],
            tell=print_hint,
            progress=progress,
            strict=asked.options["strict"],
            hang_minutes=asked.options["hang_minutes"],
        )
        with opened as run, status_line(run.config) as report:
            if setup.is_own and not begun:
                started = setup.start is not None
                print_hint(*advice(run.store.num_images, run.config, started=started))
            state = run.train(
                None if metrics is None else evaluation_for(run, metrics),
                report=report,
                preflight=asked.options["preflight"],
                threads=asked.options["threads"],
                workers=asked.options["workers"],
                tensorboard=asked.options["tensorboard"],
            )
    return run, state.images_seen


def evaluation_for(run: "Run", metrics: Measurement) -> "Evaluation":
    """The metrics, measured on the images of the run."""
    from stylegan.metrics.evaluation import evaluation_of

    return evaluation_of(
        metrics.names,
        metrics.every_kimg,
        run.folder,
        mirror=run.config.data.mirror,
        store=run.store,
        tools=metrics.tools,
        progress=common.ImageBars(),
    )


def show_plan(
    setup: "TrainSetup", folder: "RunFolder", device: "torch.device", threads: int | None
) -> None:
    """Print what would be left out, and the whole plan. Nothing is written."""
    from stylegan.training.preflight import outlook, plan_lines
    from stylegan.training.resuming import newest_state
    from stylegan.training.run import check_unchanged, with_precision

    config = with_precision(config_shown(setup), device, folder)
    check_unchanged(folder, config)
    _, payload = newest_state(folder)
    costs, notes = tried_costs(config, config.schedule, device, threads, payload)
    notes += outlook(config, costs, device, folder.saved())
    print_hint(*plan_lines(config, costs, device), batch_line(config), *notes)


def show_published_plan(asked: Asked, processes: int, device: str) -> None:
    """As `show_plan` for GPUs that are not here: nothing is tried."""
    if device != "cuda":
        raise click.UsageError("--processes plans for GPUs: add --device cuda")
    import torch

    from stylegan.config import check_batches
    from stylegan.published import MEMORY_OF_V100
    from stylegan.training.preflight import plan_lines, published_costs, published_outlook

    setup = resolve_setup(asked, Machine("cuda", MEMORY_OF_V100, processes=processes))
    print_hint(*setup.lines)
    config = config_shown(setup)
    check_batches(config, processes)
    costs = published_costs(config, processes)
    *rows, _ = plan_lines(config, costs, torch.device("meta"))
    legend = f"precision {config.precision}; ~ = scaled from the published times of V100s"
    print_hint(*rows, legend, batch_line(config))
    print_hint(*published_outlook(config, costs, processes, asked.run.saved()))


def config_shown(setup: "TrainSetup") -> "TrainConfig":
    """The configuration of a plan, fitted to the data, of which is printed what to know."""
    from stylegan.data.check import grouped
    from stylegan.training.run import fit_to_data

    findings = looked_at(setup.source, setup.config, decode=True)
    config = fit_to_data(setup.config, findings)
    print_hint(*findings.notes, *(f"left out: {line}" for line in grouped(findings.skipped)))
    if setup.is_own:
        print_hint(*advice(findings.num_good, config, started=setup.start is not None))
    return config


def batch_line(config: "TrainConfig") -> str:
    """Where the batches of a plan come from."""
    from stylegan.messages import count
    from stylegan.schedule import official_batch_sizes

    processes = config.schedule.num_processes
    if config.schedule.batch_size == official_batch_sizes(processes):
        line = f"batches: the official ones for {count(processes, 'process')}, all together; they"
        return f"{line} follow the number of processes with which a run begins"
    return "batches: of all processes together, whatever their number"


def write_page(out: Path, device: "torch.device") -> None:
    """The report of a finished run; one that cannot be written is a message."""
    from stylegan.files.loading import open_weights
    from stylegan.report import Drawings, truncation_sweep, write_report

    try:
        loaded = open_weights(out, map_location=device).require_loaded()
        write_report(out, Drawings(truncation_sweep(loaded)))
    except (OSError, ValueError) as error:
        print_hint(f"the report of {out} could not be written: {error}")


def closing_lines(run: "RunFolder", config: "TrainConfig", store: "Store") -> list[str]:
    """How to look at a finished run, use it, go on and measure, with few samples for few images and
    what can be measured of these; how good it is."""
    from stylegan.metrics import KINDS, default_names
    from stylegan.metrics.sources import StoreImages

    path = run.path
    label = store.label_names[0] if config.network.label_dim else None
    reals = StoreImages(store=store, resolution=store.resolution, mirror=config.data.mirror)
    names = default_names().split(",")
    few = [f"{name}1k" for name in names if not KINDS[name].why_not(name, 1000, reals)]
    metrics = ["--metrics", ",".join(few)] if store.num_images < FEW_TO_MEASURE else []
    seeds = ["--seeds", "0-31", *(["--class", label] if label else [])]
    longer = f"{2 * config.schedule.total_kimg:.10g}"
    return [
        f"look:      {run.report_file if run.report_file.exists() else run.samples}",
        f"generate:  {command('generate', path, *seeds, '--out', 'pictures/')}",
        f"film:      {command('video', 'walk', path, '--out', 'walk.webp')}",
        f"play:      {command('explore', path)}",
        f"go on:     {command('train', '--out', path, '--kimg', longer)}",
        f"measure:   {command('metrics', path, *metrics)}",
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

    total = config.schedule.total_images
    known = dict[int, float]()
    bar: tqdm[NoReturn] | None = None

    def show(progress: "TrainingProgress") -> None:
        nonlocal bar
        stage = progress.stage
        speed = progress.images_per_second
        left = duration(time_left(config, progress, known))
        fade = f" fade {stage.alpha:.2f}" if stage.alpha < 1 else ""
        done = min(progress.images_seen, total) / 1000
        texts = [f"{done:.1f}/{total / 1000:.1f} kimg", f"{speed:.0f} img/s", f"left {left}"]
        texts += [f"res {stage.resolution}{fade}"]
        texts += short_values(progress, augmented=config.augment.kind != "none")
        with suppress(OSError):  # nobody reads now, or the disk is full that it goes to
            sys.stdout.flush()  # as a new bar does, which would be left half made
            bar = bar or tqdm(
                total=total / 1000,
                bar_format="{percentage:3.0f}%|{bar:12}| {desc}",
                dynamic_ncols=True,  # cuts what does not fit
                disable=not first_process(),
            )
            bar.n = done
            bar.set_description_str("  ".join(texts))

    try:
        yield show
    finally:
        if bar is not None:
            with suppress(OSError):
                bar.close()


FEW_TO_MEASURE = 2000  # training images; metrics take 5,000 samples and more by default
SHORT = {  # what comes first, in this order
    "d/real_signs": "r_t",
    "augment/probability": "p",
    "data": "data",  # waiting for it
    "d/real_logits": "D(real)",
    "d/fake_logits": "D(fake)",
}


def short_values(progress: "TrainingProgress", *, augmented: bool) -> list[str]:
    """Names and values: whether the discriminator overfits, waiting for data, logits, losses."""
    texts = {name: f"{value:.2f}" for name, value in progress.metrics.items()}
    texts["data"] = f"{100 * progress.data_wait:.0f}%"
    if not augmented:
        texts.pop("augment/probability", None)
    losses = {name: name.partition("/")[2] for name in sorted(texts.keys() - SHORT)}
    return [f"{text} {texts[n]}" for n, text in (SHORT | losses).items() if n in texts]
