"""`stylegan directions`: directions in the space of w, found or learnt, and shown."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stylegan.cli import options, values
from stylegan.cli.common import Command, say, use_device
from stylegan.disk import check_file

if TYPE_CHECKING:
    from stylegan.directions import Method


@click.command(cls=Command)
@options.SOURCE
@options.path_option("--out", "File, .npz.  [default: where --edit and explore look for it]")
@click.option(
    "--method",
    type=click.Choice(["pca", "sefa", "both"]),
    help="Principal components of w, or what the style layers amplify most.  "
    "[default: both, without --from]",
)
@click.option(
    "--from",
    "examples",
    metavar="POSITIVE NEGATIVE",
    nargs=2,
    type=values.INPUT,
    help="Learn a direction from two folders: pictures named by seed, as generate writes them, or "
    "latents (.npz, or folders of project).",
)
@click.option("--name", help="Name of the learnt direction.  [default: that of POSITIVE]")
@options.count_option("--count", "Number of directions of each method.  [default: 10]", most=1024)
@click.option("--layers", type=values.LAYERS, help="Layers to move, such as 0-3.  [default: all]")
@options.count_option("--samples", "Number of latents to measure w on.", 50_000, 2, 10_000_000)
@options.path_option(
    "--figure",
    "Picture to write, .png, .webp or .jpg: a row for each direction. With both methods one file "
    "for each: NAME-pca.png, NAME-sefa.png.",
)
@options.count_option("--seed", "Seed of the picture that is moved.", 0, 0, values.LARGEST_SEED)
@options.number_option("--psi", "Truncation of that picture.  [default: as in the file, else 0.7]")
@options.CLASS
@options.DEVICE
@options.OVERWRITE
def directions(
    source: str,
    out: Path | None,
    method: str | None,
    examples: tuple[Path, Path] | None,
    name: str | None,
    count: int | None,
    layers: range | None,
    samples: int,
    figure: Path | None,
    seed: int,
    psi: float | None,
    class_name: str | None,
    device: str,
    overwrite: bool,
) -> None:
    """Find directions of w that change pictures, or learn one from examples.

    Use them with --edit of generate, figure and video, and as sliders of explore. A file that
    exists keeps its other directions. The printed accuracy is on held-out examples.

    \b
    stylegan directions runs/mine
    stylegan directions faces64 --out people.npz --figure people.png --seed 3
    stylegan directions runs/mine --from smiling/ others/ --name smile
    """
    from stylegan import directions as library
    from stylegan.directions.files import updated
    from stylegan.figures import check_picture, save_picture
    from stylegan.files.loading import open_weights

    if examples and (method or count or layers):
        fault = "--method, --count and --layers do not apply to --from"
        raise click.UsageError(f"{fault}; choose layers with --edit")
    if name is not None and not examples:
        raise click.UsageError("--name is for a direction learnt with --from")
    learnt = library.check_name(name or examples[0].stem) if examples else None
    methods: list[Method] = [m for m in library.METHODS if method in (None, "both", m)]
    methods = ["svm"] if examples else methods
    path = out or library.default_path(source)
    check_file(path, overwrite=True, endings=[".npz"])
    figures = dict.fromkeys(methods, figure) if figure else {}
    if figure and len(methods) > 1:
        figures = {m: figure.with_stem(f"{figure.stem}-{m}") for m in methods}
    for file in figures.values():
        check_picture(file)
        check_file(file, overwrite=overwrite)
    weights = open_weights(source, map_location=use_device(device))
    loaded = weights.require_loaded().adjusted(psi=psi)
    labels = loaded.label(class_name) if figures or class_name else None
    try:
        kept = library.load_directions(path, loaded.generator) if path.exists() else []
    except ValueError as error:
        if not overwrite:
            hint = "--overwrite replaces the whole file, --out chooses another"
            raise ValueError(f"{error}; {hint}") from error
        kept = []
    there = [d.method for d in kept if d.method in methods and learnt in (None, *d.names)]
    if there and not overwrite:
        what = f"svm:{learnt}" if learnt else " and ".join(there)
        fault = f"{path} exists, with directions {what}"
        raise ValueError(f"{fault}; pass --overwrite to replace them, or choose another name")
    if examples and learnt:
        w, present = library.examples_of(loaded, *examples, class_name)
        normal, accuracy = library.fit_hyperplane(w, present)
        found = [library.to_directions(loaded.generator, learnt, normal, accuracy, samples)]
        frequent = max(present.mean(), 1 - present.mean())
        say(
            f"svm:{learnt}: held-out accuracy {accuracy:.1%} on {len(w)} examples, of "
            f"which the larger side has {frequent:.1%}"
        )
    else:
        number = count or library.COUNT
        found = library.find_directions(
            loaded.generator, methods, count=number, layers=layers, samples=samples
        )
    drawn = {
        figures[d.method]: library.draw_directions(loaded, d, seed=seed, labels=labels)
        for d in found
        if figures
    }
    library.save_directions(path, updated(kept, found), loaded.generator)
    for file, image in drawn.items():
        save_picture(file, image, overwrite=overwrite)
    counts = " and ".join(f"{len(one.vectors)} by {one.method}" for one in found)
    say(f"{counts}, of the {loaded.origin}: {', '.join(map(str, [path, *drawn]))}")
