"""How long it takes to start: importing, the first picture, the first training step."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from contest import (
    ROOT,
    Contender,
    Spread,
    Trial,
    common_options,
    conditions,
    contest,
    environment_for,
    number,
    save,
    spread,
)

from stylegan.cli.common import Command

FIRST_STEP = """
import torch
from stylegan.config import load_config
from stylegan.schedule import stage_at
from stylegan.training import Share, TrainState, draw, train_step
config, share = load_config("quickstart"), Share(device="{device}")
state, stage = TrainState.create(config, device="{device}"), stage_at(0, config.schedule)
reals = torch.rand(stage.batch_size, 3, stage.resolution, stage.resolution).to(share.device)
metrics = train_step(state, reals, None, stage, draw(config, 0, stage, None, share))
print(*(value.item() for value in metrics.values()))
"""
BASE = "import torch"


def programs(device: str) -> dict[str, list[str]]:
    """Arguments of Python; pictures and runs go into the folder where they are called."""
    picture = [str(ROOT / "generate.py"), "emoji32", "--seeds", "0", "--device", device]
    run = ["--device", device, "-o", "schedule.total_kimg=0.008", "--out", "run"]
    return {
        "python": ["-c", "pass"],
        BASE: ["-c", "import torch"],
        "import stylegan": ["-c", "import stylegan"],
        "a picture: generate.py emoji32 --seeds 0": picture,
        "a step of the quickstart": ["-c", FIRST_STEP.format(device=device)],
        "a run of one step: train.py, with its files": [str(ROOT / "train.py"), *run],
    }


def process(settings: dict[str, Any]) -> Trial:
    """A process of its own, each time in a new folder."""

    def once() -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, *settings["arguments"]]
            subprocess.run(command, cwd=folder, capture_output=True, check=True)

    return Trial(once)


@click.command(cls=Command)
@common_options
def main(device: str, threads: int, malloc: str, seconds: float, out: Path) -> None:
    """Time fresh processes, taking turns, from the start of Python to its end.

    Files and compiled modules are in the cache of the operating system; the data of the run has
    been prepared before.

    \b
    python benchmarks/startup.py --seconds 60
    """
    with tempfile.TemporaryDirectory() as cache:
        environment = environment_for(threads, malloc)
        environment |= {"PYTHONPYCACHEPREFIX": cache, "STYLEGAN_CACHE": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        contenders = [
            Contender(name, "startup:process", {"arguments": arguments, "repeat_seconds": 0})
            for name, arguments in programs(device).items()
        ]
        rounds = 3 if seconds else 1
        results = contest(contenders, environment, seconds=seconds, min_rounds=rounds)
    base = next(Spread.of(r.seconds).median for r in results if r.name == BASE)
    rows = []
    for result in results:
        found = Spread.of(result.seconds)
        beyond = number(found.median - base) if found.median > base else ""
        rows.append({"what": result.name, "seconds": spread(found), f"beyond {BASE}": beyond})
    record = {"conditions": conditions(environment, device), "results": results}
    click.echo(save(out, "startup", "Start", record, rows))


if __name__ == "__main__":
    main()
