"""`stylegan prepare`, `check`, `cache` and `align`: images before training."""

import sys
import time
from pathlib import Path
from typing import Literal

import click

from stylegan import data
from stylegan.cli import options, values
from stylegan.cli.common import Command, Terminal, command, note, refuse_left_out, say
from stylegan.cli.options import gathered
from stylegan.data import Crop, Preparation, default_cache_dir
from stylegan.data.cache import STORES
from stylegan.data.check import grouped, needed_channels
from stylegan.data.faces import align_files, read_landmarks
from stylegan.data.images import MODES
from stylegan.data.prepare import mib
from stylegan.machine.caches import entries
from stylegan.machine.disk import Outputs
from stylegan.machine.messages import aligned, count, listed, suggestion
from stylegan.metrics.cache import FEATURES

READING = options.together(
    click.option("--resolution", type=int, help="Resolution below which images are left out."),
    options.SHAPE,
    options.channels_option("RGB"),
    click.option(
        "--include",
        multiple=True,
        metavar="FOLDER",
        help="First-level sub-folder to use; may be repeated.",
    ),
    click.option("--workers", type=click.IntRange(1, 1000), help="Number of threads that decode."),
)


def preparation_of(
    source: Path,
    channels: int | Literal["auto"],
    include: tuple[str, ...],
    crop: Crop = "center",
    resolution: int | None = None,
) -> Preparation:
    """Return the requested preparation, with the channels that a source needs."""
    if channels == "auto":
        channels, reason = needed_channels(source, include)
        say(reason)
    return Preparation(resolution, crop, channels, channels == 4, include)


@click.command(cls=Command)
@click.argument("source", type=values.INPUT)
@click.argument("out", type=values.OUTPUT)
@READING
@click.option("--strict", is_flag=True, help="Refuse a source with images that cannot be used.")
@gathered("preparation", preparation_of)
def prepare(
    source: Path, out: Path, preparation: Preparation, strict: bool, workers: int | None
) -> None:
    """Make the store OUT of all images of SOURCE: a folder, a zip or TFRecords.

    `train --data FOLDER` does this by itself; a store of your own can be kept, moved and shared.
    Without --resolution, it has the largest power of two that the first image offers.

    \b
    stylegan prepare photos/ photos-256/ --resolution 256
    """
    opened = data.open_source(source, include=preparation.include)
    say(*opened.notes())
    store = data.prepare(
        opened, out, preparation, strict=strict, workers=workers, console=Terminal()
    )
    size = store.resolution
    say(
        f"{out}: {count(store.num_images, 'image')} of {size}x{size}, "
        f"{count(store.channels, 'channel')}, {count(len(store.label_names), 'label')}",
        *(f"left out: {line}" for line in grouped(store.skipped)),
    )
    words = ["--data", out, "--resolution", size]
    kind, _, aspect = store.meta.crop.partition(" ")
    if kind != "center":
        words += ["--aspect", aspect] if aspect else ["--crop", kind]
    words += ["--channels", MODES[store.channels]] if store.channels != 3 else []
    say(f"next: {command('train', *words)}")


@click.command(cls=Command)
@click.argument("source", type=values.INPUT)
@READING
@click.option("--strict", is_flag=True, help="End with exit code 1 if an image cannot be used.")
@click.option("--list", "every", is_flag=True, help="Name every image that cannot be used.")
@gathered("preparation", preparation_of)
def check(
    source: Path, preparation: Preparation, strict: bool, every: bool, workers: int | None
) -> None:
    """Read every image of a folder, zip or store, and say what is there and what is wrong.

    The table says how many images are large enough for each resolution. All files of a store are
    compared with their hashes; a training looks at their sizes alone. Nothing is written.

    SOURCE is a folder or a zip of images, TFRecords, or a store. A zip may have one folder on top.
    Labels are sub-folders, or dataset.json or labels.csv next to them.

    \b
    stylegan check photos/ --resolution 256
    """
    findings = data.check(source, preparation, workers=workers, console=Terminal())
    say(*findings.lines())
    if every:
        say(*(f"  {name}: {reason}" for name, reason in findings.skipped))
    if strict and findings.skipped:
        sys.exit(1)


@click.command(cls=Command)
@click.argument("names", nargs=-1)
@click.option("--clear", is_flag=True, help="Remove what would be listed.")
@click.option(
    "--older",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="List or remove only what was not used for so many days.",
)
def cache(names: tuple[str, ...], clear: bool, older: float | None) -> None:
    """List the stores that `train --data FOLDER` has made and keeps, or remove some.

    So are the features of real images that `stylegan metrics` keeps. Both can be made again. They
    lie in the folder that the environment variable STYLEGAN_CACHE names, else in the user's cache;
    nothing else there is touched. NAMES are those of the list; without any, all.

    \b
    stylegan cache
    stylegan cache --clear photos-256-0f3a5c7d9e1b2468
    stylegan cache --clear --older 30
    """
    folder = default_cache_dir()
    found = [*entries(folder, STORES), *entries(folder / options.FEATURES, FEATURES)]
    known = [entry.path.name for entry in found]
    for name in names:
        if name not in known:
            hint = suggestion(name, known)
            raise ValueError(f"{name} is not in {folder}{hint}")
    latest = time.time() - (older or 0) * 24 * 60 * 60
    found = [entry for entry in found if entry.last_used <= latest]
    found = [entry for entry in found if not names or entry.path.name in names]
    stores = sum(entry.kind is STORES for entry in found)
    files = len(found) - stores
    total = count(stores, "store") + (f" and {count(files, 'file')} of features" if files else "")
    total += f", {mib(sum(entry.size_bytes for entry in found))}"
    if clear:
        for entry in found:
            entry.kind.remove(entry.path)
        say(f"removed {total}, from {folder}")
        return
    rows = [("name", "images", "px", "size", "last used", "source")]
    for entry in found:
        images, pixels, source = entry.kind.about(entry.path)
        used = time.strftime("%Y-%m-%d", time.localtime(entry.last_used))
        rows.append((entry.path.name, images, pixels, mib(entry.size_bytes), used, source))
    say(f"{folder}: {total}", *(aligned(rows, left=[0, 5]) if found else []))


@click.command(cls=Command)
@click.argument("source", type=values.INPUT)
@click.argument("out", type=values.OUTPUT)
@click.option(
    "--landmarks",
    type=values.INPUT,
    required=True,
    help="CSV (file,x0,y0,x1,y1,...) with five or 68 points of each face.",
)
@options.count_option("--size", "Pixels a side of the pictures to write.", default=1024, most=2048)
@options.OVERWRITE
def align(source: Path, out: Path, landmarks: Path, size: int, outputs: Outputs) -> None:
    """Crop faces as FFHQ does. SOURCE is a folder of pictures or one picture, OUT a folder.

    The file of landmarks names the pictures and gives five points of each face (the eyes, the
    nose, the corners of the mouth, each from left to right in the picture) or the 68 of iBUG, in
    pixels of the upright picture. Faces are turned upright; where the square leaves the picture,
    the picture is mirrored and blurred. Pictures and lines that cannot be used are left out and
    named at the end; the exit code is then 1.

    \b
    stylegan align photos faces --landmarks photos.csv
    stylegan project runs/faces faces/*.png --tune --out projected
    """
    faces = read_landmarks(landmarks)
    console = Terminal("picture")
    sides, errors = align_files(source, faces, out, size, outputs=outputs, console=console)
    small = [f"{file.name} ({side:.0f})" for file, side in sides.items() if side < size]
    if small:
        note(f"{count(len(small), 'face')} smaller than {size} pixels, enlarged: {listed(small)}")
    if sides:
        say(f"{count(len(sides), 'face')} in {out}, {size}x{size}")
    refuse_left_out("picture", errors, asked=len(sides) + len(errors))
