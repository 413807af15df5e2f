"""`stylegan prepare` and `check`: images before training."""

import shlex
from pathlib import Path
from typing import Any, Literal

import click

from stylegan.cli import options, values
from stylegan.cli.common import Command, progress_bar, say
from stylegan.messages import count, readable

READING = options.together(
    click.option("--resolution", type=int, help="Resolution below which images are left out."),
    options.SHAPE,
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


def settings_of(
    source: Path,
    crop: str | None,
    aspect: str | None,
    channels: "int | Literal['auto']",
    **settings: Any,
) -> dict[str, Any]:
    """What the options of READING say to the library, with the channels that a source has."""
    from stylegan.data.check import chosen

    if channels == "auto":
        channels, why = chosen(source, settings["include"])
        say(why)
    return settings | {"crop": options.crop_of(crop, aspect) or "center", "channels": channels}


@click.command(cls=Command)
@click.argument("source", type=values.INPUT)
@click.argument("out", type=values.OUTPUT)
@READING
@click.option("--strict", is_flag=True, help="Refuse a source with images that cannot be used.")
def prepare(source: Path, out: Path, strict: bool, **reading: Any) -> None:
    """Make the store OUT of all images of SOURCE: a folder, a zip or TFRecords.

    `train --data FOLDER` does this by itself; a store of your own can be kept, moved and shared.
    Without --resolution, it has the largest power of two that the first image offers.

    \b
    stylegan prepare photos/ photos-256/ --resolution 256
    """
    from stylegan import data
    from stylegan.data.check import grouped
    from stylegan.data.images import MODES

    settings = settings_of(source, **reading)
    opened = data.open_source(source, include=settings.pop("include"))
    say(*opened.notes())
    settings |= {"strict": strict, "premultiply": settings["channels"] == 4}
    with progress_bar("img") as progress:
        store = data.prepare(opened, out, progress=progress, **settings)
    say(
        f"{readable(out)}: {count(store.num_images, 'image')} of "
        f"{store.resolution}x{store.resolution}, "
        f"{count(store.channels, 'channel')}, {count(len(store.label_names), 'label')}",
        *(f"left out: {line}" for line in grouped(store.skipped)),
    )
    train = (
        f"stylegan train --data {shlex.quote(str(out))} -o network.resolution={store.resolution}"
    )
    kind, _, aspect = store.meta.crop.partition(" ")
    if kind != "center":
        train += f" --aspect {aspect}" if aspect else f" --crop {kind}"
    train += f" --channels {MODES[store.channels]}" if store.channels != 3 else ""
    say(f"next: {train}")


@click.command(cls=Command)
@click.argument("source", type=values.INPUT)
@READING
@click.option("--strict", is_flag=True, help="End with exit code 1 if an image cannot be used.")
@click.option("--list", "every", is_flag=True, help="Name every image that cannot be used.")
@click.pass_context
def check(ctx: click.Context, source: Path, strict: bool, every: bool, **reading: Any) -> None:
    """Read every image of a folder, zip or store, and say what is there and what is wrong.

    The table says how many images are large enough for each resolution. Nothing is written.

    \b
    stylegan check photos/ --resolution 256
    """
    from stylegan import data

    settings = settings_of(source, **reading)
    with progress_bar("img") as progress:
        findings = data.check(source, progress=progress, **settings)
    say(*findings.lines())
    if every:
        say(*(f"  {readable(name)}: {readable(reason)}" for name, reason in findings.skipped))
    if strict and findings.skipped:
        ctx.exit(1)
