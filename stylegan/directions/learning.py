"""Directions of w learnt from examples: InterFaceGAN, Shen et al. 2020.

The direction is the normal of the plane that separates the w of examples with an attribute from
those without it, by the support vector machine of linear separability.
"""

import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.directions.finding import Directions, deviations_along, spread_of
from stylegan.files.latents import read_latents
from stylegan.files.loaded import LoadedGenerator
from stylegan.messages import listed, readable
from stylegan.metrics.separability import best_plane
from stylegan.networks import Generator

FOLDS = 5  # each holds out a fifth of the examples, of both sides in turn
FEWEST = 5  # examples of each side
PICTURES = (".png", ".webp", ".jpg")
LONGEST_NAME = 60
SEED = re.compile(r"seed(\d{1,10})")


class Examples(NamedTuple):
    """Latents with an attribute and without it."""

    w: Tensor  # (N, w_dim)
    present: np.ndarray  # bool (N,)


class Hyperplane(NamedTuple):
    """What separates examples with an attribute from those without it."""

    normal: Tensor  # (w_dim,) of unit length, towards the examples with the attribute
    accuracy: float  # share of examples on their own side of planes fitted to the others


def check_name(name: str) -> str:
    """A name that a learnt direction may have. ValueError if `--edit` would misread it."""
    plain = name.isprintable() and name.strip() == name and 0 < len(name) <= LONGEST_NAME
    if not plain or any(c in ":=@/\\" for c in name):
        raise ValueError(
            f"the name of a direction has 1 to {LONGEST_NAME} characters, none of them "
            f": = @ / or \\, not {readable(name, 80)}"
        )
    return name


def fit_hyperplane(examples: Examples) -> Hyperplane:
    """The plane fitted to all examples, with its accuracy by five-fold cross-validation."""
    if importlib.util.find_spec("sklearn") is None:
        raise ValueError("directions from examples need scikit-learn: pip install '.[metrics]'")
    present = examples.present
    counts = int(present.sum()), int((~present).sum())
    if min(counts) < FEWEST:
        raise ValueError(
            f"there are {counts[0]} examples with the attribute and {counts[1]} without it; "
            f"at least {FEWEST} of each are needed"
        )
    rows = examples.w.double().cpu().numpy()
    rows = rows - rows.mean(axis=0)
    turns = np.empty(len(present), int)
    for side in (present, ~present):
        turns[side] = np.arange(side.sum()) % FOLDS
    right = 0
    for fold in range(FOLDS):
        plane = best_plane(rows[turns != fold], present[turns != fold])
        held_out = turns == fold
        right += int((plane.predict(rows[held_out]) == present[held_out]).sum())
    normal = best_plane(rows, present).coef_[0]
    unit = torch.from_numpy(normal / np.linalg.norm(normal)).float()
    return Hyperplane(unit, right / len(present))


def to_directions(generator: Generator, name: str, plane: Hyperplane, samples: int) -> Directions:
    """The normal as a direction, with the standard deviation of w along it."""
    vectors, spread = plane.normal[None], spread_of(generator, samples)
    deviations = deviations_along(vectors.double(), spread).float()
    layers, accuracies = range(generator.config.num_styles()), torch.tensor([plane.accuracy])
    return Directions(
        "svm", layers, samples, vectors, deviations, accuracies=accuracies, names=(name,)
    )


def examples_of(
    loaded: LoadedGenerator, positive: Path, negative: Path, class_name: str | None = None
) -> Examples:
    """The latents of two folders or files, see `latents_of`. ValueError if some are in both."""
    sides = [latents_of(loaded, place, class_name) for place in (positive, negative)]
    both = sides[0].keys() & sides[1].keys()
    if both:
        raise ValueError(f"{listed(sorted(both))} is in both {positive} and {negative}")
    w = torch.cat([row for side in sides for row in side.values()])
    sizes = [sum(map(len, side.values())) for side in sides]
    return Examples(w, np.repeat([True, False], sizes))


def latents_of(
    loaded: LoadedGenerator, place: Path, class_name: str | None = None
) -> dict[str, Tensor]:
    """w (n, w_dim) by name, of a file of latents or a folder.

    A folder holds pictures that `stylegan generate` named by seed, files of latents, or folders of
    `stylegan project`. If w differs between layers, its mean is taken. Unless a class is given, it
    is that of the seed, as in `generate`.
    """
    if not place.exists():
        raise FileNotFoundError(f"there is no folder or file {place} with examples")
    labels = loaded.label(class_name) if class_name is not None else None
    paths = sorted(place.iterdir()) if place.is_dir() else [place]
    files = [p for p in paths if p.suffix == ".npz"] or sorted(place.glob("*/latents.npz"))
    pictures = [p for p in paths if p.suffix.lower() in PICTURES and p.stem != "grid"]
    others = [readable(p.name, 40) for p in pictures if not SEED.fullmatch(p.stem)]
    if others or not files + pictures:
        raise ValueError(
            f"{place} needs pictures named by seed as stylegan generate does (seed0012.png), or "
            f"latents (.npz); found {listed(others, 3, ', ') if others else 'neither'}"
        )
    found = {
        str(file.resolve()): read_latents(file, loaded.generator, labels).ws.mean(dim=1)
        for file in files
    }
    if pictures:
        seeds = sorted({int(p.stem.removeprefix("seed")) for p in pictures})
        config = loaded.generator.config
        if config.label_dim and labels is None:
            labels = torch.eye(config.label_dim)[[seed % config.label_dim for seed in seeds]]
        rows = loaded.styles(sampling.latents(seeds, config.z_dim), labels)[:, :1].cpu()
        found |= {f"seed {seed}": row for seed, row in zip(seeds, rows, strict=True)}
    return found
