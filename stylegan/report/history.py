"""History of a run, read from files that may be damaged or edited."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from stylegan.config import TrainConfig
from stylegan.files.run_folder import RunFolder
from stylegan.metrics import Result
from stylegan.utils.records import finite_float, read_lines
from stylegan.utils.toml import read_text

BEGINNINGS = ("start", "resume")
ENDS = ("finished", "stopped", "failed")
Event = dict[str, object]


class Session(NamedTuple):
    """Events from a start or resume up to the next one."""

    events: list[Event]

    def span(self, name: str) -> tuple[float, float]:
        """First and last value of `time` or `images_seen`; zeros if there is none."""
        known = [
            y for y in (finite_float(event.get(name)) for event in self.events) if y is not None
        ]
        return (known[0], known[-1]) if known else (0.0, 0.0)

    @property
    def seconds(self) -> float:
        first, last = self.span("time")
        return max(last - first, 0.0)


@dataclass(frozen=True)
class RunHistory:
    folder: RunFolder
    config: TrainConfig
    toml: str
    events: list[Event]
    measurements: list[Result]
    grids: list[tuple[float, Path]]  # kimg and file of each sample grid, oldest first
    unreadable: Mapping[str, int]  # number of skipped lines, by file

    @property
    def images_seen(self) -> int:
        return int(Session(self.events).span("images_seen")[1])

    def sessions(self) -> list[Session]:
        parts: list[Session] = []
        for event in self.events:
            if event["event"] in BEGINNINGS or not parts:
                parts.append(Session([]))
            parts[-1].events.append(event)
        return parts

    def progress(self) -> list[tuple[float, Event]]:
        """Images seen and event of each progress line, without those that a resume repeated."""
        lines: list[tuple[float, Event]] = []
        for event in self.events:
            seen = finite_float(event.get("images_seen"))
            if seen is not None and event["event"] in BEGINNINGS:
                lines = [line for line in lines if line[0] <= seen]
            elif seen is not None and event["event"] == "progress":
                lines.append((seen, event))
        return lines

    def last_of(self, *names: str) -> Event | None:
        return next((event for event in reversed(self.events) if event["event"] in names), None)


def read_run(folder: Path) -> RunHistory:
    """Read the history of a run.

    Raises FileNotFoundError if there is none, ValueError if its configuration is damaged."""
    run = RunFolder(folder)
    events, bad_events = read_lines(run.log_file, "event")
    lines, bad_lines = read_lines(run.metrics_file, "metric")
    return RunHistory(
        run,
        run.config(),
        read_text(run.config_file),
        events,
        [Result.from_line(line) for line in lines],
        [(kimg, path) for kimg, path in run.grids() if path.is_file()],
        {run.log_file.name: bad_events, run.metrics_file.name: bad_lines},
    )


def moment(value: object) -> str:
    """Format seconds since 1970 as `2026-01-31 12:00 UTC`."""
    try:
        return f"{datetime.fromtimestamp(finite_float(value) or 0, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):  # of a damaged line
        return "?"
