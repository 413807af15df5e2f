"""Projects image files, tunes a generator to them, and writes all that comes of it."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.data.images import Crop, Fit, decode, planes, premultiplied, quiet_decoding
from stylegan.disk import check_file, check_folder, name_of, write_text
from stylegan.figures import save_picture
from stylegan.files.formats.own import save_loaded
from stylegan.files.latents import write_latents
from stylegan.files.loaded import LoadedGenerator
from stylegan.messages import count
from stylegan.projection.distance import Distance, psnr
from stylegan.projection.search import SearchOptions, project
from stylegan.projection.tuning import TuningOptions, tune

LATENTS, TARGET, PICTURE, RESULT = "latents.npz", "target.png", "projection.png", "result.json"
TUNED, TUNED_PICTURE = "tuned.pt", "tuned.png"
FAR_DB = 20.0  # PSNR; docs/projection.md has what is usual


def read_target(path: Path, **how: Any) -> Tensor:
    """As `target_of`, of a file. ValueError or FileNotFoundError names it if it cannot be read."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no image file {path}")
    return target_of(path.read_bytes(), **how, name=str(path))


def target_of(
    content: bytes,
    *,
    resolution: int,
    channels: int,
    premultiply: bool = False,
    crop: Crop = "center",
    name: str = "image",
) -> Tensor:
    """The picture of an image file as (1, channels, resolution, resolution) in [-1, 1]. It is read
    and cropped as training data are, but smaller pictures are enlarged. Errors call it `name`."""
    with quiet_decoding():
        image = decode(content, channels=channels, name=name)
        pixels = planes(Fit.of(crop).square(image, resolution))
        pixels = premultiplied(pixels) if premultiply else pixels
    return torch.from_numpy(pixels.copy()).float()[None] / 127.5 - 1


def default_batch(resolution: int) -> int:
    """Images at once whose gradients fit into little memory: 8 up to 64x64, 1 from 512x512 on."""
    return max(1, min(8, 512 // resolution))


def check_free(images: Sequence[Path], out: Path, *, tuned: bool, overwrite: bool) -> None:
    """ValueError if two images have one name, or a file would be replaced without `overwrite`."""
    check_folder(out)
    names: dict[str, Path] = {}
    for path in images:
        if other := names.get(name_of(path)):
            what = f"{other} and {path} would both be written to {out / name_of(path)}"
            raise ValueError(f"{what}; rename one, or project it with another --out")
        names[name_of(path)] = path
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
    tuning: TuningOptions | None,
    *,
    crop: Crop | None,
    class_name: str | None,
    seed: int,
    batch: int,
    starts: int,
    tell: Callable[[str], None],
    progress: Callable[[int, int], None],
) -> tuple[int, list[Exception]]:
    """Search each image, `batch` at a time, from each of `starts`; write a folder for each below
    `out`, and the latents of all to `out`, replacing files. With `tuning`, then tune the generator
    to all of them together, and write it. `tell` gets a line for each image, `progress` the steps
    done, and of how many. The number of projections, and the errors of images not read.
    """
    if crop is None or (crop == "pad" and loaded.active_rectangle is not None):
        crop = loaded.crop  # which knows the aspect
    rectangle = loaded.active_rectangle if crop.startswith("pad") else None
    network, config = loaded.generator, loaded.generator.config
    like = {"channels": config.image_channels, "premultiply": config.premultiplied, "crop": crop}
    targets, errors = dict[Path, Tensor](), list[Exception]()
    for path in images:
        try:
            targets[path] = read_target(path, resolution=loaded.resolution, **like)
        except (ValueError, OSError) as error:
            errors.append(error)
    if not targets:
        return 0, errors

    def write_image(path: Path, image: Tensor) -> None:
        whole = sampling.to_uint8(image, premultiplied=config.premultiplied)
        save_picture(path, sampling.picture(sampling.unpadded(whole, rectangle)[0]), overwrite=True)

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
    wanted, steps = torch.cat(list(targets.values())), len(targets) * starts * options.steps
    total = steps + (tuning.steps if tuning else 0)

    def nearest() -> Iterator[tuple[Tensor, list[Tensor] | None, Tensor, list[float]]]:
        """Of each target the best result: ws, noise and image, and the distances of all starts."""
        done = 0
        for some in wanted.split(batch):
            ends = []  # the last state from each start
            for start in range(starts):
                for state in project(network, some, distance, options, start=start, **how):
                    progress(done + len(some) * state.step, total)
                ends.append(state)
                done += len(some) * options.steps
            for i in range(len(some)):
                distances, row = [float(end.distances[i]) for end in ends], slice(i, i + 1)
                best = ends[distances.index(min(distances))]
                noise = best.noise and [noise_map[row] for noise_map in best.noise]
                yield best.ws[row], noise, best.images[row], distances

    found: list[tuple[Tensor, list[Tensor] | None]] = []  # ws and noise of each image
    nearness: list[float] = []  # PSNR
    results = zip(targets.items(), nearest(), strict=True)
    for (path, target), (ws, noise, image, distances) in results:
        found.append((ws, noise))
        near = float(psnr(image, target.to(image), rectangle))
        nearness.append(near)
        result: dict[str, Any] = {"image": str(path), **about}
        result |= {"final_distance": min(distances), "psnr_db": near}
        result |= {"starts": distances} if starts > 1 else {}
        folder = out / name_of(path)
        folder.mkdir(parents=True, exist_ok=True)
        write_latents(folder / LATENTS, ws, noise)
        write_image(folder / TARGET, target)
        write_image(folder / PICTURE, image)
        write_text(folder / RESULT, json.dumps(result, indent=2, allow_nan=False) + "\n")
        tell(f"{path}: distance {min(distances):.4g}, PSNR {near:.1f} dB")
    ws = torch.cat([ws for ws, _ in found])
    layers = zip(*(noise for _, noise in found if noise), strict=True)
    noise = [torch.cat(maps) for maps in layers] or None
    write_latents(out / LATENTS, ws, noise)
    if tuning is None:
        if min(nearness) < FAR_DB and options.space == "w":
            tell(f"below {FAR_DB:g} dB a picture is another one; --space w+ --tune comes nearer")
        return len(found), errors
    how |= {"noise": noise, "batch": batch}
    for tuned in tune(network, wanted, ws, distance, tuning, **how):
        progress(steps + tuned.step, total)
    generator = tuned.generator.eval()
    for (path, target), (ws, noise) in zip(targets.items(), found, strict=True):
        with torch.no_grad(), sampling.repeatable():
            image = generator.synthesis(ws, noise=noise or "const", **growth)
        write_image(out / name_of(path) / TUNED_PICTURE, image)
        near = float(psnr(image, target.to(image), rectangle))
        tell(f"{path}: PSNR {near:.1f} dB after tuning")
    origin = f"{loaded.origin}, tuned to {count(len(found), 'picture')}"
    save_loaded(out / TUNED, dataclasses.replace(loaded, generator=generator, origin=origin))
    return len(found), errors
