"""Training images nearest to samples: does the generator copy its data?"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d

from stylegan.figures import grid
from stylegan.metrics.comparison import Comparison
from stylegan.metrics.efficientnet import efficientnet, weights_path
from stylegan.metrics.features import FeatureNetwork
from stylegan.metrics.statistics import distances

REFERENCES = 1000  # training images that the typical distance is measured from, at most
MAX_COMPARED = 64  # width and height of compared images, at most
MAX_SHOWN = 128  # width and height of shown images, at most
COARSE = 16  # width and height of images whose pixels are compared, at most
MAX_ROWS = 8  # samples, each on a line of its own; if there are more, two share a line


class Neighbors(NamedTuple):
    """The k training images nearest to each of n images, nearest first."""

    indices: np.ndarray  # (n, k) in the store
    mirrored: np.ndarray  # bool (n, k): nearer when flipped left to right
    distances: np.ndarray  # (n, k), of features
    typical: float  # median distance from a training image to its nearest other one, or NaN

    @property
    def relative(self) -> np.ndarray:
        """Distances (n, k) in units of the typical one: far below 1 is nearly a copy."""
        return self.distances / self.typical


def nearest(
    images: Tensor, comparison: Comparison, network: FeatureNetwork, k: int = 3
) -> Neighbors:
    """Find the neighbors of uint8 images (n, C, r, r) among all training images, and among their
    mirror images if training mirrors. Features of the data are not kept, so memory depends on n
    alone."""
    n = len(images)
    reals = comparison.require_reals()
    number = len(reals.images())
    references = np.linspace(0, number - 1, min(number, REFERENCES)).astype(np.int64)
    shown = reals.store.unpremultiplied
    known = torch.from_numpy(shown(reals.images()[references]))
    batches = (*images.split(comparison.batch), *known.split(comparison.batch))
    queries = torch.cat([network(batch).cpu() for batch in batches])
    itself = torch.cat([torch.full((n,), -1), torch.from_numpy(references)])
    best = torch.empty(len(queries), 0)
    names = torch.empty(len(queries), 0, dtype=torch.int64)
    for indices in comparison.batches(number, "training images"):
        rows = torch.arange(indices.start, indices.stop)
        # Call `images()` for each batch: it checks that the file has not been cut short.
        part = torch.from_numpy(shown(reals.images()[indices.start : indices.stop]).copy())
        apart = distances(queries, network(part).cpu())
        ways = 2 * rows.expand_as(apart)  # (n, batch): 2 * index, + 1 where the flip is nearer
        if reals.mirror:
            flipped = distances(queries, network(part.flip(3)).cpu())
            ways = ways + (flipped < apart)
            apart = apart.minimum(flipped)
        apart[itself[:, None] == rows] = torch.inf
        best, order = torch.cat([best.to(apart), apart], dim=1).sort(dim=1, stable=True)
        names = torch.cat([names, ways], dim=1).gather(1, order[:, :k])
        best = best[:, :k]
    numbers = names[:n].numpy()
    median = float(best[n:, 0].median())  # infinite for a single image
    typical = median if 0 < median < math.inf else math.nan
    return Neighbors(numbers // 2, numbers % 2 == 1, best[:n].numpy(), typical)


def comparing(comparison: Comparison) -> FeatureNetwork:
    """EfficientNet-Lite0 if its weights are installed, else the pixels of small images."""
    if weights_path():
        return efficientnet(comparison.device, min(comparison.resolution, MAX_COMPARED))
    size = min(comparison.resolution, COARSE)
    return FeatureNetwork(
        f"pixels at {size}x{size}",
        "",
        comparison.require_reals().store.channels * size**2,
        "averaged down",
        lambda images: avg_pool2d(images.float() / 255, images.shape[-1] // size).flatten(1),
    )


def samples_and_nearest(
    comparison: Comparison, network: FeatureNetwork, num: int, k: int
) -> Image.Image:
    """Draw a row for each of the first `num` samples: the sample, then the k training images
    nearest to it with their relative distances below."""
    samples = torch.cat(list(comparison.fake_batches(num)))
    small = reduced_reals(comparison, MAX_COMPARED)
    neighbors = nearest(reduced(samples, MAX_COMPARED), small, network, k)
    reals = reduced_reals(comparison, MAX_SHOWN).require_reals()
    cells: list[np.ndarray] = []
    labels: list[str] = []
    for i, sample in enumerate(reduced(samples, MAX_SHOWN)):
        rows = reals.store.unpremultiplied(reals.images()[neighbors.indices[i]])
        rows = np.where(neighbors.mirrored[i][:, None, None, None], rows[..., ::-1], rows)
        cells += [np.ascontiguousarray(cell.transpose(1, 2, 0)) for cell in (sample.numpy(), *rows)]
        labels += [f"{i}", *(f"{relative:.2f}" for relative in neighbors.relative[i])]
    beside = 2 if num > MAX_ROWS else 1
    return grid(cells, columns=beside * (1 + neighbors.indices.shape[1]), labels=labels)


def reduced(images: Tensor, largest: int) -> Tensor:
    """Box-average uint8 images (n, C, r, r) to at most `largest` x `largest` pixels."""
    factor = max(1, images.shape[-1] // largest)
    return avg_pool2d(images.float(), factor).round().to(images.dtype)


def reduced_reals(comparison: Comparison, largest: int) -> Comparison:
    resolution = min(comparison.resolution, largest)
    reals = dataclasses.replace(comparison.require_reals(), resolution=resolution)
    return dataclasses.replace(comparison, reals=reals)
