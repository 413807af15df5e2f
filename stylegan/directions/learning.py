"""Directions in W learned from examples: InterFaceGAN, Shen et al. 2020.

A direction is the normal of the hyperplane that separates w of examples with an attribute from
those without it, by the support vector machine of linear separability.
"""

import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.directions.finding import Directions, covariance_of_w, deviations_along
from stylegan.files.latents import read_latents
from stylegan.metrics.separability import best_plane
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.console import SILENT, Console
from stylegan.utils.text import join_truncated, require_module, sanitize

FOLDS = 5  # of cross-validation, each with a fifth of each side
MIN_EXAMPLES = 5  # on each side
IMAGE_ENDINGS = (".png", ".webp", ".jpg")
NAME = re.compile(r"[^:=@/\\]{1,60}")
SEED = re.compile(r"seed(\d{1,10})")


def check_name(name: str) -> str:
    """Return `name`. Raises ValueError if `--edit` would misread it."""
    if not NAME.fullmatch(name) or name.strip() != name or not name.isprintable():
        raise ValueError(
            "the name of a direction must have 1 to 60 characters, none of them : = @ / or \\, got "
            f"{name!r}"
        )
    return name


def fit_hyperplane(w: Tensor, present: np.ndarray) -> tuple[Tensor, float]:
    """Fit the hyperplane between examples w (N, w_dim) with an attribute, `present` (N,), and
    without it. Returns the unit normal (w_dim,) toward the former, and the accuracy on held-out
    examples in cross-validation."""
    require_module("sklearn", packages="scikit-learn", purpose="a direction from examples")
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    counts = int(present.sum()), int((~present).sum())
    if min(counts) < MIN_EXAMPLES:
        raise ValueError(
            f"there are {counts[0]} examples with the attribute and {counts[1]} without it; at "
            f"least {MIN_EXAMPLES} of each are needed"
        )
    rows = w.cpu().double().numpy()
    rows = rows - rows.mean(axis=0)
    folds = np.empty(len(present), int)
    for side in (present, ~present):
        folds[side] = np.arange(side.sum()) % FOLDS
    plane = best_plane(rows, present)
    held_out = cross_val_predict(plane, rows, present, cv=PredefinedSplit(folds))
    normal = plane.coef_[0] / np.linalg.norm(plane.coef_[0])
    return torch.from_numpy(normal).float(), float((held_out == present).mean())


def to_directions(
    loaded: Pretrained, name: str, normal: Tensor, accuracy: float, samples: int
) -> Directions:
    """The normal (w_dim,) of a plane as `Directions`, with the standard deviation of w along it."""
    generator = loaded.generator
    vectors = normal[None]
    layers = range(generator.config.num_ws())
    of_w = covariance_of_w(generator, samples, loaded.label_rows)
    deviations = deviations_along(vectors, of_w)
    scores = torch.tensor([accuracy])
    return Directions("svm", layers, samples, vectors, deviations, scores, [name])


def examples_of(
    loaded: Pretrained,
    positive: Path,
    negative: Path,
    class_name: str | None = None,
    console: Console = SILENT,
) -> tuple[Tensor, np.ndarray]:
    """Read w (N, w_dim) from two folders or files as `latents_of` does, and bool (N,), True where
    the example is from `positive`. Raises ValueError if an example is in both."""
    sides = [latents_of(loaded, place, class_name, console) for place in (positive, negative)]
    if both := sides[0].keys() & sides[1].keys():
        raise ValueError(f"{join_truncated(sorted(both))} is in both {positive} and {negative}")
    w = [torch.cat(list(side.values())) for side in sides]
    return torch.cat(w), np.repeat([True, False], [len(rows) for rows in w])


def latents_of(
    loaded: Pretrained, place: Path, class_name: str | None, console: Console
) -> dict[str, Tensor]:
    """Read w (n, w_dim) by name from a file of latents, or from a folder: of such files, of folders
    that `project` wrote, or of images that `generate` named by seed. If w differs between layers,
    the mean is used. Without `class_name`, each seed has its class in `generate`, and a message
    on the console lists them."""
    if not place.exists():
        raise FileNotFoundError(f"there is no folder or file {place} with examples")
    labels = loaded.label(class_name) if class_name is not None else None
    paths = sorted(place.iterdir()) if place.is_dir() else [place]
    files = [p for p in paths if p.suffix == ".npz"] or sorted(place.glob("*/latents.npz"))
    images = [p for p in paths if p.suffix.lower() in IMAGE_ENDINGS and p.stem != "grid"]
    others = [sanitize(p.name, 40) for p in images if not SEED.fullmatch(p.stem)]
    if others or not files + images:
        raise ValueError(
            f"{place} must hold images named by seed, as stylegan generate writes them "
            f"(seed0012.png), or latents (.npz); found "
            f"{join_truncated(others, 3, ', ') if others else 'neither'}"
        )
    generator = loaded.generator
    config = loaded.generator.config
    latents = {str(p.resolve()): read_latents(p, generator, labels).ws.mean(dim=1) for p in files}
    if seeds := sorted({int(p.stem.removeprefix("seed")) for p in images}):
        if labels is None and (turns := loaded.class_order_note()):
            console.info(turns)
            labels = loaded.labels_of(seeds)
        rows = loaded.map_to_ws(sampling.latents(seeds, config.z_dim), labels)[:, :1].cpu()
        latents |= {f"seed {seed}": row for seed, row in zip(seeds, rows, strict=True)}
    return latents
