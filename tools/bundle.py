"""Writes a bundled network, in half precision and with its discriminator, to train on from."""

import tempfile
from pathlib import Path

import click

from stylegan.cli.common import Command
from stylegan.files.download import BUNDLED, WEIGHTS
from stylegan.files.formats.native import save_loaded
from stylegan.files.loading import open_weights
from stylegan.utils.lineage import sha256_of


@click.command(cls=Command)
@click.argument("source")
@click.argument("name", type=click.Choice(BUNDLED))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=WEIGHTS,
    help="Folder.  [default: the package's]",
)
def main(source: str, name: str, out: Path) -> None:
    """Write the average generator and the discriminator of SOURCE, a state or a run, as NAME in
    place of what is bundled under it.

    \b
    python tools/bundle.py runs/faces faces64
    """
    weights = open_weights(source, need="discriminator")
    loaded = weights.require_loaded()
    loaded.generator.half()
    with tempfile.TemporaryDirectory(dir=out) as folder:
        file = Path(folder, "generator.pt")
        save_loaded(file, loaded, discriminator=weights.require_discriminator().half())
        open_weights(file, need="discriminator")  # all numbers are finite in half precision, too
        bundled = out / f"{name}-{sha256_of(file)[:8]}.pt"
        file.replace(bundled)
    for older in set(out.glob(f"{name}-*.pt")) - {bundled}:
        older.unlink()
    click.echo(f"{bundled}: {bundled.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
