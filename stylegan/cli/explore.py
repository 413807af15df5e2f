"""`stylegan explore`: a local page to play with a generator."""

import time
from pathlib import Path

import click

from stylegan.cli import values
from stylegan.cli.common import Command, one_line, use_device
from stylegan.cli.options import DEVICE
from stylegan.cli.terminal import note, say


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
@click.option(
    "--blend",
    metavar="SOURCE",
    type=values.SOURCE,
    help="Another generator, of the same shape, whose layers can take part: see stylegan blend.",
)
@DEVICE
def explore(
    source: str,
    port: int | None,
    browser: bool,
    directions_file: Path | None,
    blend: str | None,
    device: str,
) -> None:
    """Play with a generator on a page of this computer, until Ctrl-C.

    \b
    stylegan explore emoji32
    stylegan explore runs/mine --port 8000 --no-browser
    stylegan explore runs/faces --blend runs/cartoons
    """
    from stylegan.blending import Parent
    from stylegan.directions import edits_path, known_directions
    from stylegan.explore import Scene
    from stylegan.explore.server import serving
    from stylegan.files.loading import load_source

    where = use_device(device)
    parent = Parent.of(source, where)
    loaded = parent.loaded
    other = None if blend is None else load_source(blend, map_location=where)
    directions = known_directions(source, loaded, directions_file, tell=note)
    name, lineage = Path(source).name, parent.history()
    scene = Scene(loaded, directions, name, edits_path(source), other, lineage)
    try:
        scene.saved()
    except ValueError as error:  # a run that trained on has other weights now
        note(f"not used: {one_line(error)}")
        scene.edits_file = None
    with serving(scene, port=port, browser=browser) as address:
        say(f"{address} shows the {loaded.origin}; Ctrl-C ends it")
        try:
            while True:
                time.sleep(0.5)  # not for ever: a signal that another thread gets wakes nobody
        except KeyboardInterrupt:
            note("ended")
