"""`stylegan report`: one page about a run."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stylegan.cli.common import Command, data_option, use_device
from stylegan.cli.measuring import beside_nearest, open_store

if TYPE_CHECKING:
    import torch

    from stylegan.files.loaded import LoadedGenerator
    from stylegan.report import Captioned, Drawings

SAMPLES, NEIGHBOURS = 5, 9  # rows and columns of the nearest training images


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@data_option("what the run was trained on")
@click.option(
    "--out", type=click.Path(path_type=Path), help="File to write.  [default: report.html of RUN]"
)
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, mps.")
def report(run: Path, data: Path | None, out: Path | None, device: str) -> None:
    """Write report.html of a run, finished or not: curves, samples, truncation, neighbours.

    \b
    stylegan report runs/mine
    """
    from stylegan.report import check_place, write_report
    from stylegan.report.history import read_run
    from stylegan.run_folder import RunFolder

    chosen = use_device(device)
    read_run(run)  # mistakes are found before anything takes time
    check_place(out or RunFolder(run).report_file)
    written = write_report(run, drawings_of(run, data, chosen), out)
    click.echo(f"the report is {written}")


def drawings_of(run: Path, data: Path | None, device: "torch.device") -> "Drawings":
    """What the newest generator of the run shows; where there is none, the reason."""
    from stylegan.files.loading import load_run
    from stylegan.report import Drawings, truncation_sweep

    try:
        loaded = load_run(run, device)
    except FileNotFoundError:
        text = "The run has not saved a generator yet."
        return Drawings(text, text)
    except ValueError as error:
        text = f"No generator of the run can be read: {error}"
        return Drawings(text, text)
    return Drawings(truncation_sweep(loaded), neighbours_of(str(run), loaded, data))


def neighbours_of(run: str, loaded: "LoadedGenerator", data: Path | None) -> "Captioned | str":
    """The training images nearest to some pictures; a reason where there are none."""
    try:
        return look_for_neighbours(run, loaded, data)
    except (ValueError, OSError) as error:
        if data is not None:
            raise
        return f"Not looked for: {error}"


def look_for_neighbours(
    run: str, loaded: "LoadedGenerator", data: Path | None
) -> "Captioned | str":
    """Distances are between features of our own network, which sees 64x64 pixels at most."""
    from stylegan.report import Captioned
    from stylegan.run_folder import RunFolder

    source = RunFolder.at(run)
    store = open_store(data, source, loaded)
    if store is None:
        return "Not looked for: the training images are gone; stylegan report --data finds them."
    mirror = source is not None and source.config().data.mirror
    image = beside_nearest(loaded, store, SAMPLES, NEIGHBOURS, mirror=mirror)
    text = (
        f"Left: seeds 0 to {SAMPLES - 1} without truncation. Beside them the training images "
        f"nearest to each among {len(store.images(loaded.resolution)):,}, by features of a small "
        "network trained on them. Below: the distance in units of that between a training "
        "image and its nearest other one, so far below 1 is nearly a copy."
    )
    return Captioned(image, text)
