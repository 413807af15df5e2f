"""One page about a run, `report.html`: without a server, a program or anything from outside."""

from pathlib import Path

from stylegan.atomic import write_text
from stylegan.destination import check_file
from stylegan.report import curves, sections
from stylegan.report.drawings import Captioned, Drawings, Sweep, drawings_of, truncation_sweep
from stylegan.report.history import RunHistory, read_run
from stylegan.report.markup import Html, tag
from stylegan.version import __version__

MARK = "stylegan report"  # who made the page, in its head
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

__all__ = [
    "Captioned",
    "Drawings",
    "Sweep",
    "drawings_of",
    "truncation_sweep",
    "write_report",
]


def write_report(folder: Path, drawings: Drawings | None = None, out: Path | None = None) -> Path:
    """Write the page about the run in `folder`, or to `out`; return its path.

    A page of ours is replaced, any other file refused. FileNotFoundError where there is no run.
    """
    history = read_run(folder)
    out = out or history.folder.report_file
    check_place(out)
    write_text(out, page(history, drawings or Drawings()))
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


def page(history: RunHistory, drawings: Drawings) -> str:
    """The whole document."""
    bands = sections.growth_bands(history)
    parts = {
        "Newest samples": sections.newest(history),
        "Metrics": curves.metrics(history, bands),
        "Losses": curves.losses(history, bands),
        "Speed and health": curves.speed(history, bands),
        "Samples over time": sections.over_time(history),
        "Truncation": sections.truncation(drawings),
        "Nearest training images": sections.neighbours(drawings),
        "Settings": sections.settings(history),
        "Hardware and versions": sections.hardware(history),
    }
    given = [(f"part{i}", title, part) for i, (title, part) in enumerate(parts.items()) if part]
    links = tag("nav", *(tag("a", title, href=f"#{place}") for place, title, _ in given))
    main = tag(
        "main", *(tag("section", tag("h2", title), part, id=place) for place, title, part in given)
    )
    style = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=MARK),
        tag("title", f"{history.name}: StyleGAN report"),
        tag("style", Html(style)),
    )
    top = sections.headline(history, curves.scores(history))
    body = tag("body", top, links, main, sections.footer(history, __version__))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
