"""Line charts as SVG images."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stylegan.messages import printable

POINTS = 250  # of a line; more are averaged
DOTS = 30  # points that are marked; of more, only a line is drawn
ROOM = 0.05  # share of the width that the name of a band needs
STYLE: Any = {
    "axes.autolimit_mode": "round_numbers",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.prop_cycle": "cycler('color', ['#0072b2', '#d55e00', '#009e73', '#b3588d', '#8a7000'])",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.xmargin": 0,
    "font.size": 9,
    "grid.color": "#d9dde2",
    "svg.fonttype": "none",  # text remains text
    "svg.hashsalt": "stylegan report",  # equal charts get equal names in each run
    "text.parse_math": False,
}
Points = list[tuple[float, float | None]]  # a line, interrupted where a value is None


class Band(NamedTuple):
    """A stretch of the x axis with a name; the part while it fades in is shaded."""

    start: float
    shaded_until: float
    end: float
    name: str


def short(value: float | None) -> str:
    """A number as axes and tables show it: `0.25`, `12,300`, `25M`."""
    if value is None:
        return "none"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.4g}M"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value + 0.0:.4g}"


def chart(title: str, lines: Mapping[str, Points], bands: Sequence[Band], *, log: bool) -> str:
    """Lines over thousands of images, as a data address of an SVG image; empty without numbers.

    With `log` the y axis is logarithmic if all values are positive and differ by more than a factor
    of ten. Many points are averaged.
    """
    rows = {name: averaged(points) for name, points in lines.items()}
    rows = {name: row for name, row in rows.items() if np.isfinite(row[1]).any()}
    if not rows:
        return ""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure((6.4, 2.9), layout="constrained")
        axes = figure.add_subplot(xlabel="kimg (thousands of real images)")
        axes.set_title(printable(title), loc="left", pad=14)
        for name, (x, y) in rows.items():
            marker = "o" if len(x) <= DOTS else ""
            axes.plot(x, y, marker=marker, ms=4, lw=1.5, label=printable(name))
        values = np.concatenate([y for _, y in rows.values()])
        if log and 0 < 10 * np.nanmin(values) < np.nanmax(values):
            axes.set_yscale("log")
        left, right = axes.get_xlim()
        for start, shaded_until, end, name in bands:
            axes.axvspan(start, shaded_until, color="#1c1e21", alpha=0.06, lw=0)
            if end - start > ROOM * (right - left):
                place = axes.get_xaxis_transform()
                axes.annotate(name, (start, 1), (3, 3), place, textcoords="offset points")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: short(value))
        if len(rows) > 1:
            figure.legend(loc="outside lower center", ncols=3, frameon=False)
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"


def averaged(points: Points) -> np.ndarray:
    """(2, n): x and y; n at most POINTS, NaN for None."""
    parts = np.array_split(np.array(points, float), min(len(points), POINTS))
    means = [np.ma.masked_invalid(part).mean(axis=0) for part in parts]
    return np.ma.stack(means).filled(np.nan).T
