"""`stylegan convert`: a generator of another program as a file of this one."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from stylegan.cli import values
from stylegan.cli.common import Command
from stylegan.cli.info import generator_facts, print_facts
from stylegan.cli.options import centers_of
from stylegan.cli.terminal import say
from stylegan.disk import check_file
from stylegan.lineage import sha256_of

if TYPE_CHECKING:
    from stylegan.centers import Centers


@click.command(cls=Command)
@click.argument("source", type=values.SOURCE)
@click.argument("destination", type=click.Path(path_type=Path))
@click.option(
    "--discriminator",
    type=click.Path(path_type=Path),
    help="File (.pt) for the discriminator, if SOURCE has one of our form.",
)
@click.option(
    "--centers",
    type=values.CENTERS,
    help="Keep so many centres of w, or the means of classes ('class'), that truncation pulls "
    "toward in place of the average.  [default: as in SOURCE]",
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
def convert(
    source: str,
    destination: Path,
    discriminator: Path | None,
    centers: "Centers | Literal['none'] | None",
    overwrite: bool,
) -> None:
    """Write the generator of SOURCE as a file of this project, DESTINATION (.pt).

    SOURCE is an official .pkl (of which Gs is taken), a checkpoint of
    rosinality/style-based-gan-pytorch (.model), genforce/genforce, huangzh13/StyleGAN.pytorch,
    open-mmlab/mmgeneration (.pth), or any other source that `stylegan generate` takes. Nothing in
    it is executed. A variable that has no place is an error. A name like ...-512x384.pkl specifies
    that only so much of the images, in their middle, is not padding.

    \b
    stylegan convert karras2019stylegan-ffhq-1024x1024.pkl ffhq.pt
    """
    from stylegan.files.formats import own, read_snapshot
    from stylegan.files.loading import load_discriminator, load_source, located

    path = located(source)
    destinations = [file for file in (destination, discriminator) if file]
    check_destinations(path, destinations, overwrite)
    snapshot = None if path.is_dir() else read_snapshot(path)
    loaded = snapshot.to_generate() if snapshot else load_source(path)
    critic = snapshot.discriminator if snapshot else None
    if discriminator and critic is None:
        critic = load_discriminator(path)
    loaded = loaded.adjusted(centers=centers_of(loaded, centers))
    for note in snapshot.notes if snapshot else ():
        say(f"note         {note}")
    print_facts(generator_facts(loaded))
    for file in destinations:
        file.parent.mkdir(parents=True, exist_ok=True)
    own.save_loaded(destination, loaded)
    if discriminator and critic:
        own.save_discriminator(discriminator, critic, loaded.lineage)
    for file in destinations:
        size = f"{file.stat().st_size / 2**20:.1f} MiB, SHA-256 {sha256_of(file)[:16]}..."
        say(f"written      {file}: {size}")


def check_destinations(source: Path, destinations: list[Path], overwrite: bool) -> None:
    """ValueError before anything is done if a file would be lost or cannot be written."""
    if len({path.resolve() for path in destinations}) < len(destinations):
        raise ValueError(f"generator and discriminator cannot both be {destinations[0]}")
    for path in destinations:
        if path.is_file() and os.path.samefile(path, source):
            raise ValueError(f"{path} is the source; choose another name to write")
        if not path.is_dir() and path.suffix != ".pt":
            raise ValueError(
                f"{path} does not end in .pt, as what `stylegan convert` writes; `stylegan export` "
                "writes .safetensors, .onnx and .pt2"
            )
        check_file(path, overwrite=overwrite)
