"""The parts of the page that show what a run was, is and looked like."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from PIL import Image

from stylegan.config import DERIVED, TrainConfig, flatten, to_dict
from stylegan.figures import evenly as spread
from stylegan.messages import count, duration
from stylegan.report.charts import Band, short
from stylegan.report.drawings import Drawings
from stylegan.report.history import ENDS, Measurement, RunHistory, Session, moment, number
from stylegan.report.markup import Html, joined, picture, table, tag
from stylegan.schedule import ScheduleConfig, official_batch_sizes, phases, stage_at
from stylegan.toml import toml_value

NEWEST_SIDE, GRID_SIDE = 1024, 768  # pixels at most
GRIDS = 12  # over time
PIXELATED = 640  # a narrower picture is enlarged without smoothing


def note(text: object) -> Html:
    return tag("p", text, class_="note")


def headline(history: RunHistory, scores: Sequence[tuple[str, str]]) -> Html:
    """Where the run is; `scores` are names and values that should be seen at once."""
    config, sessions = history.config, history.sessions()
    stage = stage_at(history.images_seen, config.schedule)
    total = config.schedule.total_images
    until = f" of {total:,}" if history.images_seen < total else ""
    growing = f" (fading in, alpha {stage.alpha:.2f})" if stage.alpha < 1 else ""
    times = [event["time"] for event in history.events if number(event.get("time")) is not None]
    facts = [
        ("Images seen", f"{history.images_seen:,}{until}"),
        ("Resolution", f"{stage.resolution}×{stage.resolution}{growing}"),  # noqa: RUF001
        ("Training time", duration(sum(session.seconds for session in sessions))),
        *scores,
    ]
    tiles = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts]
    dates = f"{moment(times[0])} to {moment(times[-1])}" if times else "not begun yet"
    overfitted = history.last_of("overfitted")
    penalty = f", R1 gamma {config.r1_gamma:g}" if config.r1_gamma else ""
    return tag(
        "header",
        tag("p", "StyleGAN training run", class_="kind"),
        tag("h1", history.name),
        tag("p", *status(history), " ", dates, class_="status"),
        tag("dl", *tiles, class_="tiles"),
        *([note(overfitted.get("reason"))] if overfitted else []),
        note(
            f"{config.network.resolution}×{config.network.resolution}, "  # noqa: RUF001
            f"{config.network.image_channels} channels, {config.generator_loss} and "
            f"{config.discriminator_loss} loss{penalty}, {config.precision}, seed {config.seed}"
        ),
    )


def status(history: RunHistory) -> list[Html]:
    """Whether it has finished, and if not, why."""
    last = history.last_of("start", "resume", *ENDS)
    event = last["event"] if last else ""
    text = {
        "finished": "Finished",
        "stopped": "Stopped; the same command continues",
        "failed": "Failed",
    }.get(event, "Not finished" if last else "Not begun")
    kind = event if event in ENDS else "open"
    reason = last.get("reason") if last else None
    return [
        tag("span", text, class_=f"badge {kind}"),
        *([tag("span", reason, class_="reason")] if event == "failed" and reason else []),
    ]


def file_picture(path: Path, side: int, alt: str) -> Html:
    """A picture of the run, at most `side` wide and high."""
    try:
        with Image.open(path) as opened:
            image = opened.convert("RGBA" if "A" in opened.getbands() else "RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return note(f"{path.name} cannot be shown: {error}")
    image.thumbnail((side, side))
    return picture(image, alt, **({"class_": "pixels"} if image.width < PIXELATED else {}))


def captioned(image: Html, caption: str) -> Html:
    return tag("figure", image, tag("figcaption", caption))


def newest(history: RunHistory) -> Html:
    """The last grid of samples beside the training images."""
    reals = history.folder.reals_file
    figures = []
    if history.grids:
        kimg, path = history.grids[-1]
        caption = f"Generated, after {kimg:,} kimg: fixed seeds, average generator, psi 1"
        figures.append(captioned(file_picture(path, NEWEST_SIDE, "generated images"), caption))
    else:
        figures.append(note("The run has not written samples yet."))
    if reals.is_file():
        image = file_picture(reals, NEWEST_SIDE, "training images")
        figures.append(captioned(image, "Training images"))
    return tag("div", *figures, class_="two")


def over_time(history: RunHistory) -> Html:
    """Some of the grids, evenly over the run."""
    figures = [
        captioned(file_picture(path, GRID_SIDE, f"samples after {kimg} kimg"), caption)
        for kimg, path in evenly(history.grids)
        for stage in [stage_at(round(kimg * 1000), history.config.schedule)]
        for caption in [f"{kimg:,} kimg, {stage.resolution}×{stage.resolution}"]  # noqa: RUF001
    ]
    if not figures:
        return Html()
    text = note(f"The same seeds, {len(figures)} of {len(history.grids)} grids.")
    return joined([text, tag("div", *figures, class_="two")])


def evenly(grids: Sequence[tuple[float, Path]]) -> list[tuple[float, Path]]:
    """At most `GRIDS` of them: those nearest to evenly spread times, the first and the last."""
    return [grids[i] for i in spread([kimg for kimg, _ in grids], GRIDS)]


def growth_bands(history: RunHistory) -> list[Band]:
    """The resolutions over thousands of images, shaded while they fade in."""
    bands: list[Band] = []
    seen = history.images_seen / 1000
    for first, end, stage in phases(history.config.schedule):
        start, stop = first / 1000, min(end / 1000, seen)
        name = str(stage.resolution)
        if start >= seen:
            break
        if bands and bands[-1].name == name:
            bands[-1] = bands[-1]._replace(end=stop)
        else:
            bands.append(Band(start, stop if stage.alpha < 1 else start, stop, name))
    return bands


def truncation(drawings: Drawings) -> Html:
    """Seeds against psi."""
    if isinstance(drawings.sweep, str):
        return note(drawings.sweep)
    sweep = drawings.sweep
    heads = ["", *(f"ψ = {psi:g}" for psi in sweep.psis)]
    rows = [
        (
            name,
            *(
                picture(cell, f"{name}, psi {psi:g}", class_="pixels" if cell.width < 96 else "")
                for psi, cell in zip(sweep.psis, cells, strict=True)
            ),
        )
        for name, cells in sweep.rows
    ]
    text = (
        f"{sweep.about} 1 is full variety, 0 the average image, below 0 the opposites of the seeds."
    )
    return joined([note(text), table(heads, rows, class_="sweep")])


def neighbours(drawings: Drawings) -> Html:
    found = drawings.neighbours
    if isinstance(found, str):
        return note(found)
    image = picture(found.image, "generated images and those nearest to them", class_="paper")
    return joined([note(found.about), image])


def settings(history: RunHistory) -> Html:
    """What was configured: the differences, and everything."""
    processes = history.config.schedule.num_processes
    plan = ScheduleConfig(batch_size=official_batch_sizes(processes), num_processes=processes)
    ours, papers = (
        flatten(to_dict(config)) for config in (history.config, TrainConfig(schedule=plan))
    )
    rows = [
        (tag("code", name), tag("code", toml_value(value)), tag("code", toml_value(papers[name])))
        for name, value in ours.items()
        if name != DERIVED and value != papers[name]
    ]
    found = table(["option", "this run", "default"], rows) if rows else note("All are defaults.")
    return joined([found, folded("The whole configuration", history.toml)])


def folded(title: str, text: str) -> Html:
    """Long text that opens when asked."""
    return tag("details", tag("summary", title), tag("pre", text))


def hardware(history: RunHistory) -> Html:
    """Where each part of the run was computed, and with which versions."""
    rows = [session_row(session) for session in history.sessions()]
    heads = ["begun", "images seen", "time", "images/s in all", "device", "processes", "ended"]
    found = table(heads, rows) if rows else note("The log is empty so far.")
    return joined([found, *environment(history)])


def session_row(session: Session) -> list[str]:
    first, last = session.events[0], session.events[-1]
    start, end = session.images
    seconds = session.seconds
    device = first.get("device_name") or first.get("device") or "?"
    return [
        moment(first.get("time")),
        f"{start:,.0f} to {end:,.0f}",
        duration(seconds),
        short((end - start) / seconds) if seconds > 0 else "",
        str(device),
        str(first.get("processes", "?")),
        last["event"] if last["event"] in ENDS else "no end logged",
    ]


def environment(history: RunHistory) -> Iterator[Html]:
    """Lines of the newest `hardware` and `versions` in the log or a measurement."""
    newest: dict[str, Mapping[str, object]] = {}
    for source in (*(one.protocol for one in history.measurements), *history.events):
        for name in ("hardware", "versions"):
            found = source.get(name)
            if isinstance(found, Mapping):
                newest[name] = found
    for name, values in newest.items():
        pairs = joined((tag("span", f"{key} {value}") for key, value in values.items()), " ")
        yield tag("p", tag("b", f"{name.capitalize()}: "), pairs, class_="facts")


def protocol(one: Measurement) -> Html:
    text = json.dumps(one.protocol, indent=2, ensure_ascii=False, default=str)
    return folded(f"Protocol of {one.metric}", text)


def footer(history: RunHistory, version: str) -> Html:
    bad = [
        f"{count(n, 'unreadable line')} of {name} left out"
        for name, n in history.unreadable.items()
        if n
    ]
    made = f"Made by stylegan {version} of what the run had written."
    return tag("footer", " ".join([made, *(f"{text}." for text in bad)]))
