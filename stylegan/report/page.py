"""Render `page.html` with the history of a run and its images."""

import base64
import hashlib
import io
import json
from functools import partial
from pathlib import Path

from PIL import Image

from stylegan.config import DERIVED, TrainConfig, flatten, to_dict
from stylegan.data.images import decode
from stylegan.figures import evenly
from stylegan.report import curves
from stylegan.report.curves import short
from stylegan.report.history import ENDS, RunHistory, moment, read_run
from stylegan.report.images import Captioned, Drawings
from stylegan.schedule import ScheduleConfig, official_batch_sizes, stage_at
from stylegan.utils.filesystem import ALLOW_OVERWRITE, KEEP_EXISTING, OutputWriter
from stylegan.utils.records import finite_float
from stylegan.utils.text import duration, error_reason, pluralize
from stylegan.utils.toml import toml_value
from stylegan.utils.version import __version__

NEWEST_SIDE = 1024  # maximum pixels of the newest samples
GRID_SIDE = 768  # and of earlier ones
GRIDS = 12  # maximum number of samples over time
LOSSLESS_PIXELS = 2**17  # larger images have lossy compression


def write_report(
    folder: Path,
    drawings: Drawings | None = None,
    out: Path | None = None,
    *,
    outputs: OutputWriter = KEEP_EXISTING,
) -> Path:
    """Write the report of the run in `folder`, by default to its report.html; return the path.

    Replaces a report that nobody has edited. Raises FileNotFoundError if there is no run."""
    import jinja2

    history = read_run(folder)
    out = out or history.folder.report_file
    outputs.check(out, exist_ok=is_unchanged(out))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # text of files is never markup
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "counted": pluralize,
        "duration": duration,
        "embedded": embedded,
        "json": partial(json.dumps, indent=2, ensure_ascii=False, default=str),
        "moment": moment,
        "short": short,
    }
    fields = contents(history, drawings or Drawings())
    text = environment.get_template("page.html").render(fields, version=__version__)
    # Names need not be UTF-8.
    ALLOW_OVERWRITE.text(out, sealed(text.encode("utf-8", "replace").decode()))
    return out


def sealed(page: str) -> str:
    """Append a hash, by which `is_unchanged` detects edits."""
    return f"{page}\n<!-- SHA-256 {hashlib.sha256(page.encode()).hexdigest()} -->\n"


def is_unchanged(file: Path) -> bool:
    """Whether a file is a report that nobody has edited since `write_report`."""
    page = file.read_bytes().decode("utf-8", "replace") if file.is_file() else ""
    return page == sealed(page.rpartition("\n<!--")[0])


def embedded(image: Image.Image) -> str:
    """Data URL of an image; lossless if it is small."""
    file = io.BytesIO()
    kind = "png" if image.width * image.height <= LOSSLESS_PIXELS else "webp"
    image.save(file, kind, quality=88)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def reduced(path: Path, side: int, caption: str) -> Captioned | str:
    """Open an image of the run and downsample it to at most `side` pixels, or give the reason why
    it cannot be shown."""
    try:
        image = decode(path.read_bytes(), name=path.name)
    except (OSError, ValueError) as error:
        reason = error_reason(error).removeprefix(f"{path.name}: ")
        return f"{path.name} cannot be shown: {reason}"
    image.thumbnail((side, side))
    return Captioned(image, caption)


def contents(history: RunHistory, drawings: Drawings) -> dict[str, object]:
    schedule = history.config.schedule
    speed, losses = curves.curves(history)
    metric_charts, metric_rows = curves.metrics(history)
    text = "Generated, after {:,} kimg: fixed seeds, average generator, psi 1"
    newest = [reduced(path, NEWEST_SIDE, text.format(kimg)) for kimg, path in history.grids[-1:]]
    if history.folder.reals_file.is_file():
        text = "Training images, which whoever gets this page sees"
        newest.append(reduced(history.folder.reals_file, NEWEST_SIDE, text))
    over_time = []
    for i in evenly([kimg for kimg, _ in history.grids], GRIDS):
        kimg, path = history.grids[i]
        resolution = stage_at(round(kimg * 1000), schedule).resolution
        caption = f"{kimg:,} kimg, {resolution}×{resolution}"  # noqa: RUF001
        over_time.append(reduced(path, GRID_SIDE, caption))
    return {
        "history": history,
        "stage": stage_at(history.images_seen, schedule),
        "last": history.last_of("start", "resume", *ENDS) or {"event": ""},
        "warnings": list(filter(None, map(history.last_of, ("overfitted", "blind")))),
        "times": [e["time"] for e in history.events if finite_float(e.get("time")) is not None],
        "ends": ENDS,
        "newest": newest,
        "over_time": over_time,
        "metric_charts": metric_charts,
        "metric_rows": metric_rows,
        "by_metric": curves.by_metric(history),
        "losses": losses,
        "speed": speed,
        "drawings": drawings,
        "options": options(history),
    }


def options(history: RunHistory) -> list[tuple[str, str, str]]:
    """Name, value and default of each option that differs from the default."""
    processes = history.config.schedule.num_processes
    plan = ScheduleConfig(batch_size=official_batch_sizes(processes), num_processes=processes)
    papers = flatten(to_dict(TrainConfig(schedule=plan)))
    return [
        (name, toml_value(value), toml_value(papers[name]))
        for name, value in flatten(to_dict(history.config)).items()
        if name != DERIVED and value != papers[name]
    ]
