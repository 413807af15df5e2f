"""The parts of the page that are numbers over time: metrics, losses, speed."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stylegan.metrics.engine import interval_text, kind_of, score_name
from stylegan.report.charts import Band, Series, chart, short
from stylegan.report.history import Measurement, RunHistory, number
from stylegan.report.markup import Html, joined, table, tag
from stylegan.report.sections import note, protocol

KIMG = "kimg (thousands of real images)"


class Group(NamedTuple):
    """Numbers of log.jsonl that share a chart."""

    title: str
    holds: Callable[[str], bool]
    log: bool = False


OVERFITTING = {
    "d/real_signs": "r_t",
    "augment/probability": "p of the augmentation",
}
LOSSES = (
    Group("Overfitting", lambda name: name in OVERFITTING),
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
AXES = (Group("", lambda name: name in ("schedule/resolution", "schedule/alpha")),)  # bands


Points = list[tuple[float, float | None]]


def losses(history: RunHistory, bands: Sequence[Band]) -> Html:
    """What the networks are trained by, and whatever else is logged."""
    found = logged(history)
    augment = history.config.augment
    if augment.kind == "none":
        found.pop("augment/probability", None)
    groups = (*AXES, *LOSSES, *SPEED)
    others = {name: y for name, y in found.items() if not any(g.holds(name) for g in groups)}
    heads = sorted({name.partition("/")[0] for name in others})
    rest = [Group(head, lambda name, head=head: name.partition("/")[0] == head) for head in heads]  # type: ignore[misc]
    target = {f"target of r_t: {augment.target:g}": augment.target} if augment.adaptive else {}
    levels = {"Overfitting": target}
    return side_by_side([*grouped(found, LOSSES, bands, levels), *grouped(others, rest, bands)])


def speed(history: RunHistory, bands: Sequence[Band]) -> Html:
    """How fast, how healthy; what never changed is one line of text."""
    found = logged(history)
    constant = {name: y[0][1] for name, y in found.items() if len({value for _, value in y}) == 1}
    varying = {name: points for name, points in found.items() if name not in constant}
    texts = [
        f"{name} {number_text(value)}"
        for name, value in constant.items()
        if any(group.holds(name) for group in SPEED)
    ]
    text = note(f"Constant: {', '.join(texts)}.") if texts else Html()
    return joined([side_by_side(grouped(varying, SPEED, bands)), text])


def logged(history: RunHistory) -> dict[str, Points]:
    """Numbers by name over thousands of images."""
    found: dict[str, Points] = defaultdict(list)
    for event in history.progress():
        for name, value in event.items():
            if "/" in name and (value is None or number(value) is not None):
                found[name].append((event["images_seen"] / 1000, number(value)))
    return found


def grouped(
    found: Mapping[str, Points],
    groups: Iterable[Group],
    bands: Sequence[Band],
    levels: Mapping[str, Mapping[str, float]] | None = None,
) -> list[Html]:
    """A chart for each group, with the levels of its title; a name belongs to the first that holds
    it."""
    left, charts = dict(found), []
    texts = OVERFITTING
    for group in groups:
        held = [name for name in left if group.holds(name)]
        names = [*(n for n in texts if n in held), *(n for n in held if n not in texts)]
        lines = [
            Series(texts.get(name, name.partition("/")[2].replace("_", " ")), left.pop(name))
            for name in names
        ]
        own = (levels or {}).get(group.title, {})
        charts.append(
            chart(group.title, lines, x_name=KIMG, bands=bands, log=group.log, levels=own)
        )
    return charts


def side_by_side(charts: Iterable[Html]) -> Html:
    found = [one for one in charts if one]
    return tag("div", *found, class_="two") if found else Html()


def number_text(value: float | None) -> str:
    return "none" if value is None else short(value)


def metrics(history: RunHistory, bands: Sequence[Band]) -> Html:
    """Metrics over time, their last and best values, how each was measured, and against psi."""
    if not history.measurements:
        return note("Nothing was measured: train with --metrics, or use stylegan metrics.")
    found = by_metric(history)
    charts = [over_time(metric, every, bands) for metric, every in found.items()]
    charts += [against_psi(metric, every) for metric, every in found.items()]
    heads = ["metric", "last", "best", "best at kimg", "better is", "resolution", "setting"]
    rows = [row for every in found.values() for row in summary(every)]
    if not any(setting for *_, setting in rows):
        heads, rows = heads[:-1], [cells[:-1] for cells in rows]
    text = note(
        "Best among those of the last resolution; others cannot be compared with it. In brackets: "
        "the 95 % interval over samples."
    )
    protocols = joined(protocol(every[-1]) for every in found.values())
    own = [side_by_side(charts), table(heads, rows), text] if found else []
    return joined([*own, yardsticks(history), protocols])


def by_metric(history: RunHistory) -> dict[str, list[Measurement]]:
    """Measurements of the run's own generators, in the order of images seen."""
    found: dict[str, list[Measurement]] = defaultdict(list)
    for one in sorted(history.measurements, key=lambda one: -1 if one.kimg is None else one.kimg):
        if one.yardstick is None:
            found[one.metric].append(one)
    order = dict.fromkeys(one.metric for one in history.measurements if one.metric in found)
    return {metric: found[metric] for metric in order}


def by_setting(
    every: Sequence[Measurement], apart_from: Sequence[str] = ()
) -> dict[str, list[Measurement]]:
    """Measurements that can be compared, by that in which they differ from others of the same
    resolution: each resolution has its own network."""
    firsts: dict[float | None, dict[str, Any]] = {}
    names: dict[str, None] = {}
    for one in every:
        setting = one.setting()
        first = firsts.setdefault(one.resolution, setting)
        names |= {n: None for n in first | setting if first.get(n) != setting.get(n)}
    groups: dict[str, list[Measurement]] = defaultdict(list)
    for one in every:
        setting = {name: str(one.setting().get(name))[:12] for name in names}
        text = ", ".join(f"{n} {value}" for n, value in setting.items() if n not in apart_from)
        groups[text].append(one)
    return groups


def lines_of(
    groups: Mapping[str, Sequence[Measurement]], x: Callable[[Measurement], float | None]
) -> list[Series]:
    """A line for each value and setting; of equal places the last counts."""
    lines: dict[str, dict[float, float | None]] = defaultdict(dict)
    for setting, group in groups.items():
        for one in group:
            place = x(one)
            for value, y in one.values.items() if place is not None else ():
                lines[f"{value} ({setting})" if setting else value][place] = y  # type: ignore[index]
    return [Series(label, list(points.items())) for label, points in lines.items()]


def over_time(metric: str, every: Sequence[Measurement], bands: Sequence[Band]) -> Html:
    """A line for each value and setting, interrupted where the resolution changes.

    A setting that was measured once, as one psi of many, is drawn only where all were.
    """
    groups = by_setting(every)
    times = {setting: len({one.kimg for one in group}) for setting, group in groups.items()}
    least = min(2, max(times.values()))
    often = {setting: group for setting, group in groups.items() if times[setting] >= least}
    series = lines_of(often, lambda one: one.kimg)
    if all(len(line.points) < 2 for line in series):  # the table has it
        return Html()
    breaks = [
        before.kimg
        for before, after in itertools.pairwise(every)
        if before.kimg is not None and before.resolution != after.resolution
    ]
    kind = kind_of(metric)
    title = f"{metric}: {kind.help}" if kind else metric
    log = bool(kind and kind.lower_is_better)
    return chart(title, series, x_name=KIMG, bands=bands, breaks=breaks, log=log)


def against_psi(metric: str, every: Sequence[Measurement]) -> Html:
    """Chart of the newest generator that was measured at several psi."""
    by_generator: dict[Any, list[Measurement]] = defaultdict(list)
    for one in every:
        if one.psi is not None:
            by_generator[one.part("generator").get("sha256")].append(one)
    several = [found for found in by_generator.values() if len({one.psi for one in found}) > 1]
    if not several:
        return Html()
    series = lines_of(by_setting(several[-1], apart_from=["psi"]), lambda one: one.psi)
    return chart(f"{metric} against truncation", series, x_name="psi")


def summary(every: Sequence[Measurement]) -> list[list[object]]:
    """A row for each value and setting: name, last, best, where, which way, resolution, setting."""
    rows: list[list[object]] = []
    for setting, group in by_setting(every).items():
        last = group[-1]
        for value in last.values:
            best, lower = best_of(group, value), lower_is_better(last, value)
            rows.append(
                [
                    score_name(last.metric, value),
                    number_text(last.values[value]) + interval_text(last.protocol, value),
                    number_text(best.values[value]) if best else "",
                    "" if best is None or best.kimg is None else short(best.kimg),
                    {True: "lower", False: "higher", None: ""}[lower],
                    "" if last.resolution is None else f"{last.resolution:.0f}",
                    setting,
                ]
            )
    return rows


def lower_is_better(one: Measurement, value: str) -> bool | None:
    kind = kind_of(one.metric)
    return kind.lower_is_better if kind and not value.endswith("_std") else None


def best_of(every: Sequence[Measurement], value: str) -> Measurement | None:
    """The best of those at the resolution of the last; None where it is unknown what is better."""
    lower = lower_is_better(every[-1], value)
    scored = [
        (y if lower else -y, i)
        for i, one in enumerate(every)
        if (y := one.values.get(value)) is not None and one.resolution == every[-1].resolution
    ]
    return every[min(scored)[1]] if scored and lower is not None else None


def yardsticks(history: RunHistory) -> Html:
    """The newest values of what stood for the samples."""
    newest = {
        (score_name(one.metric, name), one.yardstick): number_text(value)
        + interval_text(one.protocol, name)
        for one in history.measurements
        if one.yardstick is not None
        for name, value in one.values.items()
    }
    rows = sorted((name, origin, value) for (name, origin), value in newest.items())
    return table(["metric", "of what", "value"], rows) if rows else Html()


def scores(history: RunHistory) -> list[tuple[str, str]]:
    """The main value of the first metrics in the setting measured most, for the headline."""
    found = []
    for metric, every in list(by_metric(history).items())[:2]:
        kind = kind_of(metric)
        best = best_of(max(by_setting(every).values(), key=len), kind.best_by) if kind else None
        if kind and best:
            found.append((f"Best {metric}", number_text(best.values.get(kind.best_by))))
    return found
