"""`stylegan directions`: directions in the space of w, found and shown."""

from pathlib import Path

import click

from stylegan.cli import values
from stylegan.cli.common import Command, use_device
from stylegan.cli.options import CLASS, DEVICE, OVERWRITE, SOURCE, count_option, path_option
from stylegan.cli.terminal import say
from stylegan.destination import check_file


@click.command(cls=Command)
@SOURCE
@path_option("--out", "File, .npz.  [default: where stylegan explore SOURCE looks for it]")
@click.option(
    "--method",
    type=click.Choice(["pca", "sefa", "both"]),
    default="both",
    help="Principal components of w, or what the style layers amplify most.",
)
@count_option("--count", "Number of directions of each method.", 10, most=1024)
@click.option("--layers", type=values.LAYERS, help="Layers to move, such as 0-3.  [default: all]")
@count_option(
    "--samples", "Number of latents whose w are measured.", 50_000, least=2, most=10_000_000
)
@path_option(
    "--figure",
    "Picture to write, .png, .webp or .jpg: a row for each direction. With --method both, one file "
    "for each: NAME-pca.png, NAME-sefa.png.",
)
@click.option(
    "--seed",
    type=values.SEED,
    default=0,
    help="Seed of the picture that is moved.",
)
@click.option(
    "--psi",
    type=values.NUMBER,
    help="Truncation of that picture.  [default: as in the file, else 0.7]",
)
@CLASS
@DEVICE
@OVERWRITE
def directions(
    source: str,
    out: Path | None,
    method: str,
    count: int,
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
    from stylegan.directions import (
        METHODS,
        default_path,
        draw_directions,
        find_directions,
        save_directions,
    )
    from stylegan.figures import check_picture, save_picture
    from stylegan.files.loading import load_source

    path = out or default_path(source)
    check_file(path, overwrite=overwrite, endings=[".npz"])
    methods = [m for m in METHODS if method in (m, "both")]
    figures = {methods[0]: figure} if figure else {}
    if figure and len(methods) > 1:
        figures = {name: figure.with_stem(f"{figure.stem}-{name}") for name in methods}
    for file in figures.values():
        check_picture(file)
        check_file(file, overwrite=overwrite)
    loaded = load_source(source, map_location=use_device(device)).adjusted(psi=psi)
    labels = loaded.label(class_name) if figures or class_name else None
    found = find_directions(loaded.generator, methods, count=count, layers=layers, samples=samples)
    drawn = [draw_directions(loaded, one, seed=seed, labels=labels) for one in found if figures]
    save_directions(path, found, loaded.generator)
    for one, image in zip(found, drawn, strict=False):
        save_picture(figures[one.method], image, overwrite=overwrite)
    counts = " and ".join(f"{len(one.vectors)} by {one.method}" for one in found)
    files = ", ".join(map(str, [path, *figures.values()]))
    say(f"{counts}, of the {loaded.origin}: {files}")
