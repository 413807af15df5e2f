"""`stylegan directions`: find or learn directions of w, and show them."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from stylegan import directions as library
from stylegan.cli import options, param_types
from stylegan.cli.common import Command, Terminal, echo
from stylegan.cli.options import Selection
from stylegan.directions import Directions, Method
from stylegan.figures import FORMATS, save_image
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.filesystem import OutputWriter

OUT = options.path_option("--out", "File, .npz.  [default: where --edit and explore look for it]")


@click.group()
def directions() -> None:
    """Find directions of w that change images, or learn one from examples.

    Use them with --edit of generate, figure and video, and as sliders of explore. Other directions
    in an existing file are kept.

    \b
    stylegan directions find runs/mine
    stylegan directions learn runs/mine smiling/ others/ --name smile
    """


def write_new(
    methods: Sequence[Method],
    make: Callable[[Pretrained], list[Directions]],
    *,
    examples: Sequence[Path] = (),
    name: str | None = None,
    out: Path | None,
    figure: Path | None,
    seed: int,
    outputs: OutputWriter,
    **selected: Any,
) -> None:
    """Add the directions that `make` finds in a generator to their file, and write figures.

    Raises ValueError before the work if a file cannot be written or directions would be lost."""
    selection = Selection(**selected)
    source = selection.source
    file = out or library.default_path(source)
    figures = [figure] if figure else []
    if figure and len(methods) > 1:
        figures = [figure.with_stem(f"{figure.stem}-{method}") for method in methods]
    outputs.check(file, endings=[".npz"], sources=[Path(source), *examples], exist_ok=True)
    outputs.check(*figures, endings=FORMATS)
    loaded = selection.loaded
    generator = loaded.generator
    label = loaded.label(selection.class_name) if figures or selection.class_name else None
    library.others_in(file, generator, methods, outputs, name=name)  # refuses before the work
    new = make(loaded)
    draw = partial(library.draw_directions, loaded, seed=seed, labels=label)
    images = [draw(directions) for directions in new if figures]
    library.add_directions(file, new, generator, outputs, name=name)
    for path, image in zip(figures, images, strict=True):
        save_image(path, image, outputs=outputs)
    counts = " and ".join(f"{len(d.vectors)} by {d.method}" for d in new)
    echo(f"{counts}, of the {loaded.origin}: {', '.join(map(str, [file, *figures]))}")


TARGET = options.combine(
    options.count_option(
        "--samples", "Number of latents to map to w.", default=50_000, least=2, most=10_000_000
    ),
    options.path_option(
        "--figure",
        "Image to write, .png, .webp or .jpg: a row for each direction. With several methods, a "
        "file for each: NAME-pca.png.",
    ),
    options.count_option(
        "--seed", "Seed of the image in the figure.", default=0, least=0, most=param_types.MAX_SEED
    ),
    options.number_option("--psi", "Truncation of that image.  [default: as in the file]"),
    options.class_option("alternating classes; required with --figure by networks with labels"),
    options.DEVICE,
    options.OVERWRITE,
)


@directions.command(cls=Command)
@options.SOURCE
@OUT
@click.option(
    "--method",
    type=click.Choice(["pca", "sefa", "both"]),
    default="both",
    help="pca: principal components of w; sefa: directions that the style layers amplify most.",
)
@options.count_option("--count", "Number of directions of each method.", default=10, most=1024)
@click.option(
    "--layers", type=param_types.LAYERS, help="Layers to move, such as 0-3.  [default: all]"
)
@TARGET
def find(method: str, count: int, layers: range | None, samples: int, **target: Any) -> None:
    """Find directions of w without examples.

    \b
    stylegan directions find runs/mine
    stylegan directions find faces64 --out faces.npz --figure faces.png --seed 3
    """
    methods = [known for known in library.METHODS if method in ("both", known)]

    def make(loaded: Pretrained) -> list[Directions]:
        return library.find_directions(
            loaded.generator,
            methods,
            count=count,
            layers=layers,
            samples=samples,
            label_rows=loaded.label_rows,
            resolution=loaded.settings.synthesis_resolution,
        )

    write_new(methods, make, **target)


@directions.command(cls=Command)
@options.SOURCE
@click.argument("positive", type=param_types.INPUT)
@click.argument("negative", type=param_types.INPUT)
@OUT
@click.option("--name", help="Name of the direction.  [default: name of POSITIVE]")
@TARGET
def learn(
    positive: Path,
    negative: Path,
    name: str | None,
    class_name: str | None,
    samples: int,
    **target: Any,
) -> None:
    """Learn a direction of w from examples with an attribute (POSITIVE) and without it (NEGATIVE).

    Both are folders of images named by seed, as generate writes them, or latents (.npz, or
    folders of project). The printed accuracy is on held-out examples.

    \b
    stylegan directions learn runs/mine smiling/ others/ --name smile
    stylegan generate runs/mine --edit svm:smile=+2
    """
    svm = library.check_name(name or positive.stem)

    def make(loaded: Pretrained) -> list[Directions]:
        console = Terminal(say=options.note_once)
        w, present = library.examples_of(loaded, positive, negative, class_name, console)
        normal, accuracy = library.fit_hyperplane(w, present)
        larger_side = max(present.mean(), 1 - present.mean())
        echo(
            f"svm:{svm}: held-out accuracy {accuracy:.1%} on {len(w)} examples; "
            f"{larger_side:.1%} of them are in the larger class"
        )
        return [library.to_directions(loaded, svm, normal, accuracy, samples)]

    examples = [positive, negative]
    write_new(["svm"], make, examples=examples, name=svm, class_name=class_name, **target)
