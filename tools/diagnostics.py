"""Trains small networks, well and badly, and draws their logs, for docs/running.md."""

import io
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from stylegan.cli.common import Command
from stylegan.config import bundled
from stylegan.files.run_folder import RunFolder
from stylegan.planning import BUNDLED_DATA
from stylegan.report.history import read_run
from stylegan.utils.records import read_lines

SMALL = (  # the quickstart's network at 16x16 with half of its channels; three minutes of one core
    "r1_gamma={4=0.4,16=0.1}",  # as strong as the quickstart's
    "r1_interval=1",
    "data.mirror=false",
    "network.resolution=16",
    "network.channel_base=128",
    "schedule.stable_kimg=2",
    "schedule.fade_kimg=2",
    "schedule.total_kimg=20",
    "schedule.batch_size={4=8}",
    "schedule.g_lr={4=0.002}",
    "schedule.d_lr={4=0.002}",
    "schedule.tick_kimg={4=2}",
    "log_kimg=0.1",
)
# Okabe and Ito's colors, which differ for any kind of color vision.
BLUE = "#0072B2"
VERMILION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
GRAY = "#999999"


TEN = "schedule.total_kimg=10"
NO_R1 = "r1_gamma=0"
FAST_D = "schedule.d_lr={4=0.02}"
CASES = {  # name: title, and KEY=VALUE after those of SMALL
    "healthy": ("Healthy: R1 as in the quickstart, equal learning rates", ()),
    "no-r1": ("No R1", (NO_R1,)),
    "fast-d": ("No R1, discriminator ten times as fast", (NO_R1, FAST_D)),
    "slow-g": (
        "No R1, generator a hundred times slower",
        (TEN, NO_R1, "schedule.g_lr={4=0.00002}"),
    ),
    "saturated": (
        "Saturating generator loss, no R1, discriminator ten times as fast",
        (TEN, 'generator_loss="saturating"', NO_R1, FAST_D),
    ),
    "high-lr": (
        "Both learning rates forty times too high",
        (TEN, "schedule.g_lr={4=0.08}", "schedule.d_lr={4=0.08}"),
    ),
    "strong-r1": ("R1 hundreds of times too strong", ("schedule.total_kimg=6", "r1_gamma=100")),
    "few-pictures": ("26 pictures", ()),
    "wgan-gp": ("WGAN-GP", (TEN, 'generator_loss="wgan"', 'discriminator_loss="wgan_gp"', NO_R1)),
}


class Curves:
    """The progress lines of a run."""

    def __init__(self, folder: Path) -> None:
        self.lines = [event for _, event in read_run(folder).progress()]
        self.kimg = self["images_seen"] / 1000

    def __getitem__(self, name: str) -> np.ndarray:
        """One quantity over the lines; NaN where it was not finite or not logged."""
        values = [line.get(name) for line in self.lines]
        return np.array([np.nan if value is None else value for value in values], dtype=float)

    def losses(self) -> list[str]:
        """Names of the loss terms, unweighted as logged."""
        others = ("_logits", "_penalty")
        names = (n for n in self.lines[0] if n.startswith(("d/", "g/")) and not n.endswith(others))
        return sorted(name for name in names if name != "d/real_signs")


def has_ended(folder: Path) -> bool:
    """True if the run finished or failed, false if it was interrupted."""
    events = read_lines(RunFolder(folder).log_file, "event")[0]  # none if it has not begun
    return bool(events) and events[-1]["event"] in {"finished", "failed"}


def train(name: str, folder: Path) -> None:
    """Make the run, or continue it. That it breaks down may be what it is meant to show."""
    options = [part for option in (*SMALL, *CASES[name][1]) for part in ("-o", option)]
    if name == "few-pictures":
        options += ["--config", "quickstart", "--data", str(few_images(folder.parent / "few"))]
    click.echo(shlex.join(["python", "train.py", *options]))
    command = [sys.executable, "-m", "stylegan", "train", *options, "--out", str(folder)]
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    if not has_ended(folder):
        raise ValueError(f"training of {name} was stopped; run this again")


def few_images(folder: Path) -> Path:
    """A folder with the first 26 of the bundled faces."""
    with zipfile.ZipFile(bundled(BUNDLED_DATA)) as faces:
        names = [name for name in faces.namelist() if name.endswith(".webp")]
        faces.extractall(folder, sorted(names)[:26])
    return folder


def draw(title: str, folder: Path, reference: Curves) -> Figure:
    """Four panels of curves, some of the reference run below in gray, and the last samples."""
    curves = Curves(folder)
    figure = Figure(figsize=(10, 4.2), dpi=120, layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=(4, 4, 2))
    logits, losses, penalty, skipped = (figure.add_subplot(grid[i // 2, i % 2]) for i in range(4))
    names = {"d/real_logits": BLUE, "d/fake_logits": VERMILION}
    draw_panel(logits, "logits", names, curves, reference, (-6, 6))
    colors = dict(zip(curves.losses(), (VERMILION, BLUE, GREEN, PURPLE), strict=False))
    draw_panel(losses, "losses", colors, curves, None, (0, 4))
    for panel in (logits, losses):
        if max(np.abs(panel.dataLim.intervaly)) > 100:
            panel.set_yscale("symlog", linthresh=10)
        place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 4}
        panel.legend(**place, frameon=False, fontsize=6, handlelength=1.2, columnspacing=1)
    penalty.set_yscale("log")
    draw_panel(penalty, "d/r1_penalty (unweighted)", {"d/r1_penalty": PURPLE}, curves, reference)
    name = "health/skipped_updates"
    draw_panel(skipped, name, {name: "black"}, curves, None, (0, 10))
    for panel in (logits, losses, penalty, skipped):
        panel.set_xlim(0, max(curves.kimg[-1], reference.kimg[-1]))
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    for panel in (penalty, skipped):
        panel.set_xlabel("kimg", fontsize=8)
    draw_samples(figure.add_subplot(grid[:, 2]), folder)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def draw_panel(
    panel: Axes,
    title: str,
    colors: Mapping[str, str],
    curves: Curves,
    reference: Curves | None,
    least: tuple[float, float] | None = None,
) -> None:
    """The named curves, at least this range of values, and gray where a resolution fades in."""
    panel.set_title(title, fontsize=9, loc="left")
    for name, color in colors.items():
        panel.plot(curves.kimg, curves[name], color=color, label=name, linewidth=1.2)
        if reference is not None:
            panel.plot(reference.kimg, reference[name], color=GRAY, linewidth=0.8, zorder=1)
    if least is not None:
        low, high = panel.get_ylim()
        panel.set_ylim(min(low, least[0]), max(high, least[1]))
    for (start, end), alpha in zip(
        pairwise([0.0, *curves.kimg]), curves["schedule/alpha"], strict=True
    ):
        if alpha < 1:
            panel.axvspan(start, end, color="#EEEEEE", linewidth=0, zorder=0)


def draw_samples(panel: Axes, folder: Path) -> None:
    """The 32 pictures of the average generator that the run wrote last, four in a row."""
    kimg, path = RunFolder(folder).grids()[-1]
    pixels = np.asarray(Image.open(path))
    side = pixels.shape[1] // 8
    images = pixels.reshape(-1, side, 8, side, 3).swapaxes(1, 2).reshape(-1, 4, side, side, 3)
    panel.imshow(images.swapaxes(1, 2).reshape(-1, 4 * side, 3), interpolation="nearest")
    panel.set_title(f"samples at {kimg} kimg", fontsize=9)
    panel.axis("off")


def save(figure: Figure, path: Path) -> None:
    """As a PNG with a palette, a third of the size."""
    buffer = io.BytesIO()
    figure.savefig(buffer)
    image = Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


@click.command(cls=Command)
@click.argument("runs", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default="docs", show_default=True)
def main(runs: Path, out: Path) -> None:
    """Train each case into a folder of RUNS unless it is there, then draw them all.

    \b
    python tools/diagnostics.py runs/diagnostics
    """
    for name in CASES:
        if not has_ended(runs / name):
            train(name, runs / name)
    reference = Curves(runs / "healthy")
    for name, (title, _) in CASES.items():
        save(draw(title, runs / name, reference), out / f"diagnostics-{name}.png")


if __name__ == "__main__":
    main()
