"""Attempts of all kinds, by several processes, and the table of what they found."""

import multiprocessing
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

import click
from kinds import KINDS
from place import Place, make_base


def kind_of(number: int, kinds: list[str]) -> str:
    """Attempts of all kinds take turns, each by its share."""
    shares = [share for kind in kinds for share in [kind] * KINDS[kind][1]]
    return Random(0).sample(shares, len(shares))[number % len(shares)]


def attempt(folder: Path, seed: int, number: int, kind: str) -> tuple[str, list[str], float]:
    """What was tried, the faults that were found, and the seconds that it took."""
    start = time.monotonic()
    own = folder / f"{number}-{kind}"
    chance = Random(f"{seed} {number} {kind}")
    try:
        said, faults = KINDS[kind][0](Place(own, folder / "base"), chance)
    except Exception as error:  # a fault of this program
        said, faults = "", [f"the attempt itself: {type(error).__name__}: {error}"]
    if not faults:
        shutil.rmtree(own, ignore_errors=True)
    return said, faults, time.monotonic() - start


def attack(
    seed: int, numbers: list[int], kinds: list[str], jobs: int, keep: Path | None
) -> dict[str, Counter[str]]:
    """Make the attempts; how many there were of each kind, and how many failed."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory(prefix="attacks-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) if keep is None else keep
        (folder / "base").mkdir(parents=True)
        make_base(folder / "base")
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(jobs, mp_context=fork) as pool:
            of_kinds = [kind_of(number, kinds) for number in numbers]
            tries = [
                pool.submit(attempt, folder, seed, number, kind)
                for number, kind in zip(numbers, of_kinds, strict=True)
            ]
            for number, kind, one in zip(numbers, of_kinds, tries, strict=True):
                said, faults, seconds = one.result()
                counts[kind] += Counter(attempts=1, failed=bool(faults), seconds=round(seconds))
                if faults:
                    told = " | ".join(faults)
                    print(f"{kind} --seed {seed} --only {number}: {told}\n    {said}", flush=True)
    return counts


@click.command()
@click.option("--seed", default=0, show_default=True)
@click.option("--attempts", type=click.IntRange(min=1), default=500, show_default=True)
@click.option("--only", type=int, multiple=True, help="Numbers of attempts to repeat.")
@click.option("--kind", "kinds", type=click.Choice(list(KINDS)), multiple=True)
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--keep", type=click.Path(path_type=Path), help="New folder to work in; it is kept.")
def attacks(
    seed: int,
    attempts: int,
    only: tuple[int, ...],
    kinds: tuple[str, ...],
    jobs: int,
    keep: Path | None,
) -> None:
    """Try to make the commands hang, lose files, print tracebacks or leave things behind.

    Every attempt is repeated by `--seed` and `--only` (with the same `--kind`). A table by kind
    follows; the exit code is 1 if anything was found.

    \b
    python tools/attacks --seed 1 --attempts 500
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # scripts ignore it in the background
    chosen = list(kinds or KINDS)
    counts = attack(seed, list(only) or list(range(attempts)), chosen, jobs, keep)
    print(f"{'kind':<10} {'attempts':>8} {'failed':>7} {'seconds':>8}")
    for kind in chosen:
        found = counts[kind]
        print(f"{kind:<10} {found['attempts']:>8} {found['failed']:>7} {found['seconds']:>8}")
    failed = sum(found["failed"] for found in counts.values())
    print(f"{sum(found['attempts'] for found in counts.values())} attempts, {failed} failed")
    sys.exit(failed > 0)
