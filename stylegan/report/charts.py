"""Line charts as SVG: numbers over something, crisp at any size, readable without a program."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stylegan.report.markup import Html, tag

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 22, 18, 36  # margins around the lines
COLUMNS = 180  # places along x at most; what falls into one is averaged
DOTS = 32  # places up to which each is marked
COLORS = 7  # that style.css knows
LETTER = 6  # pixels, about, that a letter is wide


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


class Place(NamedTuple):
    """What a series shows at one x."""

    x: float
    value: float | None
    low: float
    high: float


@dataclass(frozen=True)
class Scale:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        a, b, c = (
            (math.log10(x) for x in (self.low, self.high, value))
            if self.log
            else (self.low, self.high, value)
        )
        return round(self.start + (c - a) / (b - a) * (self.end - self.start), 1)

    def ticks(self, about: int) -> list[float]:
        if not self.log:
            step = nice_step((self.high - self.low) / about)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [n * step for n in range(first, last + 1)]
        low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        decades = math.log10(self.high / self.low)
        factors = (1,) if decades > 4 else (1, 3) if decades > 2.5 else (1, 2, 5)
        every = max(1, (high - low) // about)
        found = [f * 10.0**n for n in range(low, high + 1, every) for f in factors]
        return [x for x in found if self.low <= x <= self.high]


def nice_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= least * (1 - 1e-9))


def short(value: float) -> str:
    """A number as axes and tables show it: `0.25`, `12,300`, `25M`."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.4g}M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def chart(
    title: str,
    series: Sequence[Series],
    *,
    x_name: str,
    bands: Sequence[Band] = (),
    breaks: Sequence[float] = (),
    log: bool = False,
) -> Html:
    """A figure with its legend; empty without a number to show. Lines end at `breaks`, and begin
    anew behind them.

    `log` asks for a logarithmic y axis, which values that are not all positive do not get, nor
    those within a factor of ten. Many points are averaged, and the range of each average shaded.
    """
    ranges = [x for one in series for x, _ in one.points]
    lines = [
        Line(i % COLORS, one.name, places(one, ranges), breaks) for i, one in enumerate(series)
    ]
    lines = [line for line in lines if line.values]
    return Drawing(lines, tuple(bands), x_name, log).figure(title) if lines else Html()


def places(one: Series, xs: Sequence[float]) -> list[Place]:
    """The points of a series, those within one of `COLUMNS` columns of the chart averaged. `xs`
    are those of all series."""
    many = len(set(xs)) > COLUMNS
    low, width = min(xs, default=0.0), (max(xs, default=0.0) - min(xs, default=0.0)) / COLUMNS
    columns: dict[float, list[float | None]] = {}
    for x, value in sorted(one.points, key=lambda point: point[0]):
        column = min(int((x - low) / width), COLUMNS - 1) if many else 0
        columns.setdefault(low + (column + 0.5) * width if many else x, []).append(value)
    found = []
    for x, values in columns.items():
        finite = [value for value in values if value is not None]
        mean = sum(finite) / len(finite) if finite else None
        found.append(Place(x, mean, min(finite, default=0.0), max(finite, default=0.0)))
    return found


@dataclass(frozen=True)
class Line:
    """A series, ready to be drawn."""

    color: int
    name: str
    places: list[Place]
    breaks: Sequence[float] = ()

    @property
    def values(self) -> list[float]:
        return [v for p in self.places if p.value is not None for v in (p.low, p.high)]

    def stretches(self) -> list[list[Place]]:
        """The places between interruptions."""
        found: list[list[Place]] = [[]]
        for place in self.places:
            last = found[-1][-1].x if found[-1] else place.x
            if place.value is None or any(last <= x < place.x for x in self.breaks):
                found.append([])
            if place.value is not None:
                found[-1].append(place)
        return [stretch for stretch in found if stretch]


class Drawing:
    """Lines, which are not empty, and where they come to lie."""

    def __init__(self, lines: list[Line], bands: tuple[Band, ...], x_name: str, log: bool) -> None:
        self.lines, self.bands = lines, bands
        xs = [place.x for line in lines for place in line.places]
        xs += [edge for band in bands for edge in (band.start, band.end)]
        self.x_name = x_name
        low, high = min(xs), max(xs)
        margin = 0.5 if low == high else 0.0
        self.x = Scale(low - margin, high + margin, LEFT, WIDTH - RIGHT)
        self.y = self.y_scale([value for line in lines for value in line.values], log)

    def y_scale(self, values: list[float], log: bool) -> Scale:
        low, high = min(values), max(values)
        bottom, top = HEIGHT - BOTTOM, TOP
        if log and low > 0 and high / low > 10:
            return Scale(low / 1.15, high * 1.15, bottom, top, log=True)
        if 0 <= low < 0.5 * high:
            low = 0.0
        if low == high:
            low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
        step = nice_step((high - low) / 5)
        return Scale(
            math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, bottom, top
        )

    def figure(self, title: str) -> Html:
        names = [
            tag("span", tag("i", class_=f"key c{line.color}"), line.name, class_="name")
            for line in self.lines
        ]
        told = len(names) == 1 and self.lines[0].name.lower() in title.lower()
        image = tag(
            "svg",
            *self.backdrop(),
            *self.axes(),
            *(self.line(line) for line in self.lines),
            *self.hints(),
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            role="img",
            aria_label=f"{title}: {', '.join(line.name for line in self.lines)}",
        )
        scale = " (logarithmic scale)" if self.y.log else ""
        caption = tag("figcaption", tag("b", title, scale), *([] if told else names))
        return tag("figure", caption, image, class_="chart")

    def backdrop(self) -> list[Html]:
        """The bands, with their names where there is room."""
        found = []
        for band in self.bands:
            start, middle, end = (self.x(x) for x in (band.start, band.shaded_until, band.end))
            if middle > start:
                width = round(middle - start, 1)
                found.append(rectangle(start, TOP, width, HEIGHT - BOTTOM - TOP, "band"))
            if end - start > LETTER * len(band.name) + 4:
                found.append(label(start + 3, TOP - 5, band.name, "start"))
        return found

    def axes(self) -> list[Html]:
        bottom = HEIGHT - BOTTOM
        found = []
        for value in self.y.ticks(5):
            y = self.y(value)
            found.append(path(f"M{LEFT} {y}H{WIDTH - RIGHT}", "grid"))
            found.append(label(LEFT - 6, y + 4, short(value), "end"))
        for value in self.x.ticks(6):
            x = self.x(value)
            found.append(path(f"M{x} {bottom}v4", "axis"))
            found.append(label(x, bottom + 16, short(value), "middle"))
        found.append(path(f"M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}", "axis"))
        found.append(label(WIDTH - RIGHT, HEIGHT - 4, self.x_name, "end"))
        return found

    def line(self, line: Line) -> Html:
        parts = []
        for stretch in line.stretches():
            xs = [self.x(place.x) for place in stretch]
            if any(place.high > place.low for place in stretch):
                over = list(zip(xs, (self.y(p.high) for p in stretch), strict=True))
                under = list(zip(xs, (self.y(p.low) for p in stretch), strict=True))
                parts.append(path(f"{through([*over, *reversed(under)])}Z", "range"))
            ys = [self.y(place.value) for place in stretch if place.value is not None]
            points = list(zip(xs, ys, strict=True))
            if len(points) > 1:
                parts.append(path(through(points), "line"))
            if len(line.places) <= DOTS or len(points) == 1:
                parts += [tag("circle", cx=x, cy=y, r=2.5) for x, y in points]
        return tag("g", *parts, class_=f"c{line.color}")

    def hints(self) -> list[Html]:
        """Strips over the whole height that tell the numbers of their place to whoever points."""
        told: dict[float, list[str]] = {}
        for line in self.lines:
            for place in line.places:
                value = "none" if place.value is None else short(place.value)
                told.setdefault(place.x, []).append(f"{line.name} {value}".strip())
        xs = sorted(told)
        edges = [LEFT, *((self.x(a) + self.x(b)) / 2 for a, b in itertools.pairwise(xs))]
        found = []
        for x, start, end in zip(xs, edges, [*edges[1:], WIDTH - RIGHT], strict=True):
            text = "\n".join([f"{short(x)} {self.x_name}", *told[x]])
            found.append(
                rectangle(
                    round(start, 1),
                    TOP,
                    round(end - start, 1),
                    HEIGHT - BOTTOM - TOP,
                    "hint",
                    tag("title", text),
                )
            )
        return found


def through(points: Sequence[tuple[float, float]]) -> str:
    """The commands of a path."""
    return "M" + "L".join(f"{x} {y}" for x, y in points)


def path(commands: str, kind: str) -> Html:
    return tag("path", d=commands, class_=kind)


def label(x: float, y: float, text: str, anchor: str) -> Html:
    return tag("text", text, x=round(x, 1), y=round(y, 1), text_anchor=anchor)


def rectangle(x: float, y: float, width: float, height: float, kind: str, *inner: Html) -> Html:
    return tag("rect", *inner, x=x, y=y, width=width, height=height, class_=kind)
