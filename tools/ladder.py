"""Table 1 of the paper in small: trains its rows A to F with equal budgets and compares them."""

import itertools
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from running import each, stylegan

from stylegan import sampling
from stylegan.atomic import write_text
from stylegan.cli.common import Command
from stylegan.cli.options import DEVICE, count_option, path_option
from stylegan.config import (
    TrainConfig,
    build_config,
    config_names,
    merge,
    parse_override,
    read_config_file,
    to_toml,
)
from stylegan.figures import grid
from stylegan.files.loading import load_run
from stylegan.metrics import KINDS, Request, parse, score_name
from stylegan.report.history import read_run

PREFIX = "paper/table1-"
FILES = {name.removeprefix(PREFIX)[0]: name for name in config_names() if name.startswith(PREFIX)}
PUBLISHED_FID = {"a": 8.04, "b": 5.25, "c": 4.85, "d": 4.88, "e": 4.42, "f": 4.40}
NOTES = """Mean ± standard deviation over seeds (n - 1). Bold: ahead of every other row by more than
the largest of the deviations. *FFHQ at 1024x1024 after 25,000 kimg: not comparable, for the order
only. Half of the reals is at most as many images as there are."""
FACTS = {"kimg": "{:.4g}", "G parameters": "{:,.0f}", "minutes": "{:.1f}"}
PLAIN = {"psi": 1, "mixed": 1, "noise": "random", "seed": 0}  # defaults of stylegan metrics
SAMPLES = range(12)  # seeds, of each row
Scores = Mapping[str, float]


class Job(NamedTuple):
    """One run of the ladder."""

    seed: int
    row: str  # a to f

    @property
    def name(self) -> str:
        return f"{self.row}-seed{self.seed}"


def parse_jobs(text: str) -> list[Job]:
    """Rows with their seeds (0 if none are given), by seed: what is done early shows all rows."""
    jobs: set[Job] = set()
    for part in text.lower().split(","):
        match = re.fullmatch(r"\s*([a-f])(?:-([a-f]))?(?::(\d{1,3})(?:-(\d{1,3}))?)?\s*", part)
        first, last, low, high = match.groups() if match else ("b", "a", None, None)
        rows = [row for row in FILES if first <= row <= (last or first)]
        seeds = range(int(low or 0), int(high or low or 0) + 1)
        if not (rows and seeds):
            raise ValueError(f"{part!r} is not rows A to F with their seeds, as in A-D:0,E-F:0-2")
        jobs |= {Job(seed, row) for row in rows for seed in seeds}
    return sorted(jobs)


def row_configs(base: str, overrides: Sequence[str], rows: Sequence[str]) -> dict[str, TrainConfig]:
    """The base, which is row F in small, with what each row's file switches but for the data.
    ValueError if two are the same."""
    values = read_config_file(base)
    for override in overrides:
        values = merge(values, parse_override(override))
    switches = {row: {**read_config_file(FILES[row]), "data": {}} for row in rows}
    configs = {row: build_config(merge(values, switches[row])) for row in rows}
    for a, b in itertools.combinations(configs, 2):
        if configs[a] == configs[b]:
            raise ValueError(f"with {base} the rows {a.upper()} and {b.upper()} are the same")
    return configs


def scores_of(folder: Path, requests: Sequence[Request]) -> dict[str | None, dict[str, float]]:
    """Results for the last generator of a run, and for each yardstick, by the names requested."""
    run, found = read_run(folder), defaultdict[str | None, dict[str, float]](dict)
    for result in run.measurements:
        for request in requests:
            same = result.metric == request.name and result.images_seen == run.images_seen
            same = same and PLAIN.items() <= result.part("fakes").items()
            of_kind = parse(result.metric)[0].kind == request.kind  # of half of the reals fewer
            if of_kind if result.yardstick else same:
                named = {score_name(request.name, name): y for name, y in result.values.items()}
                found[result.yardstick] |= {k: y for k, y in named.items() if y is not None}
    return found


def facts_of(folder: Path) -> dict[str, float]:
    """What the training of a run took and made."""
    run, weights = read_run(folder), load_run(folder).generator.parameters()
    minutes = sum(session.seconds for session in run.sessions()) / 60
    parameters = sum(weight.numel() for weight in weights)
    return {"kimg": run.images_seen / 1000, "G parameters": parameters, "minutes": minutes}


def digits(value: float, number: int = 4) -> str:
    """A number with so many significant digits, but never fewer than the whole ones."""
    return f"{value:.0f}" if abs(value) >= 10**number - 0.5 else f"{value:.{number}g}"


def summary(values: Sequence[float]) -> str:
    """Mean and standard deviation (n - 1)."""
    mean = digits(statistics.fmean(values)) if values else "-"
    return mean + (f" ± {digits(statistics.stdev(values), 2)}" if len(values) > 1 else "")


def clearly_best(values: Mapping[str, Sequence[float]], sign: int) -> str | None:
    """The row whose mean, times `sign`, is lower than the next by more than any row's deviation."""
    means = sorted((sign * statistics.fmean(found), row) for row, found in values.items() if found)
    deviations = [statistics.stdev(found) for found in values.values() if len(found) > 1]
    clear = len(means) > 1 and deviations and means[1][0] - means[0][0] > max(deviations)
    return means[0][1] if clear else None


def table(
    outcomes: Mapping[Job, Scores | str],
    requests: Sequence[Request],
    yardsticks: Mapping[str | None, Scores],
) -> str:
    """Markdown with a line for each row, then the yardsticks, then why runs failed."""
    better = {
        score_name(request.name, name): "↓" if KINDS[request.kind].lower_is_better else "↑"
        for request in requests
        for best in [KINDS[request.kind].best_by]
        for name in (best, best.replace("precision", "recall"))
    }
    done = {job: found for job, found in outcomes.items() if not isinstance(found, str)}
    rows = sorted({job.row for job in outcomes})
    values = {
        name: {r: [y[name] for job, y in done.items() if job.row == r and name in y] for r in rows}
        for name in (*FACTS, *better)
    }
    best = {s: clearly_best(values[s], 1 if way == "↓" else -1) for s, way in better.items()}
    heads = ["", "configuration", "seeds", *FACTS, *(f"{s} {way}" for s, way in better.items())]
    lines = [[*heads, "FID published*"], ["---"] * (len(heads) + 1)]
    for row in rows:
        good, asked = (sum(job.row == row for job in jobs) for jobs in (done, outcomes))
        name = FILES[row].removeprefix(f"{PREFIX}{row}-")
        cells = [row.upper(), name, f"{good}" if good == asked else f"{good} of {asked}"]
        for fact, form in FACTS.items():
            found = values[fact][row]
            cells.append(form.format(statistics.fmean(found)) if found else "-")
        for score in better:
            text = summary(values[score][row])
            cells.append(f"**{text}**" if best[score] == row else text)
        lines.append([*cells, f"{PUBLISHED_FID[row]:.2f}"])
    for origin, scores in yardsticks.items():
        cells = [digits(scores[name]) if name in scores else "" for name in better]
        lines.append(["", f"{origin}", *[""] * (1 + len(FACTS)), *cells, ""])
    failed = [f"{job.name}: {why}" for job, why in outcomes.items() if isinstance(why, str)]
    markdown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([markdown, NOTES, *failed]) + "\n"


def write_samples(path: Path, folders: Mapping[str, Path]) -> None:
    """The same seeds of a run of each row, a row each."""
    pictures: list[np.ndarray] = []
    for folder in folders.values():
        pictures.extend(*sampling.generate(load_run(folder).generator, SAMPLES, batch=len(SAMPLES)))
    labels = [label for row in folders for label in [row.upper(), *[""] * (len(SAMPLES) - 1)]]
    grid(pictures, len(SAMPLES), labels).save(path)


@click.command(cls=Command)
@click.option("--data", help="Folder of images, zip, or prepared store.  [default: the emoji]")
@click.option("--base", default="ablation-32", help="Row F in small.")
@click.option("--rows", default="A-F", help="Rows with their seeds, as in A-D:0,E-F:0-2.")
@click.option("--metrics", default="eff-fd4000,swd2048,eff-pr2000", help="Columns of the table.")
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one option.")
@count_option("--jobs", "Number of runs at a time.", 2)
@DEVICE
@path_option("--out", "Folder of the runs and the table.", "runs/ladder")
@click.option("--dry-run", is_flag=True, help="Print the runs and how far they are.")
def main(
    data: str | None,
    base: str,
    rows: str,
    metrics: str,
    overrides: tuple[str, ...],
    jobs: int,
    device: str,
    out: Path,
    dry_run: bool,
) -> None:
    """Train the rows A to F of the paper's table 1 with equal budgets, and compare them.

    Each run is an ordinary run folder below OUT, made by `stylegan train` on one thread and
    measured by `stylegan metrics`. The same command continues where it was stopped, leaves finished
    runs as they are and adds further rows and seeds. OUT gets table.md and samples.png.

    \b
    python tools/ladder.py --rows A-D:0,E-F:0-2
    """
    asked, requests = parse_jobs(rows), parse(metrics)
    configs = row_configs(base, overrides, sorted({job.row for job in asked}))
    if dry_run:
        for job in asked:
            seen = read_run(out / job.name).images_seen if (out / job.name).is_dir() else 0
            total = configs[job.row].schedule.total_images
            click.echo(f"{job.name}: {seen / 1000:.4g} of {total / 1000:.4g} kimg")
        return
    out.mkdir(parents=True, exist_ok=True)
    for row, config in configs.items():
        write_text(out / f"{row}.toml", to_toml(config))

    def finish(job: Job) -> Scores | str:
        """Train and measure what is missing; its scores, or why there are none."""
        folder, log = out / job.name, out / f"{job.name}.txt"
        options = ["--config", out / f"{job.row}.toml", "--seed", job.seed, "--device", device]
        options += ["--data", data] if data else []
        problem = stylegan(log, "train", "--out", folder, *options, "--track=none")
        scores = {} if problem else scores_of(folder, requests)[None]
        known = {name.partition("/")[0] for name in scores}
        missing = [request.name for request in requests if request.name not in known]
        if missing and not problem:
            options = ["--metrics", ",".join(missing), "--device", device]
            options += ["--yardsticks"] if job == asked[0] else []
            problem = stylegan(log, "metrics", folder, *options)
        click.echo(f"{job.name}: {problem or 'finished'}")
        return problem or scores_of(folder, requests)[None] | facts_of(folder)

    outcomes = each(asked, finish, jobs)
    done = {job: out / job.name for job, found in outcomes.items() if not isinstance(found, str)}
    marks = scores_of(done[asked[0]], requests) if asked[0] in done else {}
    text = table(outcomes, requests, {name: found for name, found in marks.items() if name})
    write_text(out / "table.md", text)
    if done:
        write_samples(out / "samples.png", {job.row: done[job] for job in sorted(done)[::-1]})
    click.echo(text)
    if failed := len(asked) - len(done):
        raise ValueError(f"{failed} of {len(asked)} runs failed, see {out}/table.md")


if __name__ == "__main__":
    main()
