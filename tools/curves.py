"""How the quality of runs changes while they train, by images and by time.

    stylegan metrics runs/a/generator-*.pt --metrics eff-fd1k,eff-pr1k --out runs/a/metrics.jsonl
    python tools/curves.py runs/a runs/b-seed0 runs/b-seed1 --out curves.png

Runs whose names differ by `-seed` and a number only have one colour.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
from diagnostics import BLUE, GREEN, PURPLE, VERMILION, save
from matplotlib.figure import Figure

from stylegan.cli.common import Command
from stylegan.cli.options import path_option
from stylegan.report.history import RunHistory, read_run

TITLES = {
    "eff-fd": "Frechet distance (eff-fd)",
    "eff-precision": "precision (eff-pr)",
    "eff-recall": "recall (eff-pr)",
}
COLORS = (BLUE, VERMILION, GREEN, PURPLE)
Points = list[tuple[float, float]]  # kimg, value


def minutes(history: RunHistory) -> Points:
    """Kimg and the minutes of training that they took, at the logged speed, without pauses."""
    points, seen, time = [(0.0, 0.0)], 0.0, 0.0
    for line in history.progress():
        kimg, speed = line["images_seen"] / 1000, line["speed/images_per_second"]
        time += (kimg - seen) * 1000 / speed / 60
        seen = kimg
        points.append((kimg, time))
    return points


def measured(history: RunHistory) -> dict[str, Points]:
    """The metrics of `TITLES` over kimg; FileNotFoundError if there are none."""
    values: dict[str, dict[float, float]] = defaultdict(dict)
    for one in history.measurements:
        if one.kimg is not None and one.yardstick is None:
            for name, value in one.values.items():
                if name in TITLES and value is not None:
                    values[name][one.kimg] = value
    if not values:
        raise FileNotFoundError(f"{history.folder.metrics_file} has no eff-fd and eff-pr")
    return {name: sorted(points.items()) for name, points in values.items()}


def draw(runs: Sequence[RunHistory]) -> Figure:
    """A row for each quantity, by images at the left and by time at the right."""
    figure = Figure(figsize=(7.6, 6), dpi=90, layout="constrained")
    axes = figure.subplots(len(TITLES), 2, sharex="col", sharey="row")
    colors = dict[str, str]()
    lines = {}
    for run in runs:
        label = re.sub(r"-seed\d+$", "", run.name)
        color = colors.setdefault(label, next(itertools.islice(COLORS, len(colors), None)))
        values, clock = measured(run), np.array(minutes(run)).T
        for (by_images, by_time), quantity in zip(axes, TITLES, strict=True):
            x, y = np.array(values.get(quantity, [])).reshape(-1, 2).T
            (lines[label],) = by_images.plot(x, y, "o-", color=color, ms=3, lw=1.3)
            by_time.plot(np.interp(x, *clock), y, "o-", color=color, ms=3, lw=1.3)
    for row, title in zip(axes, TITLES.values(), strict=True):
        row[0].set_ylabel(title, fontsize=9)
        for panel in row:
            panel.spines[["top", "right"]].set_visible(False)
            panel.tick_params(labelsize=8, which="both")
    axes[0, 0].set_yscale("log")
    axes[0, 0].yaxis.set_major_formatter("{x:.0f}")
    axes[0, 0].yaxis.set_minor_formatter("{x:.0f}")
    for panel, unit in zip(axes[-1], ("kimg", "minutes of training"), strict=True):
        panel.set_xlabel(unit, fontsize=9)
    figure.legend(lines.values(), lines, loc="outside upper right", ncols=4, frameon=False)
    return figure


@click.command(cls=Command)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@path_option("--out", "Picture to write.", "curves.png")
def main(runs: tuple[Path, ...], out: Path) -> None:
    """Draw the measurements of RUNS."""
    save(draw([read_run(run) for run in runs]), out)


if __name__ == "__main__":
    main()
