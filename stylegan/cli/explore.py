"""`stylegan explore`: an interactive page of a generator."""

import time
from pathlib import Path

import click

from stylegan.cli import options, param_types
from stylegan.cli.common import Command, Terminal, echo, note
from stylegan.directions import load_or_find_directions, read_edits
from stylegan.explore.controls import moves_along, moves_of
from stylegan.explore.export import check_request, is_one_file, save_page
from stylegan.explore.page import Page
from stylegan.explore.server import serving
from stylegan.files.loading import open_weights
from stylegan.utils.filesystem import OutputWriter
from stylegan.utils.lineage import public_address
from stylegan.utils.text import command_line, pluralize


@click.command(cls=Command)
@options.SOURCE
@click.option("--port", type=click.IntRange(1, 65535), help="[default: the first free from 7860]")
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser.")
@click.option(
    "--directions",
    type=param_types.INPUT,
    help="File of `stylegan directions`.  [default: that of SOURCE, else computed]",
)
@options.EDIT
@click.option(
    "--export",
    "page",
    type=param_types.OUTPUT,
    help="Write the page to this file (.html), which opens by double click, or to this folder, "
    "for any web server; the visitor's browser then generates the images.",
)
@click.option(
    "--runtime",
    type=param_types.INPUT,
    default=Path("node_modules/onnxruntime-web/dist"),
    show_default=True,
    help="dist/ of the npm package onnxruntime-web, for --export.",
)
@options.OVERWRITE
@options.DEVICE
def explore(
    source: str,
    port: int | None,
    browser: bool,
    directions: Path | None,
    edits: tuple[str, ...],
    page: Path | None,
    runtime: Path,
    outputs: OutputWriter,
    device: str,
) -> None:
    """Explore a generator on a local page until Ctrl-C, or export that page.

    \b
    stylegan explore faces64
    stylegan explore runs/mine --port 8000 --no-browser
    stylegan explore runs/mine --export friend.html
    """
    if page:
        check_request(page, runtime, outputs)
    if edits and directions:
        raise click.UsageError("--edit names its directions; leave out --directions")
    loaded = open_weights(source, map_location=options.use_device(device)).require_loaded()
    if edits:
        moves = moves_of(edits, read_edits(edits, loaded, source, console=Terminal()))
    else:
        moves = moves_along(load_or_find_directions(source, loaded, directions, console=Terminal()))
    name = Path(public_address(source) if "://" in source else source).name
    if page:
        written = save_page(loaded, moves, name, page, runtime, outputs=outputs)
        levels = f"change images by {pluralize(written.half_differs, 'gray level')}"
        echo(
            f"{page}: {written.size / 2**20:.1f} MiB; the network has "
            f"{written.network_size / 2**20:.1f} MiB",
            f"weights in half precision {levels}"
            if written.is_half
            else f"weights in single precision, since those in half precision would {levels}",
            f"a double click on {page} opens it"
            if is_one_file(page)
            else f"try it: python -m http.server --directory {command_line(page)}",
        )
        return
    with serving(Page(loaded, moves, name), port=port, browser=browser) as address:
        echo(f"{address} shows the {loaded.origin}; Ctrl-C ends it")
        try:
            while True:
                time.sleep(0.5)  # a signal to another thread does not end a longer sleep
        except KeyboardInterrupt:
            note("ended")
