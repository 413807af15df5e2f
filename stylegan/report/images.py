"""Images of the report that are generated, not read from the run folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image

from stylegan.figures import points_from_seeds, truncation
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.metrics import Tools, compare_with_reals
from stylegan.metrics.neighbors import comparing, samples_and_nearest
from stylegan.sampling.pretrained import Pretrained

SEEDS = range(5)
PSIS = (1.0, 0.7, 0.5, 0.3, 0.0, -0.5, -1.0)
SAMPLES = 5  # rows of samples next to training images
NEIGHBORS = 9  # columns of training images, nearest first


class Captioned(NamedTuple):
    image: Image.Image
    caption: str


class Drawings(NamedTuple):
    """Generated images of a report, or the reason why one is missing."""

    sweep: Captioned | str = "Not drawn."
    neighbors: Captioned | str = "Not computed yet; stylegan report RUN adds them."


def truncation_sweep(loaded: Pretrained, seeds: Sequence[int] = SEEDS) -> Captioned:
    """Image with a row for each seed and decreasing psi, at the trained resolution."""
    labels = loaded.labels_of(range(len(seeds)))
    cutoff = loaded.settings.cutoff
    layers = "all layers" if cutoff is None else f"the first {cutoff} layers"
    seen = "" if loaded.images_seen is None else f" after {loaded.images_seen / 1000:,.0f} kimg"
    return Captioned(
        truncation(loaded, points_from_seeds(loaded, seeds, labels), PSIS),
        f"Average generator{seen}, stored noise, psi on {layers}: 1 is full variety, 0 the average "
        "image, negative the opposites of the seeds.",
    )


def drawings_of(
    folder: Path, tools: Tools, *, data: Path | None = None, device: torch.device | str = "cpu"
) -> Drawings:
    """Images by the newest generator of a run; the reason where one cannot be made.

    Raises ValueError or OSError if `data` is given and cannot be used."""
    try:
        loaded = open_weights(folder, map_location=device).require_loaded()
    except FileNotFoundError:
        return Drawings(*["The run has not saved a generator yet."] * 2)
    except ValueError as error:
        return Drawings(*[f"No generator of the run can be read: {error}"] * 2)
    sweep = truncation_sweep(loaded)
    try:
        comparison = compare_with_reals(loaded, RunFolder(folder), data, console=tools.console)
        if comparison.reals is None:
            raise ValueError("the training images were not found; pass stylegan report --data")
        network = comparing(comparison)
        image = samples_and_nearest(comparison, network, SAMPLES, NEIGHBORS)
        text = (
            f"Left: seeds 0 to {SAMPLES - 1} without truncation. Right: the nearest of "
            f"{len(comparison.reals.store):,} training images, by {network.name}. Below: distances "
            "relative to that between neighbors within the training set; far below 1 is nearly a "
            "copy."
        )
        return Drawings(sweep, Captioned(image, text))
    except (ValueError, OSError) as error:
        if data is not None:
            raise
        return Drawings(sweep, f"Not computed: {error}")
