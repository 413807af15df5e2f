"""`stylegan report`: one page about a run."""

from pathlib import Path

import click

from stylegan.cli import options, values
from stylegan.cli.common import Command, image_bars, measuring_tools, say, use_device


@click.command(cls=Command)
@click.argument("run", type=values.INPUT)
@options.data_option("what the run was trained on")
@options.path_option("--out", "File to write.  [default: report.html of RUN]")
@options.DEVICE
def report(run: Path, data: Path | None, out: Path | None, device: str) -> None:
    """Write report.html of a run, finished or not: curves, samples, truncation, neighbours.

    \b
    stylegan report runs/mine
    """
    from stylegan.report import check_place, drawings_of, write_report
    from stylegan.report.history import read_run
    from stylegan.run_folder import RunFolder

    chosen = use_device(device)
    read_run(run)  # mistakes are found before anything takes time
    check_place(out or RunFolder(run).report_file)
    tools, bars = measuring_tools(), image_bars()
    drawings = drawings_of(run, tools, data=data, device=chosen, progress=bars)
    say(f"the report is {write_report(run, drawings, out)}")
