"""The parts of the page that are numbers over time: metrics, losses, speed."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stylegan.metrics.engine import KINDS, Kind, parse, score_name
from stylegan.report.charts import Band, Series, chart, short
from stylegan.report.markup import Html, joined, table, tag
from stylegan.report.record import Record, Result, number
from stylegan.report.sections import note, protocol

KIMG = "kimg (thousands of real images)"


class Group(NamedTuple):
    """Numbers of log.jsonl that share a chart."""

    title: str
    holds: Callable[[str], bool]
    log: bool = False


LOSSES = (
    Group("Logits", lambda name: name.endswith("_logits")),
    Group("Penalties before their weight", lambda name: "penalty" in name, log=True),
    Group("Loss of the discriminator", lambda name: name.startswith("d/")),
    Group("Loss of the generator", lambda name: name.startswith("g/")),
)
SPEED = (
    Group("Images per second", lambda name: name == "speed/images_per_second", log=True),
    Group("Share of the time spent waiting for images", lambda name: "data_wait" in name),
    Group("Learning rates", lambda name: name.startswith("schedule/") and name.endswith("_lr")),
    Group("Images per batch", lambda name: name == "schedule/batch_size"),
    Group("Memory", lambda name: name.startswith("memory/")),
    Group("Health", lambda name: name.startswith("health/")),
)
AXES = ("schedule/resolution", "schedule/alpha")  # the bands show these


def losses(record: Record, bands: Sequence[Band]) -> Html:
    """What the networks are taught by, and what nobody knows."""
    found = logged(record)
    charts = grouped(found, LOSSES, bands)
    others = {name: points for name, points in found.items() if not belongs(name)}
    rest = sorted({name.partition("/")[0] for name in others})
    groups = [Group(head, lambda name, head=head: name.partition("/")[0] == head) for head in rest]  # type: ignore[misc]
    return figures([*charts, *grouped(others, groups, bands)])


def speed(record: Record, bands: Sequence[Band]) -> Html:
    """How fast, how healthy; what never changed is told in a line."""
    found = logged(record)
    constant = {
        name: points[0][1] for name, points in found.items() if len({y for _, y in points}) == 1
    }
    varying = {name: points for name, points in found.items() if name not in constant}
    fixed = [
        f"{name} {shown(value)}"
        for name, value in constant.items()
        if any(group.holds(name) for group in SPEED)
    ]
    text = note(f"Constant: {', '.join(fixed)}.") if fixed else Html()
    return joined([figures(grouped(varying, SPEED, bands)), text])


def belongs(name: str) -> bool:
    return name in AXES or any(group.holds(name) for group in (*LOSSES, *SPEED))


Points = list[tuple[float, float | None]]


def logged(record: Record) -> dict[str, Points]:
    """Numbers by name over thousands of images."""
    found: dict[str, Points] = defaultdict(list)
    for event in record.progress():
        for name, value in event.items():
            if "/" in name and (value is None or number(value) is not None):
                found[name].append((event["images_seen"] / 1000, number(value)))
    return found


def grouped(
    found: Mapping[str, Points], groups: Iterable[Group], bands: Sequence[Band]
) -> list[Html]:
    """A chart for each group; a name belongs to the first that holds it."""
    left, charts = dict(found), []
    for group in groups:
        names = [name for name in left if group.holds(name)]
        series = [Series(readable_name(name), left.pop(name)) for name in names]
        charts.append(chart(group.title, series, x_name=KIMG, bands=bands, log=group.log))
    return charts


def readable_name(name: str) -> str:
    return name.partition("/")[2].replace("_", " ")


def figures(charts: Iterable[Html]) -> Html:
    shown = [one for one in charts if one]
    return tag("div", *shown, class_="two") if shown else Html()


def kind_of(metric: str) -> Kind | None:
    """What a metric is; None for one that this version does not know."""
    try:
        return KINDS[parse(metric)[0].kind]
    except ValueError:
        return None


def by_metric(record: Record) -> dict[str, list[Result]]:
    """Results of the run by metric, in the order of images seen."""
    found: dict[str, list[Result]] = defaultdict(list)
    for result in record.results:
        if result.yardstick is None:
            found[result.metric].append(result)
    return {
        name: sorted(results, key=lambda r: -1 if r.images_seen is None else r.images_seen)
        for name, results in found.items()
    }


def differing(results: Sequence[Result]) -> list[str]:
    """Names of settings in which results of one resolution differ: each has its own network."""
    firsts: dict[float | None, dict[str, Any]] = {}
    names: dict[str, None] = {}
    for result in results:
        setting = result.setting()
        first = firsts.setdefault(result.resolution, setting)
        names |= {n: None for n in first | setting if first.get(n) != setting.get(n)}
    return list(names)


def described(result: Result, names: Iterable[str]) -> str:
    setting = result.setting()
    return ", ".join(f"{name} {str(setting.get(name))[:12]}" for name in names)


def metrics(record: Record, bands: Sequence[Band]) -> Html:
    """Metrics over time, their last and best values, how each was measured, and against psi."""
    if not record.results:
        return note("Nothing was measured: train with --metrics, or use stylegan metrics.")
    found = by_metric(record)
    charts = [over_time(metric, results, bands) for metric, results in found.items()]
    charts += [against_psi(metric, results) for metric, results in found.items()]
    heads = ["metric", "last", "best", "best at kimg", "better is", "resolution", "setting"]
    rows = [row for metric, results in found.items() for row in summary(metric, results)]
    if not any(setting for *_, setting in rows):
        heads, rows = heads[:-1], [cells[:-1] for cells in rows]
    text = note("Best among those of the last resolution; others cannot be compared with it.")
    protocols = joined(protocol(results[-1]) for results in found.values())
    own = [figures(charts), table(heads, rows), text] if found else []
    return joined([*own, yardsticks(record), protocols])


def yardsticks(record: Record) -> Html:
    """The newest values of what stood for the generator's images."""
    newest = {
        (score_name(result.metric, name), result.yardstick): value
        for result in record.results
        if result.yardstick is not None
        for name, value in result.values.items()
    }
    rows = [(name, origin, shown(value)) for (name, origin), value in newest.items()]
    return table(["metric", "of what", "value"], sorted(rows)) if rows else Html()


def over_time(metric: str, results: Sequence[Result], bands: Sequence[Band]) -> Html:
    """A line for each value and setting, interrupted where the resolution changes.

    A setting that was measured once, as one psi of many, is drawn only where all were.
    """
    groups = by_setting(results)
    times = {setting: len({r.images_seen for r in group}) for setting, group in groups.items()}
    lines: dict[str, dict[float, float | None]] = defaultdict(dict)
    for setting, group in groups.items():
        for result in group if times[setting] >= min(2, max(times.values())) else []:
            for value, y in result.values.items():
                label = f"{value} ({setting})" if setting else value
                if result.images_seen is not None:
                    lines[label][result.images_seen / 1000] = y  # the last of equal ones
    kind = kind_of(metric)
    log = bool(kind and kind.lower_is_better)
    series = [Series(label, list(points.items())) for label, points in lines.items()]
    if all(len(points) < 2 for points in lines.values()):  # the table tells it
        return Html()
    breaks = [
        before.images_seen / 1000
        for before, after in itertools.pairwise(results)
        if before.images_seen is not None and before.resolution != after.resolution
    ]
    return chart(titled(metric), series, x_name=KIMG, bands=bands, breaks=breaks, log=log)


def titled(metric: str) -> str:
    kind = kind_of(metric)
    return f"{metric}: {kind.help}" if kind else metric


def against_psi(metric: str, results: Sequence[Result]) -> Html:
    """Of the newest generator that was measured at several psi."""
    by_generator: dict[Any, list[Result]] = defaultdict(list)
    for result in results:
        if result.psi is not None:
            by_generator[result.part("generator").get("sha256")].append(result)
    several = [found for found in by_generator.values() if len({r.psi for r in found}) > 1]
    if not several:
        return Html()
    chosen = several[-1]
    names = [name for name in differing(chosen) if name != "psi"]
    lines: dict[str, dict[float, float | None]] = defaultdict(dict)
    for result in chosen:
        setting = described(result, names)
        for value, y in result.values.items():
            lines[f"{value} ({setting})" if setting else value][result.psi or 0.0] = y
    series = [Series(label, list(points.items())) for label, points in lines.items()]
    return chart(f"{metric} against truncation", series, x_name="psi")


def summary(metric: str, results: Sequence[Result]) -> list[list[object]]:
    """A row for each value and setting: name, last, best, where, which way, resolution, setting."""
    return [
        row(score_name(metric, value), value, group, setting)
        for setting, group in by_setting(results).items()
        for value in group[-1].values
    ]


def by_setting(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results that can be compared, by what tells them apart from the others."""
    names = differing(results)
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[described(result, names)].append(result)
    return groups


def row(name: str, value: str, results: Sequence[Result], setting: str) -> list[object]:
    last = results[-1]
    best = best_of(results, value)
    kind = kind_of(last.metric)
    lower = kind.lower_is_better if kind and not value.endswith("_std") else None
    seen = best.images_seen if best else None
    return [
        name,
        shown(last.values.get(value)),
        shown(best.values.get(value)) if best else "",
        "" if seen is None else short(seen / 1000),
        {True: "lower", False: "higher", None: ""}[lower],
        "" if last.resolution is None else f"{last.resolution:.0f}",
        setting,
    ]


def best_of(results: Sequence[Result], value: str) -> Result | None:
    """Of those at the resolution of the last; None where nobody knows what is better."""
    kind = kind_of(results[-1].metric)
    if kind is None or kind.lower_is_better is None or value.endswith("_std"):
        return None
    sign = 1 if kind.lower_is_better else -1
    scored = [
        (sign * y, i)
        for i, result in enumerate(results)
        if (y := result.values.get(value)) is not None
        and result.resolution == results[-1].resolution
    ]
    return results[min(scored)[1]] if scored else None


def shown(value: float | None) -> str:
    return "none" if value is None else short(value)


def scores(record: Record) -> list[tuple[str, str]]:
    """The main value of the first metrics in the setting measured most, for the headline."""
    found = []
    for metric, results in list(by_metric(record).items())[:2]:
        kind = kind_of(metric)
        most = max(by_setting(results).values(), key=len)
        best = best_of(most, kind.best_by) if kind else None
        if kind and best:
            found.append((f"Best {metric}", shown(best.values.get(kind.best_by))))
    return found
