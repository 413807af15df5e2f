"""`stylegan directions`: directions in the space of w, found or learned, and shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from torch import Tensor

from stylegan import directions as library
from stylegan.cli import options, values
from stylegan.cli.common import Command, say
from stylegan.directions import Directions, Method
from stylegan.figures import FORMATS, save_picture
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import training_pictures
from stylegan.machine.disk import Outputs

OUT = options.path_option("--out", "File, .npz.  [default: where --edit and explore look for it]")
SAMPLES = options.count_option(
    "--samples", "Number of latents to measure w on.", default=50_000, least=2, most=10_000_000
)
FIGURE = options.together(
    options.path_option(
        "--figure",
        "Picture to write, .png, .webp or .jpg: a row for each direction; of several methods a "
        "file for each, NAME-pca.png.",
    ),
    options.count_option(
        "--seed", "Seed of the picture that is moved.", default=0, least=0, most=values.LARGEST_SEED
    ),
    options.number_option("--psi", "Truncation of that picture.  [default: as in the file]"),
)


@click.group()
def directions() -> None:
    """Find directions of w that change pictures, or learn one from examples.

    Use them with --edit of generate, figure and video, and as sliders of explore. A file that
    exists keeps its other directions.

    \b
    stylegan directions find runs/mine
    stylegan directions learn runs/mine smiling/ others/ --name smile
    """


@directions.command(cls=Command)
@options.SOURCE
@OUT
@click.option(
    "--method",
    type=click.Choice(["pca", "sefa", "both"]),
    default="both",
    help="Principal components of w, or what the style layers amplify most.",
)
@options.count_option("--count", "Number of directions of each method.", default=10, most=1024)
@click.option("--layers", type=values.LAYERS, help="Layers to move, such as 0-3.  [default: all]")
@SAMPLES
@FIGURE
@options.CLASS
@options.DEVICE
@options.OVERWRITE
def find(
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
    outputs: Outputs,
) -> None:
    """Find directions of w, without examples.

    \b
    stylegan directions find runs/mine
    stylegan directions find faces64 --out faces.npz --figure faces.png --seed 3
    """
    methods = [known for known in library.METHODS if method in ("both", known)]
    file = out or library.default_path(source)
    outputs.check(file, endings=[".npz"], sources=[Path(source)], exist_ok=True)
    figures = checked_figures(source, figure, methods, outputs)
    loaded = opened(source, device, psi)
    label = loaded.label(class_name) if figures or class_name else None  # mistakes come first
    others = partial(library.others_in, file, loaded.generator, methods, outputs)
    others()  # what would be lost is refused before the work
    new = library.find_directions(
        loaded.generator,
        methods,
        count=count,
        layers=layers,
        samples=samples,
        label_rows=loaded.label_rows,
    )
    write(file, others, new, loaded, figures, seed=seed, label=label, outputs=outputs)


@directions.command(cls=Command)
@options.SOURCE
@click.argument("positive", type=values.INPUT)
@click.argument("negative", type=values.INPUT)
@OUT
@click.option("--name", help="Name of the direction.  [default: that of POSITIVE]")
@SAMPLES
@FIGURE
@options.CLASS
@options.DEVICE
@options.OVERWRITE
def learn(
    source: str,
    positive: Path,
    negative: Path,
    out: Path | None,
    name: str | None,
    samples: int,
    figure: Path | None,
    seed: int,
    psi: float | None,
    class_name: str | None,
    device: str,
    outputs: Outputs,
) -> None:
    """Learn a direction of w from examples with an attribute, POSITIVE, and without, NEGATIVE.

    Both are folders of pictures named by seed, as generate writes them, or latents (.npz, or
    folders of project). The printed accuracy is on held-out examples.

    \b
    stylegan directions learn runs/mine smiling/ others/ --name smile
    stylegan generate runs/mine --edit svm:smile=+2
    """
    name = library.check_name(name or positive.stem)
    file = out or library.default_path(source)
    sources = [Path(source), positive, negative]
    outputs.check(file, endings=[".npz"], sources=sources, exist_ok=True)
    figures = checked_figures(source, figure, ["svm"], outputs)
    loaded = opened(source, device, psi)
    label = loaded.label(class_name) if figures or class_name else None
    others = partial(library.others_in, file, loaded.generator, ["svm"], outputs, name=name)
    others()
    w, present = library.examples_of(loaded, positive, negative, class_name)
    normal, accuracy = library.fit_hyperplane(w, present)
    new = library.to_directions(loaded, name, normal, accuracy, samples)
    larger_side = max(present.mean(), 1 - present.mean())
    say(
        f"svm:{name}: held-out accuracy {accuracy:.1%} on {len(w)} examples, of which the larger "
        f"side has {larger_side:.1%}"
    )
    write(file, others, [new], loaded, figures, seed=seed, label=label, outputs=outputs)


def checked_figures(
    source: str, figure: Path | None, methods: Sequence[Method], outputs: Outputs
) -> dict[Method, Path]:
    """The file of each method's figure; ValueError if it cannot be written."""
    if figure is None:
        return {}
    figures = dict.fromkeys(methods, figure)
    if len(methods) > 1:
        figures = {method: figure.with_stem(f"{figure.stem}-{method}") for method in methods}
    outputs.check(*figures.values(), endings=FORMATS, pictures=training_pictures(source))
    return figures


def opened(source: str, device: str, psi: float | None) -> LoadedGenerator:
    weights = open_weights(source, map_location=options.use_device(device))
    loaded = weights.require_loaded()
    return replace(loaded, look=loaded.look.but(psi=psi))


def write(
    file: Path,
    others: Callable[[], Sequence[Directions]],
    new: Sequence[Directions],
    loaded: LoadedGenerator,
    figures: Mapping[Method, Path],
    *,
    seed: int,
    label: Tensor | None,
    outputs: Outputs,
) -> None:
    """Write new directions beside the others of the file, and their figures. `others` reads them:
    another process may have added some since this one began."""
    pictures = {
        figures[d.method]: library.draw_directions(loaded, d, seed=seed, labels=label)
        for d in new
        if d.method in figures
    }
    library.save_directions(file, library.updated(others(), new), loaded.generator)
    for path, picture in pictures.items():
        save_picture(path, picture, outputs=outputs)
    counts = " and ".join(f"{len(d.vectors)} by {d.method}" for d in new)
    say(f"{counts}, of the {loaded.origin}: {', '.join(map(str, [file, *pictures]))}")
