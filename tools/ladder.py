"""Table 1 of the paper in small: trains its rows A to F with equal budgets and compares them."""

import math
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from stylegan import sampling
from stylegan.cli.common import Command
from stylegan.cli.options import DEVICE, path_option
from stylegan.config import (
    TrainConfig,
    build_config,
    config_names,
    parse_options,
    read_options,
    to_toml,
)
from stylegan.disk import write_text
from stylegan.figures import grid
from stylegan.files.loading import open_weights
from stylegan.report.history import read_run

PREFIX = "paper/table1-"
FILES = {name.removeprefix(PREFIX)[0]: name for name in config_names() if name.startswith(PREFIX)}
PUBLISHED_FID = {"a": 8.04, "b": 5.25, "c": 4.85, "d": 4.88, "e": 4.42, "f": 4.40}
NOTES = """Mean ± standard deviation over seeds (n - 1). *FFHQ at 1024x1024 after 25,000 kimg: not
comparable, for the order only."""
SAMPLES = range(12)  # seeds, of each row


def row_configs(base: str, overrides: Sequence[str], rows: Sequence[str]) -> dict[str, TrainConfig]:
    """The base, which is row F in small, with what each row's file switches except the data."""
    values = read_options(base) | parse_options(overrides)
    return {row: build_config(values | switches_of(row)) for row in rows}


def switches_of(row: str) -> dict[str, Any]:
    """What the file of a row sets, except the data."""
    options = read_options(FILES[row])
    return {name: value for name, value in options.items() if not name.startswith("data.")}


def run(*arguments: object) -> None:
    """A command of the package, on one thread."""
    command = [sys.executable, "-m", "stylegan", *map(str, arguments)]
    subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)


def scores_of(folder: Path) -> dict[str, float]:
    """Results for the last generator of a run, and its length."""
    history = read_run(folder)
    scores = {"kimg": history.images_seen / 1000}
    for result in history.measurements:
        if result.images_seen == history.images_seen and result.pictures_name is None:
            for name, value in result.values.items():
                if math.isfinite(value):
                    scores[f"{name} ({result.metric})"] = value
    return scores


def table(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Markdown with a line for each row: the mean over its seeds."""
    columns = list(dict.fromkeys(name for runs in scores.values() for run in runs for name in run))
    lines = [["", "configuration", "seeds", *columns, "FID published*"]]
    lines.append(["---"] * len(lines[0]))
    for row, runs in scores.items():
        name = FILES[row].removeprefix(f"{PREFIX}{row}-")
        cells = [row.upper(), name, str(len(runs))]
        for column in columns:
            values = [run[column] for run in runs if column in run]
            spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
            cells.append(f"{statistics.fmean(values):.4g}{spread}" if values else "-")
        lines.append([*cells, f"{PUBLISHED_FID[row]:.2f}"])
    markdown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{markdown}\n\n{NOTES}\n"


def write_samples(path: Path, folders: Mapping[str, Path]) -> None:
    """The same seeds of a run of each row, a row each."""
    pictures: list[np.ndarray] = []
    for folder in folders.values():
        generator = open_weights(folder).require_loaded().generator
        pictures.extend(*sampling.generate(generator, SAMPLES, batch=len(SAMPLES)))
    labels = [label for row in folders for label in [row.upper(), *[""] * (len(SAMPLES) - 1)]]
    grid(pictures, len(SAMPLES), labels).save(path)


@click.command(cls=Command)
@click.option("--data", help="Folder of images, zip, or prepared store.  [default: the faces]")
@click.option("--base", default="ablation-32", help="Row F in small.")
@click.option("--rows", default="ABCDEF", help="Rows to train.")
@click.option("--seeds", type=click.IntRange(1), default=1, help="Number of seeds of each row.")
@click.option("--metrics", default="eff-fd2k,eff-pr2k", help="Columns of the table.")
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one option.")
@DEVICE
@path_option("--out", "Folder of the runs and the table.", default="runs/ladder")
def main(
    data: str | None,
    base: str,
    rows: str,
    seeds: int,
    metrics: str,
    overrides: tuple[str, ...],
    device: str,
    out: Path,
) -> None:
    """Train the rows A to F of the paper's table 1 with equal budgets, and compare them.

    Each run is an ordinary run folder below OUT. The same command continues where it was stopped
    and adds further rows and seeds. OUT gets table.md and samples.png.

    \b
    python tools/ladder.py --rows EF --seeds 3
    """
    configs = row_configs(base, overrides, sorted(rows.lower()))
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for row, config in configs.items():
            folder = out / f"{row}-seed{seed}"
            file = out / f"{row}.toml"
            write_text(file, to_toml(config))
            options = ["--config", file, "--seed", seed, "--device", device]
            run("train", "--out", folder, *options, *(["--data", data] if data else []))
            names = {result.metric for result in read_run(folder).measurements}
            if missing := [name for name in metrics.split(",") if name not in names]:
                run("metrics", folder, "--metrics", ",".join(missing), "--device", device)
    runs = {row: [out / f"{row}-seed{seed}" for seed in range(seeds)] for row in configs}
    text = table({row: [scores_of(folder) for folder in folders] for row, folders in runs.items()})
    write_text(out / "table.md", text)
    write_samples(out / "samples.png", {row: folders[0] for row, folders in runs.items()})
    click.echo(text)


if __name__ == "__main__":
    main()
