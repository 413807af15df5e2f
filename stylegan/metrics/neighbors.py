"""Does the generator repeat its training images? Those nearest to its pictures, and a picture."""

import dataclasses
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d

from stylegan.figures import grid
from stylegan.metrics.efficientnet import efficientnet, weights_path
from stylegan.metrics.features import FeatureNetwork
from stylegan.metrics.sources import Comparison
from stylegan.metrics.statistics import distances

REFERENCES = 1000  # training images, at most, whose own neighbors are looked for
LARGEST = 64  # pixels a side that are compared
LARGEST_SHOWN = 128  # and shown
COARSE = 16  # pixels a side, where pixels are compared
LONGEST = 8  # rows, before two rows share a line


class NoUnit(ValueError):
    """Training images that have no distance between neighbors, the unit of all others."""


class Neighbors(NamedTuple):
    """The k training images nearest to each of n pictures, nearest first."""

    indices: np.ndarray  # (n, k) in the store
    mirrored: np.ndarray  # bool (n, k): flipped left to right it is nearer
    distances: np.ndarray  # (n, k) between features
    typical: float  # median distance of a training image to its nearest other one

    @property
    def relative(self) -> np.ndarray:
        """(n, k) distances in units of the typical one: far below 1 is nearly a copy."""
        return self.distances / self.typical


def nearest(
    pictures: Tensor, comparison: Comparison, network: FeatureNetwork, k: int = 3
) -> Neighbors:
    """Find the neighbors of pictures uint8 (n, C, r, r) among all training images, either way round
    if these are mirrored. Features of the data are not kept: memory depends on n alone."""
    n = len(pictures)
    real_images = comparison.require_reals()
    images = real_images.images()
    references = np.linspace(0, len(images) - 1, min(len(images), REFERENCES)).astype(np.int64)
    shown = real_images.store.pictures
    known = torch.from_numpy(shown(images[references]))
    batches = (*pictures.split(comparison.batch), *known.split(comparison.batch))
    queries = torch.cat([network(batch).cpu() for batch in batches])
    itself = torch.cat([torch.full((n,), -1), torch.from_numpy(references)])
    best = torch.empty(len(queries), 0)
    names = torch.empty(len(queries), 0, dtype=torch.int64)
    for indices in comparison.batches(len(images), "training images"):
        rows = torch.arange(indices.start, indices.stop)
        part = real_images.images()[indices.start : indices.stop]  # anew: it may be cut short
        reals = torch.from_numpy(shown(part).copy())
        apart = distances(queries, network(reals).cpu())
        ways = 2 * rows.expand_as(apart)  # index and way round, (n, batch)
        if real_images.mirror:
            flipped = distances(queries, network(reals.flip(3)).cpu())
            ways = ways + (flipped < apart)
            apart = apart.minimum(flipped)
        apart[itself[:, None] == rows] = torch.inf
        best, order = torch.cat([best.to(apart), apart], dim=1).sort(dim=1, stable=True)
        names = torch.cat([names, ways], dim=1).gather(1, order[:, :k])
        best = best[:, :k]
    numbers = names[:n].numpy()
    return Neighbors(numbers // 2, numbers % 2 == 1, best[:n].numpy(), typical_of(best[n:]))


def typical_of(apart: Tensor) -> float:
    """Return the median distance to the nearest other training image, of those (m, k) of m images;
    where most have an equal twin, to those that differ. Raise NoUnit if none differs."""
    differing = apart[(apart > 0) & apart.isfinite()]
    if not len(differing):
        raise NoUnit(
            "there are no two training images that differ, so there is no distance between "
            "neighbors to compare with"
        )
    return float(apart[:, 0].median()) or float(differing.median())


def comparing(comparison: Comparison) -> FeatureNetwork:
    """Return EfficientNet-Lite0 if its weights are here, else pixels of averages."""
    if weights_path():
        return efficientnet(comparison.device, min(comparison.resolution, LARGEST))
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
    nearest to it above their relative distances."""
    samples = torch.cat(list(comparison.fake_batches(num)))
    small = reduced_reals(comparison, LARGEST)
    neighbors = nearest(reduced(samples, LARGEST), small, network, k)
    reals = reduced_reals(comparison, LARGEST_SHOWN).require_reals()
    cells: list[np.ndarray] = []
    labels: list[str] = []
    for i, sample in enumerate(reduced(samples, LARGEST_SHOWN)):
        rows = reals.store.pictures(reals.images()[neighbors.indices[i]])
        rows = np.where(neighbors.mirrored[i][:, None, None, None], rows[..., ::-1], rows)
        cells += [np.ascontiguousarray(cell.transpose(1, 2, 0)) for cell in (sample.numpy(), *rows)]
        labels += [f"{i}", *(f"{relative:.2f}" for relative in neighbors.relative[i])]
    beside = 2 if num > LONGEST else 1
    return grid(cells, columns=beside * (1 + neighbors.indices.shape[1]), labels=labels)


def reduced(pictures: Tensor, largest: int) -> Tensor:
    """Return average pictures uint8 (n, C, r, r) down to at most `largest` pixels a side."""
    factor = max(1, pictures.shape[-1] // largest)
    return avg_pool2d(pictures.float(), factor).round().to(pictures.dtype)


def reduced_reals(comparison: Comparison, largest: int) -> Comparison:
    """Return the same with reals of at most `largest` pixels a side."""
    resolution = min(comparison.resolution, largest)
    reals = dataclasses.replace(comparison.require_reals(), resolution=resolution)
    return dataclasses.replace(comparison, reals=reals)
