"""`stylegan train`: from a folder of images to a generator."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stylegan.cli import values
from stylegan.cli.common import Command, data_option, progress_bar, use_device
from stylegan.cli.measuring import image_bars, measuring_tools
from stylegan.cli.options import DEVICE, WEIGHTS
from stylegan.cli.terminal import first_process, say

if TYPE_CHECKING:
    import torch

    from stylegan.config import TrainConfig
    from stylegan.training import TrainingProgress

BUNDLED_DATA = "datasets/emoji-32.zip"
DEFAULT_CONFIG = "quickstart"
SETTINGS = {  # options of the command line that are options of the configuration
    "cond": "data.labels",
    "mirror": "data.mirror",
    "crop": "data.crop",
    "precision": "precision",
    "batch_gpu": "batch_gpu",
    "checkpoint_activations": "checkpoint_activations",
    "deterministic": "deterministic",
    "save_minutes": "save_minutes",
    "seed": "seed",
}


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
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Option to change.")
@click.option("--cond", is_flag=True, help="Condition on the sub-folder of each image.")
@click.option("--mirror", is_flag=True, help="Flip half of the images left to right.")
@click.option(
    "--crop", type=click.Choice(["center", "pad"]), help="Middle square, or 4:3 with bars."
)
@click.option("--strict", is_flag=True, help="Refuse data with images that cannot be used.")
@click.option(
    "--init-from", metavar="SOURCE", help="Weights to start from: any source of generate."
)
@click.option(
    "--precision", type=click.Choice(["fp32", "tf32", "bf16", "fp16"]), help="Arithmetic."
)
@click.option(
    "--batch-gpu", type=values.whole_number(1), help="Number of images at once per process."
)
@click.option("--checkpoint-activations", is_flag=True, help="Recompute: less memory, more time.")
@click.option("--deterministic", is_flag=True, help="Same bits on a GPU every time.")
@click.option("--save-minutes", type=values.real_number(0), help="Minutes between saved states.")
@click.option(
    "--seed", type=values.whole_number(most=2**63 - 1), help="Seed of all random numbers."
)
@DEVICE
@click.option(
    "--workers",
    type=values.whole_number(most=1000),
    default=1,
    help="Number of threads that read ahead.",
)
@click.option("--dry-run", is_flag=True, help="Print the whole plan, train nothing.")
@click.option(
    "--preflight/--no-preflight", default=True, show_default=True, help="Try steps first."
)
@click.option(
    "--hang-minutes",
    type=values.real_number(0, 7 * 24 * 60),
    default=30,
    show_default=True,
    help="End a process of several that makes no progress; 0 = never.",
)
@click.option(
    "--tensorboard/--no-tensorboard", default=True, show_default=True, help="Write events."
)
@click.option("--histograms", is_flag=True, help="Show weights and gradients in TensorBoard.")
@click.option("--graph", is_flag=True, help="Show the generator's graph in TensorBoard.")
@click.option("--metrics", "names", help="Metrics to measure while training, as in fid5k,swd.")
@click.option(
    "--metrics-every",
    "every_kimg",
    type=values.real_number(0.001),
    help="Thousands of images between two measurements.  [default: with every generator file]",
)
@WEIGHTS
@click.option(
    "--debug", is_flag=True, help="Detect anomalies, launch synchronously, show tracebacks."
)
def train(
    data: Path | None,
    config_name: str | None,
    out: Path | None,
    overrides: tuple[str, ...],
    device: str,
    debug: bool,
    dry_run: bool,
    strict: bool,
    hang_minutes: float,
    names: str | None,
    every_kimg: float | None,
    weights: Path | None,
    **options: Any,
) -> None:
    """Train, or continue a run: the same command does both.

    \b
    python train.py                                  the bundled data, a few minutes
    python train.py --data photos/ --config ffhq-256 --out runs/mine
    torchrun --nproc-per-node 8 train.py --data photos/ --config ffhq-1024
    """
    from stylegan import distributed
    from stylegan.config import bundled, load_config
    from stylegan.metrics.evaluation import evaluation_of
    from stylegan.run_folder import RunFolder
    from stylegan.training import Stopped, start
    from stylegan.training.interrupts import nothing_to_save
    from stylegan.training.plan import plan_lines
    from stylegan.training.run import fit_to_data, open_store, processes

    if debug:
        enable_debugging()
    if every_kimg and not names:
        raise ValueError("--metrics-every needs --metrics: what to measure")
    chosen = use_device(device)
    name = config_name or DEFAULT_CONFIG
    out = out or Path("runs") / Path(name).stem
    asked = [*overrides, *as_overrides({name: options.pop(name) for name in SETTINGS})]
    if data is not None and config_name is None:
        asked.insert(0, "data.include=[]")  # the quickstart's choice is of the bundled pictures
    with nothing_to_save(), processes(chosen, hang_minutes):
        run = RunFolder(out)
        stored = run.stored_config()
        planned_for = stored.schedule.num_processes if stored else distributed.world_size()
        config = load_config(name, asked, planned_for)
        with progress_bar("img") as progress:
            source = data or bundled(BUNDLED_DATA)
            store = open_store(source, config, strict=strict, progress=progress)
        config = fit_to_data(config, store)
        if dry_run:
            say("\n".join(plan_lines(config, chosen)))
            return
        measured = run, config.data.mirror, store, measuring_tools(weights), image_bars()
        begun = run.saved()
        options["evaluation"] = evaluation_of(names, every_kimg, *measured) if names else None
        options |= {"device": chosen, "hang_minutes": hang_minutes, "tell": say}
        try:
            with status_line(config) as report:
                state = start(config, store, out, report=report, **options)
        except Stopped as stopped:
            say(str(stopped))
            sys.exit(stopped.exit_code)
        made = run.report_file.exists() and state.images_seen == begun
        if distributed.rank() == 0 and not made:
            write_page(out, chosen)
        say(f"{out} is finished, with {state.images_seen} images seen")
        say(f"samples are in {run.samples}; for more: python generate.py {out} --seeds 0-31")


def write_page(out: Path, device: "torch.device") -> None:
    """The report of a finished run; one that cannot be written is a message."""
    from stylegan.files.loading import load_run
    from stylegan.report import Drawings, truncation_sweep, write_report

    try:
        page = write_report(out, Drawings(truncation_sweep(load_run(out, device))))
    except (OSError, ValueError) as error:
        say(f"the report of {out} could not be written: {error}")
    else:
        say(f"its report is {page}")


def as_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Those options of the command line that are given, as options of the configuration."""
    from stylegan.toml import toml_value

    given = {name: v for name, v in settings.items() if v is not None and v is not False}
    return [f"{SETTINGS[name]}={toml_value(value)}" for name, value in given.items()]


def enable_debugging() -> None:
    import torch

    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    torch.autograd.set_detect_anomaly(True)


@contextmanager
def status_line(config: "TrainConfig") -> "Iterator[Callable[[TrainingProgress], None]]":
    """A bar with speed, the time that is left, resolution, fade, waiting for data and losses, as
    far as they fit into the line; shown by the first process from the first progress on."""
    from tqdm import tqdm

    from stylegan.messages import duration
    from stylegan.training.plan import TimeLeft

    total = config.schedule.total_images
    bar: tqdm[Any] | None = None
    time_left: TimeLeft | None = None

    def show(progress: "TrainingProgress") -> None:
        nonlocal bar, time_left
        bar = bar or tqdm(
            total=total / 1000,
            bar_format="{desc}",
            dynamic_ncols=True,
            disable=not first_process(),
        )
        time_left = time_left or TimeLeft(config)
        stage, speed = progress.stage, progress.images_per_second
        left = time_left.seconds(progress.images_seen, stage.resolution, speed)
        fade = f" fade {stage.alpha:.2f}" if stage.alpha < 1 else ""
        values = (f"{k.split('/')[1]} {v:.2f}" for k, v in sorted(progress.metrics.items()))
        bar.n = min(progress.images_seen, total) / 1000
        first = f"{bar.n:.1f}/{total / 1000:.1f} kimg  {speed:.0f} img/s  left {duration(left)}"
        others = f"res {stage.resolution}{fade}", f"data {100 * progress.data_wait:.0f}%", *values
        columns = None if bar.disable else bar.format_dict["ncols"]
        size, text = fitted(first, others, columns or 1000)
        bar.bar_format = f"{{percentage:3.0f}}%|{{bar:{size}}}| {{desc}}"
        bar.set_description_str(text)

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


def fitted(first: str, others: Sequence[str], columns: int) -> tuple[int, str]:
    """The length of a bar, and the text at its right: `first`, and of the others, the important
    ones first, as many as leave it 6 columns. Only `first` makes the bar shorter than that."""
    text, room = first, columns - len("100%|| ") - 1
    for other in others:
        if len(text) + 2 + len(other) + 6 > room:
            break
        text = f"{text}  {other}"
    return min(max(room - len(text), 1), 20), text
