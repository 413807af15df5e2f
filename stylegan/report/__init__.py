"""One page about a run, `report.html`: without a server, a program or anything from outside."""

import json
from functools import partial
from pathlib import Path

from stylegan.disk import check_file, write_text
from stylegan.messages import count, duration
from stylegan.report.charts import short
from stylegan.report.drawings import Captioned, Drawings, drawings_of, truncation_sweep
from stylegan.report.history import moment, read_run
from stylegan.report.page import contents, embedded
from stylegan.version import __version__

MARK = "stylegan report"  # who made the page, in its head

__all__ = ["Captioned", "Drawings", "drawings_of", "truncation_sweep", "write_report"]


def write_report(folder: Path, drawings: Drawings | None = None, out: Path | None = None) -> Path:
    """Write the page about the run in `folder`, or to `out`; return its path.

    A page of ours is replaced, any other file refused. FileNotFoundError where there is no run.
    """
    import jinja2

    history = read_run(folder)
    out = out or history.folder.report_file
    check_place(out)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # what comes from files is text and never markup
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "counted": count,
        "duration": duration,
        "embedded": embedded,
        "json": partial(json.dumps, indent=2, ensure_ascii=False, default=str),
        "moment": moment,
        "short": short,
    }
    given = contents(history, drawings or Drawings())
    text = environment.get_template("page.html").render(given, mark=MARK, version=__version__)
    write_text(out, text.encode("utf-8", "replace").decode())  # names need not be UTF-8
    return out


def check_place(out: Path) -> None:
    """ValueError unless nothing or a report of ours is at `out`."""
    check_file(out, overwrite=True)
    if out.exists():
        with open(out, "rb") as file:
            ours = f'content="{MARK}"'.encode() in file.read(1000)
        if not ours:
            raise ValueError(f"{out} exists and is not a report; choose another --out")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.parent} for {out.name}; make it first")
