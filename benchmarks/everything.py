"""All that one wants to know of a machine, by one command and within a time.

Checks come first: what must hold on the device. Then figures. Each part is a process with a share
of the time, what one leaves goes to those after it, and one that takes longer is cut off.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from contest import ROOT, conditions, environment_for, markdown, on_gpu, options
from peaks import DTYPES

from stylegan.cli.common import Command

GRACE_SECONDS = 20  # to save a state, after SIGTERM
PARITY = ("test_parity_networks", "test_parity_losses", "test_trajectory")
CARD_METRICS = "eff-fd500,eff-kid500,eff-pr500,swd500"
ENDLESS_KIMG = "100000"  # the clock ends the run


@dataclass(frozen=True)
class Part:
    """One question, and the program that answers it."""

    name: str
    question: str
    arguments: Sequence[str]  # of Python
    share: float = 1.0  # of the time, relative to the others
    check: bool = False  # it may fail; figures only come out, or do not
    variables: Mapping[str, str] = field(default_factory=dict)
    good: Sequence[int] = (0,)  # exit codes
    may_be_stopped: bool = False  # the end of its time is not a failure


@dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    name: str
    question: str
    check: bool
    result: str  # "passed", "measured", "failed", "cut off"
    seconds: float
    limit: float
    command: str

    @property
    def good(self) -> bool:
        return self.result in ("passed", "measured")


def marked_files() -> list[str]:
    """Tests with parts that need a GPU."""
    found = sorted((ROOT / "tests").glob("test_*.py"))
    return [str(path) for path in found if "pytest.mark.gpu" in path.read_text(encoding="utf-8")]


def parts(device: str, out: Path) -> list[Part]:
    """The questions: small ones on a CPU, which show that all of it works."""
    gpu = on_gpu(device)
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    there = ["--device", device]
    marked = [*pytest, "-m", "gpu", *marked_files()]
    parity = [*pytest, *(str(ROOT / "tests" / f"{name}.py") for name in PARITY)]
    checks = [
        Part(
            "tests",
            "tests of GPUs, with the leak under DataParallel",
            marked if gpu else [*pytest, str(ROOT / "tests" / "test_w_avg_leak.py")],
            2,
        ),
        Part(
            "parity", "numbers of the official program", parity, variables={"TEST_DEVICE": device}
        ),
        Part("memory", "flat over steps", [script("checks"), "memory", *there], 0.8),
        Part("resume", "bit for bit", [script("checks"), "resume", *there], 0.8),
    ]
    if gpu:
        recorded = ["-o", "cuda_graphs=true"]
        checks += [
            Part(
                f"{part.name}-graphs", f"{part.question}, CUDA graphs", [*part.arguments, *recorded]
            )
            for part in checks[2:]
        ]

    def figure(name: str, question: str, arguments: Sequence[str], share: float = 1.0) -> Part:
        return Part(name, question, [*arguments, *there, "--out", str(out / name)], share)

    precisions = [word for name in DTYPES for word in ("--precision", name)]
    quick = ["--seconds", "0" if not gpu else "2"]
    small = ["--config", "quickstart", "--no-peaks", "--min-rounds", "1"]
    train = ["-o", "log_kimg=0.008", "-o", "schedule.total_kimg=0.032"]
    if gpu:
        small, train = precisions, ["--config", "ffhq-256", "--photographs", "256"]
        train += ["-o", "schedule.initial_resolution=256", "-o", "schedule.total_kimg=3"]
        train += ["-o", "log_kimg=0.5"]
    sizes = ["256", "1024", "64", "16"] if gpu else ["8"]
    iterate = [script("iteration"), *sizes, *quick]
    graphs = [script("iteration"), "8", "64", "256", *quick, "--no-peaks"]
    graphs += ["--against", "ours", "-o", "cuda_graphs=true"]
    sizes = ["256", "1024", "--batch", "1", "--batch", "16"]
    sizes = sizes if gpu else ["8", "--batch", "2", "--max-channels", "16", "--no-peaks"]
    figures = [
        figure("iteration", "a training iteration beside the textbook", [*iterate, *small], 3),
        figure("graphs", "an iteration with CUDA graphs beside one without", graphs),
        figure("generation", "images beside the textbook", [script("generation"), *sizes, *quick]),
        figure("start", "from the start of Python", [script("startup"), "--seconds", "0"], 2),
        figure("training", "a real run, and waiting", [script("checks"), "training", *train]),
    ]
    checks = [dataclasses.replace(part, check=True) for part in checks]
    return [*checks, *(part for part in figures if gpu or part.name != "graphs")]


def card_parts(data: Path, config: str, kimg: str | None, device: str, out: Path) -> list[Part]:
    """A training that the clock ends, unless it has `kimg`, and what its card shows."""
    run, neighbours = str(out / "run"), str(out / "neighbours.png")
    stylegan, there = ["-m", "stylegan"], ["--device", device]
    source, seeds = ["--data", str(data)], ["--seeds", "0-63", "--overwrite"]
    train = ["train", *source, "--config", config, "--kimg", kimg or ENDLESS_KIMG, "--out", run]
    generate = [*stylegan, "generate", run, *seeds, *there]
    metrics = [*stylegan, "metrics", run, "--metrics", CARD_METRICS, "--psi", "1,0.7"]
    found = [
        Part(
            "train",
            "the run",
            [*stylegan, *train, *there],
            good=(0, 128 + signal.SIGTERM),
            may_be_stopped=True,
        ),
        Part("psi-1", "samples", [*generate, "--psi", "1", "--out", str(out / "psi-1")]),
        Part("psi-0.7", "samples", [*generate, "--psi", "0.7", "--out", str(out / "psi-0.7")]),
        Part("metrics", "with yardsticks", [*metrics, "--yardsticks", *there]),
        Part(
            "neighbours",
            "is anything learnt by heart",
            [*stylegan, "figure", "neighbours", run, *there, "--overwrite", "--out", neighbours],
        ),
        Part("report", "one page", [*stylegan, "report", run, *there]),
    ]
    return [dataclasses.replace(part, check=True) for part in found]


def script(name: str) -> str:
    return str(Path(__file__).with_name(f"{name}.py"))


def run(part: Part, limit: float, out: Path) -> Outcome:
    """Run a part for so many seconds at most; what it says goes into a log."""
    for old in (out / part.name).glob("*.md"):  # a table of before must not stand for this one
        old.unlink()
    started = time.monotonic()
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with open(out / f"{part.name}.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, *part.arguments],
            cwd=ROOT,
            env={**variables, **part.variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,  # so that its own processes end with it
        )
        late = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            end(process)
    done = "passed" if part.check else "measured"
    result = done if process.returncode in part.good else "failed"
    if late and not (part.may_be_stopped and result == done):
        result = "cut off"
    words = ["python", *(str(word) for word in part.arguments)]
    command = " ".join(word.removeprefix(f"{ROOT}{os.sep}") for word in words)
    seconds = time.monotonic() - started
    return Outcome(part.name, part.question, part.check, result, seconds, limit, command)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program and those that it has started."""
    if process.poll() is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # those that it left behind
            os.killpg(process.pid, signal.SIGKILL)
        return
    os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # none is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def report(title: str, outcomes: Sequence[Outcome], out: Path, device: str, rest: str) -> str:
    """The report so far, written as `everything.md` and `everything.json`."""
    threads = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
    about = conditions(environment_for(threads, "default"), device)
    rows = [
        {
            "part": one.name,
            "question": one.question,
            "kind": "check" if one.check else "figure",
            "result": one.result,
            "s": f"{one.seconds:.0f} of {one.limit:.0f}",
            "command": f"`{one.command}`",
        }
        for one in outcomes
    ]
    lines = [f"# {title}", markdown(rows), ", ".join(f"{k} {v}" for k, v in about.items()), rest]
    lines += [f"{one.name} was cut off." for one in outcomes if one.result == "cut off"]
    text = "\n\n".join(line for line in lines if line) + "\n"
    (out / "everything.md").write_text(text, encoding="utf-8")
    record = {"conditions": about, "parts": [dataclasses.asdict(one) for one in outcomes]}
    (out / "everything.json").write_text(json.dumps(record, indent=1) + "\n")
    return text


def tables(out: Path, outcomes: Sequence[Outcome]) -> str:
    """What the figures' own reports say."""
    found = [path for one in outcomes for path in sorted((out / one.name).glob("*.md"))]
    return "\n\n".join("#" + path.read_text(encoding="utf-8").strip() for path in found)


def card(out: Path) -> str:
    """What a training gave: samples, measurements, neighbours."""
    run, log = out / "run" / "log.jsonl", out / "metrics.log"
    lines = run.read_text(encoding="utf-8").splitlines() if run.is_file() else []
    seen = [json.loads(line).get("images_seen", 0) for line in lines]
    shown = [f"{max(seen, default=0):,} images were shown."]
    for psi in ("1", "0.7"):
        grids = sorted((out / f"psi-{psi}").glob("grid*"))
        shown += [f"Seeds 0-63, psi {psi}:\n\n![](psi-{psi}/{grid.name})" for grid in grids]
    if (out / "neighbours.png").is_file():
        shown.append("Samples beside their nearest training images:\n\n![](neighbours.png)")
    if log.is_file():
        said = log.read_text(encoding="utf-8").splitlines()
        shown.append("\n".join(line for line in said if line.startswith("|")))
    return "\n\n".join(shown)


@click.command(cls=Command)
@options("device")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="out/everything",
    show_default=True,
    help="Folder of the report, records and logs.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="Time for all.  [default: 8; of the training alone 15]",
)
@click.option("--train", "training", is_flag=True, help="Train, and make the card of the result.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True),
    help="Pictures to train on, such as emoji-64.zip of datasets/emoji.py.",
)
@click.option("--config", default="pretrained/emoji64", show_default=True, help="To train.")
@click.option("--kimg", help="End of the training, if it comes before the time.")
def main(
    device: str,
    out: Path,
    minutes: float | None,
    training: bool,
    data: Path | None,
    config: str,
    kimg: str | None,
) -> None:
    """Check a device and measure it; or train on it for a while. The exit code is 1 if a check
    failed or was cut off.

    \b
    python benchmarks/everything.py --device cuda
    python benchmarks/everything.py --device cpu --minutes 2
    python datasets/emoji.py NotoColorEmoji.ttf --size 64 --zip emoji-64.zip
    python benchmarks/everything.py --device cuda --train --data emoji-64.zip
    """
    if training and data is None:
        raise click.UsageError("--train needs pictures: --data emoji-64.zip; see --help")
    out = out.absolute()
    if training and (out / "run").exists():
        raise click.UsageError(
            f"{out / 'run'} exists, and would be continued; choose another --out"
        )
    out.mkdir(parents=True, exist_ok=True)
    left = 60 * (minutes or (15 if training else 8))
    outcomes: list[Outcome] = []
    if training:
        assert data is not None
        todo = card_parts(data.absolute(), config, kimg, device, out)
    else:
        todo = parts(device, out)
    title = f"A training on {device}" if training else f"Everything on {device}"
    for i, part in enumerate(todo):
        limit = left if training else left * part.share / sum(one.share for one in todo[i:])
        click.echo(f"{part.name}: {part.question}, at most {limit:.0f} s", err=True)
        outcomes.append(run(part, limit, out))
        click.echo(f"    {outcomes[-1].result}", err=True)
        if not training:
            left = max(left - outcomes[-1].seconds, 0)
        text = report(
            title, outcomes, out, device, card(out) if training else tables(out, outcomes)
        )
    click.echo(text)
    if not all(one.good for one in outcomes if one.check):
        sys.exit(1)


if __name__ == "__main__":
    main()
