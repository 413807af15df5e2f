"""`stylegan prepare` and `stylegan check`: images before training."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stylegan.cli.common import Command, progress_bar
from stylegan.cli.options import together
from stylegan.messages import count, listed

if TYPE_CHECKING:
    from stylegan.data import Report, Skipped

MOST_LISTED = 12  # labels or file names in one line
SOURCE = click.argument("source", type=click.Path(path_type=Path))
READING = together(
    click.option("--resolution", type=int, help="Resolution below which images are left out."),
    click.option(
        "--crop",
        type=click.Choice(["center", "pad"]),
        default="center",
        show_default=True,
        help="The middle square, or the 4:3 middle in a square with black bars.",
    ),
    click.option(
        "--channels",
        type=int,
        default=3,
        show_default=True,
        help="1 for gray, 3 for colour, 4 for colour with alpha.",
    ),
    click.option(
        "--include", multiple=True, metavar="FOLDER", help="Sub-folder to use; may be repeated."
    ),
    click.option("--workers", type=click.IntRange(min=1), help="Number of threads that decode."),
)


@click.command(cls=Command)
@SOURCE
@click.argument("out", type=click.Path(path_type=Path))
@READING
@click.option("--strict", is_flag=True, help="Refuse a source with images that cannot be used.")
def prepare(source: Path, out: Path, **settings: Any) -> None:
    """Make the store OUT of all images of the folder or zip SOURCE.

    `train --data FOLDER` does this by itself; a store of one's own can be kept, moved and shared.
    Without --resolution, the largest power of two that the first image offers.

    \b
    stylegan prepare photos/ photos-256/ --resolution 256
    """
    from stylegan import data

    with progress_bar("img") as progress:
        store = data.prepare(source, out, progress=progress, **settings)
    click.echo(
        f"{out}: {count(store.num_images, 'image')} of {store.resolution}x{store.resolution}, "
        f"{count(store.channels, 'channel')}, {count(len(store.label_names), 'label')}"
    )
    list_skipped(store.skipped)
    click.echo(f"next: stylegan train --data {out} -o network.resolution={store.resolution}")


@click.command(cls=Command)
@SOURCE
@READING
@click.option("--strict", is_flag=True, help="End with exit code 1 if an image cannot be used.")
@click.pass_context
def check(ctx: click.Context, source: Path, strict: bool, **settings: Any) -> None:
    """Read every image of a folder, zip or store, and list what is there and what is wrong.

    \b
    stylegan check photos/ --resolution 256
    """
    from stylegan import data

    with progress_bar("img") as progress:
        report = data.check(source, progress=progress, **settings)
    for line in report_lines(report):
        click.echo(line)
    list_skipped(report.skipped)
    if report.ignored:
        names = listed(report.ignored, MOST_LISTED, ", ")
        click.echo(f"ignored {count(len(report.ignored), 'other file')}: {names}")
    if strict and report.skipped:
        ctx.exit(1)


def report_lines(report: "Report") -> list[str]:
    """What the images are like."""
    lines = [f"{report.kind} {report.path}: {count(report.num_good, 'usable image')}"]
    if report.smallest and report.largest:
        sizes = [f"{width}x{height}" for width, height in (report.smallest, report.largest)]
        lines.append(f"sizes: {sizes[0]} to {sizes[1]}, {len(report.sizes)} different")
        if report.resolution:
            lines.append(f"largest resolution that all of them offer: {report.resolution}")
    if report.modes:
        lines.append(f"modes: {', '.join(f'{n} {name}' for name, n in report.modes.most_common())}")
    if report.labels:
        named = [f"{n} {name}" for name, n in sorted(report.labels.items())]
        lines.append(f"{count(len(named), 'label')}: {listed(named, MOST_LISTED, ', ')}")
        if report.num_unlabelled:
            lines.append(f"not in a sub-folder: {report.num_unlabelled}, so there are no labels")
    return lines


def list_skipped(skipped: "list[Skipped]") -> None:
    """Every image that was left out, with the reason."""
    if skipped:
        click.echo(f"cannot be used: {count(len(skipped), 'image')}")
    for name, reason in skipped:
        click.echo(f"  {name}: {reason}")
