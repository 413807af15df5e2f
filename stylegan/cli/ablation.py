"""`stylegan ablation`: table 1 of the paper at a small size."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import torch
from torch import Tensor

from stylegan.ablation import (
    Job,
    Outcome,
    parse_jobs,
    results,
    row_configs,
    table,
    training_seconds,
)
from stylegan.atomic import replacing, write_text
from stylegan.cli.common import Command, data_option, use_device
from stylegan.cli.ladder import Ladder, train_all
from stylegan.cli.measuring import keep, marks, measuring_tools, note
from stylegan.cli.train import BUNDLED_DATA
from stylegan.config import bundled
from stylegan.data import Store
from stylegan.figures import grid
from stylegan.files.loading import load_source
from stylegan.metrics import KINDS, Request, Result, Subject, Tools, evaluate, parse
from stylegan.metrics.own import network_of
from stylegan.records import read_lines
from stylegan.run_folder import RunFolder
from stylegan.training.plan import duration
from stylegan.version import __version__

DEFAULT_BASE = "ablation-32"
DEFAULT_METRICS = "own-fd4000,swd2048,own-pr2000"
YARDSTICKS_FILE = "yardsticks.jsonl"
SAMPLES = 12  # pictures of each row


@click.command(cls=Command)
@data_option("the bundled emoji")
@click.option(
    "--base",
    default=DEFAULT_BASE,
    show_default=True,
    help="Configuration F in small: name under configs/, or a TOML file.",
)
@click.option(
    "--rows", default="A-F", show_default=True, help="Rows, with their seeds: A-D,E-F:0-2."
)
@click.option("--metrics", "names", default=DEFAULT_METRICS, show_default=True)
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one option.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Runs at a time, each on one thread.",
)
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:2, mps.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/ablation"),
    show_default=True,
    help="Folder of the runs and the table.",
)
@click.option("--dry-run", is_flag=True, help="Print the runs and their time, train nothing.")
def ablation(
    data: Path | None,
    base: str,
    rows: str,
    names: str,
    overrides: tuple[str, ...],
    jobs: int,
    device: str,
    out: Path,
    dry_run: bool,
) -> None:
    """Train the rows A-F of the paper's table 1 with equal budgets, and compare them.

    Each run is an ordinary run folder below OUT. The same command goes on where it was stopped,
    leaves finished runs as they are, and takes further rows and seeds in. OUT gets table.md,
    results.json and samples.png.

    \b
    stylegan ablation --rows A-D:0,E-F:0-2
    stylegan ablation --data photos/ --rows A,C,F --base my.toml --out runs/ladder
    """
    asked, requests, chosen = parse_jobs(rows), parse(names), use_device(device)
    configs = row_configs(base, overrides, [job.row for job in asked])
    ladder = Ladder(out, data or bundled(BUNDLED_DATA), configs, device)
    ladder.check()
    todo = [job for job in asked if not ladder.finished(job)]
    click.echo("\n".join(plan_lines(ladder, asked, todo, jobs)))
    if dry_run:
        return
    store = ladder.store()
    ladder.write_configs()
    failed = train_all(ladder, todo, jobs)
    found = measure(ladder, [job for job in asked if job not in failed], store, requests, chosen)
    found.outcomes |= {job: Outcome(failed=why) for job, why in failed.items()}
    write_results(out, found, requests)
    if failed:
        raise ValueError(f"{len(failed)} of {len(asked)} runs failed, see {out / 'table.md'}")


def plan_lines(ladder: Ladder, asked: Sequence[Job], todo: Sequence[Job], jobs: int) -> list[str]:
    """The runs, and the time that is left as far as the runs so far tell."""
    lines, left, images, seconds = [], 0, 0, 0.0
    for job in asked:
        timed, took = training_seconds(ladder.folder(job))
        seen = max(timed, ladder.saved_images(job))
        total = ladder.configs[job.row].schedule.total_images
        state = f"{seen / 1000:.4g} kimg so far" if seen else "not begun"
        lines.append(f"{job.name}: {total / 1000:.4g} kimg, {state if job in todo else 'finished'}")
        left += max(total - seen, 0) if job in todo else 0
        images, seconds = images + timed, seconds + took
    rate = f", about {duration(left * seconds / images / jobs)}" if images and left else ""
    count = f"{len(todo)} of {len(asked)} runs to train, {jobs} at a time"
    return [*lines, f"{count}: {left / 1000:.4g} kimg{rate}"]


@dataclass
class Found:
    """What the finished runs of a ladder show."""

    outcomes: dict[Job, Outcome] = field(default_factory=dict)
    pictures: dict[str, Tensor] = field(default_factory=dict)  # of the first seed of each row
    yardsticks: dict[str, dict[str, float]] = field(default_factory=dict)


def measure(
    ladder: Ladder,
    jobs: Sequence[Job],
    store: Store,
    requests: Sequence[Request],
    device: torch.device,
) -> Found:
    """All on the same images, with the same program and network."""
    found = Found()
    tools = measuring_tools()
    for job in jobs:
        folder = ladder.folder(job)
        loaded = load_source(folder, map_location=device)
        subject = Subject(
            loaded.generator,
            store,
            mirror=ladder.configs[job.row].data.mirror,
            origin=loaded.origin,
            images_seen=loaded.images_seen,
        )
        found.outcomes[job] = Outcome(
            loaded.images_seen or 0,
            training_seconds(folder)[1],
            sum(weight.numel() for weight in loaded.generator.parameters()),
            scores_of(results_of(subject, requests, RunFolder(folder).metrics_file, tools)),
        )
        click.echo(f"{job.name}: measured")
        if job.row not in found.pictures:
            found.pictures[job.row] = torch.cat(list(subject.fakes(SAMPLES)))
    if jobs:
        file = ladder.out / YARDSTICKS_FILE
        found.yardsticks = yardstick_scores(subject, requests, file, tools)
    return found


def yardstick_scores(
    subject: Subject, requests: Sequence[Request], file: Path, tools: Tools
) -> dict[str, dict[str, float]]:
    """Of each yardstick the scores, under the names of what was requested, though there may be
    fewer reals: its own name says how many."""
    compared = [request for request in requests if KINDS[request.kind].reals]
    found = {}
    for mark, wanted in marks(subject, requests):
        measured = results_of(mark, wanted, file, tools)
        fewer = [b for a, b in zip(compared, wanted, strict=True) if a != b]
        name = mark.about_generator()["origin"]
        name += f" (at most {fewer[0].images})" if fewer else ""
        found[name] = scores_of(
            result._replace(metric=request.name)
            for result, request in zip(measured, compared, strict=True)
        )
    return found


def results_of(
    subject: Subject, requests: Sequence[Request], file: Path, tools: Tools
) -> list[Result]:
    """What was requested, in that order; what `file` knows already is not measured again.
    ValueError for what cannot be measured."""
    network = own_sha256(subject, requests, tools)
    found = {result.metric: result for result in known_results(file, subject, network)}
    missing = dict.fromkeys(request for request in requests if request.name not in found)
    for result in evaluate(subject, list(missing), tools, tell=note):
        keep(result, file)
        found[result.metric] = result
    absent = [request.name for request in requests if request.name not in found]
    if absent:
        raise ValueError(f"{subject.origin}: not measured, see above: {', '.join(absent)}")
    return [found[request.name] for request in requests]


def own_sha256(subject: Subject, requests: Sequence[Request], tools: Tools) -> str | None:
    """Of the network that `own-` metrics of this data look with, on this machine; None if nothing
    looks with it."""
    if not any(KINDS[request.kind].network == "own" for request in requests):
        return None
    return network_of(subject, tools).sha256


def known_results(file: Path, subject: Subject, network: str | None) -> Iterator[Result]:
    """What a file of results tells of this generator, as it would be measured now: on the same
    images, by the same version, with the same network of our own."""
    asked = subject.about_generator(), subject.about_fakes(), __version__
    reals = subject.about_reals()
    for record in read_lines(file, "metric")[0]:
        about = record.get("protocol", {})
        found = (
            about.get("generator"),
            about.get("fakes"),
            about.get("versions", {}).get("stylegan"),
        )
        same_reals = reals.items() <= about.get("reals", reals).items()
        same_network = network == about.get("sha256") or not record["metric"].startswith("own-")
        if found == asked and same_reals and same_network:
            yield Result(record["metric"], record["values"], about)


def scores_of(found: Iterable[Result]) -> dict[str, float]:
    """The numbers of all results that are finite; a file has null for others."""
    scores = [score for result in found for score in result.scores().items()]
    return {name: value for name, value in scores if value is not None and math.isfinite(value)}


def write_results(out: Path, found: Found, requests: Sequence[Request]) -> None:
    """table.md, results.json and samples.png."""
    text = table(found.outcomes, requests, found.yardsticks)
    write_text(out / "table.md", text)
    numbers = results(found.outcomes, found.yardsticks)
    write_text(out / "results.json", json.dumps(numbers, indent=1) + "\n")
    if found.pictures:
        rows = sorted(found.pictures)
        pixels = torch.cat([found.pictures[row] for row in rows]).permute(0, 2, 3, 1).numpy()
        labels = [label for row in rows for label in [row.upper(), *[""] * (SAMPLES - 1)]]
        with replacing(out / "samples.png") as file:
            grid(pixels, SAMPLES, labels).save(file, format="PNG")
    click.echo(text)
