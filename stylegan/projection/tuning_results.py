"""What tuning made of projections: a generator file, pictures and numbers before and after."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from stylegan.messages import count
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


class Compared(NamedTuple):
    """A projection as the generator makes it before and after tuning."""

    changes: dict[str, Change]
    pictures: dict[str, np.ndarray]  # uint8 (H, W, C), by their titles


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
    lines = []
    how = {"labels": labels, "seed": seed, "batch": batch or default_batch(loaded.resolution)}
    for state in tuning_to(list(found.values()), loaded, distance, options, **how):
        lines.append(line_of(state))
        progress(state.step, options.steps)
    tuned = dataclasses.replace(
        loaded,
        generator=state.generator.eval(),
        origin=f"{loaded.origin}, tuned to {count(len(found), 'picture')}",
        lineage=lineage,
    )
    lpips = lpips_if_here(distance, loaded)
    compared = {
        path: comparison(loaded, tuned, one, distance, lpips, rectangle)
        for path, one in found.items()
    }
    numbers = {str(path): one.changes for path, one in compared.items()}
    others = float(psnr(samples(tuned, labels), samples(loaded, labels)).mean())
    for line in table(numbers):
        tell(line)
    tell(f"PSNR of {OTHERS} seeds, the tuned generator against the original: {others:.1f} dB")
    about = {
        "generator": loaded.origin,
        "seed": seed,
        "settings": dataclasses.asdict(options),
        "distance": distance.about(),
        "class": class_name,
        "pictures": [
            {"image": path} | {name: dataclasses.asdict(one) for name, one in changes.items()}
            for path, changes in numbers.items()
        ],
        "other_seeds_psnr_db": others,
    }
    write_pictures(out, compared)
    write_text(out / TUNED_LOG, "".join(lines))
    write_text(out / TUNED_RESULT, json.dumps(about, indent=2, allow_nan=False) + "\n")
    save_loaded(out / TUNED, dataclasses.replace(tuned, edits=()))
    return tuned


def tuning_to(
    projections: Sequence[Projection],
    loaded: LoadedGenerator,
    distance: Distance,
    options: TuningOptions,
    **how: Any,
) -> Iterator[TuningState]:
    """Tuning of the generator, as far as it has grown: see `tune`."""
    fitted = [one.noise for one in projections if one.noise is not None]
    return tune(
        loaded.generator,
        torch.cat([one.image for one in projections]),
        torch.cat([one.ws for one in projections]),
        distance,
        options,
        noise=[torch.cat(of_layer) for of_layer in zip(*fitted, strict=True)] or None,
        resolution=loaded.resolution,
        alpha=loaded.alpha,
        **how,
    )


def lpips_if_here(distance: Distance, loaded: LoadedGenerator) -> PerceptualDistance | None:
    """LPIPS to measure with besides `distance`, if that needs no download."""
    config, device = loaded.generator.config, loaded.generator.w_avg.device
    obstacle = lpips_obstacle(loaded.resolution, config.image_channels)
    if isinstance(distance, PerceptualDistance) or obstacle or not in_hub_cache(WEIGHTS):
        return None
    return PerceptualDistance(load_lpips(None, device))


@torch.no_grad()
def images_of(loaded: LoadedGenerator, ws: Tensor, noise: Noise = "const") -> Tensor:
    """Images (N, C, r, r) of styles ws (N, num_styles, w_dim), as they are."""
    growth = {"resolution": loaded.resolution, "alpha": loaded.alpha}
    with sampling.repeatable():
        parts = ws.split(sampling.default_batch(loaded.resolution))
        return torch.cat(
            [loaded.generator.synthesis(part, noise=noise, **growth) for part in parts]
        )


def shown(loaded: LoadedGenerator, one: Projection, *, edit: bool = False) -> Tensor:
    """The image (1, C, r, r) that the generator makes of a projection, perhaps edited."""
    average = loaded.generator.w_avg
    ws = edited(one.ws.to(average), loaded.edits if edit else (), loaded.generator.config)
    return images_of(
        loaded, ws, "const" if one.noise is None else [m.to(average) for m in one.noise]
    )


def samples(loaded: LoadedGenerator, labels: Tensor | None) -> Tensor:
    """Images of the first seeds, not truncated."""
    z = sampling.latents(range(OTHERS), loaded.generator.config.z_dim)
    return images_of(loaded, loaded.styles(z, labels).clone())


@torch.no_grad()
def comparison(
    before: LoadedGenerator,
    after: LoadedGenerator,
    one: Projection,
    distance: Distance,
    lpips: PerceptualDistance | None,
    rectangle: sampling.Rectangle | None,
) -> Compared:
    """How near a projection is to its target before and after tuning, and with the edits.

    Edited pictures that are still like the target are near to it; an edit that still does the same
    leads as far from the unedited picture.
    """

    def pixels(image: Tensor) -> np.ndarray:
        premultiplied = before.generator.config.premultiplied
        return sampling.crop(sampling.to_uint8(image, premultiplied=premultiplied), rectangle)[0]

    images = [shown(loaded, one) for loaded in (before, after)]
    target = one.image.to(images[0])
    pictures = {"target": one.target, "projection": one.picture, "tuned": pixels(images[1])}
    with sampling.repeatable():
        changes = {
            "psnr_db": Change(*(float(psnr(x, target, rectangle)) for x in images)),
            "distance": Change(*(float(distance(x, target)) for x in images)),
        }
        if lpips is not None:
            changes["lpips"] = Change(*(float(lpips(x, target)) for x in images))
        if before.edits:
            moved = [shown(loaded, one, edit=True) for loaded in (before, after)]
            apart = [distance(x, y) for x, y in zip(moved, images, strict=True)]
            changes["edited_from_target"] = Change(*(float(distance(x, target)) for x in moved))
            changes["edited_from_unedited"] = Change(*map(float, apart))
            pictures |= {"edited": pixels(moved[0]), "tuned, edited": pixels(moved[1])}
    return Compared(changes, pictures)


def write_pictures(out: Path, compared: Mapping[Path, Compared]) -> None:
    """The tuned pictures in the folders of their images, and all beside each other."""
    sheet, texts = list[np.ndarray](), list[str]()
    for path, one in compared.items():
        folder = out / name_of(path)
        for title, name in (("tuned", TUNED_PICTURE), ("tuned, edited", TUNED_EDITED)):
            if title in one.pictures:
                pixels = one.pictures[title]
                save_picture(folder / name, sampling.picture(pixels), overwrite=True)
        sheet += one.pictures.values()
        texts += [short(folder.name), *list(one.pictures)[1:]]
    columns = len(sheet) // len(compared)
    save_picture(out / TUNED_SHEET, grid(sheet, columns, texts), overwrite=True)


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
