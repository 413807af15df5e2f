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
from runs import Runs

NAMES = ("kill", "signals", "disk", "damage", "torchrun")


@click.command()
@click.option("--kills", type=click.IntRange(min=1), default=60, show_default=True)
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Scenarios.  [default: all]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random moments.")
@click.option("--keep", type=click.Path(path_type=Path), help="Work in this new folder; keep it.")
def faults(kills: int, only: tuple[str, ...], seed: int, keep: Path | None) -> None:
    """Disturb small training runs in every way, and compare them with an undisturbed one.

    Each run is continued by the same command until it is finished. Its last state and generator
    must be those of the undisturbed run, bit for bit, and every file must load at all times; the
    first time that something does not hold ends the command. "disk" mounts a tmpfs, as root.

    \b
    python tools/faults                      all scenarios, some 30 minutes
    python tools/faults --only kill --kills 100 --seed 1
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # cleans up
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        runs = Runs(folder)
        stack.callback(runs.close)
        for name in only or NAMES:
            started, finished = time.monotonic(), runs.finished
            events = getattr(scenarios, name)(runs, kills, Random(f"{seed} {name}"))
            click.echo(
                f"== {name}: {events} events, {runs.finished - finished} runs as the undisturbed "
                f"one, {time.monotonic() - started:.0f} s"
            )


if __name__ == "__main__":
    faults()
