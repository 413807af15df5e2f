"""How good samples are after so many images and so much time: ours, and other programs."""

import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import iteration
import matplotlib.pyplot as plt
import numpy as np
import others
import torch
from contest import Settings, Trial, conditions, environment_for, number, save
from PIL import Image

from stylegan.cli.common import Command
from stylegan.training import draw, train_step

SAMPLES = 2000
Z_DIM = 512
SHOWN = ("seed", "kimg", "seconds", "eff-fd", "eff-precision", "eff-recall")
EQUAL = (  # what the other programs have: no growth, the whole set, R1 in every step
    "schedule.stable_kimg=0",
    "schedule.fade_kimg=0",
    "r1_interval=1",
    "w_avg_decay=0.995",
)


def ours(settings: Settings) -> Trial:
    """Our step, with the configuration of the paper but for widths and rates."""
    (base, most) = settings["widths"]
    (g_lr, d_lr) = settings["rates"]
    size = settings["resolution"], settings["batch"]
    overrides = [
        *EQUAL,
        f"network.resolution={size[0]}",
        f"network.channel_base={base}",
        f"network.max_channels={most}",
        f"schedule.batch_size={{4={size[1]}}}",
        f"schedule.g_lr={{4={g_lr}}}",
        f"schedule.d_lr={{4={d_lr}}}",
        f"r1_gamma={settings['r1']}",
        f"seed={settings['seed']}",
        *settings["own"],
    ]
    place = {"config": None, "overrides": overrides, "alpha": 1.0, "device": "cpu"}
    state, stage, _, share = iteration.prepare(settings | place)
    reals = others.reals_of(settings)

    def once() -> None:
        draws = draw(state.config, state.images_seen, stage, None, share, 0.0)
        train_step(state, reals(), None, stage, draws)

    return Trial(once, sample=state.generator_ema)


PROGRAMS = {"ours": ours} | others.PROGRAMS


def learn(program: str, settings: Settings, out: Path) -> None:
    """Train, and write samples into `out/KIMG/` at every mark, the seconds into `seconds.jsonl`."""
    torch.manual_seed(settings["seed"])
    trial = PROGRAMS[program](settings)
    seconds = 0.0
    shown = 0
    for mark in np.linspace(0, settings["kimg"], settings["marks"] + 1)[1:]:
        started = time.process_time()  # of one thread: what others do at the time counts little
        while shown < mark * 1000:
            trial.once()
            shown += settings["batch"]
        seconds += time.process_time() - started
        folder = out / f"{mark:g}"
        write_samples(trial, folder)
        line = {"program": program, "kimg": shown / 1000, "seconds": seconds}
        with (out / "seconds.jsonl").open("a") as file:
            file.write(json.dumps(line | {"seed": settings["seed"], "folder": str(folder)}) + "\n")


def write_samples(trial: Trial, folder: Path) -> None:
    """Pictures of the same latents each time."""
    assert trial.sample is not None
    folder.mkdir(parents=True)
    random = torch.Generator().manual_seed(1)
    for first in range(0, SAMPLES, 100):
        with torch.no_grad():
            images = trial.sample(torch.randn((100, Z_DIM), generator=random))
        values = ((images + 1) * 127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1)
        for i, pixels in enumerate(values.numpy(), first):
            Image.fromarray(pixels).save(folder / f"{i:04}.png")


def measured(
    folders: Sequence[str], reals: Path, resolution: int, out: Path
) -> dict[str, dict[str, float]]:
    """Folder -> eff-fd, precision and recall of its samples."""
    known = out.read_text() if out.exists() else ""
    new = [folder for folder in folders if json.dumps(f"pictures of {folder}") not in known]
    command = [sys.executable, "-m", "stylegan", "metrics", *new, "--data", reals]
    command += ["--metrics", f"eff-fd{SAMPLES},eff-pr{SAMPLES}", "--out", out, "--json"]
    command += ["--resolution", str(resolution)]
    if new:
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    values: dict[str, dict[str, float]] = {}
    for line in map(json.loads, out.read_text().splitlines()):
        origin = line["protocol"]["generator"]["origin"].removeprefix("pictures of ")
        values.setdefault(origin, {}).update(line["values"])
    return values


def plot(lines: Sequence[Settings], file: Path) -> None:
    """eff-fd over images and over minutes, a line for each program and seed."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    known = list(dict.fromkeys(line["program"] for line in lines))
    for program, seed in dict.fromkeys((line["program"], line["seed"]) for line in lines):
        of_run = [line for line in lines if (line["program"], line["seed"]) == (program, seed)]
        style = f"C{known.index(program)}.-"
        for axis, unit, scale in zip(axes, ("kimg", "seconds"), (1, 60), strict=True):
            x = [line[unit] / scale for line in of_run]
            axis.plot(x, [line["eff-fd"] for line in of_run], style, label=program)
    axes[0].set(xlabel="thousands of images", ylabel=f"eff-fd of {SAMPLES} samples")
    axes[1].set(xlabel="minutes of one core")
    labels = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))  # each once
    axes[0].legend(labels.values(), labels.keys())
    figure.savefig(file)


@click.command(cls=Command)
@click.argument("programs", nargs=-1, required=True, type=click.Choice(list(PROGRAMS)))
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--reals", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--others", "clones", type=click.Path(exists=True, path_type=Path))
@click.option("--resolution", default=32)
@click.option("--batch", default=16)
@click.option("--kimg", default=60.0)
@click.option("--marks", default=8)
@click.option("--seed", "seeds", multiple=True, default=(0, 1))
@click.option("--widths", type=(int, int), default=(512, 64), help="Base and most of channels.")
@click.option("--rates", type=(float, float), default=(1e-3, 1e-3), help="Of generator and D.")
@click.option("--r1", default=10.0, help="Gamma of ours and genforce's; others have 10.")
@click.option("-o", "own", multiple=True, metavar="KEY=VALUE", help="Option of ours.")
@click.option("--out", type=click.Path(path_type=Path), default="out/quality")
def main(
    programs: Sequence[str],
    data: Path,
    reals: Path,
    clones: Path | None,
    seeds: Sequence[int],
    out: Path,
    **settings: Any,
) -> None:
    """Train PROGRAMS equally, in one thread each, and compare.

    DATA and REALS are folders of pictures: to learn from, and to compare with. Samples and seconds
    go to OUT/PROGRAM-SEED/; what is finished there is not trained again, what is half finished is.

    \b
    python benchmarks/quality.py ours genforce huangzh13 --others clones/ \\
        --data faces64/ --reals held-out64/
    """
    if clones is None and set(programs) != {"ours"}:
        raise click.UsageError("other programs need --others FOLDER, with their clones")
    keep_settings(out / "settings.json", settings | {"data": str(data)})
    size = settings["resolution"]
    np.save(out / "data.npy", small_images(data, size))
    environment = environment_for(1, "tuned")
    os.environ |= environment
    for seed, program in itertools.product(seeds, programs):
        place = {"data": str(out / "data.npy"), "other": str((clones or out) / program)}
        train(program, settings | place | {"seed": seed}, out)
    lines = [json.loads(x) for file in sorted(out.glob("*/seconds.jsonl")) for x in file.open()]
    values = measured([line["folder"] for line in lines], reals, size, out / "metrics.jsonl")
    lines = [line | values[line["folder"]] for line in lines]
    plot(lines, out / "quality.png")
    rows = [{"program": line["program"]} | {k: number(line[k]) for k in SHOWN} for line in lines]
    record = {"conditions": conditions(environment), "settings": settings, "rows": lines}
    click.echo(save(out, "quality", "Samples by images shown and by time", record, rows))


def keep_settings(file: Path, settings: Settings) -> None:
    """Write them down; UsageError if the folder has results of others."""
    asked = json.dumps(settings)
    folder = file.parent
    if file.exists() and file.read_text() != asked:
        raise click.UsageError(f"{folder} holds results of other settings; choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(asked)


def small_images(folder: Path, size: int) -> np.ndarray:
    """Its PNG files, averaged down to a square: uint8 (N, 3, size, size)."""
    images = []
    for file in sorted(folder.glob("*.png")):
        image = Image.open(file).convert("RGB").resize((size, size), Image.Resampling.BOX)
        images.append(np.asarray(image).transpose(2, 0, 1))
    return np.stack(images)


def train(program: str, settings: Settings, out: Path) -> None:
    """`learn` in a process of its own, unless it was finished before."""
    folder = out / f"{program}-{settings['seed']}"
    file = folder / "seconds.jsonl"
    if file.exists() and file.read_text().count("\n") == settings["marks"]:
        return
    if folder.exists():  # half trained
        shutil.rmtree(folder)
        (out / "metrics.jsonl").unlink(missing_ok=True)  # which knows the folders' names
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=learn, args=(program, settings, folder))
    process.start()
    process.join()
    if process.exitcode:
        raise click.ClickException(f"{program} has failed, see above")


if __name__ == "__main__":
    main()
