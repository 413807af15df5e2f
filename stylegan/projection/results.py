"""What was found for pictures: numbers of every step, pictures of some, files."""

import dataclasses
import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.atomic import write_text
from stylegan.data import Crop
from stylegan.destination import check_file, check_folder, name_of
from stylegan.figures import grid, save_picture
from stylegan.files.latents import write_latents
from stylegan.files.loaded import LoadedGenerator
from stylegan.projection.distance import Distance, at_most, psnr
from stylegan.projection.search import SearchOptions, SearchState, check_noise, project
from stylegan.projection.target import read_target
from stylegan.video import check_video, write_video

LATENTS, TARGET, PICTURE = "latents.npz", "target.png", "projection.png"
EDITED = "edited.png"
RESULT, LOG = "result.json", "log.jsonl"
TUNED_PICTURE, TUNED_EDITED = "tuned.png", "tuned-edited.png"  # of each picture
TUNED, TUNED_SHEET = "tuned.pt", "tuned.png"  # of all
TUNED_RESULT, TUNED_LOG = "tuned.json", "tuned.jsonl"
OVERVIEW = "projections.png"  # of all pictures, if there are several
PAIRS = 4  # of target and result in a row of the overview
LONGEST_LABEL = 16  # characters
FPS = 15
ENDINGS = ("mp4", "webp", "gif")  # of films
MOMENTS, PAUSE = 75, 15  # frames of a film: of the search, and of its end once more
FILMED = 256  # pixels a side of the pictures in a film, at most


@dataclass(frozen=True, eq=False)
class Projection:
    """The search for one picture. Pictures are uint8 (H, W, C), without padding."""

    target: np.ndarray
    small_target: np.ndarray  # of at most FILMED pixels a side, as the moments are
    distances: Sequence[float]  # before each update, and of the result
    moments: Sequence[tuple[int, np.ndarray]]  # step and picture
    picture: np.ndarray  # the result, made of what follows
    ws: Tensor  # (1, num_styles, w_dim), not truncated
    noise: Sequence[Tensor] | None  # fitted maps (1, 1, r, r), if any
    decibels: float  # peak signal-to-noise ratio of the result, without padding
    image: Tensor  # (1, C, r, r), the target as it was searched
    starts: Sequence[float] = ()  # the distance that each start reached, this one's among them


def followed(
    states: Iterable[SearchState],
    targets: Tensor,
    steps: int,
    *,
    rectangle: Sequence[int] | None = None,
    premultiplied: bool = False,
    progress: Callable[[int], None] = lambda step: None,
) -> list[Projection]:
    """The searches for `targets` (N, C, r, r), of what `project` yields for them."""

    def pixels_of(images: Tensor) -> np.ndarray:
        return sampling.crop(sampling.to_uint8(images, premultiplied=premultiplied), rectangle)

    distances, moments = [], []
    filmed = {round(i * steps / (MOMENTS - 1)) for i in range(MOMENTS)}
    for state in states:
        distances.append(state.distances.tolist())
        if state.step in filmed:
            moments.append((state.step, pixels_of(at_most(state.images, FILMED))))
        progress(state.step)
    whole, small = pixels_of(targets), pixels_of(at_most(targets, FILMED))
    results = pixels_of(state.images)
    decibels = psnr(state.images, targets.to(state.images), rectangle)
    return [
        Projection(
            target=whole[i],
            small_target=small[i],
            distances=[values[i] for values in distances],
            moments=[(step, pictures[i]) for step, pictures in moments],
            picture=results[i],
            ws=state.ws[i : i + 1],
            noise=state.noise and [noise_map[i : i + 1] for noise_map in state.noise],
            decibels=float(decibels[i]),
            image=targets[i : i + 1].cpu(),
        )
        for i in range(len(targets))
    ]


def default_batch(resolution: int) -> int:
    """Images at once whose gradients fit into little memory: 8 up to 64x64, 1 from 512x512 on."""
    return max(1, min(8, 512 // resolution))


def project_files(
    loaded: LoadedGenerator,
    images: Sequence[Path],
    out: Path,
    distance: Distance,
    options: SearchOptions | None = None,
    *,
    crop: Crop | None = None,
    class_name: str | None = None,
    seed: int = 0,
    batch: int | None = None,
    film: str | None = None,
    starts: int = 1,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    left_out: Callable[[ValueError | OSError], None] | None = None,
) -> dict[Path, Projection]:
    """Search each picture of `images`, `batch` at a time, and write a folder for each below `out`,
    with a film of that name; of several also what `write_all` writes. If the generator has edits,
    there is also the picture after them. Of several `starts` the nearest result is kept.

    Files are replaced: see `check_free`. `tell` gets a line for each picture, `progress` the steps.
    An image that cannot be read is left out, if `left_out` is there to get the error.
    """
    options = options or SearchOptions()
    check_noise(options, loaded.generator.config)
    labels, crop = loaded.label(class_name), crop or loaded.crop
    if crop == "pad" and loaded.active_rectangle is not None:
        crop = loaded.crop  # which knows the aspect
    network, size = loaded.generator.config, loaded.resolution
    about = {
        "generator": loaded.origin,
        "images_seen": loaded.images_seen,
        "seed": seed,
        "settings": dataclasses.asdict(options),
        "distance": distance.about(),
        "class": class_name,
        "crop": crop,
    }
    read = partial(
        read_target,
        resolution=size,
        channels=network.image_channels,
        premultiply=network.premultiplied,
        crop=crop,
    )
    targets = readable_targets(images, read, left_out)
    if not targets:
        return {}
    images, found = list(targets), list[Projection]()
    folders, total = folders_of(images, out), len(targets) * starts * options.steps
    rectangle = loaded.active_rectangle if crop.startswith("pad") else None
    for some in torch.cat(list(targets.values())).split(batch or default_batch(size)):
        before, attempts = len(found), []
        for start in range(starts):
            done = (before * starts + len(some) * start) * options.steps

            def advance(step: int, done: int = done, n: int = len(some)) -> None:
                progress(done + n * step, total)

            states = project(
                loaded.generator,
                some,
                distance,
                options,
                labels=labels,
                resolution=size,
                alpha=loaded.alpha,
                seed=seed,
                start=start,
            )
            attempts.append(
                followed(
                    states,
                    some,
                    options.steps,
                    rectangle=rectangle,
                    premultiplied=network.premultiplied,
                    progress=advance,
                )
            )
        for of_one in zip(*attempts, strict=True):
            best = min(of_one, key=lambda one: one.distances[-1])
            reached = [one.distances[-1] for one in of_one]
            found.append(dataclasses.replace(best, starts=reached))
        for path, folder, one in list(zip(images, folders, found, strict=False))[before:]:
            write_projection(folder, one, options, {"image": str(path), **about}, film)
            if loaded.edits:
                pictures = loaded.pictures(ws=one.ws, noise=one.noise, psi=1)
                save_picture(folder / EDITED, sampling.picture(next(pictures)), overwrite=True)
            tell(f"{path}: distance {one.distances[-1]:.4g}, PSNR {one.decibels:.1f} dB")
    if len(found) > 1:
        write_all(out, [folder.name for folder in folders], found)
    return dict(zip(images, found, strict=True))


def film_name(video: Literal["mp4", "webp", "gif", "none"] | None) -> str | None:
    """The file of each search's film; ValueError if it cannot be written here."""
    if video == "none":
        return None
    ending = video or ("mp4" if importlib.util.find_spec("av") else "webp")
    check_video(Path(f"progress.{ending}"), FPS)
    return f"progress.{ending}"


def readable_targets(
    images: Sequence[Path],
    read: Callable[[Path], Tensor],
    left_out: Callable[[ValueError | OSError], None] | None,
) -> dict[Path, Tensor]:
    """What `read` makes of each image; `left_out`, if it is there, gets the errors."""
    targets = {}
    for path in images:
        try:
            targets[path] = read(path)
        except (ValueError, OSError) as error:
            if left_out is None:
                raise
            left_out(error)
    return targets


def folders_of(images: Sequence[Path], out: Path) -> list[Path]:
    """A folder for each image, by its name without the ending; ValueError if two are the same."""
    folders: dict[Path, Path] = {}
    for path in images:
        folder = out / name_of(path)
        if folder in folders:
            raise ValueError(
                f"{folders[folder]} and {path} would both be written to {folder}; rename one, or "
                "project it with another --out"
            )
        folders[folder] = path
    return list(folders)


def check_free(
    images: Sequence[Path],
    out: Path,
    film: str | None,
    *,
    overwrite: bool,
    edited: bool = False,
    tuned: bool = False,
) -> list[Path]:
    """ValueError if `project_files`, and `tune_files` if it is `tuned`, would replace something,
    unless that is wanted, or cannot. Of what is replaced, the files that stay but no longer belong
    to the latents: films of another kind, edits, tuned generators, latents of several images."""
    check_folder(out)
    written = files_of(images, out, film, edited=edited, tuned=tuned)
    for path in written:
        check_file(path, overwrite=overwrite)
    if not any(path.exists() for path in written):
        return []
    known = [out / LATENTS, out / OVERVIEW]
    for ending in ENDINGS:
        known += files_of(images, out, f"progress.{ending}", edited=True, tuned=True)
    return [path for path in dict.fromkeys(known) if path not in written and path.exists()]


def files_of(
    images: Sequence[Path], out: Path, film: str | None, *, edited: bool, tuned: bool
) -> list[Path]:
    """What is written for these images."""
    folders = folders_of(images, out)
    of_each = [LATENTS, TARGET, PICTURE, LOG, RESULT, *([film] if film else [])]
    of_each += [EDITED] if edited else []
    of_each += [TUNED_PICTURE] if tuned else []
    of_each += [TUNED_EDITED] if tuned and edited else []
    of_all = [LATENTS, OVERVIEW] if len(folders) > 1 else []
    of_all += [TUNED, TUNED_SHEET, TUNED_RESULT, TUNED_LOG] if tuned else []
    return [*(out / name for name in of_all), *(f / name for f in folders for name in of_each)]


def write_projection(
    folder: Path, found: Projection, options: SearchOptions, about: dict[str, Any], film: str | None
) -> None:
    """Latents, target and result as PNG, distances of all steps, `about` with what came out, and a
    film under that name (see `stylegan.video.write_video` for its endings)."""
    folder.mkdir(parents=True, exist_ok=True)
    write_latents(folder / LATENTS, found.ws, found.noise)
    save_picture(folder / TARGET, sampling.picture(found.target), overwrite=True)
    save_picture(folder / PICTURE, sampling.picture(found.picture), overwrite=True)
    write_text(folder / LOG, "".join(log_lines(found, options)))
    numbers: dict[str, Any] = {
        "final_distance": found.distances[-1],
        "psnr_db": found.decibels,
        **({"starts": list(found.starts)} if len(found.starts) > 1 else {}),
    }
    write_text(folder / RESULT, json.dumps(about | numbers, indent=2, allow_nan=False) + "\n")
    if film is not None:
        write_video(folder / film, film_frames(found), count=len(found.moments) + PAUSE, fps=FPS)


def log_lines(found: Projection, options: SearchOptions) -> Iterator[str]:
    """JSON of each step: the distance, and what led from it to the next."""
    for step, distance in enumerate(found.distances):
        line = {
            "step": step,
            "distance": distance,
            "learning_rate": options.rate_at(step),
            "search_noise": options.search_noise_at(step),
        }
        yield json.dumps(line, allow_nan=False) + "\n"


def film_frames(found: Projection) -> Iterator[np.ndarray]:
    """The target beside what was found at each moment; at the end it stands still."""
    for step, pixels in [*found.moments, *[found.moments[-1]] * PAUSE]:
        labels = ["target", f"step {step}"]
        yield np.asarray(grid([found.small_target, pixels], columns=2, labels=labels))


def write_all(out: Path, names: Sequence[str], found: Sequence[Projection]) -> None:
    """The latents of all pictures in one file, and each target beside what was found."""
    maps = [one.noise for one in found if one.noise is not None]
    noise = [torch.cat(of_layer) for of_layer in zip(*maps, strict=True)] or None
    write_latents(out / LATENTS, torch.cat([one.ws for one in found]), noise)
    pictures, labels = [], []
    for name, one in zip(names, found, strict=True):
        pictures += [one.target, one.picture]
        labels += [short(name), f"{one.decibels:.1f} dB"]
    overview = grid(pictures, 2 * min(PAIRS, len(found)), labels)
    save_picture(out / OVERVIEW, overview, overwrite=True)


def short(name: str) -> str:
    """A name that fits below a picture."""
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 3]}..."
