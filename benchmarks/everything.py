"""All that one wants to know of a machine, by one command and within a time.

Checks come first, side by side: what must hold on the device. Then figures, which are times and so
come one after another. Each part is a process with a share of the time; what one leaves goes to
those after it, and one that takes longer is cut off.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
from contest import PRECISIONS, ROOT, conditions, environment_for, markdown, on_gpu, options

from stylegan.cli.common import Command

GRACE_SECONDS = 20  # after SIGTERM
POLL_SECONDS = 0.2
PARITY = ("test_parity_networks", "test_parity_losses", "test_trajectory")


class Part(NamedTuple):
    """One question, and the program that answers it."""

    name: str
    arguments: Sequence[str]  # of Python
    share: float = 1.0  # of the time, relative to the others
    check: bool = False  # its failure is the command's


def parts(device: str, out: Path) -> list[Part]:
    """The questions: small ones on a CPU, which show that all of it works."""
    gpu = on_gpu(device)
    there = ["--device", device]
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests = ROOT / "tests"
    marked = [str(p) for p in sorted(tests.glob("test_*.py")) if "mark.gpu" in p.read_text("utf-8")]

    def script(name: str, *arguments: str) -> list[str]:
        return [str(Path(__file__).with_name(f"{name}.py")), *arguments, *there]

    def figure(name: str, arguments: Sequence[str], share: float = 1.0) -> Part:
        return Part(name, [*arguments, "--out", str(out / name)], share)

    def check(name: str, arguments: Sequence[str], share: float = 1.0) -> Part:
        return Part(name, arguments, share, check=True)

    parity = [str(tests / f"{name}.py") for name in PARITY]
    ada = ["-o", 'augment.kind="ada"', "-o", "augment.probability=0.8"]
    if not gpu:
        quickstart = ["--config", "quickstart"]
        tiny = ["--config", "quickstart", "--resolution", "8"]
        halves = ["--precision", "bf16", "--precision", "fp16", "--steps", "4", "--batch", "4"]
        train = ["-o", "log_kimg=0.008", "-o", "schedule.total_kimg=0.032"]
        generate = ["8", "--batch", "2", "--max-channels", "16", "--seconds", "0"]
        return [
            check("parity", [*pytest, *parity]),
            check("large", script("checks", "large", "--batch", "16", *quickstart)),
            check(
                "skips", [*script("checks", "skips", *halves, *tiny), "--out", str(out / "skips")]
            ),
            check("twice", script("checks", "twice", "--batch", "4", *tiny)),
            check("memory", script("checks", "memory")),
            check("ada", script("checks", "memory", *ada)),
            check("resume", script("checks", "resume")),
            figure("iteration", script("iteration", "8", "--seconds", "0", *quickstart), 3),
            figure("generation", script("generation", *generate)),
            figure("training", script("checks", "training", *train)),
        ]
    precisions = [word for name in PRECISIONS for word in ("--precision", name)]
    train = ["--config", "ffhq-256", "--photographs", "256", "-o", "log_kimg=0.5"]
    train += ["-o", "schedule.initial_resolution=256", "-o", "schedule.total_kimg=3"]
    iterate = ["256", "1024", "64", "--seconds", "1", *precisions]
    generate = ["256", "1024", "--batch", "1", "--batch", "16", "--seconds", "1"]
    return [
        check("tests", [*pytest, "-m", "gpu", *marked], 1.5),
        check("parity", [*pytest, *parity]),
        check("large", script("checks", "large"), 0.5),
        check("waits", script("checks", "waits"), 0.5),
        check("skips", [*script("checks", "skips"), "--out", str(out / "skips")], 1.5),
        check("twice", script("checks", "twice")),
        check("memory", script("checks", "memory", "--steps", "200", *ada)),
        check("resume", script("checks", "resume"), 0.8),
        figure("iteration", script("iteration", *iterate), 4),
        figure("generation", script("generation", *generate)),
        figure("training", script("checks", "training", *train)),
    ]


class Running:
    """A part that runs in processes of its own, its output in a log."""

    def __init__(self, part: Part, device: str, out: Path, threads: int) -> None:
        self.part = part
        self.started = time.monotonic()
        self.ended: float | None = None
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "TEST_DEVICE": device}
        variables["OMP_NUM_THREADS"] = str(threads)
        with open(out / f"{part.name}.log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *part.arguments],
                cwd=ROOT,
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # so that its own processes end with it
            )

    def has_ended(self) -> bool:
        """Whether it has ended by itself, and so at what time."""
        if self.ended is None and self.process.poll() is not None:
            self.ended = time.monotonic()
        return self.ended is not None

    def stop(self) -> None:
        """End what still runs of it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):  # none is left
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_SECONDS)

    def row(self, limit: float) -> dict[str, str]:
        """Its line of the table, once stopped."""
        failed = "failed" if self.process.returncode else "passed"
        result = "cut off" if self.ended is None else failed
        command = " ".join(["python", *self.part.arguments]).replace(f"{ROOT}{os.sep}", "")
        seconds = f"{(self.ended or self.started + limit) - self.started:.0f} of {limit:.0f}"
        return {"part": self.part.name, "result": result, "s": seconds, "command": f"`{command}`"}


def run(parts: Sequence[Part], device: str, limit: float, out: Path) -> list[dict[str, str]]:
    """Run parts side by side for so many seconds at most; their lines of the table."""
    threads = max((os.cpu_count() or 1) // len(parts), 1)
    until = time.monotonic() + limit
    running = [Running(part, device, out, threads) for part in parts]
    try:
        while time.monotonic() < until and not all([one.has_ended() for one in running]):
            time.sleep(POLL_SECONDS)
    finally:
        for process in running:
            process.stop()
    return [process.row(limit) for process in running]


@click.command(cls=Command)
@options("device")
@click.option("--out", type=click.Path(path_type=Path), default="out/everything")
@click.option("--minutes", type=float, default=8, show_default=True, help="Time for all.")
def main(device: str, out: Path, minutes: float) -> None:
    """Check a device and measure it. The exit code is 1 if a check failed or was cut off.

    \b
    python benchmarks/everything.py --device cuda
    """
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    todo = parts(device, out)
    cores = os.cpu_count() or 1
    machine = conditions(environment_for(cores, "default"), device)
    end = time.monotonic() + 60 * minutes
    checks = [part for part in todo if part.check]
    rounds = [checks, *([part] for part in todo if not part.check)]
    rows = list[dict[str, str]]()
    tables = list[str]()
    for position, together in enumerate(rounds):
        shares = [sum(part.share for part in later) for later in rounds[position:]]
        limit = max((end - time.monotonic()) * shares[0] / sum(shares), 0.0)
        names = ", ".join(part.name for part in together)
        click.echo(f"{names}: at most {limit:.0f} s", err=True)
        for row in run(together, device, limit, out):
            rows.append(row)
            written = sorted((out / row["part"]).glob("*.md"))
            if row["result"] == "passed":
                tables += [f"#{path.read_text(encoding='utf-8')}" for path in written]
        head = [f"# Everything on {device}", markdown(rows)]
        head.append(", ".join(f"{name} {value}" for name, value in machine.items()))
        text = "\n\n".join([*head, *tables])
        (out / "everything.md").write_text(text, encoding="utf-8")
    click.echo(text)
    results = {row["part"]: row["result"] for row in rows}
    sys.exit(any(results[part.name] != "passed" for part in checks))


if __name__ == "__main__":
    main()
