"""`stylegan directions`: directions in the space of w, found or learnt, and shown."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stylegan.cli import values
from stylegan.cli.common import Command, progress_bar, use_device
from stylegan.cli.options import (
    CLASS,
    DEVICE,
    OVERWRITE,
    SOURCE,
    count_option,
    edits_of,
    path_option,
)
from stylegan.cli.terminal import say
from stylegan.destination import check_file
from stylegan.messages import readable

if TYPE_CHECKING:
    from torch import Tensor

    from stylegan.directions import Directions, Examples, Method
    from stylegan.files.loaded import LoadedGenerator


@click.command(cls=Command)
@SOURCE
@path_option("--out", "File, .npz.  [default: where stylegan explore SOURCE looks for it]")
@click.option(
    "--method",
    type=click.Choice(["pca", "sefa", "both", "label"]),
    help="Principal components of w, what the style layers amplify most, or the ways to each "
    "class.  [default: both of the first, without --from and --classifier]",
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
@click.option(
    "--classifier",
    type=values.INPUT,
    help="Learn a direction from what this TorchScript file says of --samples pictures, as the "
    "metric ls does.",
)
@click.option("--name", help="Name of the direction that is learnt.  [default: of the file]")
@click.option(
    "--orthogonal-to",
    "others",
    metavar="NAME",
    type=values.EDIT,
    multiple=True,
    help="Direction, such as svm:NAME or pca:1, that what is learnt shall not move along.",
)
@count_option("--count", "Number of directions of pca and of sefa.  [default: 10]", most=1024)
@click.option("--layers", type=values.LAYERS, help="Layers to move, such as 0-3.  [default: all]")
@count_option(
    "--samples", "Number of latents whose w are measured.", 50_000, least=2, most=10_000_000
)
@path_option(
    "--figure",
    "Picture to write, .png, .webp or .jpg: a row for each direction. With both methods one file "
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
    method: str | None,
    examples: tuple[Path, Path] | None,
    classifier: Path | None,
    name: str | None,
    others: tuple[str, ...],
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
    """Find directions of w that change pictures in ways of their own, or learn one from examples.

    They are for --edit of generate, figure, video and project, and sliders of explore. A file that
    exists keeps its other directions. Of what is learnt the accuracy on held-out examples is
    printed.

    \b
    stylegan directions runs/mine
    stylegan directions emoji32 --out smileys.npz --figure smileys.png --seed 3
    stylegan directions runs/mine --from smiling/ others/ --name smile --orthogonal-to pca:1
    """
    from stylegan import directions as library
    from stylegan.figures import check_picture, save_picture
    from stylegan.files.loading import load_source

    if (examples is not None) + (classifier is not None) + (method is not None) > 1:
        raise click.UsageError("--from, --classifier and --method exclude one another")
    place = classifier or (examples[0] if examples else None)
    methods: list[Method] = [m for m in library.METHODS if method in (None, "both", m)]
    if place or method == "label":
        methods = ["svm" if place else "label"]
        if count or layers:
            raise click.UsageError(
                "--count and --layers are for pca and sefa; choose layers with --edit NAME@0-3"
            )
    elif others:
        raise click.UsageError("--orthogonal-to is for directions that are learnt")
    if name is not None and not place:
        raise click.UsageError("--name is for the direction of --from or --classifier")
    path = out or library.default_path(source)
    check_file(path, overwrite=True, endings=[".npz"])
    figures = {methods[0]: figure} if figure else {}
    if figure and len(methods) > 1:
        figures = {m: figure.with_stem(f"{figure.stem}-{m}") for m in methods}
    for file in figures.values():
        check_picture(file)
        check_file(file, overwrite=overwrite)
    loaded = load_source(source, map_location=use_device(device)).adjusted(psi=psi)
    labels = loaded.label(class_name) if figures or class_name else None
    learned = library.check_name(name or place.stem) if place else None
    kept = kept_directions(path, loaded, methods, learned, overwrite=overwrite)
    basis = orthogonal_to(source, loaded, others)
    if learned is not None:
        if examples:
            rows = library.examples_of(loaded, *examples, class_name)
        else:
            assert classifier is not None
            rows = classified(loaded, classifier, samples)
        separation = library.separated(rows, basis)
        found = [library.learnt(loaded.generator, "svm", {learned: separation}, samples)]
        right, frequent = separation.accuracy, max(rows.present.mean(), 1 - rows.present.mean())
        say(
            f"svm:{learned}: {right:.1%} of {len(rows.w)} examples, held out in turn, lie on their "
            f"side of the plane; {frequent:.1%} are of the more frequent side"
        )
    elif methods == ["label"]:
        found = [library.class_directions(loaded, samples, basis)]
        assert found[0].accuracies is not None
        for called, right in zip(found[0].names, found[0].accuracies.tolist(), strict=True):
            say(f"label:{readable(called)}: {right:.1%} of held-out latents on their side")
    else:
        found = library.find_directions(
            loaded.generator, methods, count=count or library.COUNT, layers=layers, samples=samples
        )
    drawn = [library.draw_directions(loaded, d, seed=seed, labels=labels) for d in found if figures]
    library.save_directions(path, library.updated(kept, found), loaded.generator)
    for one, image in zip(found, drawn, strict=False):
        save_picture(figures[one.method], image, overwrite=overwrite)
    counts = " and ".join(f"{len(one.vectors)} by {one.method}" for one in found)
    files = ", ".join(map(str, [path, *figures.values()]))
    say(f"{counts}, of the {loaded.origin}: {files}")


def kept_directions(
    path: Path,
    loaded: "LoadedGenerator",
    methods: "list[Method]",
    learned: str | None,
    *,
    overwrite: bool,
) -> "list[Directions]":
    """What is in the file already. ValueError if some would be lost, unless they are to be
    replaced."""
    from stylegan.directions import load_directions

    if not path.exists():
        return []
    try:
        kept = load_directions(path, loaded.generator)
    except ValueError as error:
        if overwrite:
            return []
        raise ValueError(
            f"{error}; --overwrite replaces all of the file, --out chooses another"
        ) from error
    there = [d.method for d in kept if d.method in methods and learned in (None, *d.names)]
    if there and not overwrite:
        what = f"svm:{learned}" if learned else " and ".join(there)
        raise ValueError(
            f"{path} exists, with directions {what}; pass --overwrite to replace them, or choose "
            "another name"
        )
    return kept


def orthogonal_to(
    source: str, loaded: "LoadedGenerator", names: tuple[str, ...]
) -> "Tensor | None":
    """The directions of that name as rows (K, w_dim)."""
    import torch

    moves = edits_of(source, loaded, names)
    return torch.stack([move.direction for move in moves]) if moves else None


def classified(loaded: "LoadedGenerator", classifier: Path, samples: int) -> "Examples":
    """What the classifier says of samples."""
    from stylegan.directions import classified
    from stylegan.metrics.separability import load_classifier

    network, _ = load_classifier(classifier, loaded.generator.w_avg.device)
    with progress_bar("img") as progress:
        return classified(loaded, network, classifier.stem, samples, progress)
