"""Projects and tunes to image files, and writes latents, pictures, numbers and the generator."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.atomic import write_text
from stylegan.data import Crop
from stylegan.destination import check_file, check_folder, name_of
from stylegan.figures import save_picture
from stylegan.files.formats.own import save_loaded
from stylegan.files.latents import write_latents
from stylegan.files.loaded import LoadedGenerator
from stylegan.lineage import Lineage
from stylegan.messages import count
from stylegan.projection.distance import Distance, psnr
from stylegan.projection.search import SearchOptions, SearchState, check_noise, project
from stylegan.projection.target import read_target
from stylegan.projection.tuning import TuningOptions, tune

LATENTS, TARGET, PICTURE, RESULT = "latents.npz", "target.png", "projection.png", "result.json"
TUNED, TUNED_PICTURE = "tuned.pt", "tuned.png"
Progress = Callable[[int, int], None]  # steps done, and of how many
Tell = Callable[[str], None]


class Projection(NamedTuple):
    """What a search found for one picture."""

    target: Tensor  # (1, C, r, r)
    ws: Tensor  # (1, num_styles, w_dim), not truncated
    noise: list[Tensor] | None  # fitted maps (1, 1, r, r), if any
    image: Tensor  # (1, C, r, r), made of these
    distances: list[float]  # that each start reached; the nearest is kept


def default_batch(resolution: int) -> int:
    """Images at once whose gradients fit into little memory: 8 up to 64x64, 1 from 512x512 on."""
    return max(1, min(8, 512 // resolution))


def check_free(images: Sequence[Path], out: Path, *, tuned: bool, overwrite: bool) -> None:
    """ValueError if two images have one name, or a file would be replaced without `overwrite`."""
    check_folder(out)
    names: dict[str, Path] = {}
    for path in images:
        if name_of(path) in names:
            raise ValueError(
                f"{names[name_of(path)]} and {path} would both be written to "
                f"{out / name_of(path)}; rename one, or project it with another --out"
            )
        names[name_of(path)] = path
    of_each = [LATENTS, TARGET, PICTURE, RESULT, *([TUNED_PICTURE] if tuned else [])]
    for name in [LATENTS, *([TUNED] if tuned else [])]:
        check_file(out / name, overwrite=overwrite)
    for folder in names:
        for name in of_each:
            check_file(out / folder / name, overwrite=overwrite)


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
    starts: int = 1,
    tell: Tell = lambda text: None,
    progress: Progress = lambda done, total: None,
    left_out: Callable[[ValueError | OSError], None] | None = None,
) -> dict[Path, Projection]:
    """Search each image, `batch` at a time, and write a folder for each below `out`, and the
    latents of all to `out`. Of several `starts` the nearest result is kept.

    Files are replaced: see `check_free`. `tell` gets a line for each image. An image that cannot be
    read is left out if `left_out` is there to get the error.
    """
    options, network = options or SearchOptions(), loaded.generator.config
    check_noise(options, network)
    labels, crop, size = loaded.label(class_name), crop or loaded.crop, loaded.resolution
    if crop == "pad" and loaded.active_rectangle is not None:
        crop = loaded.crop  # which knows the aspect
    targets = {}
    for path in images:
        try:
            targets[path] = read_target(
                path,
                resolution=size,
                channels=network.image_channels,
                premultiply=network.premultiplied,
                crop=crop,
            )
        except (ValueError, OSError) as error:
            if left_out is None:
                raise
            left_out(error)
    if not targets:
        return {}
    about = {
        "generator": loaded.origin,
        "images_seen": loaded.images_seen,
        "seed": seed,
        "settings": dataclasses.asdict(options),
        "distance": distance.about(),
        "class": class_name,
        "crop": crop,
    }
    rectangle = loaded.active_rectangle if crop.startswith("pad") else None
    paths, found = iter(targets), dict[Path, Projection]()
    growth: dict[str, Any] = {"resolution": size, "alpha": loaded.alpha}
    done, total = 0, len(targets) * starts * options.steps
    for some in torch.cat(list(targets.values())).split(batch or default_batch(size)):
        ends = []  # the last state from each start
        for start in range(starts):
            how = {"labels": labels, "seed": seed, "start": start} | growth
            for state in project(loaded.generator, some, distance, options, **how):
                progress(done + len(some) * state.step, total)
            ends.append(state)
            done += len(some) * options.steps
        for i in range(len(some)):
            path, one = next(paths), nearest(ends, i, some)
            found[path] = one
            near = float(psnr(one.image, one.target.to(one.image), rectangle))
            result: dict[str, Any] = {"image": str(path), **about}
            result |= {"final_distance": min(one.distances), "psnr_db": near}
            result |= {"starts": one.distances} if starts > 1 else {}
            folder = out / name_of(path)
            folder.mkdir(parents=True, exist_ok=True)
            write_latents(folder / LATENTS, one.ws, one.noise)
            write_image(folder / TARGET, one.target, loaded, rectangle)
            write_image(folder / PICTURE, one.image, loaded, rectangle)
            write_text(folder / RESULT, json.dumps(result, indent=2, allow_nan=False) + "\n")
            tell(f"{path}: distance {min(one.distances):.4g}, PSNR {near:.1f} dB")
    write_latents(out / LATENTS, *joined(list(found.values())))
    return found


def nearest(ends: Sequence[SearchState], i: int, targets: Tensor) -> Projection:
    """The nearest result for one picture of a batch that was searched from several starts."""
    distances = [float(state.distances[i]) for state in ends]
    best, row = ends[distances.index(min(distances))], slice(i, i + 1)
    noise = best.noise and [noise_map[row] for noise_map in best.noise]
    return Projection(targets[row], best.ws[row], noise, best.images[row], distances)


def joined(found: Sequence[Projection]) -> tuple[Tensor, list[Tensor] | None]:
    """Styles and noise maps of several projections."""
    maps = [one.noise for one in found if one.noise is not None]
    noise = [torch.cat(of_layer) for of_layer in zip(*maps, strict=True)]
    return torch.cat([one.ws for one in found]), noise or None


def write_image(
    path: Path, image: Tensor, loaded: LoadedGenerator, rectangle: sampling.Rectangle | None
) -> None:
    """One image (1, C, r, r) without its padding."""
    pixels = sampling.to_uint8(image, premultiplied=loaded.generator.config.premultiplied)
    save_picture(path, sampling.picture(sampling.crop(pixels, rectangle)[0]), overwrite=True)


def tune_files(
    loaded: LoadedGenerator,
    found: Mapping[Path, Projection],
    out: Path,
    distance: Distance,
    options: TuningOptions | None = None,
    *,
    lineage: Lineage = (),
    crop: Crop | None = None,
    class_name: str | None = None,
    seed: int = 0,
    batch: int | None = None,
    tell: Tell = lambda text: None,
    progress: Progress = lambda done, total: None,
) -> LoadedGenerator:
    """Tune the generator to all projections together; write it, and its picture of each.

    `lineage` is where the weights came from, the file of `loaded` last.
    """
    options = options or TuningOptions()
    rectangle = loaded.active_rectangle if (crop or loaded.crop).startswith("pad") else None
    ws, noise = joined(list(found.values()))
    growth: dict[str, Any] = {"resolution": loaded.resolution, "alpha": loaded.alpha}
    for state in tune(
        loaded.generator,
        torch.cat([one.target for one in found.values()]),
        ws,
        distance,
        options,
        noise=noise,
        labels=loaded.label(class_name),
        batch=batch or default_batch(loaded.resolution),
        seed=seed,
        **growth,
    ):
        progress(state.step, options.steps)
    origin = f"{loaded.origin}, tuned to {count(len(found), 'picture')}"
    network = state.generator.eval()
    tuned = dataclasses.replace(loaded, generator=network, origin=origin, lineage=lineage)
    for path, one in found.items():
        with torch.no_grad(), sampling.repeatable():
            image = network.synthesis(one.ws, noise=one.noise or "const", **growth)
        write_image(out / name_of(path) / TUNED_PICTURE, image, loaded, rectangle)
        near = float(psnr(image, one.target.to(image), rectangle))
        tell(f"{path}: PSNR {near:.1f} dB after tuning")
    save_loaded(out / TUNED, tuned)
    return tuned
