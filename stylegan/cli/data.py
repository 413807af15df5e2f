"""`stylegan prepare`, `check`, `cache` and `align`: images for training."""

import sys
import time
from pathlib import Path
from typing import Any, Literal

import click

from stylegan import data
from stylegan.cli import options, param_types
from stylegan.cli.common import Command, Terminal, command, echo, fail_if_skipped, note
from stylegan.data import Preparation, default_cache_dir
from stylegan.data.cache import STORES
from stylegan.data.check import detect_channels, grouped
from stylegan.data.faces import align_files, read_landmarks
from stylegan.data.images import MODES
from stylegan.data.prepare import format_bytes
from stylegan.metrics.cache import FEATURES
from stylegan.utils.caches import entries
from stylegan.utils.filesystem import OutputWriter, remove_unfinished
from stylegan.utils.text import align_columns, join_truncated, pluralize, suggestion

READING = options.combine(
    click.option("--resolution", type=int, help="Resolution; smaller images are skipped."),
    options.SHAPE,
    options.channels_option("RGB"),
    click.option(
        "--include",
        multiple=True,
        metavar="FOLDER",
        help="First-level sub-folder to use; may be repeated.",
    ),
    click.option("--workers", type=click.IntRange(1, 1000), help="Number of decoding threads."),
)


def preparation_of(
    source: Path,
    channels: int | Literal["auto"],
    include: tuple[str, ...],
    resolution: int | None,
    crop: str | None,
    aspect: str | None,
) -> Preparation:
    """Preparation as requested; "auto" becomes the number of channels that `source` needs."""
    if channels == "auto":
        channels, reason = detect_channels(source, include)
        echo(reason)
    crop = options.crop_of(crop, aspect) or "center"
    return Preparation(resolution, crop, channels, channels == 4, include)


@click.command(cls=Command)
@click.argument("source", type=param_types.INPUT)
@click.argument("out", type=param_types.OUTPUT)
@READING
@click.option("--strict", is_flag=True, help="Fail if an image cannot be used.")
def prepare(source: Path, out: Path, strict: bool, workers: int | None, **reading: Any) -> None:
    """Convert all images of SOURCE (see `stylegan check --help`) to the store OUT.

    `train --data FOLDER` does this by itself; a store of your own can be kept, moved and shared.
    The default --resolution is the largest power of two that fits into the first image.

    \b
    stylegan prepare photos/ photos-256/ --resolution 256
    """
    preparation = preparation_of(source, **reading)
    opened = data.open_source(source, include=preparation.include)
    echo(*opened.notes())
    store = data.prepare(
        opened, out, preparation, strict=strict, workers=workers, console=Terminal()
    )
    size = store.resolution
    echo(
        f"{out}: {pluralize(store.num_images, 'image')} of {size}x{size}, "
        f"{pluralize(store.channels, 'channel')}, {pluralize(len(store.label_names), 'label')}",
        *(f"left out: {line}" for line in grouped(store.skipped)),
    )
    words = ["--data", out, "--resolution", size]
    kind, _, aspect = store.meta.crop.partition(" ")
    if kind != "center":
        words += ["--aspect", aspect] if aspect else ["--crop", kind]
    words += ["--channels", MODES[store.channels]] if store.channels != 3 else []
    echo(f"next: {command('train', *words)}")


@click.command(cls=Command)
@click.argument("source", type=param_types.INPUT)
@READING
@click.option("--strict", is_flag=True, help="Exit with code 1 if an image cannot be used.")
@click.option("--list", "every", is_flag=True, help="List every image that cannot be used.")
def check(source: Path, strict: bool, every: bool, workers: int | None, **reading: Any) -> None:
    """Read every image of a folder, zip or store, and report what is there and what is wrong.

    The table shows how many images are large enough for each resolution. The files of a store are
    verified by their hashes (training only checks their sizes). Nothing is written.

    SOURCE is a folder, zip or tar of images, a folder of tars (WebDataset), TFRecords, Parquet,
    hf:owner/name (a data set of the Hugging Face Hub), or a store. A zip or tar may have one folder
    on top. Labels are sub-folders, or dataset.json or labels.csv next to them, or those of the
    format.

    \b
    stylegan check photos/ --resolution 256
    """
    preparation = preparation_of(source, **reading)
    findings = data.check(source, preparation, workers=workers, console=Terminal())
    echo(*findings.lines())
    if every:
        echo(*(f"  {name}: {reason}" for name, reason in findings.skipped))
    if strict and findings.skipped:
        sys.exit(1)


@click.command(cls=Command)
@click.argument("names", nargs=-1)
@click.option("--clear", is_flag=True, help="Remove what is listed, and what killed commands left.")
@click.option(
    "--unused-for",
    "--older",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="List or remove only what has not been used for this many days.",
)
def cache(names: tuple[str, ...], clear: bool, unused_for: float | None) -> None:
    """List or remove the stores that `train --data FOLDER` caches, and features of real images.

    Both are created again when needed. They are kept in the folder that the environment variable
    STYLEGAN_CACHE names, else in the user's cache; other files there are left alone. NAMES are
    those of the list, by default all.

    \b
    stylegan cache
    stylegan cache --clear photos-256-0f3a5c7d9e1b2468
    stylegan cache --clear --unused-for 30
    """
    folder = default_cache_dir()
    found = [*entries(folder, STORES), *entries(folder / options.FEATURES, FEATURES)]
    known = [entry.path.name for entry in found]
    for name in names:
        if name not in known:
            hint = suggestion(name, known)
            raise ValueError(f"{name} is not in {folder}{hint}")
    latest = time.time() - (unused_for or 0) * 24 * 60 * 60
    found = [entry for entry in found if entry.last_used <= latest]
    found = [entry for entry in found if not names or entry.path.name in names]
    stores = sum(entry.kind is STORES for entry in found)
    files = len(found) - stores
    total = pluralize(stores, "store") + (
        f" and {pluralize(files, 'file')} of features" if files else ""
    )
    total += f", {format_bytes(sum(entry.size_bytes for entry in found))}"
    if clear:
        remove_unfinished(folder)
        for entry in found:
            entry.kind.remove(entry.path)
        echo(f"removed {total}, from {folder}")
        return
    rows = [("name", "images", "px", "size", "last used", "source")]
    for entry in found:
        images, pixels, source = entry.kind.about(entry.path)
        used = time.strftime("%Y-%m-%d", time.localtime(entry.last_used))
        rows.append((entry.path.name, images, pixels, format_bytes(entry.size_bytes), used, source))
    echo(f"{folder}: {total}", *(align_columns(rows, left=[0, 5]) if found else []))


@click.command(cls=Command)
@click.argument("source", type=param_types.INPUT)
@click.argument("out", type=param_types.OUTPUT)
@click.option(
    "--landmarks",
    type=param_types.INPUT,
    required=True,
    help="CSV (file,x0,y0,x1,y1,...) with 5 or 68 points of each face.",
)
@options.count_option("--size", "Width and height of the output images.", default=1024, most=2048)
@options.OVERWRITE
def align(source: Path, out: Path, landmarks: Path, size: int, outputs: OutputWriter) -> None:
    """Crop faces as FFHQ does. SOURCE is an image or a folder of images, OUT a folder.

    The landmarks give, for each image, 5 points of a face (eyes, nose, corners of the mouth, each
    from left to right in the image) or the 68 of iBUG, in pixels of the upright image. Faces are
    turned upright; where the crop extends beyond the image, the image is mirrored and blurred.
    Images and lines that cannot be used are skipped and listed at the end; the exit code is then 1.

    \b
    stylegan align photos faces --landmarks photos.csv
    stylegan project runs/faces faces/*.png --tune --out projected
    """
    faces = read_landmarks(landmarks)
    console = Terminal()
    sides, errors = align_files(source, faces, out, size, outputs=outputs, console=console)
    small = [f"{file.name} ({side:.0f})" for file, side in sides.items() if side < size]
    if small:
        note(f"{pluralize(len(small), 'face')} upsampled to {size} pixels: {join_truncated(small)}")
    if sides:
        echo(f"{pluralize(len(sides), 'face')} in {out}, {size}x{size}")
    fail_if_skipped("image", errors, asked=len(sides) + len(errors))
