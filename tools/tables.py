"""Trains the rows of the paper's tables 1, 2 and 4 in small, measures them, and judges the claims
that docs/paper.md states."""

import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import click
import measures
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measures import LATENTS, Bench
from scipy import stats

import stylegan
from stylegan.cli.common import Command
from stylegan.cli.options import DEVICE
from stylegan.config import build_config, flatten, parse_options, read_options, to_dict, to_toml
from stylegan.figures import grid
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.report.history import read_run
from stylegan.utils.distributed import resolve_device
from stylegan.utils.filesystem import ALLOW_OVERWRITE
from stylegan.utils.text import pluralize

ROOT = Path(__file__).parents[1]
BASE = "ablation-32"
# Of each row: the paper's configuration whose switches it takes, the published FID, and the row
# that it changes by one thing.
ROWS = {
    "A": ("table1-a-baseline", 8.04, None),
    "B": ("table1-b-tuned", 5.25, "A"),
    "C": ("table1-c-styles", 4.85, "B"),
    "D": ("table1-d-constant-input", 4.88, "C"),
    "E": ("table1-e-noise", 4.42, "D"),
    "F": ("table1-f-mixing", 4.40, "E"),
    "mixing-50": ("table2-mixing-50", 4.41, "E"),
    "mixing-100": ("table2-mixing-100", 4.83, "E"),
    "mapping-0": ("table4-style-based-0", 5.06, "F"),
    "mapping-1": ("table4-style-based-1", 4.60, "F"),
    "mapping-2": ("table4-style-based-2", 4.43, "F"),
    "traditional-8": ("table4-traditional-8", 4.87, "B"),
}
PRIMARY = ("E", "F", "B", "A")
FAMILY = {"A": "A", "B": "B", "traditional-8": "B"}  # whose learning rates a row takes; else E's
SEEDS = 5
PILOT_SEED = 100  # of trainings that find the length and the learning rates, and serve nothing else
LENGTHS = (64.0, 96.0, 128.0)  # kimg, of which one is chosen
RATES_KIMG = 48.0
RATES = (1.0, 1 / 3)  # times those of the base


class Pair(NamedTuple):
    """Two numbers of which the paper says that the first is smaller."""

    text: str
    published: str
    first: tuple[str, str]  # row and number
    second: tuple[str, str]


# A claim holds if all of its pairs do.
CLAIMS = {
    "1": [
        Pair(
            "rise of the distance from one to three latents, F against E",
            "FID 2.48 / 8.46",
            ("F", "rise"),
            ("E", "rise"),
        )
    ],
    "2": [
        Pair(
            "logarithm of path length, w against z",
            "5.78 / 6.80 (traditional, 8 layers)",
            ("F", "log path w"),
            ("F", "log path z"),
        ),
        Pair(
            "H(Y given X) / H(Y), w against z",
            "separability 6.52 / 170.29 (traditional, 8 layers)",
            ("F", "planes w"),
            ("F", "planes z"),
        ),
    ],
    "3": [
        Pair(
            "part in coarse bands, fine noise against coarse",
            "figure 5",
            ("F", "fine"),
            ("F", "coarse"),
        ),
        Pair(
            "part of images' variance there, against 0.01",
            "figures 4, 5",
            ("F", "fine of images"),
            ("F", "0.01"),
        ),
    ],
    "4": [
        Pair(
            "precision, psi 1 against 0.5", "figure 8", ("F", "precision 1"), ("F", "precision 0.5")
        ),
        Pair("recall, psi 0.5 against 1", "figure 8", ("F", "recall 0.5"), ("F", "recall 1")),
    ],
    "5": [Pair("distance, B against A", "FID 5.25 / 8.04", ("B", "distance"), ("A", "distance"))],
}
LEVEL = 0.05  # of all claims together
TABLES = {  # title -> columns: numbers of a row
    "Table 1": ("distance", "held-out distance", "precision 1", "recall 1"),
    "Table 2: distance by number of latents per image": tuple(f"latents {n}" for n in LATENTS),
    "Table 4": ("path z", "path w", "planes z", "planes w", "mapping moved"),
    "Figures 4 and 5: variance by noise of coarse and of fine layers, over that of images": (
        "coarse in coarse bands",
        "coarse in fine bands",
        "fine in coarse bands",
        "fine in fine bands",
    ),
}
FIGURES = {
    "distance.png": "Distance over time, mean and range over seeds",
    "truncation.png": "Precision and recall over psi in row F, mean and range over seeds",
    "samples.png": "Samples of the same latents, seed 0 of each row",
}
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # Okabe and Ito's
MARKERS = ("<!-- tables: begin -->", "<!-- tables: end -->")
Record = dict[str, Any]  # what the JSON file of a training holds
Numbers = Mapping[str, Mapping[int, Mapping[str, float]]]  # row -> seed -> name -> value


@dataclass(frozen=True)
class Job:
    """One training."""

    row: str
    seed: int
    kimg: float
    rates: float = 1.0
    points: int = 4  # times at which the distance is measured
    base: str = BASE
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        pilot = "" if self.rates == 1 else "-slower" if self.rates < 1 else "-faster"
        return f"{self.row}-seed{self.seed}{pilot if self.seed == PILOT_SEED else ''}"

    def values(self) -> dict[str, Any]:
        """The base, with the switches of the row's file but for the data, the rates and length."""
        values = read_options(self.base) | {"seed": self.seed, "schedule.total_kimg": self.kimg}
        switches = read_options(f"paper/{ROWS[self.row][0]}")
        values |= {name: y for name, y in switches.items() if not name.startswith("data.")}
        values |= {"schedule.tick_kimg": {4: self.kimg / self.points}, "snapshot_ticks": 1}
        for name in ("schedule.g_lr", "schedule.d_lr"):
            values[name] = {k: round(self.rates * rate, 6) for k, rate in values[name].items()}
        return values | dict(self.options)


def sized(base: str, resolution: int, overrides: Sequence[str]) -> dict[str, object]:
    """Options of another resolution, whose full size has as many channels as the base's."""
    options = read_options(base)
    channels = options["network.channel_base"] * resolution // options["network.resolution"]
    size = {"network.resolution": resolution, "network.channel_base": channels}
    return size | parse_options(overrides)


def pilots_of_rates(
    rows: Sequence[str], rates: Sequence[float], kimg: float | None, make: Callable[..., Job]
) -> list[Job]:
    """Short trainings of rows with each of the `rates`, times those of the base."""
    short = RATES_KIMG if kimg is None else min(RATES_KIMG, kimg)
    return [make(row, PILOT_SEED, short, x, points=3) for row in rows for x in rates]


def pilots(kimg: float | None, make: Callable[..., Job]) -> list[Job]:
    """Trainings that find the learning rates, and the length unless it is given."""
    jobs = pilots_of_rates("EBA", RATES, kimg, make)
    if kimg is None:  # the long one serves both
        jobs[0] = make("E", PILOT_SEED, LENGTHS[-1], points=8)
    return jobs


def value_at(record: Record, kimg: float) -> float:
    """The distance that was measured nearest to that time."""
    return float(record["curve"][min(record["curve"], key=lambda key: abs(float(key) - kimg))])


def chosen_length(records: Mapping[str, Record]) -> float:
    """The first length from which the distance falls by less than a tenth, else the longest."""
    pilot = records[f"E-seed{PILOT_SEED}"]
    for kimg, longer in itertools.pairwise(LENGTHS):
        if value_at(pilot, longer) > 0.9 * value_at(pilot, kimg):
            return kimg
    return LENGTHS[-1]


def chosen_rates(records: Mapping[str, Record], row: str) -> float:
    """Of the row's family those with the smaller distance in the pilots."""
    names = {x: Job(FAMILY.get(row, "E"), PILOT_SEED, RATES_KIMG, x).name for x in RATES}
    return min(RATES, key=lambda x: value_at(records[names[x]], RATES_KIMG))


def full_trainings(
    rows: Sequence[str],
    seeds: int,
    kimg: float | None,
    records: Mapping[str, Record],
    make: Callable[..., Job],
) -> list[Job]:
    """Trainings of rows with each seed, as long and with the rates that the pilots chose."""
    length = kimg or chosen_length(records)
    return [
        make(row, seed, length, chosen_rates(records, row)) for seed in range(seeds) for row in rows
    ]


def carry_out(job: Job, bench: Bench, out: Path, records: Path) -> str:
    """Train and measure as far as that was not done; what to say of it."""
    torch.set_num_threads(1)
    file = records / f"{job.name}.json"
    folder = out / job.name
    record = read_record(file) if file.exists() else trained(job, bench, folder)
    generators = RunFolder(folder).generators()
    for path in generators:
        kimg = f"{int(path.stem.rpartition('-')[2]) / 1000:g}"
        if kimg not in record["curve"]:
            record["curve"][kimg] = bench.distance_to(path, bench.data)
            write_record(file, record)
    network = to_dict(RunFolder(folder).config())["network"]
    parts = {} if job.seed == PILOT_SEED else measures.parts_of(network, bench)
    for name, part in parts.items():
        if name not in record["measured"]:
            record["measured"][name] = part(generators[-1], bench)
            write_record(file, record)
    write_record(file, record | {"done": True})
    return f"{bench.distance} {list(record['curve'].values())[-1]:.1f} after {job.kimg:g} kimg"


def trained(job: Job, bench: Bench, folder: Path) -> Record:
    """The training, by the package's command, which continues what was begun."""
    config = build_config(job.values())
    file = str(folder.with_suffix(".toml"))
    ALLOW_OVERWRITE.text(Path(file), to_toml(config))
    command = [sys.executable, "-m", "stylegan", "train", "--config", file, "--threads", "1"]
    command += ["--data", str(bench.data), "--out", str(folder), "--device", bench.device]
    command += ["--no-preflight", "--no-tensorboard"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with folder.with_suffix(".txt").open("a") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=log, check=True)
    history = read_run(folder)
    return {
        "row": job.row,
        "seed": job.seed,
        "rates": job.rates,
        "kimg": history.images_seen / 1000,
        **conditions(job, bench),
        "hours": sum(session.seconds for session in history.sessions()) / 3600,
        "machine": machine(bench.device),
        "curve": {},  # kimg -> distance
        "measured": {},
    }


def conditions(job: Job, bench: Bench) -> Record:
    """Settings and data that two trainings must share to be the same."""
    base = flatten(to_dict(build_config(read_options(job.base))))
    config = flatten(to_dict(build_config(job.values())))
    return {
        "differences": {name: value for name, value in config.items() if value != base[name]},
        "distance": f"{bench.distance}{bench.samples}",
        "data": bench.about(),
    }


def machine(device: str) -> dict[str, object]:
    """Processor or GPU, threads, and versions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor()
    commit = commit_of(Path(stylegan.__file__).parent)
    return {
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else processor,
        "threads": 1,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "stylegan": f"{stylegan.__version__} {commit}".strip(),
    }


def commit_of(folder: Path) -> str:
    """The commit that is checked out, with `-dirty` if tracked files differ from it; empty outside
    of a repository."""
    git = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--exclude=*"]
    git += ["--dirty"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def write_record(file: Path, record: Record) -> None:
    ALLOW_OVERWRITE.text(file, json.dumps(record, indent=1) + "\n")


def read_record(file: Path) -> Record:
    return json.loads(file.read_text("utf-8"))


def read_records(*folders: Path) -> dict[str, Record]:
    """Finished trainings by name; those of later folders win."""
    files = [file for folder in folders for file in sorted(folder.glob("*.json"))]
    records = {file.stem: read_record(file) for file in files}
    return {name: record for name, record in records.items() if "done" in record}


def attributes(records: Mapping[str, Record]) -> list[str]:
    """Those read rightly in nine of ten unseen images, and neither rare nor usual in any primary
    training, or, should there be none, in any of row F. Further rows change no verdict."""
    primary = [record for record in records.values() if record["row"] in PRIMARY]
    read = [record for record in primary if "separability" in record["measured"]]
    for some in (read, [record for record in read if record["row"] == "F"]):
        found = [record["measured"]["separability"] for record in some]
        names = [
            name
            for name in (found[0] if found else ())
            if all(x[name]["accuracy"] >= 0.9 for x in found)
            and all(0.1 <= x[name]["prevalence"] <= 0.9 for x in found)
        ]
        if names:
            return names
    return []


def numbers_of(measured: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    """What was measured of a training, by the names that CLAIMS and TABLES use; `names` are those
    of attributes."""
    found = {"0.01": 0.01}
    if "mapping moved" in measured:
        found["mapping moved"] = measured["mapping moved"]
    latents = measured.get("distances", {}).get("training", {})
    found |= {f"latents {n}": distance for n, distance in latents.items()}
    if latents:
        found["distance"] = latents["1"]
    if "3" in latents:
        found["rise"] = latents["3"] - latents["1"]
    if "held-out" in measured.get("distances", {}):
        found["held-out distance"] = measured["distances"]["held-out"]["1"]
    for space in "zw":
        lengths = measured.get("path lengths", {})
        if space in lengths:
            found[f"path {space}"] = lengths[space]
            if lengths[space] > 0:
                found[f"log path {space}"] = np.log(lengths[space])
        planes = [measured.get("separability", {}).get(name, {}) for name in names]
        if planes and all(space in plane and plane["entropy"] for plane in planes):
            found[f"planes {space}"] = fmean(plane[space] / plane["entropy"] for plane in planes)
    for name in ("precision", "recall"):
        for psi, value in measured.get("truncation", {}).get(name, {}).items():
            found[f"{name} {psi}"] = value
    if "noise" in measured:
        found |= shares_of_noise(measured["noise"])
    return found


def shares_of_noise(noise: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Numbers of `noise_bands`. Shares of no variance at all are left out: noise of layers that a
    short training has not reached changes nothing."""
    images = noise["images"]
    limit = max(map(int, images)) // 4  # pixels a side of the finest coarse band
    bands = {
        "coarse": [side for side in images if int(side) <= limit],
        "fine": [side for side in images if int(side) > limit],
    }
    shares = {}
    for layers in ("coarse", "fine"):
        variance = noise[layers]
        for name, sides in bands.items():
            if whole := sum(images[side] for side in sides):
                shares[f"{layers} in {name} bands"] = sum(variance[side] for side in sides) / whole
        if whole := sum(variance.values()):
            shares[layers] = sum(variance[side] for side in bands["coarse"]) / whole
    if "fine in coarse bands" in shares:
        shares["fine of images"] = shares["fine in coarse bands"]
    return shares


def numbers_by_row(records: Mapping[str, Record]) -> Numbers:
    """Of all trainings but the pilots."""
    names = attributes(records)
    rows: dict[str, dict[int, dict[str, float]]] = {row: {} for row in ROWS}
    for record in records.values():
        if record["seed"] != PILOT_SEED:
            rows[record["row"]][record["seed"]] = numbers_of(record["measured"], names)
    return rows


def over_seeds(numbers: Numbers, row: str, name: str) -> dict[int, float]:
    """A number of a row for each seed that has it."""
    return {seed: found[name] for seed, found in numbers[row].items() if name in found}


class Interval(NamedTuple):
    """Mean of a difference, its 95 % interval, and the two-sided p of no difference."""

    difference: float
    low: float
    high: float
    p: float


def interval(
    first: Mapping[int, float], second: Mapping[int, float], *, paired: bool
) -> Interval | None:
    """Of `first` - `second`, values by seed: paired t, or Welch's. None of fewer than two seeds."""
    if paired:
        both = sorted(first.keys() & second.keys())
        first = {seed: first[seed] for seed in both}
        second = {seed: second[seed] for seed in both}
    a = list(first.values())
    b = list(second.values())
    if min(len(a), len(b)) < 2:
        return None
    test = stats.ttest_rel(a, b) if paired else stats.ttest_ind(a, b, equal_var=False)
    bounds = test.confidence_interval(0.95)
    return Interval(fmean(a) - fmean(b), float(bounds.low), float(bounds.high), float(test.pvalue))


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusted p: those below a level are wrong, any of them, with at most that chance."""
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for rank, i in enumerate(np.argsort(ps)):
        largest = max(largest, min((len(ps) - rank) * ps[i], 1.0))
        adjusted[i] = largest
    return adjusted


def verdict(intervals: Sequence[Interval], p: float) -> str:
    """Of a claim whose lines have these intervals, with its p adjusted."""
    if any(x.low > 0 for x in intervals):
        return "not seen: the opposite"
    return "**seen**" if p < LEVEL and all(x.high < 0 for x in intervals) else "undecided"


def claims_table(numbers: Numbers) -> str:
    """Verdicts only when all claims have all seeds, for Holm's correction is over all of them."""
    header = ["claim", "the first should be smaller", "published", "means here"]
    lines = [[*header, "difference (95 %)", "p (Holm)", "verdict"]]
    found = {}
    seeds = {}
    for claim, parts in CLAIMS.items():
        sides = [
            [over_seeds(numbers, *pair.first), over_seeds(numbers, *pair.second)] for pair in parts
        ]
        paired = [pair.first[0] == pair.second[0] for pair in parts]
        found[claim] = [
            interval(*side, paired=together) for side, together in zip(sides, paired, strict=True)
        ]
        seeds[claim] = min(len(values) for side in sides for values in side)
        for pair, side, x in zip(parts, sides, found[claim], strict=True):
            means = " / ".join(f"{fmean(y.values()):.3g}" if y else "-" for y in side)
            difference = f"{x.difference:.3g} ({x.low:.3g} to {x.high:.3g})" if x else "-"
            state = f"{seeds[claim]} of {SEEDS} seeds"
            lines.append([claim, pair.text, pair.published, means, difference, "", state])
    known = {claim: [x for x in of if x] for claim, of in found.items()}
    if min(seeds.values()) >= SEEDS:
        adjusted = dict(
            zip(CLAIMS, holm([max(x.p for x in of) for of in known.values()]), strict=True)
        )
        for line in lines[1:]:
            line[-2:] = f"{adjusted[line[0]]:.2g}", verdict(known[line[0]], adjusted[line[0]])
    return markdown(lines)


def change(numbers: Numbers, row: str) -> str:
    """The relative difference of the distance from the row that this one changes by one thing, and,
    from three seeds on, whether the paper's direction is seen. (A primary claim decides for B.)"""
    _, fid, other = ROWS[row]
    distances = [over_seeds(numbers, name, "distance") for name in (row, other) if name]
    x = interval(*distances, paired=False) if len(distances) == 2 else None
    if other is None or x is None:
        return "-"
    mean = fmean(distances[1].values())
    shown = f"{x.difference / mean:+.0%} ({x.low / mean:+.0%} to {x.high / mean:+.0%}) from {other}"
    published = fid / ROWS[other][1] - 1
    shown += f"; published {published:+.1%}"
    moved = over_seeds(numbers, "F", "mapping moved").values()
    if row in PRIMARY or min(map(len, distances)) < 3:
        return shown
    if row.startswith("mapping") and moved and fmean(moved) < 0.1:
        return f"{shown}; not testable at this length"
    if x.high < 0 < -published or x.low > 0 < published:
        return f"{shown}; seen"
    excluded = not x.low <= published * mean <= x.high
    return f"{shown}; {'not seen: the published one is excluded' if excluded else 'undecided'}"


def spread(values: Mapping[int, float]) -> str:
    """Mean and standard deviation over seeds."""
    deviation = f" ± {stdev(values.values()):.2g}" if len(values) > 1 else ""
    return f"{fmean(values.values()):.3g}{deviation}" if values else "-"


def row_tables(numbers: Numbers) -> list[str]:
    """TABLES, of the rows that have such numbers, and the changes from row to row."""
    found = {}
    for title, columns in TABLES.items():
        lines = [["row", "seeds", *columns]]
        for row, of_row in numbers.items():
            cells = [spread(over_seeds(numbers, row, name)) for name in columns]
            if set(cells) != {"-"}:
                lines.append([row, str(len(of_row)), *cells])
        found[title] = lines
    changes = [[row, f"{ROWS[row][1]:.2f}", change(numbers, row)] for row in ROWS if numbers[row]]
    header = ["row", "published FID", "distance against the row that it changes by one thing"]
    found["One thing changed"] = [header, *changes]
    return [f"**{title}**\n\n{markdown(lines)}" for title, lines in found.items() if lines[1:]]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([rows[0], "|" + " --- |" * len(lines[0]), *rows[1:]])


def report(records: Mapping[str, Record]) -> str:
    """All tables, with what is missing."""
    if not records:
        return "Nothing is trained yet."
    numbers = numbers_by_row(records)
    primary = sum(len(numbers[row]) for row in PRIMARY)
    further = sum(map(len, numbers.values())) - primary
    devices = sorted({str(r["machine"]["device"]) for r in records.values()})
    hours = sum(r["hours"] for r in records.values())
    facts = f"Finished: {primary} of {len(PRIMARY) * SEEDS} primary trainings, {further} others, "
    facts += f"{len(records) - primary - further} pilots; "
    facts += f"{hours:.1f} hours of one core or GPU ({', '.join(devices) or 'none yet'})."
    curves = [["pilot of length and rates", "kimg: distance"]]
    for name, record in records.items():
        if record["seed"] == PILOT_SEED:
            points = sorted((float(kimg), y) for kimg, y in record["curve"].items())
            curves.append([name, ", ".join(f"{kimg:.0f}: {y:.0f}" for kimg, y in points)])
    names = ", ".join(attributes(records)) or "none yet"
    tables = [claims_table(numbers), *row_tables(numbers), markdown(curves)]
    return "\n\n".join([facts, *tables, f"Attributes of the planes: {names}."])


def put_into(page: Path, text: str, figures: Path) -> None:
    """Write the text and links to the FIGURES that there are between the markers of a page."""
    for name, what in FIGURES.items():
        if (figures / name).is_file():
            text += f"\n\n![{what}]({os.path.relpath(figures / name, page.parent)})"
    before, begin, rest = page.read_text(encoding="utf-8").partition(MARKERS[0])
    _, end, after = rest.partition(MARKERS[1])
    if not begin or not end:
        raise ValueError(f"{page} lacks the lines {MARKERS[0]} and {MARKERS[1]}")
    ALLOW_OVERWRITE.text(page, f"{before}{begin}\n\n{text}\n\n{end}{after}")


def draw(records: Mapping[str, Record], out: Path) -> None:
    """Distance over time of rows A, B, E and F, and precision and recall over psi of row F."""
    final = [record for record in records.values() if record["seed"] != PILOT_SEED]
    curves = {row: [r["curve"] for r in final if r["row"] == row] for row in "BEFA"}
    swept = [r["measured"].get("truncation", {}) for r in final if r["row"] == "F"]
    over_psi = {name: [x[name] for x in swept if x] for name in ("precision", "recall")}
    for file, x, y, lines in (
        ("distance", "kimg", next((r["distance"] for r in final), ""), curves),
        ("truncation", "psi", "", over_psi),
    ):
        figure = Figure(figsize=(6, 3.5), dpi=120, layout="constrained")
        axes = figure.add_subplot(xlabel=x, ylabel=y)
        for (name, values), color in zip(lines.items(), COLORS, strict=False):
            draw_band(axes, name, values, color)
        if axes.lines:
            axes.legend(frameon=False)
            figure.savefig(out / f"{file}.png")


def draw_band(axes: Axes, name: str, curves: Sequence[Mapping[str, float]], color: str) -> None:
    """The mean of curves within their smallest and largest values."""
    if curves:
        x = sorted(curves[0], key=float)
        y = np.array([[curve[key] for key in x] for curve in curves])
        axes.plot(
            [*map(float, x)], y.mean(0), color=color, label=f"{name} ({pluralize(len(y), 'seed')})"
        )
        axes.fill_between([*map(float, x)], y.min(0), y.max(0), color=color, alpha=0.2, lw=0)


def draw_samples(records: Mapping[str, Record], out: Path, file: Path) -> None:
    """16 samples of the same latents for seed 0 of each row that is finished, a row each."""
    images: list[np.ndarray] = []
    labels: list[str] = []
    for row in ROWS:
        if f"{row}-seed0" in records and RunFolder(out / f"{row}-seed0").generators():
            loaded = open_weights(out / f"{row}-seed0").require_loaded()
            images.extend(loaded.generate(range(16), psi=1, cutoff="all"))
            labels += [row, *[""] * 15]
    if images:
        grid(images, 16, labels).save(file)


def carry_out_all(
    jobs: Sequence[Job], bench: Bench, out: Path, records: Path, processes: int
) -> None:
    """Carry out jobs in their order, so many at once, and say what is left."""
    known = read_records(records)
    left = [job for job in jobs if job.name not in known]
    for job in (job for job in jobs if job.name in known):
        for name, value in json.loads(json.dumps(conditions(job, bench))).items():
            if known[job.name].get(name) != value:
                raise click.ClickException(
                    f"{records / job.name}.json has other {name}: {known[job.name].get(name)}; now "
                    f"{value}; choose another --out"
                )
    click.echo(f"{len(jobs) - len(left)} of {len(jobs)} trainings are done")
    began = time.monotonic()
    failed = []
    spawn = get_context("spawn")  # a fork would inherit threads
    with ProcessPoolExecutor(processes, mp_context=spawn, max_tasks_per_child=1) as pool:
        running = {pool.submit(carry_out, job, bench, out, records): job for job in left}
        for done, future in enumerate(as_completed(running), start=1):
            hours = (time.monotonic() - began) / 3600 / done * (len(left) - done)
            name = running[future].name
            failed += [name] if future.exception() else []
            said = str(future.exception() or future.result())
            click.echo(f"{name}: {said}; {len(left) - done} left, about {hours:.1f} hours")
    if failed:
        raise click.ClickException(f"not done: {', '.join(failed)}; run this again")


@click.command(cls=Command)
@click.option("--data", type=click.Path(path_type=Path), help="Folder of training images.")
@click.option("--held-out", type=click.Path(path_type=Path), help="Images that no network sees.")
@click.option("--base", default=BASE, show_default=True, help="Configuration of row F in small.")
@click.option("--rows", default=",".join(PRIMARY), show_default=True, help="Rows to train.")
@click.option("--seeds", type=click.IntRange(1), default=SEEDS, help="Number of seeds of a row.")
@click.option("--kimg", type=float, help="Length.  [default: found by a pilot]")
@click.option(
    "--pilot-rates",
    type=click.FloatRange(0, min_open=True),
    help="Only pilots, of so many times the learning rates.",
)
@click.option("--resolution", type=int, default=32, show_default=True, help="Of the networks.")
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one option.")
@click.option("--samples", type=click.IntRange(100), default=2000, help="Number of samples.")
@click.option("--distance", default="eff-fd", show_default=True, help="Metric that is compared.")
@click.option("--processes", type=click.IntRange(1), default=1, help="Number of trainings at once.")
@click.option("--train/--no-train", default=True, help="Or only write what is measured already.")
@click.option("--records", type=click.Path(path_type=Path), help="Folder of results.")
@click.option("--page", type=click.Path(path_type=Path), help="Page that gets the tables.")
@DEVICE
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/tables"))
def main(
    data: Path | None,
    held_out: Path | None,
    base: str,
    rows: str,
    seeds: int,
    kimg: float | None,
    pilot_rates: float | None,
    resolution: int,
    overrides: tuple[str, ...],
    samples: int,
    distance: str,
    processes: int,
    train: bool,
    records: Path | None,
    page: Path | None,
    device: str,
    out: Path,
) -> None:
    """Train rows of the paper's tables in small, measure them, and write tables and figures.

    The same command continues where it was stopped, and adds rows and seeds. OUT gets a run folder
    for each training; RECORDS (OUT/records) gets results, figures and, without PAGE, tables.md.

    \b
    python tools/tables.py --data faces64/training --held-out faces64/held-out
    """
    records = records or out / "records"
    for folder in (out, records):
        folder.mkdir(parents=True, exist_ok=True)
    device = str(resolve_device(device))
    if train and not data:
        raise click.UsageError("training needs --data; --no-train writes what is measured already")
    names = rows.split(",")
    if unknown := [row for row in names if row not in ROWS]:
        raise click.UsageError(f"--rows {unknown[0]}: expected some of {', '.join(ROWS)}")
    if train and data:
        bench = Bench(
            data, held_out, out / "readers", out / "features", resolution, device, samples, distance
        )
        torch.set_num_threads(1)
        make = partial(Job, base=base, options=sized(base, resolution, overrides))
        published = ROOT / "docs" / "tables"  # its pilots serve others, too
        bench.prepare()  # once, before several processes would
        if pilot_rates:
            jobs = pilots_of_rates(names, [pilot_rates], kimg, make)
        else:
            known = read_records(published, records)
            missing = [job for job in pilots(kimg, make) if job.name not in known]
            carry_out_all(missing, bench, out, records, processes)
            jobs = full_trainings(names, seeds, kimg, read_records(published, records), make)
        carry_out_all(jobs, bench, out, records, processes)
    found = read_records(records)
    text = report(found)
    draw(found, records)
    draw_samples(found, out, records / "samples.png")
    if page:
        put_into(page, text, records)
    else:
        ALLOW_OVERWRITE.text(records / "tables.md", text + "\n")
    click.echo(text)


if __name__ == "__main__":
    main()
