"""A small training run as a process, and what must hold for its folder whatever happens to it."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from injection import Fault

from stylegan.files import checkpoint
from stylegan.run_folder import KINDS, RunFolder, images_of, numbered

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("injection.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--max-restarts=3"]
PATIENCE = 900.0  # seconds: for whatever does not come
QUICK = ("--no-tensorboard", "--no-preflight", "--device=cpu")
POLL = 0.02
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


@dataclass
class Tally:
    """What a scenario found."""

    scenario: str
    events: int = 0
    runs: int = 0
    equal: int = 0
    unequal: int = 0
    unreadable: int = 0
    wrong: list[str] = field(default_factory=list)  # everything else that should not be

    @property
    def failed(self) -> bool:
        return bool(self.unequal or self.unreadable or self.wrong or not self.equal)

    def say(self, text: str) -> None:
        print(f"{self.scenario}: {text}", flush=True)

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)
            self.say(f"WRONG: {otherwise}")


class Workshop:
    """A scratch folder, the undisturbed runs in it, and all processes that were started there.

    `overrides` are options `KEY=VALUE` of all runs.
    """

    def __init__(self, folder: Path, *overrides: str) -> None:
        self.options = [*QUICK, *(part for text in overrides for part in ("-o", text))]
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "small.toml").write_text(SMALL)
        self.living: list[subprocess.Popen[bytes]] = []
        self.whole: dict[int, Run] = {}  # by number of processes
        self.lock = threading.Lock()
        self.made = 0
        self.closed = False

    def run(self, name: str, *, parent: Path | None = None, processes: int = 1) -> "Run":
        """A run that has not begun, in a folder of its own."""
        with self.lock:
            self.made += 1
            return Run(self, (parent or self.folder) / f"{self.made:03d}-{name}", processes)

    def undisturbed(self, processes: int = 1) -> "Run":
        """The run that nothing happens to, made once."""
        if processes not in self.whole:
            run = self.run("undisturbed", processes=processes)
            code = run.finish()
            if code:
                raise RuntimeError(f"the undisturbed run failed, exit code {code}: {run.tail()}")
            self.whole[processes] = run
        return self.whole[processes]

    def close(self) -> None:
        """End all that still runs, with what it has started; nothing can be started any more."""
        with self.lock:
            self.closed = True
        for process in self.living:
            if process.poll() is None:
                children = psutil.Process(process.pid).children(recursive=True)
                process.kill()
                for child in children:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
                process.wait()


@dataclass
class Run:
    """A run folder and the command that makes and continues it."""

    workshop: Workshop
    out: Path
    processes: int = 1
    started: float = 0.0  # time at which the last process was

    @property
    def output(self) -> Path:
        """All that the processes print, one after the other."""
        return self.workshop.folder / f"{self.out.name}.txt"

    def start(self, fault: Fault | None = None) -> subprocess.Popen[bytes]:
        """The train command as a process of its own, with a fault inside its saves if asked."""
        program = ["-m", "stylegan"]
        if fault is not None:
            program = [str(RUNNER), fault.to_json()]
        elif self.processes > 1:
            program = [*TORCHRUN, f"--nproc-per-node={self.processes}", *program]
        config = self.workshop.folder / "small.toml"
        options = [f"--config={config}", f"--out={self.out}", *self.workshop.options]
        environment = {
            "PYTHONPATH": str(ROOT),
            "STYLEGAN_CACHE": str(self.workshop.folder / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        self.started = time.time()
        with open(self.output, "ab") as output, self.workshop.lock:
            if self.workshop.closed:
                raise RuntimeError("nothing is started any more")
            process = subprocess.Popen(
                [sys.executable, *program, "train", *options],
                env=os.environ | environment,
                stdout=output,
                stderr=output,
            )
            self.workshop.living.append(process)
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
        path = self.out / "log.jsonl"
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        records = [json.loads(line) for line in lines if line.endswith(b"}")]
        return [record for record in records if record["event"] in names]

    def count(self, *names: str) -> int:
        return len(self.events(*names))

    def logs_beyond(self, number: int, *names: str) -> Callable[[], bool]:
        """A condition for `wait_until`: there are more such records than `number`."""
        return lambda: self.count(*names) > number

    def saves_beyond(self, images: int) -> Callable[[], bool]:
        """A condition for `wait_until`: the newest state has seen more than `images`."""
        return lambda: self.saved() > images

    def seconds(self) -> tuple[float, float]:
        """How long a run that was not disturbed took to begin training, and to train."""
        begun, ended = (record["time"] for record in self.events("start", "finished"))
        return begun - self.started, ended - begun

    def states(self) -> list[Path]:
        return RunFolder(self.out).states()

    def saved(self) -> int:
        """Images seen at the newest state; 0 before the first."""
        return max(map(images_of, self.states()), default=0)

    def files(self) -> list[Path]:
        """Whatever must be readable at every moment."""
        config = self.out / "config.toml"
        generators = RunFolder(self.out).generators()
        return [*self.states(), *generators, *([config] if config.exists() else [])]

    def check_files(self, tally: Tally) -> None:
        """Everything in the folder loads."""
        for path in self.files():
            try:
                RunFolder(self.out).config() if path.suffix == ".toml" else checkpoint.load(path)
            except (ValueError, OSError) as error:
                if path.exists():  # else a run that goes on has deleted it
                    tally.unreadable += 1
                    tally.say(f"UNREADABLE: {error}")

    def check_end(self, tally: Tally, code: int) -> None:
        """The finished run ends where the undisturbed one did, to the last bit."""
        tally.runs += 1
        self.check_files(tally)
        tally.expect(code == 0, f"{self.out.name} ended with exit code {code}: {self.tail()}")
        whole = self.workshop.undisturbed(self.processes)
        paths = [p for kind in KINDS for p in differences(self, whole, kind)]
        tally.equal += not paths
        tally.unequal += bool(paths)
        if paths:
            tally.say(f"UNEQUAL: {self.out.name}: {', '.join(paths[:5])} ({len(paths)} in all)")


def differences(run: Run, whole: Run, kind: Literal["state", "generator"]) -> list[str]:
    """Paths at which the last files of two runs are not the same."""
    a, b = (numbered(r.out, kind)[-1:] for r in (run, whole))
    if [p.name for p in a] != [p.name for p in b]:
        return [f"{a} for {b}"]
    return differing(checkpoint.load(a[0]), checkpoint.load(b[0]))


def differing(a: Any, b: Any) -> list[str]:
    """Paths at which two payloads are not the same, bit for bit."""
    flat_a, flat_b = dict(leaves(a)), dict(leaves(b))
    return sorted(p for p in flat_a.keys() | flat_b.keys() if flat_a.get(p) != flat_b.get(p))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a nested payload by its path; a tensor as its type, shape and bytes."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from leaves(part, f"{path}/{i}")
    elif isinstance(value, torch.Tensor):
        yield path, (value.dtype, value.shape, value.numpy().tobytes())
    else:
        yield path, (type(value), repr(value))


def wait_until(
    condition: Callable[[], Any], process: subprocess.Popen[bytes], patience: float = PATIENCE
) -> bool:
    """Whether the condition came to hold before the process ended."""
    deadline = time.monotonic() + patience
    while not condition():
        if process.poll() is not None:
            return bool(condition())
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience:.0f} s in vain")
        time.sleep(POLL)
    return True


def pause(seconds: float, process: subprocess.Popen[bytes]) -> bool:
    """Let the process run for a while; whether it still does."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False
