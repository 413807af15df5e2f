"""The ladder of table 1: what its rows switch, which runs they need, and what was found."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stylegan.config import (
    TrainConfig,
    build_config,
    check_names,
    config_names,
    merge,
    naming,
    read_config_file,
    to_toml,
)
from stylegan.metrics import KINDS, Request, score_name
from stylegan.records import read_lines
from stylegan.run_folder import RunFolder
from stylegan.toml import parse_override

PREFIX = "paper/table1-"
PUBLISHED_FID = {"a": 8.04, "b": 5.25, "c": 4.85, "d": 4.88, "e": 4.42, "f": 4.40}  # FFHQ 1024
MOST_SEEDS = 1000


class Job(NamedTuple):
    """One run of the ladder."""

    row: str  # a to f
    seed: int

    @property
    def name(self) -> str:
        return f"{self.row}-seed{self.seed}"


def row_files() -> dict[str, str]:
    """The configuration of each row of table 1, by its letter."""
    names = [name for name in config_names() if name.startswith(PREFIX)]
    return {name.removeprefix(PREFIX)[0]: name for name in names}


def parse_jobs(text: str) -> list[Job]:
    """`a-d:0,e-f:0-2`, rows with their seeds (0 if none are given), as runs: first seeds first,
    so that what is done early shows all rows. ValueError for rows that there are not."""
    found: dict[Job, None] = {}
    for part in text.lower().split(","):
        rows, _, seeds = part.partition(":")
        numbers = span(seeds or "0", [str(n) for n in range(MOST_SEEDS)], "seed")
        letters = span(rows, list(row_files()), "row of table 1")
        found |= dict.fromkeys(Job(row, int(number)) for row in letters for number in numbers)
    return sorted(found, key=lambda job: (job.seed, job.row))


def span(text: str, known: Sequence[str], what: str) -> Sequence[str]:
    """`b` or `b-d` of what is known, in its order."""
    ends = [end.strip() for end in text.split("-")]
    unknown = [end for end in ends if end not in known]
    if unknown or len(ends) > 2:
        shown = repr(unknown[0] if unknown else text)
        raise ValueError(
            f"there is no {what} {shown}; known: {known[0]} to {known[-1]}, as in A-D:0,E-F:0-2"
        )
    found = known[known.index(ends[0]) : known.index(ends[-1]) + 1]
    if not found:
        raise ValueError(
            f"{text!r} runs backwards; the first {what} comes first, as in A-D:0,E-F:0-2"
        )
    return found


def row_configs(base: str, overrides: Sequence[str], rows: Iterable[str]) -> dict[str, TrainConfig]:
    """The configuration of each row: the base, which is F in small, with what the row's file
    switches. The data and how they are shown are the base's. ValueError if two are the same."""
    values = read_config_file(base)
    for override in overrides:
        values = merge(values, parse_override(override))
    with naming(base):
        check_names(values)
    configs: dict[str, TrainConfig] = {}
    for row in sorted(set(rows)):
        switched = read_config_file(row_files()[row])
        switched.pop("data", None)
        with naming(f"{base} as row {row.upper()}"):
            config = build_config(merge(values, switched))
        same = [other.upper() for other, there in configs.items() if there == config]
        if same:
            raise ValueError(
                f"with {base} the rows {same[0]} and {row.upper()} are the same; a base must not "
                "switch off what distinguishes them, as style_mixing"
            )
        configs[row] = config
    return configs


def config_text(row: str, config: TrainConfig) -> str:
    """The file that a row is trained with."""
    return f"# Row {row.upper()} of table 1 at the size of this ladder.\n{to_toml(config)}"


def training_seconds(folder: Path) -> tuple[int, float]:
    """Images seen by the last line of a run's log, and the seconds that training them took."""
    speeds: dict[int, float] = {}  # what was trained twice counts once
    for record in read_lines(RunFolder(folder).log_file, "event")[0]:
        if record["event"] == "progress" and record.get("speed/images_per_second"):
            speeds[record["images_seen"]] = record["speed/images_per_second"]
    ends = sorted(speeds)
    starts = [0, *ends][:-1]
    seconds = sum((b - a) / speeds[b] for a, b in zip(starts, ends, strict=True))
    return (ends[-1] if ends else 0), seconds


@dataclass
class Outcome:
    """What is known of one run."""

    images_seen: int = 0
    seconds: float = 0.0  # of training
    parameters: int = 0  # of the generator
    scores: dict[str, float] = field(default_factory=dict)  # finite ones
    failed: str = ""  # why there is nothing to measure


class Summary(NamedTuple):
    """One number of a row over its seeds."""

    values: list[float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float | None:
        """Standard deviation (n - 1); None of a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def text(self, bold: bool = False) -> str:
        mean = f"**{digits(self.mean, 4)}**" if bold else digits(self.mean, 4)
        return mean if self.spread is None else f"{mean} ± {digits(self.spread, 2)}"


def digits(value: float, number: int) -> str:
    """As many significant digits, but never fewer than the whole ones."""
    return f"{value:.0f}" if abs(value) >= 10**number - 0.5 else f"{value:.{number}g}"


def summaries(outcomes: Mapping[Job, Outcome], score: str) -> dict[str, Summary]:
    """Of each row that has the score."""
    values: dict[str, list[float]] = {}
    for job, outcome in sorted(outcomes.items()):
        value = outcome.scores.get(score)
        if value is not None:
            values.setdefault(job.row, []).append(value)
    return {row: Summary(found) for row, found in values.items()}


def clearly_best(found: Mapping[str, Summary], lower_is_better: bool) -> str | None:
    """The row ahead of the next by more than the largest spread of any row; None if no row is, or
    no spread is known."""
    spreads = [s.spread for s in found.values() if s.spread is not None]
    if len(found) < 2 or not spreads:
        return None
    sign = 1 if lower_is_better else -1
    first, second = sorted(found, key=lambda row: sign * found[row].mean)[:2]
    ahead = abs(found[first].mean - found[second].mean)
    return first if ahead > max(spreads) else None


def columns(requests: Sequence[Request], outcomes: Iterable[Outcome]) -> list[tuple[str, bool]]:
    """Scores for the table, and whether lower is better: a metric's main one; of precision and
    recall both."""
    known = {score for outcome in outcomes for score in outcome.scores}
    found = []
    for request in requests:
        kind = KINDS[request.kind]
        names = [kind.best_by]
        if kind.best_by.endswith("precision"):
            names.append(kind.best_by.replace("precision", "recall"))
        scores = [score_name(request.name, name) for name in names]
        found += [(score, bool(kind.lower_is_better)) for score in scores if score in known]
    return found


def table(
    outcomes: Mapping[Job, Outcome],
    requests: Sequence[Request],
    yardsticks: Mapping[str, Mapping[str, float]],
) -> str:
    """Markdown: a row of the ladder a line, then yardsticks, then what failed."""
    scores = columns(requests, outcomes.values())
    found = {score: summaries(outcomes, score) for score, _ in scores}
    best = {score: clearly_best(found[score], lower) for score, lower in scores}
    heads = ["", "configuration", "kimg", "seeds", "G parameters", "minutes"]
    heads += [f"{score} {'↓' if lower else '↑'}" for score, lower in scores]
    lines = [cells([*heads, "FID published*"]), cells(["---"] * (len(heads) + 1))]
    for row in sorted({job.row for job in outcomes}):
        ours = [outcome for job, outcome in sorted(outcomes.items()) if job.row == row]
        good = [outcome for outcome in ours if not outcome.failed]
        line = [row.upper(), row_files()[row].removeprefix(f"{PREFIX}{row}-"), *counts(ours, good)]
        for score, _ in scores:
            summary = found[score].get(row)
            line.append(summary.text(best[score] == row) if summary else absent(ours))
        lines.append(cells([*line, f"{PUBLISHED_FID[row]:.2f}"]))
    for name, values in yardsticks.items():
        shown = [digits(values[score], 4) if score in values else "" for score, _ in scores]
        lines.append(cells(["", name, "", "", "", "", *shown, ""]))
    notes = [
        "Mean ± standard deviation over seeds (n - 1). Bold: ahead of every other row by more than "
        "the largest of the spreads.",
        "*FFHQ at 1024x1024 after 25,000 kimg: not comparable, for the order only.",
        *(
            f"{job.name}: {outcome.failed}"
            for job, outcome in sorted(outcomes.items())
            if outcome.failed
        ),
    ]
    return "\n".join([*lines, "", "\n\n".join(notes), ""])


def cells(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def absent(outcomes: Sequence[Outcome]) -> str:
    """In place of a number."""
    return "diverged" if any(o.failed.startswith("diverged") for o in outcomes) else "-"


def counts(all_runs: Sequence[Outcome], good: Sequence[Outcome]) -> list[str]:
    """Thousands of images, seeds, parameters and minutes of the runs of a row."""
    if not good:
        return ["-", f"0 of {len(all_runs)}", "-", "-"]
    seeds = f"{len(good)}" if len(good) == len(all_runs) else f"{len(good)} of {len(all_runs)}"
    kimg = sorted({f"{outcome.images_seen / 1000:.4g}" for outcome in good})
    minutes = statistics.fmean(outcome.seconds for outcome in good) / 60
    return [", ".join(kimg), seeds, f"{good[0].parameters:,}", f"{minutes:.1f}"]


def results(
    outcomes: Mapping[Job, Outcome], yardsticks: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """Everything in the table, and every single value, as JSON has it."""
    rows: dict[str, Any] = {}
    for row in sorted({job.row for job in outcomes}):
        ours = {job.seed: outcome for job, outcome in sorted(outcomes.items()) if job.row == row}
        good = [outcome for outcome in ours.values() if not outcome.failed]
        names = sorted({score for outcome in good for score in outcome.scores})
        found = {name: summaries(outcomes, name).get(row) for name in names}
        rows[row] = {
            "config": row_files()[row],
            "published_fid": PUBLISHED_FID[row],
            "seeds": len(good),
            "kimg": [outcome.images_seen / 1000 for outcome in good],
            "seconds": [round(outcome.seconds, 1) for outcome in good],
            "generator_parameters": good[0].parameters if good else None,
            "failed": {f"seed{seed}": o.failed for seed, o in ours.items() if o.failed},
            "scores": {
                name: {"mean": s.mean, "spread": s.spread, "values": s.values}
                for name, s in found.items()
                if s is not None
            },
        }
    return {"rows": rows, "yardsticks": {name: dict(v) for name, v in yardsticks.items()}}
