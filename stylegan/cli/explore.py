"""`stylegan explore`: a local page to play with a generator."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stylegan.cli import values
from stylegan.cli.common import Command, one_line, use_device
from stylegan.cli.options import DEVICE
from stylegan.cli.terminal import note, say

if TYPE_CHECKING:
    from stylegan.directions import Directions
    from stylegan.files.loaded import LoadedGenerator

QUICK_SAMPLES = 10_000  # latents that directions without a file are measured on


@click.command(cls=Command)
@click.argument("source", type=values.SOURCE)
@click.option(
    "--port", type=values.whole_number(1, 65535), help="[default: the first free from 7860]"
)
@click.option("--browser/--no-browser", default=True, help="Open the page.")
@click.option(
    "--directions",
    "directions_file",
    type=values.INPUT,
    help="A file of `stylegan directions`.  [default: that of SOURCE, else found anew]",
)
@DEVICE
def explore(
    source: str, port: int | None, browser: bool, directions_file: Path | None, device: str
) -> None:
    """Play with a generator on a page of this computer, until Ctrl-C.

    \b
    stylegan explore emoji32
    stylegan explore runs/mine --port 8000 --no-browser
    """
    from stylegan.explore import Scene
    from stylegan.explore.server import serving
    from stylegan.files.loading import load_source

    loaded = load_source(source, map_location=use_device(device))
    scene = Scene(loaded, directions_of(source, loaded, directions_file), Path(source).name)
    with serving(scene, port=port, browser=browser) as address:
        say(f"{address} shows the {loaded.origin}; Ctrl-C ends it")
        try:
            while True:
                time.sleep(0.5)  # not for ever: a signal that another thread gets wakes nobody
        except KeyboardInterrupt:
            note("ended")


def directions_of(source: str, loaded: "LoadedGenerator", file: Path | None) -> "list[Directions]":
    """Those of the file, of the one kept with the source, or new ones."""
    from stylegan.directions import (
        COUNT,
        METHODS,
        default_path,
        find_directions,
        load_directions,
    )

    if file is not None:
        return load_directions(file, loaded.generator)
    kept = default_path(source)
    if kept.exists():
        try:
            return load_directions(kept, loaded.generator)
        except ValueError as error:
            note(f"not used: {one_line(error)}")
    config = loaded.generator.config
    return find_directions(
        loaded.generator,
        METHODS if config.styles else ["pca"],
        count=min(COUNT, config.w_dim),
        samples=QUICK_SAMPLES,
    )
