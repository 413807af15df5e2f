"""`stylegan explore`: a local page to play with a generator."""

import time
from pathlib import Path

import click

from stylegan.cli import options, values
from stylegan.cli.common import Command, Terminal, note, say, use_device, working


@click.command(cls=Command)
@options.SOURCE
@click.option("--port", type=click.IntRange(1, 65535), help="[default: the first free from 7860]")
@click.option("--browser/--no-browser", default=True, help="Open the page.")
@click.option(
    "--directions",
    type=values.INPUT,
    help="A file of `stylegan directions`.  [default: that of SOURCE, else found anew]",
)
@options.DEVICE
def explore(
    source: str, port: int | None, browser: bool, directions: Path | None, device: str
) -> None:
    """Play with a generator on a page of this computer, until Ctrl-C.

    \b
    stylegan explore faces64
    stylegan explore runs/mine --port 8000 --no-browser
    """
    from stylegan.directions import known_directions
    from stylegan.explore.page import Page
    from stylegan.explore.server import serving
    from stylegan.files.loading import open_weights

    with working(f"opening {source} and its directions"):
        loaded = open_weights(source, map_location=use_device(device)).require_loaded()
        known = known_directions(source, loaded, directions, console=Terminal())
    with serving(Page(loaded, known, Path(source).name), port=port, browser=browser) as address:
        say(f"{address} shows the {loaded.origin}; Ctrl-C ends it")
        try:
            while True:
                time.sleep(0.5)  # not forever: a signal that another thread gets wakes nobody
        except KeyboardInterrupt:
            note("ended")
