"""Pictures that are not among the files of a run but drawn from its generator."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from stylegan import sampling
from stylegan.figures import of_seeds, swept
from stylegan.files.loaded import LoadedGenerator

SEEDS = range(5)
PSIS = (1.0, 0.7, 0.5, 0.3, 0.0, -0.5, -1.0)
CELL = 192  # pixels at most, of a picture of the sweep


@dataclass(frozen=True)
class Sweep:
    """Pictures of some seeds, a row each, at falling psi."""

    psis: Sequence[float]
    rows: Sequence[tuple[str, Sequence[Image.Image]]]
    about: str


@dataclass(frozen=True)
class Captioned:
    """A picture and what is to be said of it."""

    image: Image.Image
    about: str


@dataclass(frozen=True)
class Drawings:
    """What a report shows beside the files of the run. A text explains why something is missing."""

    sweep: Sweep | str = "Not drawn."
    neighbours: Captioned | str = "Not looked for; stylegan report RUN does."


def truncation_sweep(
    loaded: LoadedGenerator, seeds: Sequence[int] = SEEDS, psis: Sequence[float] = PSIS
) -> Sweep:
    """The pictures, where the generator is and as far as it has grown."""
    generator = loaded.generator
    classes = [i % max(generator.config.label_dim, 1) for i in range(len(seeds))]
    labels = torch.eye(generator.config.label_dim)[classes] if generator.config.label_dim else None
    columns = swept(loaded, of_seeds(loaded, seeds, labels), psis)
    names = [f"seed {seed}" for seed in seeds]
    if loaded.label_names:
        names = [f"{name}, {loaded.label_names[i]}" for name, i in zip(names, classes, strict=True)]
    rows = [(name, [cell(column[i]) for column in columns]) for i, name in enumerate(names)]
    layers = "all layers" if loaded.cutoff is None else f"the first {loaded.cutoff} layers"
    seen = "" if loaded.images_seen is None else f" after {loaded.images_seen / 1000:,.0f} kimg"
    return Sweep(tuple(psis), rows, f"Average generator{seen}, stored noise, psi on {layers}.")


def cell(pixels: np.ndarray) -> Image.Image:
    """A picture that fits into a table."""
    image = sampling.picture(pixels)
    return image.reduce(-(-max(image.size) // CELL)) if max(image.size) > CELL else image
