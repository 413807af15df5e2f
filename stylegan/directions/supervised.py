"""Directions of w that were learnt from examples: InterFaceGAN, Shen et al. 2020.

The direction is the normal of the plane that separates the w of examples with an attribute from
those without it, by the support vector machine of linear separability.
"""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.directions.finding import Directions, Method, deviations_along, spread_of
from stylegan.files.latents import read_latents
from stylegan.files.loaded import LoadedGenerator
from stylegan.messages import listed, readable
from stylegan.metrics.features import averaged_down
from stylegan.metrics.separability import Classifier, best_plane, most_confident, one_logit
from stylegan.networks import Generator

FOLDS = 5  # each holds out a fifth of the examples
FEWEST = 5  # examples of each side
LABEL_SAMPLES = 5000  # latents, at most, that planes between classes are fitted to
PICTURES = (".png", ".webp", ".jpg")
SEED = re.compile(r"seed(\d{1,10})")


class Examples(NamedTuple):
    """Latents with an attribute and without it."""

    w: Tensor  # (N, w_dim)
    present: np.ndarray  # bool (N,)


class Separation(NamedTuple):
    """What a plane tells."""

    vector: Tensor  # (w_dim,) of unit length, towards the examples with the attribute
    accuracy: float  # share of examples on their own side of planes fitted to the others


def complement(latents: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Rows (N, D) without their parts along `others` (K, D), some of which may be alike."""
    if not len(others):
        return latents
    units = others / np.maximum(np.linalg.norm(others, axis=1, keepdims=True), 1e-30)
    _, sizes, vectors = np.linalg.svd(units, full_matrices=False)
    basis = vectors[sizes > 1e-6]  # what is less is round-off of float32 directions
    return latents - latents @ basis.T @ basis


def separated(examples: Examples, others: Tensor | None = None) -> Separation:
    """The best plane between examples whose normal is orthogonal to `others` (K, w_dim).

    Every example is held out once, in one of five folds, for the accuracy; the direction is that of
    all. ValueError for too few of either side, and if `others` leave nothing.
    """
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
    basis = np.zeros((0, rows.shape[1])) if others is None else others.double().cpu().numpy()
    rows = complement(rows - rows.mean(axis=0), basis)
    turns = np.empty(len(present), int)
    for side in (present, ~present):
        turns[side] = np.arange(side.sum()) % FOLDS
    right = 0
    for fold in range(FOLDS):
        plane = best_plane(rows[turns != fold], present[turns != fold])
        held_out = turns == fold
        right += int((plane.predict(rows[held_out]) == present[held_out]).sum())
    normal = complement(best_plane(rows, present).coef_, basis)[0]
    length = np.linalg.norm(normal)
    if not length > 1e-9:
        raise ValueError("the directions that it shall be orthogonal to leave nothing of w")
    return Separation(torch.from_numpy(normal / length).float(), right / len(present))


def learnt(
    generator: Generator,
    method: Method,
    separations: dict[str, Separation],
    samples: int,
) -> Directions:
    """Directions by their names, with the standard deviation of w along each of them."""
    vectors = torch.stack([found.vector for found in separations.values()])
    deviations = deviations_along(vectors.double(), spread_of(generator, samples)).float()
    accuracies = torch.tensor([found.accuracy for found in separations.values()])
    layers = range(generator.config.num_styles())
    names = tuple(separations)
    return Directions(
        method, layers, samples, vectors, deviations, accuracies=accuracies, names=names
    )


def class_directions(
    loaded: LoadedGenerator, samples: int, others: Tensor | None = None
) -> Directions:
    """For each class the way from the others to it. ValueError for a network without classes."""
    count = loaded.generator.config.label_dim
    if count < 2:
        raise ValueError(f"the {loaded.origin} has no classes, so there are no directions of them")
    names = list(loaded.label_names) or [str(i) for i in range(count)]
    w = sampling.mapped_samples(loaded.generator, max(min(samples, LABEL_SAMPLES), 10 * count))
    classes = np.arange(len(w)) % count
    found = {name: separated(Examples(w, classes == i), others) for i, name in enumerate(names)}
    return learnt(loaded.generator, "label", found, samples)


def examples_of(
    loaded: LoadedGenerator, positive: Path, negative: Path, class_name: str | None = None
) -> Examples:
    """The latents of two folders or files: see `latents_of`. ValueError if some are in both."""
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
    """w (n, w_dim) by name: of a file of latents, or of a folder with pictures that
    `stylegan generate` has named by seed, files of latents, or folders of `stylegan project`.

    Of w for every layer the mean is taken. Classes are those of `generate`: in turn, unless one is
    given.
    """
    label = loaded.label(class_name) if class_name is not None else None
    if not place.exists():
        raise FileNotFoundError(f"there is no folder or file {place} with examples")
    if not place.is_dir():
        return {str(place.resolve()): read_latents(place, loaded.generator, label).ws.mean(dim=1)}
    paths = sorted(place.iterdir())
    pictures = [p for p in paths if p.suffix.lower() in PICTURES and p.stem != "grid"]
    strange = [readable(p.name, 40) for p in pictures if not SEED.fullmatch(p.stem)]
    if strange:
        raise ValueError(
            f"{place} has pictures whose seed is not in their name: {listed(strange, 3, ', ')}; "
            "they are named as `stylegan generate` does (seed0012.png), others are projected first"
        )
    files = [p for p in paths if p.suffix == ".npz"] or sorted(place.glob("*/latents.npz"))
    found = {
        str(file.resolve()): read_latents(file, loaded.generator, label).ws.mean(dim=1)
        for file in files
    }
    seeds = sorted({int(p.stem.removeprefix("seed")) for p in pictures})
    if not seeds and not found:
        raise ValueError(f"{place} has neither pictures of seeds (seed0012.png) nor latents (.npz)")
    classes = loaded.generator.config.label_dim
    labels = label
    if classes and label is None and seeds:
        labels = torch.eye(classes)[[seed % classes for seed in seeds]]
    if seeds:
        z = sampling.latents(seeds, loaded.generator.config.z_dim)
        rows = loaded.styles(z, labels)[:, 0].cpu()
        found |= {f"seed {seed}": row[None] for seed, row in zip(seeds, rows, strict=True)}
    return found


@torch.inference_mode()
def classified(
    loaded: LoadedGenerator,
    classifier: Classifier,
    name: str,
    samples: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Examples:
    """Latents of the half of `samples` pictures of which the classifier is surest, as `ls` keeps
    them, with what it says."""
    generator = loaded.generator
    w = sampling.mapped_samples(generator, samples)
    logits: list[Tensor] = []
    for rows in w.split(sampling.default_batch(loaded.resolution)):
        with sampling.repeatable():
            images = generator.synthesis(
                generator.broadcast(rows), resolution=loaded.resolution, alpha=loaded.alpha
            )
        logits.append(one_logit(classifier(averaged_down(images).float()), name).cpu())
        progress(sum(map(len, logits)), samples)
    said = torch.cat(logits).numpy()
    kept = most_confident(said, samples // 2)
    return Examples(w.cpu()[kept], said[kept] >= 0)
