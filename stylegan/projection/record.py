"""What a search for pictures leaves: numbers of every step, pictures of some, files."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from stylegan import sampling
from stylegan.atomic import replacing, write_text
from stylegan.figures import grid
from stylegan.files.latents import write_latents
from stylegan.projection.distance import psnr
from stylegan.projection.search import Projected, Settings
from stylegan.sampling import Rectangle
from stylegan.video import write_video

LATENTS, TARGET, PICTURE = "latents.npz", "target.png", "projection.png"
RESULT, LOG = "result.json", "log.jsonl"
FPS = 15
MOMENTS, PAUSE = 75, 15  # frames of a film: of the search, and of its end once more
FILMED = 256  # pixels a side of the pictures in a film, at most


@dataclass(eq=False)
class Record:
    """The search for one picture. Pictures are uint8 (H, W, C), without padding."""

    target: np.ndarray
    small_target: np.ndarray  # of at most FILMED pixels a side, as the moments are
    distances: list[float] = field(default_factory=list)  # before each update, and of the result
    moments: list[tuple[int, np.ndarray]] = field(default_factory=list)  # step and picture
    picture: np.ndarray = field(init=False)  # the result, made of what follows
    ws: Tensor = field(init=False)  # (1, num_styles, w_dim), not truncated
    noise: list[Tensor] | None = field(init=False)  # fitted maps (1, 1, r, r), if any
    decibels: float = field(init=False)  # peak signal-to-noise ratio of the result, without padding


def recorded(
    states: Iterable[Projected],
    targets: Tensor,
    steps: int,
    *,
    rectangle: Rectangle | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Record]:
    """A record for each of `targets` (N, C, r, r), of what `project` yields for them."""

    def shown(images: Tensor) -> np.ndarray:
        return sampling.crop(sampling.to_uint8(images), rectangle)

    whole, small = shown(targets), shown(reduced(targets))
    records = [Record(*pair) for pair in zip(whole, small, strict=True)]
    moments = {round(i * steps / (MOMENTS - 1)) for i in range(MOMENTS)}
    for state in states:
        filmed = shown(reduced(state.images)) if state.step in moments else None
        for i, (record, value) in enumerate(zip(records, state.distances.tolist(), strict=True)):
            record.distances.append(value)
            if filmed is not None:
                record.moments.append((state.step, filmed[i]))
        progress(state.step, steps)
    decibels = psnr(state.images, targets.to(state.images), rectangle)
    for i, (record, pixels) in enumerate(zip(records, shown(state.images), strict=True)):
        record.picture, record.decibels = pixels, float(decibels[i])
        record.ws = state.ws[i : i + 1]
        record.noise = state.noise and [noise_map[i : i + 1] for noise_map in state.noise]
    return records


def reduced(images: Tensor) -> Tensor:
    """Images (N, C, r, r) of at most FILMED pixels a side."""
    factor = images.shape[2] // FILMED
    return F.avg_pool2d(images, factor) if factor > 1 else images


def file_names(film: str | None) -> list[str]:
    """Those that `write_record` writes."""
    return [LATENTS, TARGET, PICTURE, LOG, RESULT, *([film] if film else [])]


def write_record(
    folder: Path, record: Record, settings: Settings, about: dict[str, Any], film: str | None
) -> None:
    """Latents, target and result as PNG, distances of all steps, `about` with what came out, and a
    film under that name (see `stylegan.video.write_video` for its endings)."""
    folder.mkdir(parents=True, exist_ok=True)
    write_latents(folder / LATENTS, record.ws, record.noise)
    write_png(folder / TARGET, record.target)
    write_png(folder / PICTURE, record.picture)
    write_text(folder / LOG, "".join(log_lines(record, settings)))
    found = {"final_distance": record.distances[-1], "psnr_db": record.decibels}
    write_text(folder / RESULT, json.dumps(about | found, indent=2, allow_nan=False) + "\n")
    if film is not None:
        count = len(record.moments) + PAUSE
        write_video(folder / film, film_frames(record), count=count, fps=FPS)


def write_png(path: Path, pixels: np.ndarray) -> None:
    with replacing(path) as file:
        sampling.picture(pixels).save(file, format="PNG")


def log_lines(record: Record, settings: Settings) -> Iterator[str]:
    """JSON of each step: the distance, and what led from it to the next."""
    for step, distance in enumerate(record.distances):
        line = {
            "step": step,
            "distance": distance,
            "learning_rate": settings.rate_at(step),
            "search_noise": settings.search_noise_at(step),
        }
        yield json.dumps(line, allow_nan=False) + "\n"


def film_frames(record: Record) -> Iterator[np.ndarray]:
    """The target beside what was found at each moment; at the end it stands still."""
    moments = record.moments + PAUSE * record.moments[-1:]
    for step, pixels in moments:
        labels = ["target", f"step {step}"]
        yield np.asarray(grid([record.small_target, pixels], columns=2, labels=labels))
