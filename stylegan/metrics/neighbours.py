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
from stylegan.metrics.sources import GeneratorSamples
from stylegan.metrics.statistics import distances

REFERENCES = 1000  # training images, at most, whose own neighbours are looked for
LARGEST, LARGEST_SHOWN = 64, 128  # pixels that are compared, and shown
COARSE = 16  # pixels a side, where pixels are compared
LONGEST = 8  # rows, before two rows share a line


class Neighbours(NamedTuple):
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
    pictures: Tensor, source: GeneratorSamples, network: FeatureNetwork, k: int = 3
) -> Neighbours:
    """Neighbours of pictures uint8 (n, C, r, r) among all training images, either way round if
    these are mirrored. Features of the data are not kept: memory depends on n alone."""
    images, n = source.real_images(), len(pictures)
    references = np.linspace(0, len(images) - 1, min(len(images), REFERENCES)).astype(np.int64)
    shown = source.require_store().pictures
    known = torch.from_numpy(shown(images[references]))
    batches = (*pictures.split(source.batch), *known.split(source.batch))
    queries = torch.cat([network(some).cpu() for some in batches])
    itself = torch.cat([torch.full((n,), -1), torch.from_numpy(references)])
    best, names = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
    for indices in source.batches(len(images), "training images"):
        rows = torch.arange(indices.start, indices.stop)
        reals = torch.from_numpy(shown(images[indices.start : indices.stop]).copy())
        apart = distances(queries, network(reals).cpu())
        ways = 2 * rows.expand_as(apart)  # index and way round, (n, batch)
        if source.mirror:
            flipped = distances(queries, network(reals.flip(3)).cpu())
            ways, apart = ways + (flipped < apart), apart.minimum(flipped)
        apart[itself[:, None] == rows] = torch.inf
        best, order = torch.cat([best.to(apart), apart], dim=1).sort(dim=1, stable=True)
        names = torch.cat([names, ways], dim=1).gather(1, order[:, :k])
        best = best[:, :k]
    numbers = names[:n].numpy()
    return Neighbours(numbers // 2, numbers % 2 == 1, best[:n].numpy(), typical_of(best[n:]))


def typical_of(apart: Tensor) -> float:
    """The median distance to the nearest other training image, of those (m, k) of m images; where
    most have an equal twin, to those that differ. ValueError if none does."""
    typical = float(apart[:, 0].median())
    if typical > 0:
        return typical
    differing = apart[(apart > 0) & apart.isfinite()]
    if not len(differing):
        raise ValueError(
            "the training images are copies of each other, so the distance between neighbours is "
            "0 and there is no unit to compare with; remove the copies"
        )
    return float(differing.median())


def comparing(source: GeneratorSamples) -> FeatureNetwork:
    """EfficientNet-Lite0 if its weights are here, else pixels of averages."""
    if weights_path():
        return efficientnet(source.device, min(source.size, LARGEST))
    size = min(source.size, COARSE)
    return FeatureNetwork(
        f"pixels at {size}x{size}",
        "",
        source.require_store().channels * size**2,
        "averaged down",
        lambda images: avg_pool2d(images.float() / 255, images.shape[-1] // size).flatten(1),
    )


def samples_and_nearest(
    source: GeneratorSamples, network: FeatureNetwork, num: int, k: int
) -> Image.Image:
    """A row for each of the first `num` samples: the sample, then the k training images nearest to
    it above their relative distances."""
    samples = torch.cat(list(source.fakes(num)))
    found = nearest(*reduced(samples, source, LARGEST), network, k)
    pictures, shown = reduced(samples, source, LARGEST_SHOWN)
    images, store = shown.real_images(), source.require_store()
    cells, labels = [], []
    for i, sample in enumerate(pictures):
        reals = store.pictures(images[found.indices[i]])
        reals = np.where(found.mirrored[i][:, None, None, None], reals[..., ::-1], reals)
        both = (sample.numpy(), *reals)
        cells += [np.ascontiguousarray(cell.transpose(1, 2, 0)) for cell in both]
        labels += [f"{i}", *(f"{relative:.2f}" for relative in found.relative[i])]
    beside = 2 if num > LONGEST else 1
    return grid(cells, columns=beside * (1 + found.indices.shape[1]), labels=labels)


def reduced(
    pictures: Tensor, source: GeneratorSamples, largest: int
) -> tuple[Tensor, GeneratorSamples]:
    """The pictures, averaged down to at most `largest` pixels, and their source at that size."""
    size = min(source.size, largest)
    small = avg_pool2d(pictures.float(), source.size // size).round().to(pictures.dtype)
    return small, dataclasses.replace(source, resolution=size)
