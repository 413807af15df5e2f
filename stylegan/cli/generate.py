"""`stylegan generate`: images from a trained generator."""

from pathlib import Path
from typing import Any

import click

from stylegan import figures
from stylegan.cli.common import Command, Terminal, echo
from stylegan.cli.options import BATCH, OVERWRITE, SAMPLING, Selection, path_option, selecting
from stylegan.sampling import to_pil
from stylegan.utils.filesystem import OutputWriter
from stylegan.utils.text import pluralize

SEEDS = "0-31"
GRID_SEEDS = 64  # a grid of more images is only written with --grid


@click.command(cls=Command)
@selecting(SEEDS, *SAMPLING, BATCH)
@path_option("--out", "Folder to write to.", default="out")
@click.option(
    "--grid/--no-grid",
    default=None,
    help=f"Also write all images to one file.  [default: for 2 to {GRID_SEEDS} images]",
)
@click.option(
    "--format",
    "ending",
    type=click.Choice(["png", "webp", "jpg"]),
    default="png",
    help="File format; png and webp are lossless.",
)
@OVERWRITE
def generate(
    batch: int | None,
    out: Path,
    grid: bool | None,
    ending: str,
    outputs: OutputWriter,
    **selected: Any,
) -> None:
    """Write one image per seed or latent, and all of them in a grid.

    SOURCE is a run folder, a generator or state file of this project (.pt), an exported one
    (.safetensors; also a folder with model.safetensors), an official .pkl, a checkpoint
    of genforce, huangzh13, mmgeneration (.pth), lernapparat (.pt) or rosinality (.model), an https
    address of such a file with #sha256=..., or a bundled name (faces64, glyphs64).

    \b
    stylegan generate runs/mine --seeds 0-35 --psi 0.7 --out out/
    stylegan generate faces64 --seeds 0-7 --edit pca:2=+2@0-3 --out moved/
    stylegan generate karras2019stylegan-ffhq-1024x1024.pkl --seeds 5,7 --noise random
    """
    selection = Selection(default_seeds=SEEDS, **selected)
    # Fail early if the folder is not writable. Existing images are accepted if they are equal,
    # which is known only once the new ones are generated.
    grid_file = out / f"grid.{ending}"
    outputs.check(grid_file, exist_ok=True)
    loaded = selection.loaded
    if selection.latents:
        points = selection.points()
        seeds = points.seeds
        images = loaded.generate(seeds, ws=points.ws, noise=points.noise, batch=batch)
    else:  # mapped in batches: there may be many seeds
        seeds = selection.chosen_seeds
        labels = selection.labels(loaded)
        images = loaded.generate(seeds, labels=labels, noise=selection.noise, batch=batch)
    grid = 2 <= len(seeds) <= GRID_SEEDS if grid is None else grid
    in_grid = []
    console = Terminal()
    for i, (seed, pixels) in enumerate(zip(seeds, images, strict=True), 1):
        path = out / f"{selection.unit}{seed:04d}.{ending}"
        figures.save_image(path, to_pil(pixels), outputs=outputs)
        if grid:
            in_grid.append(pixels)
        console.progress("", i, len(seeds))
    if grid:
        captions = [f"{selection.unit} {seed}" for seed in seeds]
        figures.save_image(grid_file, figures.grid(in_grid, labels=captions), outputs=outputs)
    and_grid = " and their grid" if grid else ""
    echo(f"{pluralize(len(seeds), 'image')}{and_grid} in {out}, from the {loaded.origin}")
