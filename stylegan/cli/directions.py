"""`stylegan directions`: directions in the space of w, found and shown."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stylegan.cli.common import Command, use_device
from stylegan.cli.generate import SAVE_OPTIONS
from stylegan.cli.looking import CLASS, DEVICE, SOURCE, LayerRanges
from stylegan.destination import check_file

if TYPE_CHECKING:
    from stylegan.directions import Method


class LayerRange(click.ParamType):
    """`0-7` or `3` as a range of layers, both ends included."""

    name = "layers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        ranges = LayerRanges().convert(value, param, ctx)
        if len(ranges) > 1:
            self.fail(f"one range is needed, {value} are {len(ranges)}", param, ctx)
        first, last = ranges[0]
        return range(first, last + 1)


@click.command(cls=Command)
@SOURCE
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The .npz file to write.  [default: where stylegan explore SOURCE looks for it]",
)
@click.option(
    "--method",
    type=click.Choice(["pca", "sefa", "both"]),
    default="both",
    show_default=True,
    help="Principal components of w, or what the style layers amplify most.",
)
@click.option("--count", "number", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--layers", type=LayerRange(), help="Layers to move, such as 0-3.  [default: all]")
@click.option("--samples", type=click.IntRange(min=2), default=50_000, show_default=True)
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    help="Picture to write, .png or .webp: a row for each direction. With --method both, one file "
    "for each: NAME-pca.png, NAME-sefa.png.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="The picture that is moved.",
)
@click.option("--psi", type=float, help="Its truncation.  [default: what SOURCE says, else 0.7]")
@CLASS
@DEVICE
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
def directions(
    source: str,
    out: Path | None,
    method: str,
    number: int,
    layers: range | None,
    samples: int,
    figure: Path | None,
    seed: int,
    psi: float | None,
    class_name: str | None,
    device: str,
    overwrite: bool,
) -> None:
    """Find directions of w that change pictures in ways of their own; explore has sliders for them.

    \b
    stylegan directions runs/mine
    stylegan directions emoji32 --out smileys.npz --figure smileys.png --seed 3
    """
    from stylegan.atomic import replacing
    from stylegan.directions import (
        METHODS,
        default_path,
        draw_directions,
        find_directions,
        save_directions,
    )
    from stylegan.files.loading import load_source

    path = out or default_path(source)
    check_file(path, overwrite=overwrite, endings=[".npz"])
    methods = [m for m in METHODS if method in (m, "both")]
    figures = figure_files(figure, methods) if figure else {}
    for destination in figures.values():
        check_file(destination, overwrite=overwrite, endings=[f".{name}" for name in SAVE_OPTIONS])
    loaded = load_source(source, map_location=use_device(device))
    if psi is not None:
        loaded = dataclasses.replace(loaded, psi=psi)
    labels = loaded.label(class_name) if figures or class_name else None
    found = find_directions(loaded.generator, methods, count=number, layers=layers, samples=samples)
    images = {
        figures[one.method]: draw_directions(loaded, one, seed=seed, labels=labels)
        for one in found
        if one.method in figures
    }
    for destination in (path, *images):
        destination.parent.mkdir(parents=True, exist_ok=True)
    save_directions(path, found, loaded.generator)
    for destination, image in images.items():
        with replacing(destination) as file:
            image.save(file, **SAVE_OPTIONS[ending_of(destination)])
    counts = " and ".join(f"{len(one.vectors)} by {one.method}" for one in found)
    files = ", ".join(str(destination) for destination in (path, *images))
    click.echo(f"{counts}, of the {loaded.origin}: {files}")


def ending_of(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")


def figure_files(path: Path, methods: "list[Method]") -> "dict[Method, Path]":
    """Where the figure of each method goes: `path`, or with several NAME-method.png."""
    if len(methods) == 1:
        return {methods[0]: path}
    return {method: path.with_stem(f"{path.stem}-{method}") for method in methods}
