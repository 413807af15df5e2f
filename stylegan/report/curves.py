"""Metrics, losses and speed over time, as line charts in SVG."""

import base64
import io
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stylegan.metrics import Result
from stylegan.metrics.engine import interval_text, kind_of, score_name
from stylegan.report.history import RunHistory
from stylegan.schedule import phases
from stylegan.utils.records import finite_float
from stylegan.utils.text import escape_control_chars

POINTS = 250  # per line; more are averaged
DOTS = 30  # up to which points have markers
ROOM = 0.05  # of the width, needed for the name of a band
STYLE: dict[Any, object] = {
    "axes.autolimit_mode": "round_numbers",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.prop_cycle": "cycler('color', ['#0072b2', '#d55e00', '#009e73', '#b3588d', '#8a7000'])",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.xmargin": 0,
    "font.size": 9,
    "grid.color": "#d9dde2",
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "stylegan report",  # equal charts have equal ids in each run
    "text.parse_math": False,
}
Points = list[tuple[float, float | None]]  # a line, with gaps where y is None
NAMES = {"d/real_signs": "r_t", "augment/probability": "p of the augmentation"}
# title -> predicate of the values of log.jsonl in that chart; the first one that matches wins
Groups = Mapping[str, Callable[[str], bool]]
SPEED: Groups = {
    "Images per second": lambda name: name == "speed/images_per_second",
    "Fraction of time spent waiting for images": lambda name: "data_wait" in name,
    "Learning rates": lambda name: name.startswith("schedule/") and name.endswith("_lr"),
    "Images per batch": lambda name: name == "schedule/batch_size",
    "Memory": lambda name: name.startswith("memory/"),
    "Health": lambda name: name.startswith("health/"),
}
LOSSES: Groups = {
    "Overfitting": lambda name: name in NAMES,
    "Logits": lambda name: name.endswith("_logits"),
    "Penalties before their weight": lambda name: "penalty" in name,
    "Loss of the discriminator": lambda name: name.startswith("d/"),
    "Loss of the generator": lambda name: name.startswith("g/"),
    "Others": lambda name: name not in ("schedule/resolution", "schedule/alpha"),  # shown as bands
}
LOGARITHMIC = ("Images per second", "Penalties before their weight")


class Band(NamedTuple):
    """Interval of the x axis, in kimg; shaded while it fades in."""

    start: float
    shaded_until: float
    end: float
    name: str


def growth_bands(history: RunHistory) -> list[Band]:
    """A band for each resolution of the run so far."""
    bands: list[Band] = []
    seen = history.images_seen / 1000
    for first, end, stage in phases(history.config.schedule):
        start = first / 1000
        stop = min(end / 1000, seen)
        name = str(stage.resolution)
        if start >= seen:
            break
        if bands and bands[-1].name == name:
            bands[-1] = bands[-1]._replace(end=stop)
        else:
            bands.append(Band(start, stop if stage.alpha < 1 else start, stop, name))
    return bands


def curves(history: RunHistory) -> tuple[list[str], list[str]]:
    """Charts of speed and health, without constant lines, and charts of losses."""
    bands = growth_bands(history)
    left: dict[str, Points] = defaultdict(list)
    for seen, event in history.progress():
        for name, value in event.items():
            if "/" in name and (value is None or finite_float(value) is not None):
                left[name].append((seen / 1000, finite_float(value)))
    augment = history.config.augment
    names = dict(NAMES)
    if augment.kind == "none":
        left.pop("augment/probability", None)
    if augment.adaptive:
        names["d/real_signs"] += f", target {augment.target:g}"

    def charts(groups: Groups, *, varying: bool) -> list[str]:
        addresses = []
        for title, holds in groups.items():
            lines = {name: left.pop(name) for name in [name for name in left if holds(name)]}
            shown = {
                names.get(name, name): points
                for name, points in lines.items()
                if not varying or len({value for _, value in points}) > 1
            }
            addresses.append(line_chart(title, shown, bands, log=title in LOGARITHMIC))
        return [address for address in addresses if address]

    return charts(SPEED, varying=True), charts(LOSSES, varying=False)


def by_metric(history: RunHistory) -> dict[str, list[Result]]:
    """Results of each metric, by images seen; those of real images come first."""
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in sorted(history.measurements, key=lambda result: result.kimg or 0):
        groups[result.metric].append(result)
    return groups


def by_setting(every: Sequence[Result]) -> dict[str, list[Result]]:
    """Groups of comparable results, named by the settings in which the groups differ."""
    settings = [result.setting for result in every if result.images_name is None]
    names = dict.fromkeys(name for setting in settings for name in setting)
    differing = [n for n in names if len({str(setting.get(n)) for setting in settings}) > 1]
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in every:
        text = ", ".join(f"{name} {result.setting.get(name)}" for name in differing)
        groups[result.images_name or text].append(result)
    return groups


def over_time(group: Sequence[Result], value: str) -> Points:
    """Points of one value, with a gap where the resolution changes."""
    points: Points = []
    for before, result in zip([group[0], *group], group, strict=False):
        if result.kimg is not None:
            if before.resolution != result.resolution:  # not comparable
                points.append((result.kimg, None))
            points.append((result.kimg, result.values.get(value)))
    return points


def metrics(history: RunHistory) -> tuple[list[str], list[list[str]]]:
    """Charts of the metrics, and a row for each value and setting: name, last, best, kimg of the
    best, resolution, setting."""
    bands = growth_bands(history)
    charts = []
    rows = []
    for metric, every in by_metric(history).items():
        kind = kind_of(metric)
        lines = {}
        for setting, group in by_setting(every).items():
            last = group[-1]
            resolution = "" if last.resolution is None else f"{last.resolution:.0f}"
            for value, number_of_last in last.values.items():
                points = over_time(group, value)
                if len({x for x, _ in points}) > 1:  # the table has the others
                    lines[f"{value} ({setting})" if setting else value] = points
                name = score_name(metric, value)
                shown = short(number_of_last) + interval_text(last.protocol, value)
                best = best_of(group, value)
                of_best = short(best.values[value]) if best else ""
                kimg = "" if best is None or best.kimg is None else short(best.kimg)
                rows.append([name, shown, of_best, kimg, resolution, setting])
        title = f"{metric}: {kind.help}" if kind else metric
        charts.append(line_chart(title, lines, bands, log=bool(kind and kind.lower_is_better)))
    return [address for address in charts if address], rows


def best_of(every: Sequence[Result], value: str) -> Result | None:
    """Best result at the last resolution, or None if it is unknown what is better."""
    kind = kind_of(every[-1].metric)
    if kind is None or value.endswith("_std"):
        return None
    last = every[-1]
    choose = min if kind.lower_is_better else max
    known = [result for result in every if result.resolution == last.resolution]
    known = [result for result in known if math.isfinite(result.values.get(value, math.nan))]
    return choose(known, key=lambda result: result.values[value], default=None)


def short(value: float | None) -> str:
    """Format a number for axes and tables: `0.25`, `12,300`, `25M`."""
    if value is None or math.isnan(value):
        return "none"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.4g}M"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value + 0.0:.4g}"


def line_chart(title: str, lines: Mapping[str, Points], bands: Sequence[Band], *, log: bool) -> str:
    """Line chart over kimg as the data URL of an SVG image; "" if there are no finite values.

    With `log`, the y axis is logarithmic if all values are positive and span more than a factor of
    ten.
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
        axes.set_title(escape_control_chars(title), loc="left", pad=14)
        for name, (x, y) in rows.items():
            marker = "o" if len(x) <= DOTS else ""
            axes.plot(x, y, marker=marker, ms=4, lw=1.5, label=escape_control_chars(name))
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
    """Arrays x and y (2, n), averaged to n <= POINTS; NaN for None."""
    parts = np.array_split(np.array(points, float), min(len(points), POINTS))
    means = [np.ma.masked_invalid(part).mean(axis=0) for part in parts]
    return np.ma.stack(means).filled(np.nan).T
