"""All benchmarks but loading in a given time, each in a process of its own, and one summary."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from contest import ROOT, markdown, on_gpu, options

from stylegan.cli.common import Command

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """A command, and its share of the time, which it may exceed by what others have left."""

    name: str
    arguments: Sequence[str]  # of Python
    weight: float


def gpu_parts(device: str, out: Path, minutes: float) -> list[Part]:
    """Row by row from the largest resolution down, where a GPU is worth most."""
    where = ["--device", device, "--out", str(out)]
    precisions = [w for name in ("fp32", "tf32", "bf16", "fp16") for w in ("--precision", name)]
    sizes = [str(2**k) for k in range(10, 1, -1)]
    seconds = ["--seconds", f"{minutes / 2:.1f}"]
    return [
        Part("iteration", [script("iteration"), *sizes, *precisions, *seconds, *where], 5.0),
        Part("generation", [script("generation"), *seconds, "--no-peaks", *where], 1.0),
        Part("startup", [script("startup"), *seconds, *where], 0.3),
        Part("flat", [script("flat"), *where], 0.5),
        Part("tests", ["-m", "pytest", "-q", "-m", "gpu", str(ROOT / "tests")], 0.5),
        Part("precision", [script("precision"), "tf32", "bf16", "fp16", *where], 1.0),
    ]


def cpu_parts(out: Path, minutes: float) -> list[Part]:
    where = ["--out", str(out)]
    seconds = ["--seconds", f"{minutes:.1f}"]
    small = ["--batch", "4", "--batch", "16", *seconds, *where]
    return [
        Part("iteration", [script("iteration"), *map(str, (4, 8, 16, 32, 64)), *small], 5.0),
        Part("generation", [script("generation"), *seconds, *where], 1.5),
        Part("startup", [script("startup"), *seconds, *where], 0.5),
        Part("flat", [script("flat"), "--steps", "500", *where], 0.5),
        Part("scaling", [script("scaling"), "16", *seconds, *where], 0.5),
        Part("precision", [script("precision"), *where], 1.0),
    ]


def script(name: str) -> str:
    return str(HERE / f"{name}.py")


def run(part: Part, seconds: float, log: Path, environment: Mapping[str, str]) -> str:
    """How the part ended, within so many seconds; what it printed is in the log."""
    started = time.monotonic()
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, *part.arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=dict(environment),
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"stopped after {seconds:.0f} s; what it had measured is kept"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with its workers
                process.wait()
    took = f"{time.monotonic() - started:.0f} s"
    return f"done in {took}" if code == 0 else f"FAILED with exit code {code} after {took}"


def tables(out: Path, part: Part) -> str:
    """What the part has to show: its table, or the end of its log."""
    table, log = out / f"{part.name}.md", out / f"{part.name}.log"
    if table.exists():
        return table.read_text(encoding="utf-8")
    return f"# {part.name}\n\n```\n" + "\n".join(log.read_text().splitlines()[-15:]) + "\n```\n"


@click.command(cls=Command)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=8.0,
    show_default=True,
    help="For everything.",
)
@options("device", "out")
def main(minutes: float, device: str, out: Path) -> None:
    """Measure all but loading: one command for a borrowed GPU.

    What fails or finds no time is said so; the rest runs. Results, logs and `summary.md` go into
    the folder of --out. Times are those of a machine that does nothing else.

    \b
    python benchmarks/everything.py --device cuda --out results --minutes 8
    """
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    parts = gpu_parts(device, out, minutes) if on_gpu(device) else cpu_parts(out, minutes)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    end, ends = time.monotonic() + minutes * 60, {}
    for i, part in enumerate(parts):
        left = end - time.monotonic()
        share = left * part.weight / sum(p.weight for p in parts[i:])
        (out / f"{part.name}.md").unlink(missing_ok=True)  # of an earlier call
        ends[part.name] = run(part, max(share, 1.0), out / f"{part.name}.log", environment)
        click.echo(f"{part.name}: {ends[part.name]}", err=True)
    rows = [{"part": name, "how it ended": text} for name, text in ends.items()]
    summary = "\n\n".join([markdown(rows), *(tables(out, part) for part in parts)])
    (out / "summary.md").write_text(summary, encoding="utf-8")
    (out / "summary.json").write_text(json.dumps(ends, indent=1) + "\n")
    click.echo(summary)
    if any(text.startswith("FAILED") for text in ends.values()):
        raise ValueError("a part failed; its log says why")


if __name__ == "__main__":
    main()
