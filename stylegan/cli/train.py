"""`stylegan train`: train a generator on a folder of images."""

import os
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click
import torch
from tqdm import tqdm

from stylegan.cli import common, options, param_types
from stylegan.cli.common import Terminal, command, echo, first_process
from stylegan.config import TrainConfig, parse_options
from stylegan.data import Store
from stylegan.data.prepare import format_bytes
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.metrics import METRICS, default_names
from stylegan.metrics.comparison import StoreImages
from stylegan.metrics.engine import require
from stylegan.metrics.evaluation import evaluation_of, measurable
from stylegan.planning import DEFAULT_CONFIG, TrainRequest, plan
from stylegan.report import Drawings, truncation_sweep, write_report
from stylegan.training import Evaluation, Stopped, TrainingProgress
from stylegan.training.costs import Machine, StepCosts
from stylegan.training.interrupts import ignore_save_signal
from stylegan.utils.distributed import process_group
from stylegan.utils.text import duration, gib

MEMORY_OF_GPU = 16 * 2**30  # bytes, assumed by --plan-gpus: of the smaller V100


@click.command(cls=common.Command)
@options.data_option("the bundled faces")
@click.option(
    "--config",
    type=param_types.SOURCE,
    metavar="NAME",
    help="Name (`stylegan configs` lists them), TOML file, or auto: fitted to data and machine.  "
    f"[default: that of the run, else auto with --data, {DEFAULT_CONFIG} without]",
)
@options.path_option("--out", "Run folder.  [default: runs/<config>]")
@options.count_option("--resolution", "Width and height of images: 32, 64, ...", least=4, most=1024)
@options.number_option("--kimg", "Length, in thousands of real images shown.", least=0.001)
@options.number_option(
    "--minutes",
    "Length, in minutes on this machine, estimated from trial steps; --metrics come on top.",
    least=0.5,
)
@options.count_option("--max-channels", "Maximum number of channels of a layer.", former="--width")
@click.option(
    "-o",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any other option (`stylegan configs quickstart` shows all).",
)
@click.option(
    "--labels", "--cond", "labels", help="Condition on the class of each image.", **options.SWITCH
)
@click.option(
    "--mirror",
    help="Flip half of the images left to right; --mirror=false: none.  [default: as configured; "
    "auto: below 50,000 images]",
    **options.SWITCH,
)
@options.SHAPE
@options.channels_option()
@click.option("--strict", is_flag=True, help="Fail if an image cannot be used.")
@click.option(
    "--init-from",
    type=param_types.SOURCE,
    metavar="SOURCE",
    help="Weights to start from, as for generate.",
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "tf32", "bf16", "fp16"]),
    help="Arithmetic.  [default: auto, which is tf32 on GPUs that have it, else fp32]",
)
@options.count_option("--batch-gpu", "Number of images at a time per process.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of all random numbers.")
@options.DEVICE
@options.count_option(
    "--threads",
    "Number of CPU threads.  [default: those of an existing run, else one for each usable core]",
    most=1000,
)
@options.count_option(
    "--workers", "Number of threads that prefetch images.", default=1, least=0, most=1000
)
@click.option("--dry-run", is_flag=True, help="Print the whole plan without training.")
@options.count_option(
    "--plan-gpus",
    "With --dry-run: plan for this many GPUs, which need not exist here.",
    former="--processes",
)
@click.option("--preflight/--no-preflight", default=True, help="Run trial steps before training.")
@click.option("--tensorboard/--no-tensorboard", default=True, help="Write curves for TensorBoard.")
@click.option("--metrics", "names", help="Metrics to measure while training, as in eff-fd2k,swd2k.")
@options.number_option(
    "--metrics-every",
    "Thousands of images between measurements.  [default: at every generator file]",
    least=0.001,
)
@options.FEATURE_WEIGHTS
@click.option(
    "--debug", is_flag=True, help="Detect anomalies, launch synchronously, show tracebacks."
)
def train(
    overrides: tuple[str, ...],
    labels: bool | None,
    mirror: bool | None,
    crop: str | None,
    aspect: str | None,
    precision: str | None,
    batch_gpu: int | None,
    seed: int | None,
    strict: bool,
    device: str,
    threads: int | None,
    workers: int,
    dry_run: bool,
    plan_gpus: int | None,
    preflight: bool,
    tensorboard: bool,
    names: str | None,
    metrics_every: float | None,
    feature_weights: Path | None,
    debug: bool,
    **requested: Any,
) -> None:
    """Train, or resume a run: the same command does both, as does --out RUN alone.

    \b
    stylegan train                                   the bundled data, a few minutes
    stylegan train --data photos/ --dry-run          what it would do with your images
    stylegan train --data photos/ --out runs/mine
    stylegan train --out runs/mine --kimg 200        longer
    torchrun --nproc-per-node 8 -m stylegan train --data photos/ --config ffhq-1024
    stylegan train --data photos/ --config ffhq-1024 --dry-run --plan-gpus 8 --device cuda
    """
    if debug:
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        torch.autograd.set_detect_anomaly(True)
    if metrics_every and names is None:
        raise ValueError("--metrics-every requires --metrics: what to measure")
    flags = {
        "data.labels": labels,
        "data.mirror": mirror,
        "data.crop": options.crop_of(crop, aspect),
        "precision": precision,
        "batch_gpu": batch_gpu,
        "seed": seed,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    asked = parse_options(overrides)
    if twice := sorted(given.keys() & asked.keys()):
        raise click.UsageError(f"{twice[0]} is given by -o and by an option of its own")
    request = TrainRequest(options=asked | given, **requested)
    if plan_gpus is not None:
        show_plan_elsewhere(request, plan_gpus, device, dry_run=dry_run)
        return
    tools = options.measuring_tools(feature_weights)
    place = options.use_device(device)
    console = TrainingTerminal()
    with ignore_save_signal(), process_group(place, console):
        planned = plan(request, Machine.here(place), threads=threads, console=console)
        print_hint(*planned.lines)
        if names is not None:  # raises now, not at the first measurement
            require(measurable(names), tools, place)
        if dry_run:
            print_hint(*planned.preview(strict=strict, console=console))
            return
        folder = planned.facts.run
        begun = folder.latest_images_seen()
        opened: list[Store] = []

        def evaluation(config: TrainConfig, store: Store) -> Evaluation | None:
            opened.append(store)
            if names is None:
                return None
            return evaluation_of(
                names, metrics_every, folder, config=config, store=store, tools=tools
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
        print_hint(f"{folder.path} is finished, with {state.images_seen} images seen")
        print_hint(*closing_lines(folder, state.config, *opened))


def show_plan_elsewhere(
    request: TrainRequest, processes: int, device: str, *, dry_run: bool
) -> None:
    """Print the plan for `processes` GPUs, which need not exist here."""
    if not dry_run:
        raise click.UsageError("--plan-gpus requires --dry-run; torchrun starts processes")
    if request.minutes is not None:
        raise click.UsageError("--plan-gpus excludes --minutes, which runs trial steps")
    if device != "cuda":
        raise click.UsageError("--plan-gpus plans for GPUs: add --device cuda")
    machine = Machine(torch.device("cuda"), MEMORY_OF_GPU, processes=processes)
    planned = plan(request, machine)
    assumed = f"assumed: {processes} GPUs of {gib(MEMORY_OF_GPU)} each, instead of this machine"
    print_hint(*planned.lines, assumed, *planned.preview_elsewhere())


def write_page(out: Path, device: torch.device) -> None:
    """Write the report of a finished run, or print why it could not be written."""
    try:
        loaded = open_weights(out, map_location=device).require_loaded()
        write_report(out, Drawings(truncation_sweep(loaded)))
    except (OSError, ValueError) as error:
        print_hint(f"the report of {out} could not be written: {error}")


def closing_lines(run: RunFolder, config: TrainConfig, store: Store) -> list[str]:
    """Advice on how to view, use, continue and measure a finished run. For small data sets, it
    names fewer samples and only the metrics for which the images suffice."""
    path = run.path
    label = store.label_names[0] if config.network.label_dim else None
    reals = StoreImages(store=store, resolution=store.resolution, mirror=config.data.mirror)
    names = default_names().split(",")
    few = [f"{name}1k" for name in names if not METRICS[name].unavailable_reason(1000, reals)]
    metrics = ["--metrics", ",".join(few)] if store.num_images < FEW_TO_MEASURE else []
    seeds = ["--seeds", "0-31", *(["--class", label] if label else [])]
    longer = f"{2 * config.schedule.total_kimg:.10g}"
    send = [
        f"send:      {file} ({format_bytes(file.stat().st_size)}): one file, which every command "
        "and stylegan.load_generator open"
        for file in run.generators()[-1:]
    ]
    return [
        f"look:      {run.report_file if run.report_file.exists() else run.samples}",
        f"generate:  {command('generate', path, *seeds, '--out', 'samples/')}",
        f"video:     {command('video', 'walk', path, '--out', 'walk.webp')}",
        f"play:      {command('explore', path)}",
        *send,
        f"continue:  {command('train', '--out', path, '--kimg', longer)}",
        f"measure:   {command('metrics', path, *metrics)}",
        "Losses do not measure quality: compare samples/ with reals.png, or measure.",
    ]


def print_hint(*lines: str) -> None:
    """Print advice; a closed terminal must not end the training."""
    with suppress(OSError):
        echo(*lines)


class TrainingTerminal(Terminal):
    """Console of a training: messages, and below them speed, time left, stage, losses."""

    def __init__(self) -> None:
        super().__init__(say=print_hint)
        self.seconds: dict[int, float] = {}  # per image, by resolution

    def progress(self, what: object, done: int, total: int) -> None:
        if not isinstance(what, TrainingProgress):
            super().progress(what, done, total)
            return
        stage = what.stage
        speed = what.images_per_second
        self.seconds.pop(stage.resolution, None)  # so that it becomes the last key
        self.seconds[stage.resolution] = 1 / speed
        costs = StepCosts.extrapolate(what.config, self.seconds)
        left = duration(costs.seconds_left(what.config.schedule, what.images_seen))
        fade = f" fade {stage.alpha:.2f}" if stage.alpha < 1 else ""
        kimg = done / 1000
        texts = [f"{kimg:.1f}/{total / 1000:.1f} kimg", f"{speed:.0f} img/s", f"left {left}"]
        texts += [f"res {stage.resolution}{fade}"]
        texts += short_values(what)
        if self.what is not TrainingProgress:  # one bar for the whole training
            self.close()
            self.what = TrainingProgress
        if sys.stdout is None or sys.stderr is None:  # closed, as a daemon's may be
            return
        with suppress(OSError):  # the reader is gone, or the disk of the output full
            sys.stdout.flush()  # raises before tqdm would, which leaves a broken bar
            self.bar = self.bar or tqdm(
                bar_format="{percentage:3.0f}%|{bar:12}| {desc}",
                dynamic_ncols=True,  # truncates the line to the terminal
                disable=not first_process(),
            )
            self.bar.total = total / 1000
            self.bar.n = kimg
            self.bar.set_description_str("  ".join(texts))


FEW_TO_MEASURE = 2000  # training images; by default metrics use 5,000 samples and more
SHORT = {  # the first values of a line, in this order
    "d/real_signs": "r_t",
    "augment/probability": "p",
    "data": "data",  # time spent waiting for images
    "d/real_logits": "D(real)",
    "d/fake_logits": "D(fake)",
}


def short_values(progress: TrainingProgress) -> list[str]:
    """Names and values for the progress line: overfitting, waiting for data, logits, losses."""
    texts = {name: f"{value:.2f}" for name, value in progress.metrics.items()}
    texts["data"] = f"{100 * progress.data_wait:.0f}%"
    if progress.config.augment.kind == "none":
        texts.pop("augment/probability", None)
    losses = {name: name.partition("/")[2] for name in sorted(texts.keys() - SHORT)}
    return [f"{text} {texts[n]}" for n, text in (SHORT | losses).items() if n in texts]
