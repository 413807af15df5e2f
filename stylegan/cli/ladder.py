"""The runs of `stylegan ablation`: where they are, and training several at a time."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click

from stylegan.ablation import Job, config_text, row_files
from stylegan.atomic import write_text
from stylegan.cli.train import open_store
from stylegan.config import PACKAGE, TrainConfig
from stylegan.data import Store
from stylegan.run_folder import RunFolder, images_of, lock
from stylegan.training.folder import check_same_settings
from stylegan.training.health import Diverged
from stylegan.training.loop import requests

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Ladder:
    """The folder of a ladder, and what its runs are trained with."""

    out: Path
    data: Path
    configs: Mapping[str, TrainConfig]  # by row
    device: str

    def folder(self, job: Job) -> Path:
        return self.out / job.name

    def config_file(self, row: str) -> Path:
        return self.out / "configs" / f"{row}.toml"

    def log_file(self, job: Job) -> Path:
        return self.out / "logs" / f"{job.name}.txt"

    def generated_images(self, job: Job) -> int:
        """Images seen by the newest generator; 0 before the first."""
        return max(map(images_of, RunFolder(self.folder(job)).generators()), default=0)

    def saved_images(self, job: Job) -> int:
        """Images seen by the newest state; 0 before the first."""
        return max(map(images_of, RunFolder(self.folder(job)).states()), default=0)

    def check(self) -> None:
        """FileNotFoundError without data, ValueError where there is something else at `out`."""
        if not self.data.exists():
            raise FileNotFoundError(f"no folder, zip or store {self.data}; see datasets/README.md")
        begun = any(self.config_file(row).is_file() for row in row_files())
        if self.out.is_dir() and any(self.out.iterdir()) and not begun:
            raise ValueError(f"{self.out} is not empty and holds no ladder; choose another --out")

    def finished(self, job: Job) -> bool:
        """Whether the last generator is there. ValueError if the run is another one."""
        folder, config = self.folder(job), self.configs[job.row]
        stored = RunFolder(folder).stored_config()
        if stored is not None:  # labels follow from the data
            network = dataclasses.replace(config.network, label_dim=stored.network.label_dim)
            config = dataclasses.replace(config, seed=job.seed, network=network)
            check_same_settings(folder, stored, config)
            known = RunFolder(folder).data()
            if known is not None and known != self.data.resolve():
                raise ValueError(
                    f"{folder} was trained on {known}, not {self.data}; choose an --out"
                )
        return self.generated_images(job) >= config.schedule.total_images

    def store(self) -> Store:
        """The images, prepared before several runs want them."""
        return open_store(self.data, next(iter(self.configs.values())), strict=False)

    def write_configs(self) -> None:
        for row, config in self.configs.items():
            path = self.config_file(row)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, config_text(row, config))

    def command(self, job: Job) -> list[str]:
        """Train or continue this run."""
        options = {
            "--data": self.data,
            "--config": self.config_file(job.row),
            "--seed": job.seed,
            "--out": self.folder(job),
            "--device": self.device,
        }
        pairs = [str(part) for option in options.items() for part in option]
        return [sys.executable, "-m", "stylegan", "train", *pairs, "--no-tensorboard"]


def train_all(ladder: Ladder, todo: Sequence[Job], jobs: int) -> dict[Job, str]:
    """Train what is to be trained, `jobs` runs at a time; of those that failed, why."""
    failed: dict[Job, str] = {}
    waiting = list(todo)
    running: dict[subprocess.Popen[bytes], Job] = {}
    stopped_by = 0
    with requests() as asked:
        try:
            while (waiting or running) and not stopped_by:
                while waiting and len(running) < jobs:
                    job = waiting.pop(0)
                    running[start(ladder, job)] = job
                    click.echo(f"{job.name}: started, see {ladder.log_file(job)}")
                time.sleep(POLL_SECONDS)
                for child in [child for child in running if child.poll() is not None]:
                    job = running.pop(child)
                    if child.returncode:
                        failed[job] = reason(child.returncode, ladder.log_file(job))
                    told = failed.get(job, "finished")
                    click.echo(f"{job.name}: {told}; {len(waiting) + len(running)} to go")
                stopped_by, _ = asked.agree(save_is_due=False)
        finally:
            for child in running:  # they save their state
                child.terminate()
            for child in running:
                child.wait()
    if stopped_by:
        click.echo("stopped; the same command continues")
        sys.exit(128 + stopped_by)
    return failed


def start(ladder: Ladder, job: Job) -> subprocess.Popen[bytes]:
    """A process that trains the run on one thread. A Ctrl-C in the terminal does not reach it.
    ValueError if there is one already."""
    paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    log = ladder.log_file(job)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        claim(file, job)
        return subprocess.Popen(
            ladder.command(job),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            start_new_session=True,
        )


def claim(log: BinaryIO, job: Job) -> None:
    """Lock the log, for as long as anybody has it open: a process that trains outlives this one if
    this one is killed, and two may not write one run."""
    if not lock(log.fileno()):
        raise ValueError(
            f"{job.name} is being trained by another process, which writes {log.name}; wait until "
            "it has finished, or end it (it saves its state)"
        )


def reason(code: int, log: Path) -> str:
    """Why a run ended, from the last line of its output."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1].removeprefix("Error: ") if lines else "it said nothing"
    diverged = code == Diverged.exit_code
    return f"diverged: {last}" if diverged else f"failed with exit code {code}: {last}"
