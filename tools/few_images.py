"""What augmentation does for few pictures, for docs/few-images.md: trains a small network on some
and all of the bundled emoji, plainly and with each kind of augmentation, and compares them."""

import itertools
import json
import statistics
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import torch
from diagnostics import BLUE, FORMER, GREEN, GREY, PURPLE, VERMILION, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image
from running import each, stylegan

from stylegan.atomic import write_text
from stylegan.cli.choosing import bundled_data
from stylegan.cli.common import Command
from stylegan.cli.options import DEVICE, count_option, path_option
from stylegan.data import cached_store
from stylegan.files.loading import load_run
from stylegan.metrics import Subject, parse
from stylegan.metrics.neighbours import comparing, nearest, samples
from stylegan.report.history import RunHistory, read_run
from stylegan.run_folder import RunFolder, images_of

BASE = (  # the former quickstart with half of its channels, larger batches, and long
    *FORMER,
    "ema_half_life_kimg=5",
    "log_kimg=1",
    "snapshot_ticks=1",
    "network.channel_base=128",
    "network.max_channels=64",
    "schedule.stable_kimg=8",
    "schedule.fade_kimg=8",
    "schedule.total_kimg=400",
    "schedule.batch_size={4=32}",
    "schedule.tick_kimg={4=20}",
    "data.include=[]",
)
RULE = "r1_gamma=0.0064"  # 0.0002 * 32**2 / 32: the rule of Karras et al. 2020
SETS = (91, 300, 3916)  # numbers of pictures that augmentation is tried on
TITLES = {91: "91 smileys", 300: "300 of 843 portraits", 3916: "all 3,916 emoji", 78: "78 heads"}
KINDS = {"none": GREY, "diffaugment": BLUE, "ada": VERMILION}  # of augmentation
FOLDERS = {91: "smileys", 300: "portraits", 843: "portraits", 3916: "", 78: "heads"}
AGAINST = {300: 843}  # the pictures that samples are compared with, if not those trained on
TRANSFERS = {91: ("smileys", "heads"), 78: ("heads", "smileys")}  # and what it begins from
LOGGED = {"r_t": "d/real_signs", "p": "augment/probability"}
QUANTITIES = {  # that are drawn
    "eff-fd": "Frechet distance (eff-fd)",
    "eff-precision": "precision (eff-pr)",
    "eff-recall": "recall (eff-pr)",
    "r_t": "r_t, mean sign of D(real)",
    "p": "p of augmentation",
}
COPIES = 200  # samples whose nearest training pictures are looked for
NEAR = 0.5  # of the typical distance between training pictures: nearly a copy
Points = list[tuple[float, float]]  # kimg, value


class Run(NamedTuple):
    """One training run, and where it is drawn."""

    name: str
    figure: str  # file
    size: int  # number of pictures that it is trained on: the column
    label: str
    color: str
    options: tuple[str, ...]  # of the configuration
    arguments: tuple[str, ...] = ("--config", "quickstart")  # further ones of stylegan train
    source: str = ""  # the run whose weights it begins with
    every_kimg: int = 40  # from one generator that is measured to the next
    shown_kimg: tuple[int, ...] = (40, 80, 160, 240, 320, 400)  # rows of its picture

    @property
    def against(self) -> int:
        return AGAINST.get(self.size, self.size)


def all_runs(seeds: Sequence[int]) -> dict[str, Run]:
    """By their names, in the order of tables."""
    runs = []
    for seed, size, by_rule, kind in itertools.product(seeds, SETS, (False, True), KINDS):
        ending = ("-rule" if by_rule else "") + (f"-seed{seed}" if seed else "")
        options = (*BASE, *([RULE] if by_rule else []), f"seed={seed}", f'augment.kind="{kind}"')
        name, figure = f"{size}-{kind}{ending}", f"few-images{'-rule' if by_rule else ''}"
        runs.append(Run(name, figure, size, kind, KINDS[kind], options))
    return {run.name: run for run in (*runs, *transfers())}


def transfers() -> Iterator[Run]:
    """The former quickstart from scratch, from the other kind of picture, and from bundled weights,
    whose sizes it takes."""
    for size, (kind, other) in TRANSFERS.items():
        include = f'data.include=["{kind}"]'
        options = (*FORMER, include, "snapshot_ticks=1", "schedule.tick_kimg=4")
        begins = {  # label -> color, length, what it begins with, further arguments
            "scratch-40": (GREY, 40, "", ()),
            "scratch-80": (GREY, 80, "", ()),
            f"from-{other}": (BLUE, 40, f"{other}-scratch-40", ()),
            f"from-{other}-freeze16": (VERMILION, 40, f"{other}-scratch-40", ("--freeze-d", "16")),
            "from-emoji32": (GREEN, 40, "emoji32", ()),
            "from-emoji64": (PURPLE, 40, "emoji64", ()),
        }
        for label, (color, kimg, source, arguments) in begins.items():
            yield Run(
                f"{kind}-{label}",
                "few-images-transfer",
                size,
                label.replace(other, "other"),
                color,
                options,
                ("--kimg", f"{kimg}", *arguments),
                source,
                every_kimg=8,
                shown_kimg=(0, 4, 8, 16, 24, 40),
            )


def parse_runs(text: str) -> list[Run]:
    """Names as those of the run folders, in the order given."""
    known = all_runs(range(100))
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{unknown[0]!r} is not a run; as 91-none or 300-ada-rule-seed1 are")
    return [known[name] for name in names]


def unpack(folder: Path) -> None:
    """A folder of each number of pictures, which are evenly spread over those of their kind."""
    with zipfile.ZipFile(bundled_data()) as file:
        pictures = sorted(name for name in file.namelist() if name.endswith(".png"))
        for number, kind in FOLDERS.items():
            names = [name for name in pictures if f"{kind}/" in name]
            chosen = [names[i * len(names) // number] for i in range(number)]
            missing = [name for name in chosen if not (folder / f"{number}" / name).exists()]
            file.extractall(folder / f"{number}", missing)


def due(folder: Path, names: Sequence[str], every_kimg: int) -> list[Path]:
    """Generators that are to be measured and have not been: of every so many kimg, and the last."""
    history, files = read_run(folder), RunFolder(folder).generators()
    known = {(one.metric, one.images_seen) for one in history.measurements}
    wanted = [p for p in files if images_of(p) % (1000 * every_kimg) == 0 or p == files[-1]]
    return [p for p in wanted if any((name, images_of(p)) not in known for name in names)]


def scores(history: RunHistory, names: Sequence[str]) -> dict[str, Points]:
    """What was measured of the generators, over kimg."""
    found: dict[str, dict[float, float]] = defaultdict(dict)
    for one in history.measurements:
        if one.metric in names and one.kimg is not None and one.yardstick is None:
            for name, value in one.values.items():
                if value is not None:
                    found[name][one.kimg] = float(f"{value:.4g}")
    return {name: sorted(points.items()) for name, points in found.items()}


def logged(history: RunHistory) -> dict[str, Points]:
    """Means of what training logged, over kimg; nothing of what was always 0."""
    found = {}
    width = 10 if history.config.schedule.total_kimg > 100 else 2
    for name, key in LOGGED.items():
        parts: dict[float, list[float]] = defaultdict(list)
        for line in history.progress():
            if line.get(key) is not None:
                parts[-(-line["images_seen"] // (1000 * width)) * width].append(line[key])
        if any(any(values) for values in parts.values()):
            found[name] = [(kimg, round(statistics.fmean(ys), 3)) for kimg, ys in parts.items()]
    return found


def copies(folder: Path, data: Path, against: Path) -> dict[str, float]:
    """How near the newest samples are to training pictures, in units of the typical distance
    between these: median, share of near copies, and median of pictures not trained on."""
    loaded, config = load_run(folder), read_run(folder).config
    size = config.network.resolution
    subject = Subject.of(loaded, cached_store(data, resolution=size), mirror=config.data.mirror)
    network = comparing(subject)
    relative = nearest(samples(subject, COPIES), subject, network, 1).relative
    found = {"median": float(np.median(relative)), "near": float((relative < NEAR).mean())}
    trained = {image.tobytes() for image in subject.real_images()}
    images = cached_store(against, resolution=size).images(size)
    if others := [image for image in images if image.tobytes() not in trained]:
        some = torch.from_numpy(np.stack(others[:: -(-len(others) // COPIES)]))
        found["others"] = float(np.median(nearest(some, subject, network, 1).relative))
    return {name: round(value, 3) for name, value in found.items()}


def over_time(folder: Path, shown_kimg: Sequence[int]) -> Image.Image:
    """The first samples of some moments, and of the last one, a row each."""
    grids = {kimg: np.asarray(Image.open(path)) for kimg, path in RunFolder(folder).grids()}
    moments = dict.fromkeys([*(kimg for kimg in shown_kimg if kimg in grids), max(grids)])
    return Image.fromarray(np.concatenate([grids[k][: len(grids[k]) // 4] for k in moments]))


def draw(results: Mapping[Run, Mapping[str, Any]]) -> Figure:
    """A column for each number of pictures, a row for each quantity, a line for each run."""
    sizes = sorted({run.size for run in results})
    rows = {
        name: title
        for name, title in QUANTITIES.items()
        if any(name in result for result in results.values())
    }
    figure = Figure(figsize=(2 + 2.8 * len(sizes), 2 * len(rows)), dpi=90, layout="constrained")
    axes = figure.subplots(len(rows), len(sizes), sharex=True, sharey="row", squeeze=False)
    lines: dict[str, Line2D] = {}
    for row, (quantity, title) in zip(axes, rows.items(), strict=True):
        row[0].set_ylabel(title, fontsize=9)
        for panel, size in zip(row, sizes, strict=True):
            for run, result in results.items():
                if run.size == size:
                    x, y = np.array(result.get(quantity, [])).reshape(-1, 2).T
                    form = "-" if quantity in LOGGED else "o-"
                    (line,) = panel.plot(x, y, form, color=run.color, ms=3, lw=1.3)
                    lines.setdefault(run.label, line)
        for panel in row:  # after the lines of all, as they share their scale
            style_panel(panel, quantity)
    for panel, size in zip(axes[0], sizes, strict=True):
        panel.set_title(TITLES[size], fontsize=10, fontweight="bold", loc="left")
    for panel in axes[-1]:
        panel.set_xlabel("kimg", fontsize=9)
    shown, names = list(lines.values()), list(lines)
    figure.legend(shown, names, loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    return figure


def style_panel(panel: Axes, quantity: str) -> None:
    """Scales and frame as in docs/diagnostics.md."""
    if quantity == "eff-fd":
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:.0f}")
        panel.yaxis.set_minor_formatter("{x:.0f}")
    else:
        panel.set_ylim(bottom=0, top=1.02 if quantity == "r_t" else None)
    if quantity == "r_t":
        panel.axhline(0.6, color="#CCCCCC", lw=0.8, zorder=0)  # the target of ada
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8, which="both")


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown with a line for each run: its best and its last generator."""
    lines = ["| run | kimg | best eff-fd | at kimg | last eff-fd | precision | recall | r_t | p "]
    lines[0] += "| nearest training picture | near copies |"
    lines.append("|---" * 11 + "|")
    for name, result in results.items():
        distances = result.get("eff-fd", [])
        best = min(distances, key=lambda point: point[1], default=("-", "-"))
        last = [points[-1][1] if points else "-" for points in map(result.get, QUANTITIES)]
        found = result.get("copies", {})
        cells = [name, result["kimg"], best[1], best[0], *last]
        cells += [found.get("median", "-"), found.get("near", "-")]
        lines.append(f"| {' | '.join(f'{c:.4g}' if c != str(c) else c for c in cells)} |")
    return "\n".join(lines)


@click.command(cls=Command)
@click.option("--runs", help="As 300-ada-rule-seed1,heads-from-emoji64.  [default: all of seed 0]")
@click.option("--metrics", default="eff-fd1k,eff-pr1k", help="Measured of the generators.")
@click.option("--no-train", is_flag=True, help="Only measure and draw the runs that are there.")
@count_option("--jobs", "Number of runs at a time.", 2)
@DEVICE
@path_option("--out", "Folder of the runs.", "runs/few-images")
@path_option("--results", "Folder of few-images.json and the pictures.", "docs")
def main(
    runs: str | None,
    metrics: str,
    no_train: bool,
    jobs: int,
    device: str,
    out: Path,
    results: Path,
) -> None:
    """Train each kind of augmentation on each number of pictures, and compare them: with the
    quickstart's weight of R1, and with that of ADA's rule, which is a hundred times smaller.

    Each run is an ordinary run folder below OUT, made by `stylegan train` on one thread and
    measured by `stylegan metrics`. The same command continues where it was stopped. RESULTS gets
    few-images.json, which keeps what is known of runs that are not here, and pictures made of it.

    \b
    python tools/few_images.py --runs 300-none-rule,300-ada-rule
    """
    asked = parse_runs(runs) if runs else list(all_runs([0]).values())
    names, data = [request.name for request in parse(metrics)], out / "data"
    unpack(data)
    file = results / "few-images.json"
    known = json.loads(file.read_text()) if file.exists() else {}

    def finish(run: Run) -> dict[str, Any] | None:
        """Train and measure what is missing, as far as that is possible here."""
        folder, log = out / run.name, out / f"{run.name}.txt"
        trained_on, against = data / f"{run.size}", data / f"{run.against}"
        if not no_train:
            source = out / run.source if (out / run.source).is_dir() else run.source
            options: list[object] = [] if "--kimg" in run.arguments else ["--data", trained_on]
            options += [part for option in run.options for part in ("-o", option)]
            options += [*run.arguments, *(["--init-from", source] if run.source else [])]
            options += ["--device", device, "--track=none"]
            if problem := stylegan(log, "train", "--out", folder, *options):
                raise ValueError(f"{run.name}: {problem}")
        if not folder.is_dir() or not RunFolder(folder).generators():
            return None
        if files := due(folder, names, run.every_kimg):
            options = ["--metrics", ",".join(names), "--data", against, "--mirror"]
            options += ["--device", device, "--out", folder / "metrics.jsonl"]
            if problem := stylegan(log, "metrics", *files, *options):
                raise ValueError(f"{run.name}: {problem}")
        history = read_run(folder)
        found = {"kimg": history.images_seen / 1000, **logged(history), **scores(history, names)}
        old = known.get(run.name, {})
        is_new = "copies" not in old or old["kimg"] != found["kimg"]
        found["copies"] = copies(folder, trained_on, against) if is_new else old["copies"]
        click.echo(f"{run.name}: {found['kimg']:.4g} kimg")
        (results / "few-images").mkdir(parents=True, exist_ok=True)
        picture = over_time(folder, run.shown_kimg)
        picture.save(results / "few-images" / f"{run.name}.png", optimize=True)
        return found

    sources = [run for run in asked if not run.source]
    outcomes = each(sources, finish, jobs)  # what others begin with comes first
    outcomes |= each([run for run in asked if run.source], finish, jobs)
    known |= {run.name: found for run, found in outcomes.items() if found}
    every = {name: run for name, run in all_runs(range(100)).items() if name in known}
    known = {name: known[name] for name in every}
    write_text(file, json.dumps(known).replace("}, ", "},\n") + "\n")
    for figure in dict.fromkeys(run.figure for run in every.values()):
        drawn = {run: known[name] for name, run in every.items() if run.figure == figure}
        save(draw(drawn), results / f"{figure}.png")
    click.echo(table(known))


if __name__ == "__main__":
    main()
