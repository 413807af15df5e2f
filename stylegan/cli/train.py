"""`stylegan train`: from a folder of images to a generator."""

import os
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click
import torch
from tqdm import tqdm

from stylegan.cli import common, options, values
from stylegan.cli.common import Terminal, command, first_process, say
from stylegan.cli.options import gathered
from stylegan.config import TrainConfig, parse_options
from stylegan.data import Store
from stylegan.data.prepare import mib
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.machine.distributed import process_group
from stylegan.machine.messages import duration
from stylegan.metrics import METRICS, Tools, default_names
from stylegan.metrics.engine import require
from stylegan.metrics.evaluation import evaluation_of, measurable
from stylegan.metrics.sources import StoreImages
from stylegan.planning import DEFAULT_CONFIG, Request, plan
from stylegan.report import Drawings, truncation_sweep, write_report
from stylegan.training import Evaluation, Stopped, TrainingProgress
from stylegan.training.costs import Costs, Machine
from stylegan.training.interrupts import nothing_to_save

ASKED = "stylegan.asked"  # where `configuring` keeps values
MEMORY_OF_GPU = 16 * 2**30  # bytes, where none is here: of the smaller ones of the paper's time


def configuring(option: str, *flags: str, **attributes: Any) -> options.Decorator:
    """Add an option of the command that `options_of` calls `option`, as the configuration does."""

    def remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
        if value is not None:  # 0 and false are values
            context.meta.setdefault(ASKED, {})[option] = value

    return click.option(*flags, expose_value=False, callback=remember, **attributes)


def options_of(overrides: tuple[str, ...], crop: str | None = None) -> dict[str, object]:
    """Return the given options of the configuration, by their names there."""
    flags = {**click.get_current_context().meta.get(ASKED, {})}
    flags |= {} if crop is None else {"data.crop": crop}
    asked = parse_options(overrides)
    if twice := sorted(flags.keys() & asked.keys()):
        raise click.UsageError(f"{twice[0]} is given by -o and by an option of its own")
    return asked | flags


@click.command(cls=common.Command)
@options.data_option("the bundled faces")
@click.option(
    "--config",
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
@configuring(
    "data.labels",
    "--labels",
    "--cond",
    "labels",
    help="Condition on the class of each image.",
    **options.SWITCH,
)
@configuring(
    "data.mirror", "--mirror", help="Flip half of the images left to right.", **options.SWITCH
)
@options.SHAPE
@options.channels_option()
@click.option("--strict", is_flag=True, help="Refuse data with images that cannot be used.")
@click.option(
    "--init-from",
    type=values.SOURCE,
    metavar="SOURCE",
    help="Weights to start from, as for generate.",
)
@configuring(
    "precision",
    "--precision",
    type=click.Choice(["auto", "fp32", "tf32", "bf16", "fp16"]),
    help="Arithmetic.  [default: auto, which is tf32 on GPUs that have it, else fp32]",
)
@configuring(
    "batch_gpu",
    "--batch-gpu",
    type=click.IntRange(1, values.LARGEST),
    help="Number of images at once per process.",
)
@configuring(
    "seed", "--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of all random numbers."
)
@options.DEVICE
@options.count_option(
    "--threads",
    "Number of threads that compute on a CPU.  [default: those of the run if it has begun, else "
    "one for each core that may be used]",
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
@gathered("tools", options.measuring_tools)
@gathered("options", options_of)
@gathered("request", Request)
def train(
    request: Request,
    strict: bool,
    device: str,
    threads: int | None,
    workers: int,
    dry_run: bool,
    processes: int | None,
    preflight: bool,
    tensorboard: bool,
    names: str | None,
    metrics_every: float | None,
    tools: Tools,
    debug: bool,
) -> None:
    """Train, or continue a run: the same command does both, as does --out RUN alone.

    \b
    stylegan train                                   the bundled data, a few minutes
    stylegan train --data photos/ --dry-run          what it would do with your pictures
    stylegan train --data photos/ --out runs/mine
    stylegan train --out runs/mine --kimg 200        longer
    torchrun --nproc-per-node 8 -m stylegan train --data photos/ --config ffhq-1024
    stylegan train --data photos/ --config ffhq-1024 --dry-run --processes 8 --device cuda
    """
    if debug:
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        torch.autograd.set_detect_anomaly(True)
    if metrics_every and names is None:
        raise ValueError("--metrics-every needs --metrics: what to measure")
    if processes is not None:
        show_plan_elsewhere(request, processes, device, dry_run=dry_run)
        return
    place = options.use_device(device)
    console = TrainingTerminal()
    with nothing_to_save(), process_group(place, console):
        planned = plan(request, Machine.here(place), threads=threads, console=console)
        print_hint(*planned.lines)
        if dry_run:
            print_hint(*planned.preview(console=console))
            return
        if names is not None:  # refused now instead of at the first measurement
            require(measurable(names), tools, place)
        folder = planned.facts.run
        begun = folder.saved()
        print_hint(*planned.advice())
        opened: list[Store] = []

        def evaluation(config: TrainConfig, store: Store) -> Evaluation | None:
            opened.append(store)
            if names is None:
                return None
            mirror = config.data.mirror
            return evaluation_of(
                names, metrics_every, folder, mirror=mirror, store=store, tools=tools
            )

        with closing(console):
            try:
                state = planned.train(
                    evaluation=evaluation,
                    console=console,
                    strict=strict,
                    preflight=preflight,
                    workers=workers,
                    tensorboard=tensorboard,
                )
            except Stopped as stopped:
                print_hint(str(stopped))
                sys.exit(stopped.exit_code)
        is_written = folder.report_file.exists() and state.images_seen == begun
        if first_process() and not is_written:
            write_page(folder.path, place)
        print_hint(*closing_lines(folder, state.config, *opened))


def show_plan_elsewhere(request: Request, processes: int, device: str, *, dry_run: bool) -> None:
    """Print the plan for GPUs that are not here."""
    if not dry_run:
        raise click.UsageError("--processes needs --dry-run; torchrun starts processes")
    if request.minutes is not None:
        raise click.UsageError("--minutes tries steps, --processes plans without; leave one out")
    if device != "cuda":
        raise click.UsageError("--processes plans for GPUs: add --device cuda")
    machine = Machine(torch.device("cuda"), MEMORY_OF_GPU, processes=processes)
    planned = plan(request, machine)
    print_hint(*planned.lines, *planned.preview_elsewhere())


def write_page(out: Path, device: torch.device) -> None:
    """Write the report of a finished run, or say why it cannot be written."""
    try:
        loaded = open_weights(out, map_location=device).require_loaded()
        write_report(out, Drawings(truncation_sweep(loaded)))
    except (OSError, ValueError) as error:
        print_hint(f"stylegan report {out} was not possible: {error}")


def closing_lines(run: RunFolder, config: TrainConfig, store: Store) -> list[str]:
    """Say how to look at a finished run, use it, go on and measure: with few samples of few images,
    and only metrics that these suffice for."""
    path = run.path
    label = store.label_names[0] if config.network.label_dim else None
    reals = StoreImages(store=store, resolution=store.resolution, mirror=config.data.mirror)
    names = default_names().split(",")
    few = [f"{name}1k" for name in names if not METRICS[name].unavailable_reason(1000, reals)]
    metrics = ["--metrics", ",".join(few)] if store.num_images < FEW_TO_MEASURE else []
    seeds = ["--seeds", "0-31", *(["--class", label] if label else [])]
    longer = f"{2 * config.schedule.total_kimg:.10g}"
    send = [
        f"send:      {file} ({mib(file.stat().st_size)}): one file, which every command opens, as "
        "does stylegan.load_generator"
        for file in run.generators()[-1:]
    ]
    return [
        f"look:      {run.report_file if run.report_file.exists() else run.samples}",
        f"generate:  {command('generate', path, *seeds, '--out', 'pictures/')}",
        f"film:      {command('video', 'walk', path, '--out', 'walk.webp')}",
        f"play:      {command('explore', path)}",
        *send,
        f"go on:     {command('train', '--out', path, '--kimg', longer)}",
        f"measure:   {command('metrics', path, *metrics)}",
        "No loss tells how good it is: compare samples/ with reals.png, or measure.",
    ]


def print_hint(*lines: str) -> None:
    """Print advice for the user; a closed terminal must not end the training."""
    with suppress(OSError):
        say(*lines)


class TrainingTerminal(Terminal):
    """Shows below its lines how a training goes: speed, time left, stage, meters of overfitting and
    losses."""

    def __init__(self) -> None:
        super().__init__(say=print_hint)
        self.seconds: dict[int, float] = {}  # of an image, by resolution

    def progress(self, what: object, done: int, total: int) -> None:
        if not isinstance(what, TrainingProgress):
            super().progress(what, done, total)
            return
        stage = what.stage
        speed = what.images_per_second
        self.seconds.pop(stage.resolution, None)  # to be the last of them
        self.seconds[stage.resolution] = 1 / speed
        costs = Costs.scaled(what.config, self.seconds)
        left = duration(costs.seconds_left(what.config.schedule, what.images_seen))
        fade = f" fade {stage.alpha:.2f}" if stage.alpha < 1 else ""
        kimg = min(done, total) / 1000
        texts = [f"{kimg:.1f}/{total / 1000:.1f} kimg", f"{speed:.0f} img/s", f"left {left}"]
        texts += [f"res {stage.resolution}{fade}"]
        texts += short_values(what)
        if self.what is not TrainingProgress:  # all of them are shown on one line
            self.close()
            self.what = TrainingProgress
        if sys.stdout is None or sys.stderr is None:  # closed, as a daemon's may be
            return
        with suppress(OSError):  # nobody reads now, or the disk is full that it goes to
            sys.stdout.flush()  # as a new bar does, which would be left half made
            self.bar = self.bar or tqdm(
                total=total / 1000,
                bar_format="{percentage:3.0f}%|{bar:12}| {desc}",
                dynamic_ncols=True,  # cuts the line to the terminal
                disable=not first_process(),
            )
            self.bar.n = kimg
            self.bar.set_description_str("  ".join(texts))


FEW_TO_MEASURE = 2000  # training images; metrics take 5,000 samples and more by default
SHORT = {  # the first values of a line, in this order
    "d/real_signs": "r_t",
    "augment/probability": "p",
    "data": "data",  # waiting for it
    "d/real_logits": "D(real)",
    "d/fake_logits": "D(fake)",
}


def short_values(progress: TrainingProgress) -> list[str]:
    """List names and values: signs of overfitting, waiting for data, logits, losses."""
    texts = {name: f"{value:.2f}" for name, value in progress.metrics.items()}
    texts["data"] = f"{100 * progress.data_wait:.0f}%"
    if progress.config.augment.kind == "none":
        texts.pop("augment/probability", None)
    losses = {name: name.partition("/")[2] for name in sorted(texts.keys() - SHORT)}
    return [f"{text} {texts[n]}" for n, text in (SHORT | losses).items() if n in texts]
