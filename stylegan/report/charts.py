"""Line charts as SVG in the colours of the page, with their numbers under the pointer."""

import io
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stylegan.report.markup import Html, joined, tag

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 538, 18, 204  # edges of the plot within it
COLUMNS = 180  # places along x at most; what falls into one is averaged
DOTS = 32  # places up to which each is marked
COLORS = 7  # of lines, in style.css
LETTER = 6  # pixels, about, that a letter is wide
STEPS = [1, 2, 5, 10]  # of ticks, times powers of ten
# what matplotlib draws with; in the page these are the variables of style.css
NAMES = ("ink", "soft", "rule", *(f"c{i}" for i in range(COLORS)))
PALETTE = {name: f"#{number:06x}" for number, name in enumerate(NAMES, start=1)}
STYLE: Any = {
    "axes.autolimit_mode": "round_numbers",
    "axes.axisbelow": True,
    "axes.edgecolor": PALETTE["soft"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.linewidth": 1,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.size": 11,
    "grid.color": PALETTE["rule"],
    "grid.linewidth": 1,
    "lines.linewidth": 1.7,
    "lines.markersize": 5,
    "lines.solid_joinstyle": "round",
    "svg.fonttype": "none",  # text remains text
    "svg.hashsalt": "stylegan report",  # equal charts get equal names in each run
    "text.color": PALETTE["soft"],
    "text.parse_math": False,
    "xtick.color": PALETTE["soft"],
    "xtick.major.pad": 5,
    "ytick.color": PALETTE["soft"],
    "ytick.major.pad": 6,
    "ytick.major.size": 0,
}


class Series(NamedTuple):
    """A line; where a value is None it is interrupted."""

    name: str
    points: Sequence[tuple[float, float | None]]


class Band(NamedTuple):
    """A stretch of the x axis with a name at its start; its shaded part ends before it does."""

    start: float
    shaded_until: float
    end: float
    name: str


class Line(NamedTuple):
    """A series as it is drawn."""

    name: str
    color: str  # as in style.css
    rows: np.ndarray  # (n, 4): x, mean, least and largest value; NaN for None


def short(value: float) -> str:
    """A number as axes and tables show it: `0.25`, `12,300`, `25M`."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.4g}M"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value + 0.0:.4g}"


def chart(
    title: str,
    series: Sequence[Series],
    *,
    x_name: str,
    bands: Sequence[Band] = (),
    breaks: Sequence[float] = (),
    log: bool = False,
    levels: Mapping[str, float] | None = None,
) -> Html:
    """A figure with its legend; empty without a number. Lines are interrupted at `breaks`; `levels`
    are dashed lines with a name.

    With `log` the y axis is logarithmic if all values are positive and differ by more than a factor
    of ten. Many points are averaged, and the range of each average is shaded.
    """
    xs = [x for one in series for x, _ in one.points]
    lines = [Line(one.name, f"c{i % COLORS}", rows(one, xs)) for i, one in enumerate(series)]
    lines = [line for line in lines if np.isfinite(line.rows[:, 1]).any()]
    if not lines:
        return Html()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH / 72, HEIGHT / 72), dpi=72)
        place = (LEFT / WIDTH, 1 - BOTTOM / HEIGHT, (RIGHT - LEFT) / WIDTH, (BOTTOM - TOP) / HEIGHT)
        axes = figure.add_axes(place)
        axes.set_xlabel(x_name, loc="right", labelpad=2, color=PALETTE["soft"])
        levels = levels or {}
        log = scale(axes, lines, bands, log, levels.values())
        draw_bands(axes, bands)
        for name, y in levels.items():
            axes.axhline(y, color=PALETTE["soft"], linewidth=1, linestyle=(0, (4, 3)))
            right = axes.get_yaxis_transform()
            axes.annotate(name, (1, y), (-2, 3), right, textcoords="offset points", ha="right")
        for line in lines:
            draw_line(axes, line, breaks)
        content = svg_content(figure)
    names = [
        tag("span", tag("i", class_=f"key {line.color}"), line.name, class_="name")
        for line in lines
    ]
    evident = len(names) == 1 and lines[0].name.lower() in title.lower()
    heading = tag("b", title, " (logarithmic scale)" if log else "")
    image = tag(
        "svg",
        content,
        *hints(lines, axes.get_xlim(), x_name),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}: {', '.join(line.name for line in lines)}",
    )
    caption = tag("figcaption", heading, *([] if evident else names))
    return tag("figure", caption, image, class_="chart")


def rows(one: Series, xs: Sequence[float]) -> np.ndarray:
    """The rows of a line; of many places, one for each of `COLUMNS` columns of the chart. `xs` are
    the places of all series."""
    x, y = np.array(one.points, float).reshape(-1, 2).T
    if len(set(xs)) > COLUMNS:
        start, width = min(xs), (max(xs) - min(xs)) / COLUMNS
        x = start + (np.minimum((x - start) // width, COLUMNS - 1) + 0.5) * width
    found = []
    for place in np.unique(x):
        values = y[(x == place) & np.isfinite(y)]
        row = (values.mean(), values.min(), values.max()) if len(values) else (math.nan,) * 3
        found.append((place, *row))
    return np.array(found).reshape(-1, 4)


def scale(
    axes: "Axes",
    lines: Sequence[Line],
    bands: Sequence[Band],
    log: bool,
    levels: Iterable[float] = (),
) -> bool:
    """Limits and ticks: round ones, from 0 on if the values come near it. Is y logarithmic?"""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    xs = np.concatenate([line.rows[:, 0] for line in lines])
    ends = [*xs, *(edge for band in bands for edge in (band.start, band.end))]
    margin = 0.5 if min(ends) == max(ends) else 0
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
    values = np.concatenate([*(line.rows[:, 1:].ravel() for line in lines), [*levels]])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    log = log and 0 < 10 * low < high
    if log:
        axes.set_yscale("log")
        subs = (1, 2, 5) if high < 300 * low else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(low / 1.15, high * 1.15)
    else:
        low = 0.0 if 0 <= low < 0.5 * high else low
        margin = 0.5 * (abs(low) or 1) if low == high else 0
        locator = MaxNLocator(5, steps=STEPS)
        axes.yaxis.set_major_locator(locator)
        axes.set_ylim(*locator.view_limits(low - margin, high + margin))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    return log


def draw_bands(axes: "Axes", bands: Sequence[Band]) -> None:
    """Shade the bands and name them where there is room."""
    left, right = axes.get_xlim()
    letters = (RIGHT - LEFT) / LETTER / (right - left)  # for a unit of x
    for start, shaded_until, end, name in bands:
        if shaded_until > start:
            axes.axvspan(start, shaded_until, color=PALETTE["ink"], alpha=0.06, lw=0)
        if (end - start) * letters > len(name) + 1:
            top = axes.get_xaxis_transform()
            axes.annotate(name, (start, 1), (3, 5), top, textcoords="offset points")


def draw_line(axes: "Axes", line: Line, breaks: Sequence[float]) -> None:
    """Draw the means, dots where they are few or alone, and the ranges."""
    gaps = np.array([(x, *(math.nan,) * 3) for x in breaks]).reshape(-1, 4)
    both = np.concatenate([line.rows, gaps])
    x, mean, low, high = both[both[:, 0].argsort(kind="stable")].T
    there = np.pad(np.isfinite(mean), 1)
    alone = there[1:-1] & ~there[:-2] & ~there[2:]
    dots = np.flatnonzero(there[1:-1] if len(line.rows) <= DOTS else alone).tolist()
    color = PALETTE[line.color]
    axes.plot(x, mean, color=color, marker="o", mec="none", markevery=dots, clip_on=False)
    if (high > low).any():
        axes.fill_between(x, low, high, color=color, alpha=0.2, lw=0)


def svg_content(figure: "Figure") -> Html:
    """What matplotlib draws, without its fonts and with the colours of the page."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r' id="(?![mp][0-9a-f]{10}")[^"]*"', "", text)  # nothing refers to the others
    text = re.sub(r' transform="rotate\(-0 [^"]*"| font-family: [^;]*;|<g/>', "", text)
    for name, color in PALETTE.items():
        text = text.replace(color, f"var(--{name})")
    return Html(re.sub(r"(?<=>)\s+(?=<)|\s+(?=\")", "", text).replace("\n", "").strip())


def hints(lines: Sequence[Line], ends: tuple[float, float], x_name: str) -> list[Html]:
    """Strips over the whole height that show the numbers of their place to the pointer."""
    texts: dict[float, list[str]] = {}
    for line in lines:
        for x, mean, *_ in line.rows.tolist():
            value = "none" if math.isnan(mean) else short(mean)
            texts.setdefault(x, []).append(f"{line.name} {value}".strip())
    xs = sorted(texts)
    middles = [(a + b) / 2 for a, b in itertools.pairwise(xs)]
    edges = [LEFT, *np.interp(middles, ends, (LEFT, RIGHT)).tolist(), RIGHT]
    return [
        tag(
            "rect",
            tag("title", joined([f"{short(x)} {x_name}", *texts[x]], "\n")),
            x=round(start, 1),
            y=TOP,
            width=round(end - start, 1),
            height=BOTTOM - TOP,
            class_="hint",
        )
        for x, (start, end) in zip(xs, itertools.pairwise(edges), strict=True)
    ]
