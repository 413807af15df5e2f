"""`stylegan prepare` and `check`: images before training."""

import shlex
from pathlib import Path
from typing import Any, Literal

import click

from stylegan.cli import values
from stylegan.cli.common import Command, progress_bar
from stylegan.cli.options import SHAPE, together
from stylegan.cli.terminal import say
from stylegan.messages import count, readable

SOURCE = click.argument("source", type=values.INPUT)
READING = together(
    click.option("--resolution", type=int, help="Resolution below which images are left out."),
    SHAPE,
    click.option(
        "--channels",
        type=values.CHANNEL,
        default="RGB",
        show_default=True,
        help="L for gray, RGB, RGBA for colour with alpha (or 1, 3, 4); auto: what the pictures "
        "have.",
    ),
    click.option(
        "--include",
        multiple=True,
        metavar="FOLDER",
        help="First-level sub-folder to use; may be repeated.",
    ),
    click.option("--workers", type=click.IntRange(1, 1000), help="Number of threads that decode."),
)


@click.command(cls=Command)
@SOURCE
@click.argument("out", type=click.Path(path_type=Path))
@READING
@click.option("--strict", is_flag=True, help="Refuse a source with images that cannot be used.")
def prepare(
    source: Path,
    out: Path,
    crop: str | None,
    aspect: str | None,
    channels: "int | Literal['auto']",
    **settings: Any,
) -> None:
    """Make the store OUT of all images of SOURCE: a folder, a zip or TFRecords.

    `train --data FOLDER` does this by itself; a store of your own can be kept, moved and shared.
    Without --resolution, it has the largest power of two that the first image offers.

    \b
    stylegan prepare photos/ photos-256/ --resolution 256
    """
    from stylegan import data
    from stylegan.data.check import chosen, grouped
    from stylegan.data.images import MODES

    settings["crop"] = values.crop(crop, aspect) or "center"
    if channels == "auto":
        channels, why = chosen(source, settings["include"])
        say(why)
    opened = data.open_source(source, include=settings.pop("include"))
    for note in opened.notes():
        say(note)
    settings |= {"channels": channels, "premultiply": channels == 4}
    with progress_bar("img") as progress:
        store = data.prepare(opened, out, progress=progress, **settings)
    say(
        f"{readable(out)}: {count(store.num_images, 'image')} of "
        f"{store.resolution}x{store.resolution}, "
        f"{count(store.channels, 'channel')}, {count(len(store.label_names), 'label')}"
    )
    for line in grouped(store.skipped):
        say(f"left out: {line}")
    options = [f"-o network.resolution={store.resolution}"]
    options += crop_options(store.meta.crop)
    if store.channels != 3:
        options.append(f"--channels {MODES[store.channels]}")
    say(f"next: stylegan train --data {shlex.quote(str(out))} {' '.join(options)}")


def crop_options(crop: str) -> list[str]:
    """The options of train that crop so."""
    kind, _, more = crop.partition(" ")
    if kind == "center":
        return []
    return [f"--aspect {more}" if more else f"--crop {kind}"]


@click.command(cls=Command)
@SOURCE
@READING
@click.option("--strict", is_flag=True, help="End with exit code 1 if an image cannot be used.")
@click.option("--list", "every", is_flag=True, help="Name every image that cannot be used.")
@click.pass_context
def check(
    ctx: click.Context,
    source: Path,
    strict: bool,
    every: bool,
    crop: str | None,
    aspect: str | None,
    channels: "int | Literal['auto']",
    **settings: Any,
) -> None:
    """Read every image of a folder, zip or store, and say what is there and what is wrong.

    The table says how many images are large enough for each resolution. Nothing is written.

    \b
    stylegan check photos/ --resolution 256
    """
    from stylegan import data
    from stylegan.data.check import chosen

    settings["crop"] = values.crop(crop, aspect) or "center"
    if channels == "auto":
        channels, why = chosen(source, settings["include"])
        say(why)
    with progress_bar("img") as progress:
        findings = data.check(source, channels=channels, progress=progress, **settings)
    for line in findings.lines():
        say(line)
    if every:
        for name, reason in findings.skipped:
            say(f"  {readable(name)}: {readable(reason)}")
    if strict and findings.skipped:
        ctx.exit(1)
