"""`stylegan convert`: a generator of another program as a file of this one."""

import os
from pathlib import Path

import click

from stylegan.cli import options, values
from stylegan.cli.common import Command, say
from stylegan.cli.info import generator_facts, print_facts
from stylegan.disk import check_file
from stylegan.lineage import sha256_of


@click.command(cls=Command)
@options.SOURCE
@click.argument("destination", type=values.OUTPUT)
@options.path_option(
    "--discriminator", "File (.pt) for the discriminator, if SOURCE has one of our form."
)
@click.option(
    "--centers",
    type=values.CENTERS,
    help="Keep so many centres of w, or the means of classes ('class'), that truncation pulls "
    "toward in place of the average.  [default: as in SOURCE]",
)
@options.OVERWRITE
def convert(
    source: str,
    destination: Path,
    discriminator: Path | None,
    centers: values.Centers,
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
    if discriminator and discriminator.resolve() == destination.resolve():
        raise ValueError(f"generator and discriminator cannot both be {destination}")
    for file in destinations:
        if file.is_file() and os.path.samefile(file, path):
            raise ValueError(f"{file} is the source; choose another name to write")
        if not file.is_dir() and file.suffix != ".pt":
            raise ValueError(
                f"{file} does not end in .pt, as what `stylegan convert` writes; `stylegan export` "
                "writes .safetensors, .onnx and .pt2"
            )
        check_file(file, overwrite=overwrite)
    snapshot = None if path.is_dir() else read_snapshot(path)
    loaded = snapshot.to_generate() if snapshot else load_source(path)
    critic = snapshot.discriminator if snapshot else None
    if discriminator and critic is None:
        critic = load_discriminator(path)
    loaded = options.with_centers(loaded, centers)
    say(*(f"note         {note}" for note in (snapshot.notes if snapshot else ())))
    print_facts(generator_facts(loaded))
    for file in destinations:
        file.parent.mkdir(parents=True, exist_ok=True)
    own.save_loaded(destination, loaded)
    if discriminator and critic:
        own.save_discriminator(discriminator, critic, loaded.lineage)
    for file in destinations:
        size = f"{file.stat().st_size / 2**20:.1f} MiB, SHA-256 {sha256_of(file)[:16]}..."
        say(f"written      {file}: {size}")
