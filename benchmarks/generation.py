"""Images per second of a generator: ours and its command, against the textbook or a revision."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import peaks
import torch
import work
from contest import (
    GIB,
    Contender,
    Result,
    Spread,
    Trial,
    common_options,
    conditions,
    contest,
    environment_for,
    number,
    ratio,
    save,
    spread,
    tree_of,
)

from stylegan import sampling
from stylegan.cli.common import Command
from stylegan.networks import Generator, NetworkConfig

PSI = 0.7
TASKS = {"ours": "network", "command": "command"}


def generator_of(settings: dict[str, Any]) -> Generator:
    """The paper's network with the same random weights for all."""
    peaks.set_precision("fp32")
    torch.manual_seed(0)
    config = NetworkConfig(settings["resolution"], max_channels=settings["max_channels"])
    return Generator(config).requires_grad_(False).eval().to(settings["device"])


def latents(settings: dict[str, Any], generator: Generator) -> torch.Tensor:
    return sampling.latents(range(settings["batch"]), generator.config.z_dim).to(generator.w_avg)


def network(settings: dict[str, Any]) -> Trial:
    """Images as numbers, as a program that calls the generator has them."""
    generator = generator_of(settings)
    z = latents(settings, generator)

    @torch.inference_mode()
    def once() -> None:
        generator(z, psi=PSI, noise="const")

    return Trial(once, settings["device"])


def command(settings: dict[str, Any]) -> Trial:
    """Pictures from seeds, as `generate.py` makes them before they are written."""
    generator, batch = generator_of(settings), settings["batch"]
    runs = (
        sampling.generate(generator, range(1000 * batch), psi=PSI, batch=batch)
        for _ in itertools.count()
    )
    pictures = itertools.chain.from_iterable(runs)

    def once() -> None:
        next(pictures)

    return Trial(once, settings["device"])


def textbook(settings: dict[str, Any]) -> Trial:
    from textbook import textbook_generator, textbook_weights

    generator = generator_of(settings)
    z, weights = latents(settings, generator), generator.state_dict()
    opponent = textbook_generator(generator.config).requires_grad_(False).to(settings["device"])
    opponent.load_state_dict(textbook_weights(weights))
    del generator, weights

    @torch.inference_mode()
    def once() -> None:
        opponent(z, psi=PSI, noise="const")

    return Trial(once, settings["device"])


def work_per_image(config: NetworkConfig) -> float:
    """Floating-point operations with every resampling fused."""
    layers = work.generator_layers(config, config.resolution, False, "everywhere", mixing=0.0)
    return sum(layer.flops for layer in layers)


def cells(
    row: Mapping[str, Any], results: Mapping[str, Result], peak: peaks.Peaks | None
) -> dict[str, str]:
    """The row of the table."""
    found = {"px": str(row["resolution"]), "batch": str(row["batch"])}
    for name, result in results.items():
        rate = Spread.of(result.seconds).per(row["batch"]) if result.seconds else None
        found[f"{name} img/s"] = spread(rate) if rate else result.error
    for name in TASKS:
        theirs = results.get(f"their {name}") or results["textbook"]
        if results[name].seconds and theirs.seconds:
            found[f"{name} ratio"] = spread(ratio(theirs, results[name]), "x")
    if results["ours"].seconds:
        seconds = Spread.of(results["ours"].seconds).median
        rate = row["flops"] * row["batch"] / seconds
        found["GFLOP/img"], found["GFLOP/s"] = number(row["flops"] / 1e9), number(rate / 1e9)
        if peak:
            found["of peak"] = f"{rate / peak.convolution_flops:.0%}"
    for name, result in results.items():
        if "command" not in name and result.peak_bytes is not None:
            found[f"{name} GiB"] = number(result.peak_bytes / GIB)
    return found


@click.command(cls=Command)
@click.argument("resolutions", type=int, nargs=-1)
@click.option(
    "--batch", type=click.IntRange(min=1), multiple=True, default=[1, 4, 16], show_default=True
)
@click.option("--against", default="textbook", show_default=True, help="textbook, a git revision.")
@click.option("--max-channels", type=click.IntRange(min=1), default=512, hidden=True)
@click.option(
    "--peaks/--no-peaks",
    "with_peaks",
    default=True,
    help="Measure the best convolution, for the share of it.",
)
@common_options
def main(
    resolutions: Sequence[int],
    batch: Sequence[int],
    against: str,
    max_channels: int,
    with_peaks: bool,
    device: str,
    threads: int,
    malloc: str,
    seconds: float,
    out: Path,
) -> None:
    """Time generators of RESOLUTIONS (256 and 1024 unless given), psi 0.7, stored noise.

    `ours` and `textbook` are the networks alone, `command` is what `generate.py` does from seeds
    to pictures of bytes in main memory.

    \b
    python benchmarks/generation.py
    python benchmarks/generation.py 1024 --batch 4 --device cuda
    python benchmarks/generation.py 256 --against HEAD~3
    """
    environment = environment_for(threads, malloc)
    found = peaks.measure(device, ["fp32"] if with_peaks else [], environment)
    record: dict[str, Any] = {"conditions": conditions(environment, device), "peaks": found}
    rows, table, text = [], [], ""
    with tree_of(None if against == "textbook" else against) as tree:
        for resolution, size in itertools.product(resolutions or (256, 1024), batch):
            settings = {
                "resolution": resolution,
                "batch": size,
                "max_channels": max_channels,
                "device": device,
            }
            contenders = [Contender(n, f"generation:{task}", settings) for n, task in TASKS.items()]
            if against == "textbook":
                contenders.append(Contender("textbook", "generation:textbook", settings))
            else:
                theirs = [replace(c, name=f"their {c.name}", tree=tree) for c in contenders]
                contenders += theirs
            results = {r.name: r for r in contest(contenders, environment, seconds=seconds)}
            flops = work_per_image(NetworkConfig(resolution, max_channels=max_channels))
            rows.append({**settings, "flops": flops, "results": results})
            table.append(cells(rows[-1], results, found.get("fp32")))
            text = save(
                out, "generation", f"Generation against {against}", {**record, "rows": rows}, table
            )
    click.echo(text)


if __name__ == "__main__":
    main()
