"""`stylegan generate`: pictures from a trained generator."""

import dataclasses
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from stylegan.cli.common import Command, count, use_device

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image
    from torch import Tensor

    from stylegan.figures import Points
    from stylegan.loading import LoadedGenerator

Format = Literal["png", "webp", "jpg"]
SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG"},
    "webp": {"format": "WEBP", "lossless": True},
    "jpg": {"format": "JPEG", "quality": 95, "subsampling": 0},
}
LARGEST_SIDE = {"webp": 16_383, "jpg": 65_500}  # pixels that the format, or its library, allows
MOST_SEEDS = 1_000_000
DEFAULT_SEEDS = "0-31"
GRID_SEEDS = 64  # a grid of more is only made when asked for


class SeedRange(click.ParamType):
    """`0-35,40` as a list of whole numbers, each once."""

    name = "seeds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        if isinstance(value, list):
            return value
        seeds: dict[int, None] = {}
        for part in str(value).split(","):
            first, dash, last = (word.strip() for word in part.partition("-"))
            if not first.isdecimal() or (dash and not last.isdecimal()):
                self.fail(f"{part.strip()!r} is neither a seed nor a range like 0-35", param, ctx)
            numbers = range(int(first), int(last or first) + 1)
            if not numbers:
                self.fail(f"the range {part.strip()} ends before it begins", param, ctx)
            if len(seeds) + len(numbers) > MOST_SEEDS:
                self.fail(f"{part.strip()} is more than {MOST_SEEDS} seeds at once", param, ctx)
            seeds |= dict.fromkeys(numbers)
        return list(seeds)


class Cutoff(click.ParamType):
    """A number of layers, or `all`, which is -1 here: None says that nothing was asked."""

    name = "layers"
    ALL = -1

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "all":
            return self.ALL
        if not str(value).isdecimal():
            self.fail(f"{value!r} is neither a number of layers nor 'all'", param, ctx)
        return int(value)


@click.command(cls=Command)
@click.argument("source")
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
@click.option(
    "--psi",
    type=float,
    help="Truncation: 0 = the average image, 1 = full variety, negative = the opposite.  "
    "[default: what the file says, else 0.7; with --latents 1]",
)
@click.option(
    "--cutoff",
    type=Cutoff(),
    help="How many layers truncation reaches, from the coarsest, or 'all'.  "
    "[default: what the file says, else 8]",
)
@click.option(
    "--noise",
    type=click.Choice(["const", "random", "none"]),
    help="Fine detail: the stored maps, drawn from each image's seed, or left out.  "
    "[default: that of --latents if it has any, else const]",
)
@click.option("--class", "class_name", metavar="NAME|NUMBER", help="The label, if it has labels.")
@click.option("--resolution", type=int, help="Of the images, 4 up to the network's.")
@click.option("--batch", type=click.IntRange(min=1), help="Images at once; fewer need less memory.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, mps.")
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
    from stylegan.loading import load_source
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


def saved_points(
    loaded: "LoadedGenerator", path: Path, numbers: list[int] | None, class_name: str | None
) -> "Points":
    """The latents of a file that are wanted; None is all. Only z needs a class, if there are
    any."""
    from stylegan.figures import of_latents

    labels = None if class_name is None else class_labels(loaded, class_name)
    return of_latents(loaded, path, numbers, labels)


def pictures_of(
    loaded: "LoadedGenerator",
    seeds: list[int],
    points: "Points | None" = None,
    *,
    psi: float | None,
    cutoff: int | None,
    noise: Literal["const", "random", "none"] | None,
    class_name: str | None,
    resolution: int | None,
    batch: int | None,
) -> "Iterator[np.ndarray]":
    """The pictures (H, W, C) one by one; what is None is as the file says. `points`, one per seed,
    are shown as they are unless psi asks otherwise; the seeds are then of random noise alone."""
    import torch

    from stylegan import sampling

    labels = class_labels(loaded, class_name) if points is None else None
    default_psi = loaded.psi if points is None else 1.0
    loaded = at_resolution(loaded, resolution)
    own_noise = points.noise_at(loaded.resolution) if points and noise is None else None
    chunks = sampling.generate(
        loaded.generator,
        seeds,
        psi=default_psi if psi is None else psi,
        cutoff=loaded.cutoff if cutoff is None else None if cutoff == Cutoff.ALL else cutoff,
        labels=labels,
        noise=noise or own_noise or "const",
        resolution=loaded.resolution,
        alpha=loaded.alpha,
        batch=batch,
        ws=None if points is None else points.ws,
    )
    try:
        for chunk in chunks:
            yield from sampling.crop(chunk, loaded.active_rectangle)
    except torch.OutOfMemoryError as error:
        size = batch or sampling.default_batch(loaded.resolution)
        raise ValueError(
            f"{size} images of {loaded.resolution}x{loaded.resolution} at once do not fit into the "
            "memory of the device; choose a smaller --batch, or --device cpu"
        ) from error


def at_resolution(loaded: "LoadedGenerator", resolution: int | None) -> "LoadedGenerator":
    """`loaded` at the resolution asked for, fully grown if it is not the one training reached."""
    if resolution is None or resolution == loaded.resolution:
        return loaded
    if resolution > loaded.resolution:
        full = loaded.generator.config.resolution
        if resolution <= full:
            click.echo(
                f"training has reached {loaded.resolution}x{loaded.resolution}: layers beyond "
                "it are as they were drawn",
                err=True,
            )
    return dataclasses.replace(loaded, resolution=resolution, alpha=1.0)


def class_labels(loaded: "LoadedGenerator", class_name: str | None) -> "Tensor | None":
    """The label (1, label_dim) of a class by name or number; None for a network without labels."""
    import torch

    from stylegan.config import suggest

    count, names = loaded.generator.config.label_dim, list(loaded.label_names)
    if count == 0:
        if class_name is not None:
            raise ValueError(
                f"--class {class_name} was given, but the {loaded.origin} has no labels"
            )
        return None
    known = ", ".join(names) if names else f"0 to {count - 1}"
    if class_name is None:
        raise ValueError(f"the {loaded.origin} has labels: choose one with --class; known: {known}")
    if class_name in names:
        index = names.index(class_name)
    elif class_name.isdecimal() and int(class_name) < count:
        index = int(class_name)
    else:
        hint = suggest(class_name, names) or f"; known: {known}"
        raise ValueError(f"there is no class {class_name!r}{hint}")
    return torch.eye(count)[index : index + 1]


class PictureFolder:
    """A folder that pictures are written to. A file that shows something else is not replaced."""

    def __init__(self, folder: Path, file_format: Format, overwrite: bool) -> None:
        for path in itertools.chain([folder], folder.parents):
            if path.exists() and not path.is_dir():
                raise ValueError(f"{path} is a file; choose another --out")
        self.folder, self.file_format, self.overwrite = folder, file_format, overwrite

    def save(self, name: str, image: "Image") -> None:
        """Write `name` with the ending of the format; the same picture twice is fine."""
        path = self.folder / f"{name}.{self.file_format}"
        write_picture(path, image, self.file_format, self.overwrite)


def write_picture(path: Path, image: "Image", file_format: Format, overwrite: bool) -> None:
    """Write the picture unless the file holds just that. ValueError if it shows something else,
    without `overwrite`, for a folder, and for what is too large for the format."""
    from stylegan.checkpoint import replacing

    largest = LARGEST_SIDE.get(file_format)
    if largest is not None and max(image.size) > largest:
        raise ValueError(
            f"{path} would be {image.width}x{image.height}, but a .{file_format} has at most "
            f"{largest} pixels a side; choose png, other --columns, or fewer pictures"
        )
    if path.is_dir():
        raise ValueError(f"{path} is a folder; choose another --out")
    buffer = io.BytesIO()
    image.save(buffer, **SAVE_OPTIONS[file_format])
    content = buffer.getvalue()
    if path.exists() and not overwrite:
        if path.is_file() and path.read_bytes() == content:
            return
        raise ValueError(
            f"{path} exists and shows something else; pass --overwrite or choose another --out"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)
