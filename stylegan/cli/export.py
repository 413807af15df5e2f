"""`stylegan export`: a generator as a file for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stylegan.cli import options, values
from stylegan.cli.common import Command, say, working

if TYPE_CHECKING:
    from stylegan.files.formats import NoiseInput
    from stylegan.files.loaded import Cutoff


@click.command(cls=Command)
@options.SOURCE
@click.argument("destination", type=values.OUTPUT)
@click.option("--psi", type=values.NUMBER, help="Default truncation.  [default: as in SOURCE]")
@click.option(
    "--cutoff",
    type=values.CUTOFF,
    help="Number of layers that truncation reaches, or 'all'.  [default: as in SOURCE]",
)
@click.option(
    "--noise",
    type=click.Choice(["input", "const", "none"]),
    help="Noise of .onnx and .pt2: maps that are given, the stored ones, or none.  "
    "[default: const]",
)
@options.OVERWRITE
def export(
    source: str,
    destination: Path,
    psi: float | None,
    cutoff: "Cutoff",
    noise: "NoiseInput | None",
    overwrite: bool,
) -> None:
    """Write the generator of SOURCE for other programs; DESTINATION's ending says how.

    \b
    .safetensors  weights, and all else as JSON in the metadata
    .onnx         images from z and psi, in any runtime
    .pt2          the same as a program of torch.export, for torch alone

    \b
    stylegan export runs/mine mine.safetensors
    stylegan export emoji32 emoji32.onnx --psi 0.5
    """
    from stylegan.files import formats
    from stylegan.files.loading import load_source

    formats.check_request(destination, noise=noise, overwrite=overwrite)
    loaded = load_source(source).adjusted(psi=psi, cutoff=cutoff)
    with working(f"writing {destination}"):
        most = formats.export(loaded, destination, noise=noise, overwrite=overwrite)
    say(f"{destination}: {destination.stat().st_size / 2**20:.1f} MiB, of the {loaded.origin}")
    if most is not None:
        say(f"run in ONNX Runtime: images differ by {most:.1e} at most from PyTorch's")
    elif destination.suffix == ".onnx":
        say('not run: onnxruntime is not installed (pip install -e ".[export]")')
