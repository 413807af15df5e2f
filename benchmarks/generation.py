"""Images per second of a generator: ours and its command, against the textbook or a revision."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import others
import torch
from contest import (
    GIB,
    Contender,
    Settings,
    Spread,
    Trial,
    conditions,
    contest,
    environment_for,
    number,
    options,
    ratio,
    save,
    set_precision,
    spread,
    tree_of,
)

from stylegan import sampling
from stylegan.cli.common import Command
from stylegan.networks import Generator, NetworkConfig

PSI = 0.7


def prepare(settings: Settings) -> tuple[Generator, torch.Tensor]:
    """The paper's network with the same random weights for all, and latents."""
    set_precision("fp32")
    torch.manual_seed(0)
    config = NetworkConfig(settings["resolution"], max_channels=settings["max_channels"])
    generator = Generator(config).requires_grad_(False).eval().to(settings["device"])
    z = sampling.latents(range(settings["batch"]), config.z_dim).to(generator.w_avg)
    return generator, z


def network(settings: Settings) -> Trial:
    """Images as numbers, as a program that calls the generator has them."""
    generator, z = prepare(settings)
    autocast = others.autocast_of(settings)
    call = autocast(lambda: generator(z, psi=PSI, noise=settings["noise"]))
    return Trial(torch.inference_mode()(call), settings["device"])


def command(settings: Settings) -> Trial:
    """Pictures from seeds, as `generate.py` makes them before they are written."""
    (generator, _) = prepare(settings)
    batch = settings["batch"]
    seeds = range(1000 * batch)
    noise = settings["noise"]
    runs = (
        sampling.generate(generator, seeds, psi=PSI, batch=batch, noise=noise)
        for _ in itertools.count()
    )
    images = itertools.chain.from_iterable(runs)
    return Trial(lambda: next(images), settings["device"])


def textbook(settings: Settings) -> Trial:
    from textbook import textbook_generator, textbook_weights

    generator, z = prepare(settings)
    opponent = textbook_generator(generator.config).requires_grad_(False).to(settings["device"])
    opponent.load_state_dict(textbook_weights(generator.state_dict()))
    del generator
    call = torch.inference_mode()(lambda: opponent(z, psi=PSI, noise="const"))
    return Trial(call, settings["device"])


@click.command(cls=Command)
@click.argument("resolutions", type=int, nargs=-1)
@click.option("--batch", type=int, multiple=True, default=[1, 4, 16], show_default=True)
@click.option(
    "--against", default="textbook", show_default=True, help="textbook, others, a revision."
)
@click.option(
    "--others",
    "clones",
    type=click.Path(exists=True, path_type=Path),
    help="Folder with clones of other programs, for --against others; see others.py.",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", *others.HALF]),
    default="fp32",
    show_default=True,
    help="Of all networks but the textbook's and the command's, which are fp32.",
)
@click.option("--max-channels", type=int, default=512, hidden=True)
@options()
def main(
    resolutions: Sequence[int],
    batch: Sequence[int],
    against: str,
    clones: Path | None,
    precision: str,
    max_channels: int,
    device: str,
    threads: int,
    malloc: str,
    seconds: float,
    out: Path,
) -> None:
    """Time generators of RESOLUTIONS (256 and 1024 unless given), psi 0.7. Noise is
    stored, and drawn beside the others.

    `ours` and `textbook` are the networks alone, `command` is what `generate.py` does from seeds
    to pictures of bytes in main memory.

    \b
    python benchmarks/generation.py
    python benchmarks/generation.py 256 --against HEAD~3
    """
    if (against == "others") != (clones is not None):
        raise click.UsageError("--against others and --others FOLDER need each other")
    if clones and device != "cpu":
        raise click.UsageError(f"the other programs run here on a CPU, not on {device}")
    environment = environment_for(threads, malloc)
    record: Settings = {"conditions": conditions(environment, device), "rows": []}
    table = []
    text = ""
    with tree_of(None if against in ("textbook", "others") else against) as tree:
        for resolution, size in itertools.product(resolutions or (256, 1024), batch):
            settings: Settings = {"resolution": resolution, "batch": size}
            settings |= {"max_channels": max_channels, "device": device, "precision": precision}
            settings |= {"noise": "random" if clones else "const"}
            ours = Contender("ours", "generation:network", settings)
            rivals = [ours, Contender("command", "generation:command", settings)]
            if against == "textbook":
                rivals.append(Contender("textbook", "generation:textbook", settings))
            elif clones:
                rivals += [
                    Contender(program, "others:generation", settings | {"other": folder})
                    for program, folder in others.cloned(clones).items()
                ]
            else:
                rivals.append(replace(ours, name="theirs", tree=tree))
            results = contest(rivals, environment, seconds)
            cells = {"px": str(resolution), "batch": str(size)}
            for result in results:
                rate = Spread.of(result.seconds).per(size) if result.seconds else None
                cells[f"{result.name} img/s"] = spread(rate) if rate else result.error
                if rate and result is not results[0] and results[0].seconds:
                    cells[f"{result.name} takes"] = spread(ratio(result, results[0]), "x")
                if result.name != "command" and result.peak_bytes is not None:
                    cells[f"{result.name} GiB"] = number(result.peak_bytes / GIB)
            table.append(cells)
            record["rows"].append({**settings, "results": results})
            text = save(out, "generation", f"Generation against {against}", record, table)
    click.echo(text)


if __name__ == "__main__":
    main()
