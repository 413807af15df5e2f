"""What the page shows of a run, in the order of `page.html`."""

import base64
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from stylegan.config import DERIVED, TrainConfig, flatten, to_dict
from stylegan.figures import evenly
from stylegan.messages import count, duration
from stylegan.report import curves
from stylegan.report.charts import Band, short
from stylegan.report.drawings import Captioned, Drawings
from stylegan.report.history import ENDS, RunHistory, Session, moment, number
from stylegan.schedule import ScheduleConfig, official_batch_sizes, phases, stage_at
from stylegan.toml import toml_value

NEWEST_SIDE, GRID_SIDE = 1024, 768  # pixels at most
GRIDS = 12  # over time
LOSSLESS_PIXELS = 2**17  # larger pictures are compressed with losses that are hard to see
STATES = {
    "finished": "Finished",
    "stopped": "Stopped; the same command continues",
    "failed": "Failed",
    "start": "Not finished",
    "resume": "Not finished",
}


class Picture(NamedTuple):
    """A picture in the page."""

    source: str  # a data address
    caption: str
    pixelated: bool  # small enough to be enlarged without smoothing


def picture(drawing: Captioned | str) -> Picture | str:
    """The picture itself, in the page: lossless if it is small. A text stays as it is."""
    if isinstance(drawing, str):
        return drawing
    file, (width, height) = io.BytesIO(), drawing.image.size
    kind = "png" if width * height <= LOSSLESS_PIXELS else "webp"
    drawing.image.save(file, kind, quality=88)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return Picture(f"data:image/{kind};base64,{data}", drawing.about, width < 640)


def file_picture(path: Path, side: int, caption: str) -> Picture | str:
    """A picture of the run, at most `side` wide and high, or why it cannot be shown."""
    try:
        with Image.open(path) as opened:
            image = opened.convert("RGBA" if "A" in opened.getbands() else "RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return f"{path.name} cannot be shown: {error}"
    image.thumbnail((side, side))
    return picture(Captioned(image, caption))


def contents(history: RunHistory, drawings: Drawings) -> dict[str, Any]:
    """Everything that the template names."""
    bands, config, run = growth_bands(history), history.config, history.folder
    speed, losses = curves.curves(history, bands)
    last, overfitted = history.last_of("start", "resume", *ENDS), history.last_of("overfitted")
    kind = last["event"] if last else ""
    times = [event["time"] for event in history.events if number(event.get("time")) is not None]
    penalty = f", R1 gamma {config.r1_gamma:g}" if config.r1_gamma else ""
    newest = [
        file_picture(
            path,
            NEWEST_SIDE,
            f"Generated, after {kimg:,} kimg: fixed seeds, average generator, psi 1",
        )
        for kimg, path in history.grids[-1:]
    ]
    if run.reals_file.is_file():
        newest.append(file_picture(run.reals_file, NEWEST_SIDE, "Training images"))
    return {
        "name": run.path.resolve().name,
        "state": STATES.get(kind, "Not begun"),
        "kind": kind,
        "reason": last.get("reason") if last and kind == "failed" else None,
        "dates": f"{moment(times[0])} to {moment(times[-1])}" if times else "",
        "facts": facts(history),
        "notes": [
            *([overfitted.get("reason")] if overfitted else []),
            f"{config.network.resolution}×{config.network.resolution}, "  # noqa: RUF001
            f"{config.network.image_channels} channels, {config.generator_loss} and "
            f"{config.discriminator_loss} loss{penalty}, {config.precision}, seed {config.seed}",
        ],
        "newest": newest,
        "metric_charts": curves.metric_charts(history, bands),
        "metric_rows": curves.metric_rows(history),
        "protocols": {  # of the last measurement of each metric
            metric: json.dumps(every[-1].protocol, indent=2, ensure_ascii=False, default=str)
            for metric, every in curves.by_metric(history).items()
        },
        "losses": losses,
        "speed": speed,
        "over_time": over_time(history),
        "grids": len(history.grids),
        "sweep": picture(drawings.sweep),
        "neighbours": picture(drawings.neighbours),
        "options": options(history),
        "toml": history.toml,
        "sessions": [session_row(session) for session in history.sessions()],
        "unreadable": [
            f"{count(n, 'unreadable line')} of {name} left out"
            for name, n in history.unreadable.items()
            if n
        ],
    }


def facts(history: RunHistory) -> list[tuple[str, str]]:
    """What should be seen at once."""
    stage = stage_at(history.images_seen, history.config.schedule)
    total = history.config.schedule.total_images
    until = f" of {total:,}" if history.images_seen < total else ""
    growing = f" (fading in, alpha {stage.alpha:.2f})" if stage.alpha < 1 else ""
    return [
        ("Images seen", f"{history.images_seen:,}{until}"),
        ("Resolution", f"{stage.resolution}×{stage.resolution}{growing}"),  # noqa: RUF001
        ("Training time", duration(sum(session.seconds for session in history.sessions()))),
    ]


def over_time(history: RunHistory) -> list[Picture | str]:
    """Some of the grids, evenly over the run."""
    pictures = []
    for i in evenly([kimg for kimg, _ in history.grids], GRIDS):
        kimg, path = history.grids[i]
        resolution = stage_at(round(kimg * 1000), history.config.schedule).resolution
        caption = f"{kimg:,} kimg, {resolution}×{resolution}"  # noqa: RUF001
        pictures.append(file_picture(path, GRID_SIDE, caption))
    return pictures


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


def options(history: RunHistory) -> list[tuple[str, str, str]]:
    """Options that differ from the defaults: name, value, default."""
    processes = history.config.schedule.num_processes
    plan = ScheduleConfig(batch_size=official_batch_sizes(processes), num_processes=processes)
    ours, papers = (
        flatten(to_dict(config)) for config in (history.config, TrainConfig(schedule=plan))
    )
    return [
        (name, toml_value(value), toml_value(papers[name]))
        for name, value in ours.items()
        if name != DERIVED and value != papers[name]
    ]


def session_row(session: Session) -> list[str]:
    """Begin, images, time, speed, device, processes and end."""
    first, last = session.events[0], session.events[-1]
    start, end = session.span("images_seen")
    seconds = session.seconds
    return [
        moment(first.get("time")),
        f"{start:,.0f} to {end:,.0f}",
        duration(seconds),
        short((end - start) / seconds) if seconds > 0 else "",
        str(first.get("device_name") or first.get("device") or "?"),
        str(first.get("processes", "?")),
        last["event"] if last["event"] in ENDS else "no end logged",
    ]
