"""Contests: programs that take turns on one machine, each in a process of its own.

A benchmark names contenders; `contest` builds all of them, then lets each run one repeat in turn,
round after round, so that whatever else the machine does meets them alike. Never do two run at
once. The script is also the worker: `python contest.py MODULE:FUNCTION` with settings on stdin.
"""

import contextlib
import ctypes
import dataclasses
import datetime
import gc
import importlib
import importlib.metadata
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30
MALLOC = {  # settings of glibc's allocator: its own, or memory that is kept to be used again
    "default": {},
    "tuned": {
        "MALLOC_TRIM_THRESHOLD_": str(2 * GIB - 1),
        "MALLOC_MMAP_THRESHOLD_": str(GIB),
        "MALLOC_TOP_PAD_": str(GIB // 16),
        "THP_MEM_ALLOC_ENABLE": "1",
    },
}
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
REPEAT_SECONDS = 0.3
WARM_CALLS = 3
MIN_ROUNDS = 3


Settings = dict[str, Any]  # plain values by name, as JSON has them


@dataclass(frozen=True)
class Contender:
    """A program that takes part, under a name of its own."""

    name: str
    task: str  # module:function in this folder, which makes a `Trial` of the settings
    settings: Settings = field(default_factory=dict)
    tree: Path = ROOT  # whose `stylegan` is imported


@dataclass
class Trial:
    """What a worker has built: the timed call, and what makes images of z with the average."""

    once: Callable[[], object]
    device: str = "cpu"
    sample: Callable[[Any], Any] | None = None


@dataclass
class Result:
    """One contender's part of a contest."""

    name: str
    seconds: list[float] = field(default_factory=list)  # per call, one for each round
    peak_bytes: int | None = None  # beyond what there was once built; None: unknown here
    error: str = ""


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def per(self, amount: float) -> "Spread":
        """The rates of `amount` in so many seconds."""
        return Spread(amount / self.median, amount / self.high, amount / self.low)


def ratio(slower: Result, faster: Result) -> Spread:
    """How many times as long one takes as the other, round by round."""
    pairs = zip(slower.seconds, faster.seconds, strict=False)  # one may have failed on the way
    return Spread.of([a / b for a, b in pairs])


def set_precision(precision: str) -> None:
    """As the trainer: full float32 only for fp32; cuDNN chooses by trial."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = True


def on_gpu(device: str) -> bool:
    return device.startswith("cuda")


class Memory:
    """The most memory in use since this was made, beyond what was then: a GPU's as PyTorch
    allocates it, or the resident memory of the process (on Linux)."""

    STATUS = Path("/proc/self/status")
    CLEAR = Path("/proc/self/clear_refs")

    def __init__(self, device: str) -> None:
        self.device = device
        gc.collect()
        if on_gpu(device):
            import torch

            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)
        elif self.STATUS.exists():
            with contextlib.suppress(AttributeError):  # not every C library has it
                ctypes.CDLL(None).malloc_trim(0)
            with contextlib.suppress(PermissionError):  # then building counts too
                self.CLEAR.write_text("5")  # the peak becomes what there is now
            self.before = self.resident("VmRSS")

    def resident(self, name: str) -> int:
        lines = dict(line.split(":", 1) for line in self.STATUS.read_text().splitlines())
        return int(lines[name].split()[0]) * 1024

    def peak(self) -> int | None:
        if on_gpu(self.device):
            import torch

            return torch.cuda.max_memory_allocated(self.device) - self.before
        return self.resident("VmHWM") - self.before if self.STATUS.exists() else None


def seconds_per_call(trial: Trial, calls: int = 1) -> float:
    def synchronize() -> None:
        if on_gpu(trial.device):
            import torch

            torch.cuda.synchronize(trial.device)

    synchronize()
    started = time.perf_counter()
    for _ in range(calls):
        trial.once()
    synchronize()
    return (time.perf_counter() - started) / calls


def serve(task: str) -> None:
    """The worker: builds, then answers each line of stdin with one of JSON."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever is printed must not look like an answer

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")

    try:
        settings = json.loads(sys.stdin.readline())
        module, _, function = task.partition(":")
        trial: Trial = getattr(importlib.import_module(module), function)(settings)
        memory = Memory(trial.device)
        calls = 1
        answer()
        for line in sys.stdin:
            if line.strip() == "warm":
                last = [seconds_per_call(trial) for _ in range(WARM_CALLS)][-1]
                calls = max(1, round(REPEAT_SECONDS / last))
                answer()
            else:
                answer(seconds=seconds_per_call(trial, calls), peak_bytes=memory.peak())
    except Exception as error:
        traceback.print_exc()
        answer(error=" ".join(f"{type(error).__name__}: {error}".split())[:300])


class Worker:
    """The process of one contender, and what it has answered."""

    def __init__(self, contender: Contender, environment: Mapping[str, str]) -> None:
        self.result = Result(contender.name)
        paths = [str(contender.tree), environment.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [sys.executable, __file__, contender.task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            text=True,
        )
        self.send(json.dumps(dict(contender.settings)))

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `receive` notices that it is gone
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def receive(self) -> None:
        """Wait for the answer to the last line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        values: Settings = (
            json.loads(line) if line else {"error": f"exit code {self.process.wait()}"}
        )
        self.result.seconds += [values["seconds"]] if "seconds" in values else []
        self.result.peak_bytes = values.get("peak_bytes", self.result.peak_bytes)
        self.result.error = values.get("error", "")

    def ask(self, line: str) -> None:
        self.send(line)
        self.receive()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()  # the end of its stdin ends it


def environment_for(threads: int, malloc: str) -> dict[str, str]:
    """The variables of every contender: the same threads and the same allocator."""
    others = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "THP_"))}
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return {**others, **dict.fromkeys(names, str(threads)), **MALLOC[malloc]}


def contest(
    contenders: Sequence[Contender], environment: Mapping[str, str], seconds: float
) -> list[Result]:
    """Rounds until `seconds` of repeats have passed, but at least `MIN_ROUNDS`.

    Who fails, or finds no memory, drops out with an `error`; the others go on.
    """
    with contextlib.ExitStack() as stack:
        workers = []
        for contender in contenders:
            workers.append(Worker(contender, environment))
            stack.callback(workers[-1].close)
        for worker in workers:
            worker.receive()
        for worker in workers:
            if not worker.result.error:
                worker.ask("warm")
        end = time.monotonic() + seconds
        rounds = 0
        while rounds < MIN_ROUNDS or time.monotonic() < end:
            running = [worker for worker in workers if not worker.result.error]
            if not running:
                break
            for worker in running if rounds % 2 == 0 else reversed(running):
                worker.ask("once")
            rounds += 1
    return [worker.result for worker in workers]


@contextlib.contextmanager
def tree_of(revision: str | None) -> Iterator[Path]:
    """A folder with the package as it was at a git revision; None: the working tree."""
    if revision is None:
        yield ROOT
        return
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", revision, "--"]
    archive = subprocess.run([*command, "stylegan", "configs", "datasets"], capture_output=True)
    if archive.returncode:
        reason = archive.stderr.decode().strip().splitlines()[0]
        raise ValueError(f"no git revision {revision!r} with the package: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder)


def conditions(environment: Mapping[str, str], device: str = "cpu") -> Settings:
    """What the numbers depend on, to be kept beside them."""
    import torch

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
        return done.stdout.strip()

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    names = [name for name in environment if name.startswith(("MALLOC_", "LD_PRELOAD", "THP_"))]
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "revision": git("rev-parse", "--short", "HEAD") + "+" * bool(git("status", "--porcelain")),
        "cpu": (models or [platform.machine()])[0],
        "cores": os.cpu_count(),
        "threads": int(environment["OMP_NUM_THREADS"]),
        "allocator": " ".join(f"{name}={environment[name]}" for name in names) or "default",
        "torch": importlib.metadata.version("torch"),
        "device": torch.cuda.get_device_name(device) if on_gpu(device) else device,
    }


def number(value: float) -> str:
    """Three significant digits, without exponents."""
    return f"{value:,.0f}" if value == 0 or abs(value) >= 100 else f"{value:.3g}"


def spread(value: Spread, unit: str = "") -> str:
    """`median (low-high)`."""
    return f"{number(value.median)}{unit} ({number(value.low)}-{number(value.high)})"


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """A table; a row may lack some of the names that others have."""
    names = list(dict.fromkeys(name for row in sorted(rows, key=len)[::-1] for name in row))
    lines = [names, ["--:"] * len(names), *([row.get(name, "") for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def save(
    out: Path, name: str, title: str, record: Settings, rows: Sequence[Mapping[str, str]]
) -> str:
    """Write the table and the record as `name.md` and `name.json` into `out`; the text."""
    measured_by = ", ".join(f"{name} {value}" for name, value in record["conditions"].items())
    text = f"# {title}\n\n{markdown(rows)}\n\n{measured_by}\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(text, encoding="utf-8")
    (out / f"{name}.json").write_text(json.dumps(record, indent=1, default=dataclasses.asdict))
    return text


threads = click.IntRange(min=1)
OPTIONS = {
    "device": click.option("--device", default="cpu", help="cpu, cuda, cuda:1."),
    "threads": click.option(
        "--threads", type=threads, envvar="OMP_NUM_THREADS", default=os.cpu_count()
    ),
    "malloc": click.option("--malloc", type=click.Choice(list(MALLOC)), default="tuned"),
    "seconds": click.option("--seconds", type=float, default=20, help="Of repeats, for each row."),
    "out": click.option("--out", type=click.Path(path_type=Path), default="out/benchmarks"),
}


def options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options that several benchmarks have, by name; all of them if none is named."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for name in reversed(names or tuple(OPTIONS)):
            command = OPTIONS[name](command)
        return command

    return decorate


if __name__ == "__main__":
    serve(sys.argv[1])
