"""What tuning made of projections: a generator file, pictures and numbers before and after."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.atomic import write_text
from stylegan.data import Crop
from stylegan.destination import name_of
from stylegan.edits import edited
from stylegan.figures import grid, save_picture
from stylegan.files.formats.own import save_loaded
from stylegan.files.loaded import LoadedGenerator
from stylegan.lineage import Lineage
from stylegan.metrics.features import in_hub_cache
from stylegan.metrics.lpips import WEIGHTS, load_lpips
from stylegan.networks import Noise
from stylegan.projection.distance import Distance, PerceptualDistance, lpips_obstacle, psnr
from stylegan.projection.results import (
    TUNED,
    TUNED_EDITED,
    TUNED_LOG,
    TUNED_PICTURE,
    TUNED_RESULT,
    TUNED_SHEET,
    Projection,
    default_batch,
    short,
)
from stylegan.projection.tuning import TuningOptions, TuningState, tune

OTHERS = 32  # seeds whose pictures are compared before and after
TITLES = {
    "psnr_db": "PSNR, dB",
    "distance": "distance",
    "lpips": "LPIPS",
    "edited_from_target": "edited from target",
    "edited_from_unedited": "edited from unedited",
}


@dataclasses.dataclass(frozen=True)
class Change:
    """A number of one picture before and after tuning."""

    before: float
    after: float


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
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LoadedGenerator:
    """Tune the generator to what `project_files` found for each image, all together, and write the
    generator, its pictures beside those of the projections, and `tuned.json` to `out`.

    `lineage` is where the weights came from, the file of `loaded` last. Files are replaced: see
    `check_free`. `tell` gets the lines of a table. The tuned generator is returned, with the edits
    of `loaded`.
    """
    options, labels = options or TuningOptions(), loaded.label(class_name)
    rectangle = loaded.active_rectangle if (crop or loaded.crop).startswith("pad") else None
    projections = list(found.values())
    fitted = [one.noise for one in projections if one.noise is not None]
    batch = batch or default_batch(loaded.resolution)
    lines = []
    for state in tune(
        loaded.generator,
        torch.cat([one.image for one in projections]),
        torch.cat([one.ws for one in projections]),
        distance,
        options,
        noise=[torch.cat(of_layer) for of_layer in zip(*fitted, strict=True)] or None,
        labels=labels,
        resolution=loaded.resolution,
        alpha=loaded.alpha,
        batch=batch,
        seed=seed,
    ):
        lines.append(state._replace(generator=loaded.generator))
        progress(state.step, options.steps)
    tuned = dataclasses.replace(
        loaded,
        generator=state.generator.eval(),
        origin=f"{loaded.origin}, tuned to {len(projections)} pictures",
        lineage=lineage,
    )
    lpips = lpips_if_here(distance, loaded)
    about: dict[str, Any] = {
        "generator": loaded.origin,
        "seed": seed,
        "settings": dataclasses.asdict(options),
        "distance": distance.about(),
        "class": class_name,
    }
    view: dict[str, Any] = {
        "rectangle": rectangle,
        "premultiplied": loaded.generator.config.premultiplied,
    }
    numbers = dict[str, dict[str, Change]]()
    sheet, texts = list[np.ndarray](), list[str]()
    for path, one in found.items():
        folder = out / name_of(path)
        images = shown(loaded, one), shown(tuned, one)
        changes = compared(images, one, distance, lpips, rectangle)
        row = {"target": one.target, "projection": one.picture}
        row["tuned"] = pixels_of(images[1], **view)
        save(folder / TUNED_PICTURE, row["tuned"])
        if loaded.edits:
            after = shown(loaded, one, edit=True), shown(tuned, one, edit=True)
            changes |= compared_edits(images, after, one, distance)
            row["edited"], row["tuned, edited"] = (pixels_of(x, **view) for x in after)
            save(folder / TUNED_EDITED, row["tuned, edited"])
        sheet += row.values()
        texts += [short(folder.name), *list(row)[1:]]
        numbers[str(path)] = changes
    others = float(psnr(samples(tuned, labels), samples(loaded, labels)).mean())
    about["pictures"] = [
        {"image": path} | {name: dataclasses.asdict(one) for name, one in changes.items()}
        for path, changes in numbers.items()
    ]
    about["other_seeds_psnr_db"] = others
    for line in table(numbers):
        tell(line)
    tell(f"PSNR of {OTHERS} seeds, the tuned generator against the original: {others:.1f} dB")
    save_picture(out / TUNED_SHEET, grid(sheet, len(row), texts), overwrite=True)
    write_text(out / TUNED_LOG, "".join(map(line_of, lines)))
    write_text(out / TUNED_RESULT, json.dumps(about, indent=2, allow_nan=False) + "\n")
    save_loaded(out / TUNED, dataclasses.replace(tuned, edits=()))
    return tuned


def lpips_if_here(distance: Distance, loaded: LoadedGenerator) -> PerceptualDistance | None:
    """LPIPS to measure with, if that needs no download."""
    if isinstance(distance, PerceptualDistance):
        return distance
    config, device = loaded.generator.config, loaded.generator.w_avg.device
    if lpips_obstacle(loaded.resolution, config.image_channels) or not in_hub_cache(WEIGHTS):
        return None
    return PerceptualDistance(load_lpips(None, device))


@torch.no_grad()
def shown(loaded: LoadedGenerator, one: Projection, *, edit: bool = False) -> Tensor:
    """The image (1, C, r, r) that the generator makes of a projection, perhaps edited."""
    average = loaded.generator.w_avg
    ws = edited(one.ws.to(average), loaded.edits if edit else (), loaded.generator.config)
    noise: Noise = "const" if one.noise is None else [m.to(average) for m in one.noise]
    with sampling.repeatable():
        images: Tensor = loaded.generator.synthesis(
            ws, resolution=loaded.resolution, alpha=loaded.alpha, noise=noise
        )
    return images


@torch.no_grad()
def samples(loaded: LoadedGenerator, labels: Tensor | None) -> Tensor:
    """Images of the first seeds, not truncated."""
    z = sampling.latents(range(OTHERS), loaded.generator.config.z_dim)
    growth = {"resolution": loaded.resolution, "alpha": loaded.alpha}
    with sampling.repeatable():
        ws = loaded.styles(z, labels).clone()
        parts = ws.split(sampling.default_batch(loaded.resolution))
        return torch.cat(
            [loaded.generator.synthesis(part, noise="const", **growth) for part in parts]
        )


def pixels_of(
    image: Tensor, *, rectangle: sampling.Rectangle | None, premultiplied: bool
) -> np.ndarray:
    pixels = sampling.to_uint8(image, premultiplied=premultiplied)
    return sampling.crop(pixels, rectangle)[0]


def save(path: Path, pixels: np.ndarray) -> None:
    save_picture(path, sampling.picture(pixels), overwrite=True)


@torch.no_grad()
def compared(
    images: tuple[Tensor, Tensor],
    one: Projection,
    distance: Distance,
    lpips: PerceptualDistance | None,
    rectangle: sampling.Rectangle | None,
) -> dict[str, Change]:
    """How near the images before and after tuning are to the target."""
    target = one.image.to(images[0])
    with sampling.repeatable():
        changes = {
            "psnr_db": Change(*(float(psnr(x, target, rectangle)) for x in images)),
            "distance": Change(*(float(distance(x, target)) for x in images)),
        }
        if lpips is not None and lpips is not distance:
            changes["lpips"] = Change(*(float(lpips(x, target)) for x in images))
    return changes


@torch.no_grad()
def compared_edits(
    images: tuple[Tensor, Tensor],
    after: tuple[Tensor, Tensor],
    one: Projection,
    distance: Distance,
) -> dict[str, Change]:
    """How far the edited images are from the target, which is small if they are still like it, and
    from the same without the edit, which stays alike if the edit still does the same."""
    target = one.image.to(images[0])
    with sampling.repeatable():
        return {
            "edited_from_target": Change(*(float(distance(x, target)) for x in after)),
            "edited_from_unedited": Change(
                *(float(distance(x, y)) for x, y in zip(after, images, strict=True))
            ),
        }


def table(numbers: Mapping[str, Mapping[str, Change]]) -> list[str]:
    """A line for each picture below one of names: before -> after."""
    names = list(next(iter(numbers.values())))
    head = ["", *(TITLES[name] for name in names)]
    rows = [
        [path, *(f"{one.before:.3g} -> {one.after:.3g}" for one in changes.values())]
        for path, changes in numbers.items()
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]


def line_of(state: TuningState) -> str:
    """JSON of a step."""
    numbers = {
        "step": state.step,
        "distances": state.distances.tolist(),
        "locality": state.locality.tolist(),
    }
    return json.dumps(numbers, allow_nan=False) + "\n"
