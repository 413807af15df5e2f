"""The parts of the page that are numbers over time: metrics, losses, speed."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stylegan.metrics.engine import interval_text, kind_of, score_name
from stylegan.report.charts import Band, Series, chart, short
from stylegan.report.history import Measurement, RunHistory, number

KIMG = "kimg (thousands of real images)"


class Group(NamedTuple):
    """Numbers of log.jsonl that share a chart."""

    title: str
    holds: Callable[[str], bool]
    log: bool = False


NAMES = {"d/real_signs": "r_t", "augment/probability": "p of the augmentation"}
LOSSES = (
    Group("Overfitting", lambda name: name in NAMES),
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
BANDS = ("schedule/resolution", "schedule/alpha")  # drawn as bands
Points = list[tuple[float, float | None]]


def losses(history: RunHistory, bands: Sequence[Band]) -> list[str]:
    """Charts of what the networks are trained by, and of whatever else is logged."""
    found = logged(history)
    augment = history.config.augment
    if augment.kind == "none":
        found.pop("augment/probability", None)
    shown = {name for name in found if any(group.holds(name) for group in SPEED)} | {*BANDS}
    found = {name: points for name, points in found.items() if name not in shown}
    heads = sorted({name.partition("/")[0] for name in found} - {"d", "g"})
    others = [Group(head, lambda name, head=head: name.startswith(f"{head}/")) for head in heads]  # type: ignore[misc]
    target = {f"target of r_t: {augment.target:g}": augment.target} if augment.adaptive else {}
    return grouped(found, (*LOSSES, *others), bands, {"Overfitting": target})


def speed(history: RunHistory, bands: Sequence[Band]) -> list[str]:
    """Charts of speed and health, except for what never changes."""
    found = logged(history)
    varying = {name: y for name, y in found.items() if len({value for _, value in y}) > 1}
    return grouped(varying, SPEED, bands, {})


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
    levels: Mapping[str, Mapping[str, float]],
) -> list[str]:
    """A chart for each group, with the levels of its title; a name belongs to the first that holds
    it."""
    left, charts = dict(found), []
    for group in groups:
        lines = [
            Series(NAMES.get(name, name.partition("/")[2].replace("_", " ")), left.pop(name))
            for name in [name for name in left if group.holds(name)]
        ]
        own = levels.get(group.title)
        charts.append(
            chart(group.title, lines, x_name=KIMG, bands=bands, log=group.log, levels=own)
        )
    return [one for one in charts if one]


def by_metric(history: RunHistory) -> dict[str, list[Measurement]]:
    """Measurements in the order of images seen; those of real images come first."""
    found: dict[str, list[Measurement]] = defaultdict(list)
    for one in history.measurements:
        found[one.metric].append(one)
    return {name: sorted(every, key=lambda one: one.kimg or 0) for name, every in found.items()}


def by_setting(every: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Measurements that can be compared, by what they differ in from the others."""
    own = [one.setting() for one in every if one.yardstick is None]
    names = dict.fromkeys(name for setting in own for name in setting)
    differing = [n for n in names if len({str(setting.get(n)) for setting in own}) > 1]
    groups: dict[str, list[Measurement]] = defaultdict(list)
    for one in every:
        text = ", ".join(f"{name} {one.setting().get(name)}" for name in differing)
        groups[one.yardstick or text].append(one)
    return groups


def metric_charts(history: RunHistory, bands: Sequence[Band]) -> list[str]:
    """For each metric, its values over time, and over psi if the last generator has several."""
    charts = []
    for metric, every in by_metric(history).items():
        kind = kind_of(metric)
        series = []
        for setting, group in by_setting(every).items():
            for value in group[-1].values:
                points: Points = []
                for before, one in zip([group[0], *group], group, strict=False):
                    if one.kimg is not None:
                        if before.resolution != one.resolution:  # not to be compared
                            points.append((one.kimg, None))
                        points.append((one.kimg, one.values.get(value)))
                name = f"{value} ({setting})" if setting else value
                if len({x for x, _ in points}) > 1:  # the table has the others
                    series.append(Series(name, points))
        title = f"{metric}: {kind.help}" if kind else metric
        lower = bool(kind and kind.lower_is_better)
        charts.append(chart(title, series, x_name=KIMG, bands=bands, log=lower))
        charts.append(against_psi(metric, every))
    return [one for one in charts if one]


def against_psi(metric: str, every: Sequence[Measurement]) -> str:
    """A chart of the last generator, if it was measured at several psi."""
    newest = every[-1].part("generator").get("sha256")
    own = {
        one.psi: one
        for one in every
        if one.psi is not None and one.part("generator").get("sha256") == newest
    }
    if len(own) < 2:
        return ""
    series = [
        Series(value, [(psi, own[psi].values.get(value)) for psi in sorted(own)])
        for value in every[-1].values
    ]
    return chart(f"{metric} against truncation", series, x_name="psi")


def metric_rows(history: RunHistory) -> list[list[str]]:
    """For each value and setting: name, last, best, kimg of the best, resolution, setting."""
    rows = []
    for every in by_metric(history).values():
        for setting, group in by_setting(every).items():
            last = group[-1]
            for value in last.values:
                best = best_of(group, value)
                rows.append(
                    [
                        score_name(last.metric, value),
                        short(last.values[value]) + interval_text(last.protocol, value),
                        short(best.values[value]) if best else "",
                        "" if best is None or best.kimg is None else short(best.kimg),
                        "" if last.resolution is None else f"{last.resolution:.0f}",
                        setting,
                    ]
                )
    return rows


def best_of(every: Sequence[Measurement], value: str) -> Measurement | None:
    """The best of those at the resolution of the last; None where it is unknown what is better."""
    kind = kind_of(every[-1].metric)
    if kind is None or value.endswith("_std"):
        return None
    sign = 1 if kind.lower_is_better else -1
    scored = [
        (sign * y, i)
        for i, one in enumerate(every)
        if (y := one.values.get(value)) is not None and one.resolution == every[-1].resolution
    ]
    return every[min(scored)[1]] if scored else None


def scores(history: RunHistory) -> list[tuple[str, str]]:
    """The main value of the first metrics in the setting measured most, for the headline."""
    found = []
    for metric, every in list(by_metric(history).items())[:2]:
        kind, own = kind_of(metric), [one for one in every if one.yardstick is None]
        most = max(by_setting(own).values(), key=len, default=[])
        best = best_of(most, kind.best_by) if kind and most else None
        if kind and best:
            found.append((f"Best {metric}", short(best.values.get(kind.best_by))))
    return found
