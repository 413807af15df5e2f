"""How long a complete training iteration takes: ours, against the textbook or another revision."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import click
import others
import torch
from contest import (
    GIB,
    PRECISIONS,
    Contender,
    Settings,
    Spread,
    Trial,
    conditions,
    contest,
    environment_for,
    markdown,
    number,
    on_gpu,
    options,
    ratio,
    save,
    set_precision,
    spread,
    tree_of,
)
from torch import Tensor

from stylegan.cli.common import Command
from stylegan.config import load_config
from stylegan.schedule import OFFICIAL_BATCH_SIZES, Stage, at_resolution, stage_at
from stylegan.training import Share, TrainState, draw, train_step

KNOWN = ("textbook", "none", "ours", "others")  # what --against takes beside git revisions
SMALL_NETWORK = 64  # on a CPU, unless the stage is larger
TEXTBOOK = (  # what it has: R1 in every step, one learning rate for both networks
    "r1_interval=1",
    "schedule.g_lr={4=0.001}",
    "schedule.d_lr={4=0.001}",
)


def prepare(settings: Settings) -> tuple[TrainState, Stage, Tensor, Share]:
    """Our state at its first step, the stage, and the images that every step is shown."""
    config = load_config(settings["config"], settings["overrides"])
    set_precision(config.precision)
    resolution = settings["resolution"]
    schedule = config.schedule
    stage = dataclasses.replace(
        stage_at(schedule.total_images, schedule),
        resolution=resolution,
        alpha=settings["alpha"],
        batch_size=settings["batch"],
        g_lr=at_resolution(schedule.g_lr, resolution),
        d_lr=at_resolution(schedule.d_lr, resolution),
    )
    state = TrainState.create(config, device=settings["device"])
    size = (stage.batch_size, config.network.image_channels, resolution, resolution)
    reals = torch.rand(size, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return state, stage, reals.to(settings["device"]), Share(device=settings["device"])


def ours(settings: Settings) -> Trial:
    state, stage, reals, share = prepare(settings)

    def once() -> None:
        probability = state.strength.probability
        draws = draw(state.config, state.images_seen, stage, None, share, probability)
        train_step(state, reals, None, stage, draws)
        if state.config.augment.adaptive:
            state.strength.adapt()

    return Trial(once, settings["device"])


def textbook(settings: Settings) -> Trial:
    from textbook import in_half_precision, textbook_state, textbook_step

    state, stage, reals, share = prepare(settings)
    set_precision(settings["precision"])
    config = state.config
    images_seen = itertools.count(0, stage.batch_size)
    weights = state.generator.state_dict(), state.discriminator.state_dict()
    opponent = textbook_state(config, *weights)
    if settings["precision"] in others.HALF:
        in_half_precision(opponent, reals.device.type, others.HALF[settings["precision"]])
    del state, weights

    def once() -> None:
        draws = draw(config, next(images_seen), stage, None, share)
        textbook_step(opponent, reals, stage, draws)

    return Trial(once, settings["device"])


def row_of(
    precision: str, contenders: Sequence[Contender], environment: dict[str, str], seconds: float
) -> tuple[dict[str, str], Settings]:
    """One contest of ours, and its opponents: a row of the table, and a record for JSON."""
    results = contest(contenders, environment, seconds)
    settings = contenders[0].settings
    batch = settings["batch"]
    record = {"precision": precision, **settings, "results": results}
    cells = {"px": str(settings["resolution"]), "batch": str(batch), "precision": precision}
    ours, *theirs = results
    if not ours.seconds:
        return {**cells, "s/iteration": ours.error}, record
    time = Spread.of(ours.seconds)
    cells |= {"s/iteration": spread(time), "img/s": number(time.per(batch).median)}
    for result in theirs:
        cells[f"{result.name} s"] = (
            spread(Spread.of(result.seconds)) if result.seconds else result.error
        )
        cells[f"{result.name} ratio"] = spread(ratio(result, ours), "x") if result.seconds else ""
    for result in results:
        cells[f"{result.name} GiB"] = (
            "" if result.peak_bytes is None else number(result.peak_bytes / GIB)
        )
    return cells, record


@click.command(cls=Command)
@click.argument("resolutions", type=int, nargs=-1)
@click.option("--config", help="Name of the configuration.  [default: the paper's]")
@click.option(
    "--batch", type=int, multiple=True, help="Images of an iteration.  [default: 4; on a GPU more]"
)
@click.option("--precision", type=click.Choice(PRECISIONS), multiple=True, default=["fp32"])
@click.option("--alpha", type=float, default=1.0, help="Below 1 the resolution is growing in.")
@click.option(
    "--against",
    default="textbook",
    show_default=True,
    help="textbook, none, ours (the same code with --their settings), others, a git revision.",
)
@click.option(
    "--others",
    "clones",
    type=click.Path(exists=True, path_type=Path),
    help="Folder with clones of other programs, for --against others; see others.py.",
)
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Option of ours.")
@click.option("--their", multiple=True, metavar="KEY=VALUE", help="Option of the opponent.")
@options()
def main(
    resolutions: Sequence[int],
    config: str | None,
    batch: Sequence[int],
    precision: Sequence[str],
    alpha: float,
    against: str,
    clones: Path | None,
    overrides: Sequence[str],
    their: Sequence[str],
    device: str,
    threads: int,
    malloc: str,
    seconds: float,
    out: Path,
) -> None:
    """Time iterations at RESOLUTIONS: draws, discriminator with R1, average, generator, Adam.

    Options of the configuration are those of `train.py`; `network.resolution` is that of the
    whole network, of which a stage is a part.

    \b
    python benchmarks/iteration.py 8 16 32 64 --batch 4 --batch 16
    python benchmarks/iteration.py 32 --against HEAD~3
    python benchmarks/iteration.py 8 --against ours --their network.resolution=1024
    python benchmarks/iteration.py 8 16 32 --against others --others clones/
    """
    if (against == "others") != (clones is not None):
        raise click.UsageError("--against others and --others FOLDER need each other")
    if clones and alpha != 1.0:
        raise click.UsageError("the other programs run here fully grown")
    environment = environment_for(threads, malloc)
    record: Settings = {"conditions": conditions(environment, device), "against": against}
    record |= {"config": config, "rows": []}
    rows = []
    text = ""
    gpu = on_gpu(device)
    with tree_of(None if against in KNOWN else against) as tree:
        for r in resolutions or [2**k for k in range(2, 11 if gpu else 7)]:
            usual = at_resolution(OFFICIAL_BATCH_SIZES[1], r) if gpu else 4
            for size, name in itertools.product(batch or [usual], precision):
                full = 1024 if gpu else max(SMALL_NETWORK, r)
                full = r if clones else full  # the others' do not grow
                base = [f"network.resolution={full}", f"schedule.batch_size={{4={size}}}"]
                base += TEXTBOOK if against in ("textbook", "others") else ()
                place = {"resolution": r, "batch": size, "alpha": alpha, "device": device}
                place |= {"config": config}
                exact = [*base, f'precision="{name}"']
                settings = place | {"overrides": [*exact, *overrides]}
                rivals = [Contender("ours", "iteration:ours", settings)]
                if against == "textbook":
                    settings = place | {"overrides": [*base, *their], "precision": name}
                    rivals.append(Contender("textbook", "iteration:textbook", settings))
                elif clones:  # their float32 is on a GPU as PyTorch does it
                    settings = place | {"precision": name}
                    rivals += [
                        Contender(program, "others:step", settings | {"other": folder})
                        for program, folder in others.cloned(clones).items()
                    ]
                elif against != "none":
                    settings = place | {"overrides": [*exact, *their]}
                    rivals.append(Contender(against, "iteration:ours", settings, tree))
                cells, measured = row_of(name, rivals, environment, seconds)
                rows.append(cells)
                record["rows"].append(measured)
                click.echo(markdown([cells]) + "\n", err=True)
                title = f"One training iteration against {against}"
                text = save(out, "iteration", title, record, rows)
    click.echo(text)


if __name__ == "__main__":
    main()
