"""What a training step asks of a GPU, counted without one, and a roofline made of the counts.

A model, not a measurement (see counting.py, which counts): it ranks designs by operations, bytes
and multiplications.
"""

import contextlib
import itertools
import json
import multiprocessing
import random
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import click
import iteration
import numpy as np
import others
import torch
from contest import Settings, Trial, conditions, environment_for, markdown, number, options, save
from counting import CONVOLUTIONS, PRODUCTS, Autocast, Count, Gpu, counted

from stylegan.cli.common import Command
from stylegan.training import draw, train_step
from stylegan.training.run import backend_flags

SIZES = ("8x128", "64x4", "64x32", "256x8", "1024x4")  # pixels x images
PRECISIONS = ("fp32", "tf32", "bf16")
OTHERS = Path(__file__).with_name("gpu_model_others.json")  # rows of the other programs
MARKS = ("<!-- gpu_model.py writes this -->", "<!-- until here -->")

GPUS = {  # the V100 has no tf32, and fp16 in the place of bf16
    "V100": Gpu(0.75e12, {"fp32": 11.0e12, "tf32": 11.0e12, "half": 50e12}),
    "A100": Gpu(1.3e12, {"fp32": 13.7e12, "tf32": 93.6e12, "half": 156e12}),
    "H100": Gpu(2.6e12, {"fp32": 46.9e12, "tf32": 247.5e12, "half": 445.5e12}),
}


def ours(settings: Settings) -> Count:
    overrides = [*settings["overrides"], f'precision="{settings["precision"]}"']
    state, stage, reals, share = iteration.prepare({**settings, "overrides": overrides})

    def once() -> None:
        draws = draw(state.config, state.images_seen, stage, None, share)
        train_step(state, reals, None, stage, draws)

    with backend_flags(state.config):
        return counted(once)


def textbook(settings: Settings) -> Count:
    """The step of examples/one_file.py, with our draws."""
    return in_precision(iteration.textbook(settings), settings["precision"], autocast=None)


def other(settings: Settings) -> Count:
    """The step of another program. What it reads, as its level of detail, is 0."""
    random.seed(0)  # with these seeds the second step mixes styles
    np.random.seed(0)
    trial = others.PROGRAMS[settings["program"]](settings)
    autocast = torch.bfloat16 if settings["precision"] == "bf16" else None
    return in_precision(trial, settings["precision"], autocast=autocast, read=0.0)


def in_precision(
    trial: Trial, precision: str, *, autocast: torch.dtype | None, read: float = 1.0
) -> Count:
    """The count of a program that does not choose the precision of float32 products: that is the
    default of PyTorch, TF32 in convolutions, but for fp32."""
    before = PRODUCTS.fp32_precision, CONVOLUTIONS.fp32_precision
    PRODUCTS.fp32_precision = "ieee"
    CONVOLUTIONS.fp32_precision = "ieee" if precision == "fp32" else "tf32"
    try:
        return counted(trial.once, autocast=autocast, read=read)
    finally:
        PRODUCTS.fp32_precision, CONVOLUTIONS.fp32_precision = before


PROGRAMS = {"ours": ours, "textbook": textbook, **dict.fromkeys(others.PROGRAMS, other)}


def count_of(settings: Settings) -> Count:
    with Autocast.everywhere():
        return PROGRAMS[settings["program"]](settings)


def settings_of(size: str, program: str, precision: str) -> Settings:
    """The settings of a size such as 64x32, at the official widths."""
    resolution, batch = map(int, size.split("x"))
    overrides = [f"network.resolution={resolution}", f"schedule.batch_size={{4={batch}}}"]
    return {
        "program": program,
        "precision": precision,
        "resolution": resolution,
        "batch": batch,
        "alpha": 1.0,
        "config": None,
        "device": "meta",
        "overrides": [*overrides, "style_mixing=1.0", *iteration.TEXTBOOK],
    }


def row_of(size: str, program: str, counts: dict[str, Count]) -> dict[str, str]:
    """A row of the table, from the counts in each precision."""
    first = next(iter(counts.values()))
    resolution, batch = size.split("x")
    row = {"px": resolution, "batch": batch, "program": program}
    row |= {"operations": f"{first.operations:,}", "kernels": f"{first.launches:,}"}
    row |= {"callbacks": str(first.callbacks), "waits": str(len(first.waits))}

    def cell(value_of: Callable[[Count], float]) -> str:
        return " / ".join(number(value_of(count)) for count in counts.values())

    row |= {"GB": cell(lambda count: count.bytes / 1e9), "TFLOP": number(first.flops / 1e12)}
    row["host ms"] = cell(Count.host_milliseconds)
    for name, gpu in GPUS.items():
        row[f"{name} ms"] = cell(partial(Count.device_milliseconds, gpu=gpu))
    return row


def revision_of(clone: Path) -> str:
    command = ["git", "-C", str(clone), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write_into(page: Path, text: str) -> None:
    """Replace what a page has between the two marks."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise click.ClickException(f"{page} has no table between {MARKS[0]} and {MARKS[1]}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


@click.command(cls=Command)
@click.argument("sizes", nargs=-1, metavar="[PIXELSxIMAGES]...")
@click.option("--precision", type=click.Choice(PRECISIONS), multiple=True, default=PRECISIONS)
@click.option("--program", type=click.Choice(["ours", "textbook"]), multiple=True)
@click.option(
    "--others",
    "clones",
    type=click.Path(exists=True, path_type=Path),
    help="Folder with clones of other programs (see others.py), to be counted anew.",
)
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Option of ours.")
@click.option("--by-name", is_flag=True, help="Also show the operations that move the most bytes.")
@click.option("--page", type=click.Path(path_type=Path), help="Page whose table is replaced.")
@options("out")
def main(
    sizes: Sequence[str],
    precision: Sequence[str],
    program: Sequence[str],
    clones: Path | None,
    overrides: Sequence[str],
    by_name: bool,
    page: Path | None,
    out: Path,
) -> None:
    """Count steps at the official widths, of sizes such as 64x32: batches of 32 images of 64 px.

    A cell with several numbers has one for each precision. What other programs ask was counted
    before, and is shown beside ours in all precisions.

    \b
    python benchmarks/gpu_model.py 8x128 64x32 --program ours --precision tf32 --by-name
    python benchmarks/gpu_model.py --page docs/performance.md
    """
    there = others.cloned(clones) if clones else {}
    programs = [*(program or ("ours", "textbook")), *there]
    rows = list[dict[str, str]]()
    before = json.loads(OTHERS.read_text(encoding="utf-8"))["rows"]
    beside = before if not (program or there) and tuple(precision) == PRECISIONS else []
    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:  # a process for each: their modules have the same names
        pools = {p: stack.enter_context(ProcessPoolExecutor(1, spawn)) for p in programs}
        for size, name in itertools.product(sizes or SIZES, programs):
            counts = {}
            for kind in precision:
                settings = settings_of(size, name, kind)
                settings["overrides"] += overrides if name == "ours" else ()
                settings["other"] = there.get(name)
                counts[kind] = pools[name].submit(count_of, settings).result()
                if by_name:
                    click.echo(
                        f"{name} {size} {kind}\n{markdown(counts[kind].by_name())}", err=True
                    )
            rows.append(row_of(size, name, counts))
            click.echo(markdown(rows[-1:]), err=True)
            if name == programs[-1]:
                rows += [row for row in beside if f"{row['px']}x{row['batch']}" == size]
    machine = conditions(environment_for(1, "default"), "meta") | {
        "precision": " / ".join(precision)
    }
    record = {"conditions": machine, "rows": rows}
    click.echo(save(out, "gpu_model", "What a step asks of a GPU (a model)", record, rows))
    if clones and tuple(precision) == PRECISIONS:
        theirs = [row for row in rows if row["program"] in there]
        revisions = {name: revision_of(Path(folder)) for name, folder in there.items()}
        text = json.dumps({"revisions": revisions, "rows": theirs}, indent=1)
        OTHERS.write_text(text + "\n", encoding="utf-8")
    if page:
        write_into(page, f"{markdown(rows)}\n\nRevision {machine['revision']}.")


if __name__ == "__main__":
    main()
