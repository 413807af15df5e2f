"""`stylegan figure`: the figures of the paper, of any generator."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from stylegan.cli.common import Command, data_option, use_device
from stylegan.cli.generate import SAVE_OPTIONS, Format, write_picture
from stylegan.cli.looking import (
    CLASS,
    CUTOFF,
    CUTOFF_ALL,
    DEVICE,
    LATENTS,
    LAYERS,
    NOISE,
    OVERWRITE,
    PSI,
    RESOLUTION,
    SOURCE,
    Asked,
    Numbers,
    SeedRange,
    chosen_ranges,
    seeds_option,
    together,
)
from stylegan.cli.measuring import beside_nearest, open_store
from stylegan.destination import check_file

if TYPE_CHECKING:
    from PIL.Image import Image

GRID_SEEDS, ROWS, COLUMNS, FEW, ONE = "0-31", "0-2", "10-15", "0-3", "0"
MOMENTS = 8  # columns of a timelapse


def out_option(name: str) -> Any:
    return click.option(
        "--out",
        type=click.Path(path_type=Path),
        default=f"{name}.png",
        show_default=True,
        help="File to write: .png, .webp (both without loss) or .jpg.",
    )


@click.group()
def figure() -> None:
    """Draw a figure of the paper from any generator.

    \b
    stylegan figure grid emoji32 --seeds 0-31 --out grid.png
    stylegan figure mixing runs/mine --seeds 0-2 --columns 10-15 --out mixing.webp
    """


@figure.command(cls=Command)
@together(SOURCE, seeds_option(GRID_SEEDS), LATENTS, PSI, CUTOFF, NOISE, CLASS, RESOLUTION, DEVICE)
@click.option("--columns", type=click.IntRange(min=1), help="Of the grid.  [default: about square]")
@together(out_option("grid"), OVERWRITE)
def grid(
    seeds: list[int] | None,
    columns: int | None,
    noise: Any,
    out: Path,
    overwrite: bool,
    **look: Any,
) -> None:
    """Every seed asked for, none left out (figure 2).

    \b
    stylegan figure grid emoji32 --seeds 0-31 --columns 8 --out grid.png
    """
    from stylegan.figures import labelled_grid

    file = FigureFile(out, overwrite)
    asked = Asked(**look)
    loaded = asked.loaded()
    points = asked.points(loaded, seeds, GRID_SEEDS)
    file.save(labelled_grid(loaded, points, noise=noise, columns=columns), loaded.origin)


@figure.command(cls=Command)
@together(SOURCE, seeds_option(ROWS))
@click.option(
    "--columns",
    type=SeedRange(),
    help=f"Source B, as --seeds is source A.  [default: {COLUMNS}]",
)
@together(LAYERS, LATENTS, PSI, CUTOFF, NOISE, CLASS, RESOLUTION, DEVICE)
@together(out_option("mixing"), OVERWRITE)
def mixing(
    seeds: list[int] | None,
    columns: list[int] | None,
    layers: list[tuple[int, int]] | None,
    noise: Any,
    out: Path,
    overwrite: bool,
    **look: Any,
) -> None:
    """Style mixing: rows of source A take coarse, middle or fine styles of source B (figure 3).

    Coarse are 4 and 8 pixels, middle 16 and 32, fine 64 and more; of a network for 32 pixels 4, 8,
    and 16 to 32.

    \b
    stylegan figure mixing emoji32 --seeds 0-2 --columns 10-15 --out mixing.png
    stylegan figure mixing ffhq.pt --layers 0-3,4-17 --out mixing.webp
    """
    from stylegan.figures import mixing as drawn

    file = FigureFile(out, overwrite)
    asked = Asked(**look)
    loaded = asked.loaded()
    sources, others = asked.points(loaded, seeds, ROWS), asked.points(loaded, columns, COLUMNS)
    file.save(
        drawn(loaded, sources, others, chosen_ranges(layers, loaded), noise=noise), loaded.origin
    )


@figure.command(cls=Command)
@together(SOURCE, seeds_option(FEW))
@click.option(
    "--psis",
    type=Numbers(),
    default="1,0.7,0.5,0,-0.5,-1",
    show_default=True,
    help="A column each.",
)
@together(LATENTS, CUTOFF_ALL, NOISE, CLASS, RESOLUTION, DEVICE)
@together(out_option("truncation"), OVERWRITE)
def truncation(
    seeds: list[int] | None,
    psis: list[float],
    noise: Any,
    out: Path,
    overwrite: bool,
    **look: Any,
) -> None:
    """Truncation: from full variety over the average image to the opposites (figure 8).

    \b
    stylegan figure truncation emoji32 --seeds 0-3 --psis 1,0.5,0,-0.5,-1 --out truncation.png
    """
    from stylegan.figures import truncation as drawn

    file = FigureFile(out, overwrite)
    asked = Asked(**look)
    loaded = asked.loaded(every_layer=True)
    file.save(drawn(loaded, asked.points(loaded, seeds, FEW), psis, noise=noise), loaded.origin)


@figure.command("noise-detail", cls=Command)
@together(SOURCE, seeds_option(ROWS))
@click.option(
    "--realizations",
    type=click.IntRange(min=2),
    default=100,
    show_default=True,
    help="Of noise, that the deviation is measured over.",
)
@click.option(
    "--examples", type=click.IntRange(min=1), default=4, show_default=True, help="Shown of them."
)
@click.option(
    "--zoom",
    type=click.IntRange(min=1),
    help="How near the examples are looked at.  [default: 4 from 128 pixels on, else 1]",
)
@together(LATENTS, PSI, CUTOFF, CLASS, RESOLUTION, DEVICE)
@together(out_option("noise-detail"), OVERWRITE)
def noise_detail(
    seeds: list[int] | None,
    realizations: int,
    examples: int,
    zoom: int | None,
    out: Path,
    overwrite: bool,
    **look: Any,
) -> None:
    """The same style with other noise, and how much each pixel varies (figure 4).

    \b
    stylegan figure noise-detail emoji32 --seeds 0-2 --out noise-detail.png
    """
    from stylegan.figures import noise_detail as drawn

    file = FigureFile(out, overwrite)
    asked = Asked(**look)
    loaded = asked.loaded()
    points = asked.points(loaded, seeds, ROWS)
    image = drawn(loaded, points, realizations=realizations, examples=examples, zoom=zoom)
    file.save(image, loaded.origin)


@figure.command("noise-components", cls=Command)
@together(SOURCE, seeds_option(ROWS))
@click.option(
    "--noise",
    type=click.Choice(["const", "random"]),
    default="const",
    show_default=True,
    help="The stored maps (those of --latents if it has any), or drawn from each image's seed.",
)
@together(LATENTS, PSI, CUTOFF, CLASS, RESOLUTION, DEVICE)
@together(out_option("noise-components"), OVERWRITE)
def noise_components(
    seeds: list[int] | None, noise: str, out: Path, overwrite: bool, **look: Any
) -> None:
    """All noise, none, that of fine layers alone, that of coarse layers alone (figure 5).

    Fine are 64 pixels and more; of a smaller network the upper half of its resolutions.

    \b
    stylegan figure noise-components emoji32 --seeds 0-2 --out noise-components.png
    """
    from stylegan.figures import noise_components as drawn

    file = FigureFile(out, overwrite)
    asked = Asked(**look)
    loaded = asked.loaded()
    points = asked.points(loaded, seeds, ROWS)
    file.save(drawn(loaded, points, drawn=noise == "random"), loaded.origin)


@figure.command(cls=Command)
@together(SOURCE, seeds_option(FEW, latents=False), PSI, CUTOFF, NOISE, CLASS, DEVICE)
@together(out_option("growth"), OVERWRITE)
def growth(
    source: str, seeds: list[int] | None, noise: Any, out: Path, overwrite: bool, **look: Any
) -> None:
    """The same seeds at every resolution that the files of a run were at.

    SOURCE is a run folder. Of each resolution the newest generator-*.pt or state-*.pt is taken.

    \b
    stylegan figure growth runs/mine --seeds 0-3 --out growth.png
    """
    from stylegan.figures import growth as drawn
    from stylegan.files.loading import newest_of_each_resolution
    from stylegan.run_folder import RunFolder

    file = FigureFile(out, overwrite)
    asked = Asked(source, **look)
    snapshots = asked.snapshots(newest_of_each_resolution(RunFolder(source).checkpoints()))
    file.save(
        drawn(snapshots, lambda loaded: asked.points(loaded, seeds, FEW), noise=noise),
        f"run {source}",
    )


@figure.command(cls=Command)
@together(SOURCE, seeds_option(FEW, latents=False))
@click.option(
    "--moments",
    type=click.IntRange(min=2),
    default=MOMENTS,
    show_default=True,
    help="Columns at most, evenly over the files of the run.",
)
@together(PSI, CUTOFF, NOISE, CLASS, DEVICE)
@together(out_option("timelapse"), OVERWRITE)
def timelapse(
    source: str,
    seeds: list[int] | None,
    moments: int,
    noise: Any,
    out: Path,
    overwrite: bool,
    **look: Any,
) -> None:
    """The same seeds over the training of a run.

    SOURCE is a run folder; its generator-*.pt and state-*.pt are the moments.

    \b
    stylegan figure timelapse runs/mine --seeds 0-3 --moments 6 --out timelapse.png
    """
    from stylegan.figures import evenly
    from stylegan.figures import timelapse as drawn
    from stylegan.run_folder import RunFolder, images_of

    file = FigureFile(out, overwrite)
    asked = Asked(source, **look)
    files = RunFolder(source).checkpoints()
    chosen = [files[i] for i in evenly([images_of(path) for path in files], moments)]
    snapshots = asked.snapshots(chosen)
    file.save(
        drawn(snapshots, lambda loaded: asked.points(loaded, seeds, FEW), noise=noise),
        f"run {source}",
    )


@figure.command(cls=Command)
@together(SOURCE, data_option("what a run was trained on"))
@click.option(
    "--mirror/--no-mirror", default=None, help="Training flipped half.  [default: as the run says]"
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Rows: seeds 0, 1...",
)
@click.option(
    "--nearest",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Columns beside them.",
)
@together(DEVICE, out_option("neighbours"), OVERWRITE)
def neighbours(
    source: str,
    data: Path | None,
    mirror: bool | None,
    samples: int,
    nearest: int,
    device: str,
    out: Path,
    overwrite: bool,
) -> None:
    """Does it repeat its training images? Samples beside those nearest to them.

    Samples have no truncation. Nearest by features of a small network trained on these images;
    the numbers are distances in units of that between a training image and its nearest other one:
    far below 1 is nearly a copy.

    \b
    stylegan figure neighbours runs/mine --out neighbours.png
    stylegan figure neighbours mine.safetensors --data photos/ --mirror --samples 8
    """
    from stylegan.files.loading import load_source
    from stylegan.run_folder import RunFolder

    file = FigureFile(out, overwrite)
    loaded, run = load_source(source, map_location=use_device(device)), RunFolder.at(source)
    store = open_store(data, run, loaded)
    if store is None:
        raise ValueError(f"{source} does not say what it was trained on; pass --data")
    mirrored = run.config().data.mirror if mirror is None and run else bool(mirror)
    file.save(beside_nearest(loaded, store, samples, nearest, mirror=mirrored), loaded.origin)


class FigureFile:
    """The file of `--out`. One that shows something else is not replaced without `overwrite`."""

    def __init__(self, path: Path, overwrite: bool) -> None:
        check_file(path, overwrite=True, endings=[f".{name}" for name in SAVE_OPTIONS])
        ending = path.suffix.lower().removeprefix(".")
        self.path, self.file_format, self.overwrite = path, cast(Format, ending), overwrite

    def save(self, image: "Image", origin: str) -> None:
        """Write it and say so."""
        write_picture(self.path, image, self.file_format, self.overwrite)
        click.echo(f"{self.path}, {image.width}x{image.height}, from the {origin}")
