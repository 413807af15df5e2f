"""`stylegan generate`: pictures from a trained generator."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from stylegan.cli.common import Command, count, use_device
from stylegan.cli.looking import (
    CLASS,
    CUTOFF,
    DEVICE,
    NOISE,
    PSI,
    RESOLUTION,
    SOURCE,
    SeedRange,
    note_untrained,
    saved_points,
    together,
)
from stylegan.destination import check_file, check_folder

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

    from stylegan.figures import Points
    from stylegan.files.loaded import Cutoff, LoadedGenerator

Format = Literal["png", "webp", "jpg"]
SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG"},
    "webp": {"format": "WEBP", "lossless": True},
    "jpg": {"format": "JPEG", "quality": 95, "subsampling": 0},
}
LARGEST_SIDE = {"webp": 16_383, "jpg": 65_500}  # pixels that the format, or its library, allows
DEFAULT_SEEDS = "0-31"
GRID_SEEDS = 64  # a grid of more is only made when asked for


@click.command(cls=Command)
@SOURCE
@click.option(
    "--seeds",
    type=SeedRange(),
    help="Which images; with --latents the numbers of those, from 0.  "
    f"[default: {DEFAULT_SEEDS}; with --latents all]",
)
@click.option(
    "--latents",
    "latents_file",
    metavar="FILE.npz",
    type=click.Path(path_type=Path),
    help="Images of this file (ws, w or z, and perhaps noise) instead of those that seeds name.",
)
@together(PSI, CUTOFF, NOISE, CLASS, RESOLUTION)
@click.option("--batch", type=click.IntRange(min=1), help="Images at once; fewer need less memory.")
@DEVICE
@click.option("--out", type=click.Path(path_type=Path), default="out", show_default=True)
@click.option(
    "--grid/--no-grid", default=None, help=f"All in one file.  [default: from 2 to {GRID_SEEDS}]"
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(list(SAVE_OPTIONS)),
    default="png",
    show_default=True,
)
@click.option("--overwrite", is_flag=True, help="Replace files that show something else.")
def generate(
    source: str,
    seeds: list[int] | None,
    latents_file: Path | None,
    device: str,
    out: Path,
    file_format: Format,
    overwrite: bool,
    grid: bool | None,
    **choices: Any,
) -> None:
    """Write one picture per seed or latent, and all of them in a grid.

    SOURCE is a run folder, a generator or state file of this project (.pt), an exported one
    (.safetensors, .npz; also a folder with model.safetensors), an official .pkl, a checkpoint of
    genforce, huangzh13 (.pth) or rosinality (.model), an https address of such a file with
    #sha256=..., or a bundled name (emoji32).

    \b
    python generate.py runs/mine --seeds 0-35 --psi 0.7 --out out/
    python generate.py karras2019stylegan-ffhq-1024x1024.pkl --seeds 5,7 --noise random
    """
    from stylegan import figures
    from stylegan.files.loading import load_source
    from stylegan.sampling import picture

    files = PictureFolder(out, file_format, overwrite)
    loaded = load_source(source, map_location=use_device(device))
    what, points = "seed", None
    if latents_file is not None:
        what, points = "latent", saved_points(loaded, latents_file, seeds, choices["class_name"])
        seeds = list(points.seeds)
    elif seeds is None:
        seeds = SeedRange().convert(DEFAULT_SEEDS, None, None)
    grid = 2 <= len(seeds) <= GRID_SEEDS if grid is None else grid
    kept = []
    for seed, pixels in zip(seeds, pictures_of(loaded, seeds, points, **choices), strict=True):
        files.save(f"{what}{seed:04d}", picture(pixels))
        if grid:
            kept.append(pixels)
    if grid:
        files.save("grid", figures.grid(kept, labels=[f"{what} {seed}" for seed in seeds]))
    and_grid = " and their grid" if grid else ""
    click.echo(f"{count(len(seeds), 'picture')}{and_grid} in {out}, from the {loaded.origin}")


def pictures_of(
    loaded: "LoadedGenerator",
    seeds: list[int],
    points: "Points | None" = None,
    *,
    psi: float | None,
    cutoff: "Cutoff",
    noise: Literal["const", "random", "none"] | None,
    class_name: str | None,
    resolution: int | None,
    batch: int | None,
) -> "Iterator[np.ndarray]":
    """The pictures (H, W, C) one by one; what is None is as the file says. `points`, one per seed,
    are shown as they are unless psi asks otherwise; the seeds are then of random noise alone."""
    import torch

    from stylegan import sampling

    labels = loaded.label(class_name) if points is None else None
    note_untrained(loaded, resolution)
    psi = 1.0 if psi is None and points else psi
    loaded = loaded.adjusted(psi=psi, cutoff=cutoff, resolution=resolution)
    own_noise = points.noise_at(loaded.resolution) if points and noise is None else None
    ws = None if points is None else points.ws
    try:
        yield from loaded.pictures(
            seeds, ws=ws, labels=labels, noise=noise or own_noise, batch=batch
        )
    except torch.OutOfMemoryError as error:
        number, size = batch or sampling.default_batch(loaded.resolution), loaded.resolution
        raise ValueError(
            f"{number} images of {size}x{size} at once do not fit into the "
            "memory of the device; choose a smaller --batch, or --device cpu"
        ) from error


class PictureFolder:
    """A folder that pictures are written to. A file that shows something else is not replaced."""

    def __init__(self, folder: Path, file_format: Format, overwrite: bool) -> None:
        check_folder(folder)
        self.folder, self.file_format, self.overwrite = folder, file_format, overwrite

    def save(self, name: str, image: "Image") -> None:
        """Write `name` with the ending of the format; the same picture twice is fine."""
        path = self.folder / f"{name}.{self.file_format}"
        write_picture(path, image, self.file_format, self.overwrite)


def write_picture(path: Path, image: "Image", file_format: Format, overwrite: bool) -> None:
    """Write the picture unless the file holds just that. ValueError if it shows something else,
    without `overwrite`, for a folder, and for what is too large for the format."""
    from stylegan.atomic import replacing

    largest = LARGEST_SIDE.get(file_format)
    if largest is not None and max(image.size) > largest:
        raise ValueError(
            f"{path} would be {image.width}x{image.height}, but a .{file_format} has at most "
            f"{largest} pixels a side; choose png, other --columns, or fewer pictures"
        )
    buffer = io.BytesIO()
    image.save(buffer, **SAVE_OPTIONS[file_format])
    content = buffer.getvalue()
    if path.is_file() and path.read_bytes() == content:
        return
    check_file(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)
