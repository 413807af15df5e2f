"""How long it takes to start: importing, the first picture, the first training step."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from contest import (
    ROOT,
    Spread,
    common_options,
    conditions,
    environment_for,
    number,
    save,
    spread,
)

from stylegan.cli.common import Command

FIRST_STEP = """
import dataclasses, torch
from stylegan.config import load_config
from stylegan.schedule import stage_at
from stylegan.training import Share, TrainState, draw, train_step
config = load_config("quickstart")
state, stage, share = TrainState.create(config, device="{device}"), stage_at(0, config.schedule), \
Share(device="{device}")
reals = torch.rand(stage.batch_size, 3, stage.resolution, stage.resolution).to(share.device)
metrics = train_step(state, reals, None, stage, draw(config, 0, stage, None, share))
print(*(value.item() for value in metrics.values()))
"""
BASE = "import torch"


def probes(device: str) -> dict[str, list[str]]:
    """Arguments of Python; pictures and runs go into the folder where they are called."""
    run = ["--device", device, "-o", "schedule.total_kimg=0.008", "--out", "run"]
    return {
        "python": ["-c", "pass"],
        BASE: ["-c", "import torch"],
        "import stylegan": ["-c", "import stylegan"],
        "a picture: generate.py emoji32 --seeds 0": [
            str(ROOT / "generate.py"), "emoji32", "--seeds", "0", "--device", device
        ],
        "a step of the quickstart": ["-c", FIRST_STEP.format(device=device)],
        "a run of one step: train.py, with its files": [str(ROOT / "train.py"), *run],
    }  # fmt: skip


def seconds_of(arguments: list[str], environment: Mapping[str, str]) -> float:
    """Of a process of its own, in a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *arguments]
        started = time.perf_counter()
        done = subprocess.run(
            command, cwd=folder, env=dict(environment), capture_output=True, text=True
        )
        seconds = time.perf_counter() - started
    if done.returncode:
        raise ValueError(f"{arguments[0]} failed: {done.stderr.strip()[-500:]}")
    return seconds


@click.command(cls=Command)
@common_options
def main(device: str, threads: int, malloc: str, seconds: float, out: Path) -> None:
    """Time fresh processes, taking turns, from the start of Python to its end.

    Files and compiled modules are in the cache of the operating system; the data of the run has
    been prepared before.

    \b
    python benchmarks/startup.py --seconds 60
    """
    todo = probes(device)
    times: dict[str, list[float]] = {name: [] for name in todo}
    with tempfile.TemporaryDirectory() as cache:
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = environment_for(threads, malloc) | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONPYCACHEPREFIX": cache,
            "STYLEGAN_CACHE": cache,
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for arguments in todo.values():
            seconds_of(arguments, environment)
        end = time.monotonic() + seconds
        while len(times[BASE]) < 3 or time.monotonic() < end:
            for name, arguments in todo.items():
                times[name].append(seconds_of(arguments, environment))
    base = Spread.of(times[BASE]).median
    rows: list[dict[str, Any]] = []
    for name, values in times.items():
        found = Spread.of(values)
        rows.append({"what": name, "seconds": spread(found)})
        rows[-1][f"beyond {BASE}"] = number(found.median - base) if found.median > base else ""
    record = {"conditions": conditions(environment, device), "seconds": times}
    click.echo(save(out, "startup", "Start", record, rows))


if __name__ == "__main__":
    main()
