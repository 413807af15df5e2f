"""`stylegan prepare`, `check` and `export-data`: images before training."""

import shlex
from pathlib import Path
from typing import Any

import click

from stylegan.cli import values
from stylegan.cli.common import Command, progress_bar
from stylegan.cli.options import together
from stylegan.cli.terminal import say
from stylegan.messages import count, readable

SOURCE = click.argument("source", type=values.INPUT)
READING = together(
    click.option(
        "--resolution",
        type=values.whole_number(),
        help="Resolution below which images are left out.",
    ),
    click.option(
        "--crop",
        type=click.Choice(["center", "pad"]),
        default="center",
        show_default=True,
        help="The middle square, or the 4:3 middle in a square with black bars.",
    ),
    click.option(
        "--channels",
        type=values.whole_number(),
        default=3,
        show_default=True,
        help="1 for gray, 3 for colour, 4 for colour with alpha.",
    ),
    click.option(
        "--include",
        multiple=True,
        metavar="FOLDER",
        help="Sub-folder to use, of Parquet files a split, or image=COLUMN or label=COLUMN; may be "
        "repeated.",
    ),
    click.option(
        "--workers", type=values.whole_number(1, 1000), help="Number of threads that decode."
    ),
)


@click.command(cls=Command)
@SOURCE
@click.argument("out", type=click.Path(path_type=Path))
@READING
@click.option("--strict", is_flag=True, help="Refuse a source with images that cannot be used.")
def prepare(source: Path, out: Path, **settings: Any) -> None:
    """Make the store OUT of all images of SOURCE: a folder, zip, TFRecords, LMDB or Parquet.

    `train --data FOLDER` does this by itself; a store of one's own can be kept, moved and shared.
    Without --resolution, the largest power of two that the first image offers.

    \b
    stylegan prepare photos/ photos-256/ --resolution 256
    """
    from stylegan import data
    from stylegan.data.check import grouped

    opened = data.open_source(source, include=settings.pop("include"))
    for note in opened.notes():
        say(note)
    with progress_bar("img") as progress:
        store = data.prepare(opened, out, progress=progress, **settings)
    say(
        f"{readable(out)}: {count(store.num_images, 'image')} of "
        f"{store.resolution}x{store.resolution}, "
        f"{count(store.channels, 'channel')}, {count(len(store.label_names), 'label')}"
    )
    for line in grouped(store.skipped):
        say(f"left out: {line}")
    place = shlex.quote(str(out))
    say(f"next: stylegan train --data {place} -o network.resolution={store.resolution}")


@click.command(cls=Command)
@SOURCE
@READING
@click.option("--strict", is_flag=True, help="End with exit code 1 if an image cannot be used.")
@click.option("--list", "every", is_flag=True, help="Name every image that cannot be used.")
@click.pass_context
def check(ctx: click.Context, source: Path, strict: bool, every: bool, **settings: Any) -> None:
    """Read every image of a folder, zip or store, and say what is there and what is wrong.

    The table says how many images are large enough for each resolution. Nothing is written.

    \b
    stylegan check photos/ --resolution 256
    """
    from stylegan import data

    with progress_bar("img") as progress:
        findings = data.check(source, progress=progress, **settings)
    for line in findings.lines():
        say(line)
    if every:
        for name, reason in findings.skipped:
            say(f"  {readable(name)}: {readable(reason)}")
    if strict and findings.skipped:
        ctx.exit(1)


@click.command("export-data", cls=Command)
@click.argument("store", type=values.INPUT)
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--resolution",
    type=values.whole_number(),
    help="Resolution of the images.  [default: the highest of the store]",
)
@click.option("--overwrite", is_flag=True, help="Replace a zip that exists.")
def export_data(store: Path, out: Path, resolution: int | None, overwrite: bool) -> None:
    """Write the images and labels of STORE to OUT, a new folder or a zip (*.zip).

    Both are laid out for stylegan2-ada and its successors: PNG files and dataset.json. This program
    reads them, too, with the names of the labels.

    \b
    stylegan export-data photos-256/ photos-256.zip
    """
    from stylegan import data

    opened = data.Store(store)
    with progress_bar("img") as progress:
        data.export(opened, out, resolution=resolution, overwrite=overwrite, progress=progress)
    size = resolution or opened.resolution
    labels = count(len(opened.label_names), "label")
    say(f"{readable(out)}: {count(len(opened), 'image')} of {size}x{size}, {labels}")
