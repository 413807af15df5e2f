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


class Series(NamedTuple):
    """A line; it is interrupted where a value is None."""

    name: str
    points: Sequence[tuple[float, float | None]]


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


def chart(
    title: str,
    series: Sequence[Series],
    *,
    x_name: str,
    bands: Sequence[Band] = (),
    log: bool = False,
    levels: Mapping[str, float] | None = None,
) -> str:
    """An SVG image as a data address; empty if there are no numbers.

    With `log` the y axis is logarithmic if all values are positive and differ by more than a factor
    of ten. Many points are averaged, and their range is shaded. `levels` are dashed lines.
    """
    lines = [(one.name, averaged(one.points)) for one in series]
    lines = [(name, rows) for name, rows in lines if np.isfinite(rows[1]).any()]
    if not lines:
        return ""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    with matplotlib.rc_context(STYLE):
        figure = Figure((6.4, 2.9), layout="constrained")
        axes = figure.add_subplot(xlabel=x_name)
        axes.set_title(printable(title), loc="left", pad=14)
        for name, (x, mean, low, high) in lines:
            marker = "o" if len(x) <= DOTS else ""
            (line,) = axes.plot(x, mean, marker=marker, ms=4, lw=1.5, label=printable(name))
            axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, lw=0)
        values = np.concatenate([rows[1] for _, rows in lines])
        if log and 0 < 10 * np.nanmin(values) < np.nanmax(values):
            axes.set_yscale("log")
        for name, y in (levels or {}).items():
            axes.axhline(y, color="#5c636b", lw=1, ls="--", label=printable(name))
        left, right = axes.get_xlim()
        for start, shaded_until, end, name in bands:
            axes.axvspan(start, shaded_until, color="#1c1e21", alpha=0.06, lw=0)
            if end - start > ROOM * (right - left):
                place = axes.get_xaxis_transform()
                axes.annotate(name, (start, 1), (3, 3), place, textcoords="offset points")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        if len(lines) > 1 or levels:
            figure.legend(loc="outside lower center", ncols=3, frameon=False)
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"


def averaged(points: Sequence[tuple[float, float | None]]) -> np.ndarray:
    """(4, n): x, mean, least and largest value; n at most POINTS, NaN for None."""
    x, y = np.array(points, float).reshape(-1, 2).T
    parts = min(len(x), POINTS)
    rows = []
    for xs, ys in zip(np.array_split(x, parts), np.array_split(y, parts), strict=True):
        known = ys[np.isfinite(ys)]
        found = (known.mean(), known.min(), known.max()) if len(known) else (np.nan,) * 3
        rows.append((xs.mean(), *found))
    return np.array(rows).reshape(-1, 4).T
