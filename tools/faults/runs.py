"""A small training run as a process, and what must hold for its folder whatever happens to it."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from injection import Fault

from stylegan.files import checkpoint
from stylegan.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("injection.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--max-restarts=3"]
PATIENCE = 900.0  # seconds: for whatever does not come
QUICK = ["--track=none", "--no-preflight", "--device=cpu"]
TICK_IMAGES = 80
SMALL = """\
r1_gamma = 1.0
log_kimg = 0.08
snapshot_ticks = 4
keep_states = 3
[network]
resolution = 32
max_channels = 16
z_dim = 16
w_dim = 16
mapping_layers = 2
mapping_width = 16
[schedule]  # 4x4 to image 200; growing and grown 8x8 to 600, 16x16 to 1000, 32x32
initial_resolution = 4
stable_kimg = 0.2
fade_kimg = 0.2
total_kimg = 1.6
batch_size = { 4 = 8 }
tick_kimg = { 4 = 0.08 }  # TICK_IMAGES: a state every ten steps
[data]
mirror = true
"""


def check(holds: object, otherwise: str) -> None:
    """AssertionError, which ends the command, unless something holds."""
    if not holds:
        raise AssertionError(otherwise)


@dataclass
class Runs:
    """A scratch folder with runs; `overrides` are options KEY=VALUE of all of them."""

    folder: Path
    overrides: tuple[str, ...] = ()
    made: int = 0
    finished: int = 0  # as the undisturbed run
    whole: dict[int, "Run"] = field(default_factory=dict)  # undisturbed, by number of processes
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "small.toml").write_text(SMALL)

    def new(self, name: str, *, parent: Path | None = None, processes: int = 1) -> "Run":
        """A run that has not begun, in a folder of its own."""
        self.made += 1
        return Run(self, (parent or self.folder) / f"{self.made:03d}-{name}", processes)

    def undisturbed(self, processes: int = 1) -> "Run":
        """The run that nothing happens to, made once."""
        if processes not in self.whole:
            run = self.new("undisturbed", processes=processes)
            check(run.finish() == 0, f"the undisturbed run failed: {run.tail()}")
            self.whole[processes] = run
        return self.whole[processes]

    def close(self) -> None:
        """End all that still runs, with what it has started."""
        for process in self.processes:
            if process.poll() is None:
                children = psutil.Process(process.pid).children(recursive=True)
                process.kill()
                for child in children:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
                process.wait()


class Run(RunFolder):
    """A run folder and the command that makes and continues it."""

    def __init__(self, runs: Runs, out: Path, processes: int = 1) -> None:
        super().__init__(out)
        self.runs, self.processes, self.started = runs, processes, 0.0
        self.output = runs.folder / f"{out.name}.txt"  # all that is printed, in order

    def start(self, fault: Fault | None = None) -> "subprocess.Popen[bytes]":
        """The train command as a process of its own, with a fault inside its saves if asked."""
        program = ["-m", "stylegan"]
        if fault is not None:
            program = [str(RUNNER), fault.to_json()]
        elif self.processes > 1:
            program = [*TORCHRUN, f"--nproc-per-node={self.processes}", *program]
        options = [f"--config={self.runs.folder / 'small.toml'}", f"--out={self.path}", *QUICK]
        options += [part for text in self.runs.overrides for part in ("-o", text)]
        environment = {
            "PYTHONPATH": str(ROOT),
            "STYLEGAN_CACHE": str(self.runs.folder / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        self.started = time.time()
        with open(self.output, "ab") as output:
            command = [sys.executable, *program, "train", *options]
            process = subprocess.Popen(
                command, env=os.environ | environment, stdout=output, stderr=output
            )
        self.runs.processes.append(process)
        return process

    def finish(self) -> int:
        """Start, wait; the exit code."""
        return self.start().wait(PATIENCE)

    def printed(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def tail(self) -> str:
        return " | ".join(self.printed().splitlines()[-5:])

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The records of log.jsonl with one of these names; a line that is cut short is none."""
        lines = self.log_file.read_bytes().split(b"\n") if self.log_file.exists() else []
        records = [json.loads(line) for line in lines if line.endswith(b"}")]
        return [record for record in records if record["event"] in names]

    def begun(self) -> list[int]:
        """The images seen wherever training has begun, and begun again."""
        return [record["images_seen"] for record in self.events("start", "resume")]

    def begun_beyond(self, number: int) -> Callable[[], bool]:
        """A condition for `wait_until`: training has begun more often."""
        return lambda: len(self.begun()) > number

    def saves_beyond(self, images: int) -> Callable[[], bool]:
        """A condition for `wait_until`: the newest state has seen more."""
        return lambda: self.saved() > images

    def seconds(self) -> tuple[float, float]:
        """How long a run that was not disturbed took to begin training, and to train."""
        begun, ended = (record["time"] for record in self.events("start", "finished"))
        return begun - self.started, ended - begun

    def check_files(self) -> None:
        """Everything in the folder loads."""
        for path in [*self.states(), *self.generators()]:
            with contextlib.suppress(FileNotFoundError):  # a run that goes on has deleted it
                checkpoint.load(path)
        if self.config_file.exists():
            self.config()

    def check_end(self) -> None:
        """The run, finished by its command, ends where the undisturbed one did, to the last bit."""
        code = self.finish()
        check(code == 0, f"{self.path.name} ended with exit code {code}: {self.tail()}")
        self.check_files()
        whole = self.runs.undisturbed(self.processes)
        for ours, theirs in (
            (self.states(), whole.states()),
            (self.generators(), whole.generators()),
        ):
            check(ours[-1].name == theirs[-1].name, f"{ours[-1]} is not {theirs[-1].name}")
            same = ours[-1].read_bytes() == theirs[-1].read_bytes()
            check(same, f"{ours[-1]} and {theirs[-1]} differ")
        self.runs.finished += 1


def wait_until(
    condition: Callable[[], Any], process: "subprocess.Popen[bytes]", seconds: float = PATIENCE
) -> bool:
    """Whether the condition came to hold before the process ended."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            return bool(condition())
        check(time.monotonic() < deadline, f"waited {seconds:.0f} s in vain")
        time.sleep(0.02)
    return True


def pause(seconds: float, process: "subprocess.Popen[bytes]") -> None:
    """Let the process run for a while, unless it ends."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
