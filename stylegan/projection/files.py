"""Projects image files, tunes a generator to them, and writes all that comes of it."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.data import Crop
from stylegan.disk import check_file, check_folder, name_of, write_text
from stylegan.figures import save_picture
from stylegan.files.formats.own import save_loaded
from stylegan.files.latents import write_latents
from stylegan.files.loaded import LoadedGenerator
from stylegan.lineage import Lineage
from stylegan.messages import count
from stylegan.projection.distance import Distance, psnr
from stylegan.projection.search import SearchOptions, SearchState, project
from stylegan.projection.target import read_target
from stylegan.projection.tuning import TuningOptions, tune

LATENTS, TARGET, PICTURE, RESULT = "latents.npz", "target.png", "projection.png", "result.json"
TUNED, TUNED_PICTURE = "tuned.pt", "tuned.png"


class Projection(NamedTuple):
    """The nearest result of the search for one picture."""

    ws: Tensor  # (1, num_styles, w_dim), not truncated
    noise: list[Tensor] | None  # fitted maps (1, 1, r, r), if any
    image: Tensor  # (1, C, r, r), made of these
    distances: list[float]  # that each start reached


def default_batch(resolution: int) -> int:
    """Images at once whose gradients fit into little memory: 8 up to 64x64, 1 from 512x512 on."""
    return max(1, min(8, 512 // resolution))


def check_free(images: Sequence[Path], out: Path, *, tuned: bool, overwrite: bool) -> None:
    """ValueError if two images have one name, or a file would be replaced without `overwrite`."""
    check_folder(out)
    names: dict[str, Path] = {}
    for path in images:
        name = name_of(path)
        if name in names:
            raise ValueError(
                f"{names[name]} and {path} would both be written to {out / name}; rename one, or "
                "project it with another --out"
            )
        names[name] = path
    of_each = [LATENTS, TARGET, PICTURE, RESULT, *([TUNED_PICTURE] if tuned else [])]
    files = [LATENTS, *([TUNED] if tuned else []), *(f"{n}/{f}" for n in names for f in of_each)]
    for file in files:
        check_file(out / file, overwrite=overwrite)


def project_files(
    loaded: LoadedGenerator,
    images: Sequence[Path],
    out: Path,
    distance: Distance,
    options: SearchOptions,
    tuning: TuningOptions | None = None,
    *,
    lineage: Lineage = (),
    crop: Crop | None = None,
    class_name: str | None = None,
    seed: int = 0,
    batch: int | None = None,
    starts: int = 1,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[int, list[Exception]]:
    """Search each image, `batch` at a time, from each of `starts`; write a folder for each below
    `out`, and the latents of all to `out`. With `tuning`, then tune the generator to all of them
    together, and write it; `lineage` is where its weights came from.

    Files are replaced: see `check_free`. `tell` gets a line for each image, `progress` the steps
    done, and of how many. Returns the number of projections, and the errors of images that cannot
    be read.
    """
    if crop is None or (crop == "pad" and loaded.active_rectangle is not None):
        crop = loaded.crop  # which knows the aspect
    rectangle = loaded.active_rectangle if crop.startswith("pad") else None
    batch = batch or default_batch(loaded.resolution)
    targets, errors = read_targets(loaded, images, crop)
    if not targets:
        return 0, errors
    growth: dict[str, Any] = {"resolution": loaded.resolution, "alpha": loaded.alpha}
    how = growth | {"labels": loaded.label(class_name), "seed": seed}
    about = {
        "generator": loaded.origin,
        "images_seen": loaded.images_seen,
        "seed": seed,
        "settings": dataclasses.asdict(options),
        "distance": distance.about(),
        "class": class_name,
        "crop": crop,
    }
    done, total = 0, len(targets) * starts * options.steps + (tuning.steps if tuning else 0)
    paths, projections = iter(targets), list[Projection]()
    for some in torch.cat(list(targets.values())).split(batch):
        ends = []  # the last state from each start
        for start in range(starts):
            for state in project(loaded.generator, some, distance, options, start=start, **how):
                progress(done + len(some) * state.step, total)
            ends.append(state)
            done += len(some) * options.steps
        for i, target in enumerate(some.split(1)):
            path, one = next(paths), nearest(ends, i)
            projections.append(one)
            near = float(psnr(one.image, target.to(one.image), rectangle))
            result: dict[str, Any] = {"image": str(path), **about}
            result |= {"final_distance": min(one.distances), "psnr_db": near}
            result |= {"starts": one.distances} if starts > 1 else {}
            folder = out / name_of(path)
            folder.mkdir(parents=True, exist_ok=True)
            write_latents(folder / LATENTS, one.ws, one.noise)
            write_image(folder / TARGET, target, loaded, rectangle)
            write_image(folder / PICTURE, one.image, loaded, rectangle)
            write_text(folder / RESULT, json.dumps(result, indent=2, allow_nan=False) + "\n")
            tell(f"{path}: distance {min(one.distances):.4g}, PSNR {near:.1f} dB")
    ws = torch.cat([one.ws for one in projections])
    layers = zip(*(one.noise for one in projections if one.noise), strict=True)
    noise = [torch.cat(maps) for maps in layers] or None
    write_latents(out / LATENTS, ws, noise)
    if tuning is None:
        return len(projections), errors
    wanted, how = torch.cat(list(targets.values())), how | {"noise": noise, "batch": batch}
    for tuned in tune(loaded.generator, wanted, ws, distance, tuning, **how):
        progress(done + tuned.step, total)
    network = tuned.generator.eval()
    for (path, target), one in zip(targets.items(), projections, strict=True):
        with torch.no_grad(), sampling.repeatable():
            image = network.synthesis(one.ws, noise=one.noise or "const", **growth)
        write_image(out / name_of(path) / TUNED_PICTURE, image, loaded, rectangle)
        near = float(psnr(image, target.to(image), rectangle))
        tell(f"{path}: PSNR {near:.1f} dB after tuning")
    origin = f"{loaded.origin}, tuned to {count(len(projections), 'picture')}"
    new = dataclasses.replace(loaded, generator=network, origin=origin, lineage=lineage)
    save_loaded(out / TUNED, new)
    return len(projections), errors


def read_targets(
    loaded: LoadedGenerator, images: Sequence[Path], crop: Crop
) -> tuple[dict[Path, Tensor], list[Exception]]:
    """The images that can be read (1, C, r, r), and the errors of the others."""
    targets, errors, network = {}, list[Exception](), loaded.generator.config
    for path in images:
        try:
            targets[path] = read_target(
                path,
                resolution=loaded.resolution,
                channels=network.image_channels,
                premultiply=network.premultiplied,
                crop=crop,
            )
        except (ValueError, OSError) as error:
            errors.append(error)
    return targets, errors


def nearest(ends: Sequence[SearchState], i: int) -> Projection:
    """The nearest result for picture `i` of a batch that was searched from several starts."""
    distances = [float(state.distances[i]) for state in ends]
    best, row = ends[distances.index(min(distances))], slice(i, i + 1)
    noise = best.noise and [noise_map[row] for noise_map in best.noise]
    return Projection(best.ws[row], noise, best.images[row], distances)


def write_image(
    path: Path, image: Tensor, loaded: LoadedGenerator, rectangle: sampling.Rectangle | None
) -> None:
    """One image (1, C, r, r) without its padding."""
    pixels = sampling.to_uint8(image, premultiplied=loaded.generator.config.premultiplied)
    save_picture(path, sampling.picture(sampling.crop(pixels, rectangle)[0]), overwrite=True)
