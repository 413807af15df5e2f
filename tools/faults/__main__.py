"""Faults on purpose: `python tools/faults --help`."""

import contextlib
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import click
import scenarios
from runs import Tally, Workshop

NAMES = ("kill", "sigterm", "disk", "truncated", "torchrun")
COLUMNS = ("scenario", "events", "runs", "equal", "unequal", "unreadable", "wrong")


@click.command()
@click.option("--kills", type=click.IntRange(min=1), default=60, show_default=True)
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Scenarios.  [default: all]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random moments.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--keep", type=click.Path(path_type=Path), help="Work in this new folder; keep it.")
def faults(kills: int, only: tuple[str, ...], seed: int, jobs: int, keep: Path | None) -> None:
    """Disturb small training runs in every way, and compare them with an undisturbed one.

    Each run is continued by the same command until it is finished. Its last state and generator
    must be those of the undisturbed run, bit for bit, and every file must load at all times.

    \b
    python tools/faults                      all scenarios, some 15 minutes on two cores
    python tools/faults --only kill --kills 100 --seed 1
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # cleans up
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        workshop = Workshop(folder)
        stack.callback(workshop.close)
        tallies = [run_scenario(name, workshop, kills, jobs, seed) for name in only or NAMES]
    rows = [COLUMNS, *(row(tally) for tally in tallies)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        click.echo("  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True)))
    sys.exit(any(tally.failed for tally in tallies))


def run_scenario(name: str, workshop: Workshop, kills: int, jobs: int, seed: int) -> Tally:
    """Whatever ends the scenario early counts as wrong, so that the others have their turn."""
    tally, chance, started = Tally(name), Random(f"{seed} {name}"), time.monotonic()
    try:
        if name == "kill":
            scenarios.kill(workshop, tally, kills, jobs, chance)
        elif name in ("sigterm", "truncated"):
            getattr(scenarios, name)(workshop, tally, jobs, chance)
        else:
            getattr(scenarios, name)(workshop, tally, chance)
    except Exception as error:
        tally.expect(False, f"the scenario ended early: {type(error).__name__}: {error}")
    tally.say(f"{time.monotonic() - started:.0f} s")
    return tally


def row(tally: Tally) -> tuple[str, ...]:
    numbers = (tally.events, tally.runs, tally.equal, tally.unequal, tally.unreadable)
    return (tally.scenario, *map(str, numbers), str(len(tally.wrong)))


if __name__ == "__main__":
    faults()
