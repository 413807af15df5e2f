"""Metrics of features: the steps that those of Inception and of EfficientNet share, and the latter.

Distances, precision and recall in features of EfficientNet-Lite0 rank generators of any data much
as Inception's do, on a scale of their own: do not compare them with published numbers.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan.distributed import from_rank0, on_all_ranks
from stylegan.metrics.cache import Rows, cached
from stylegan.metrics.efficientnet import efficientnet
from stylegan.metrics.features import FeatureNetwork, Measured, Tools
from stylegan.metrics.sources import ImageSource
from stylegan.metrics.statistics import (
    GROUPS,
    LEAST_FOR_NEIGHBORHOODS,
    NEIGHBORHOOD,
    Estimate,
    frechet_estimate,
    kernel_estimate,
    precision_recall,
)

# a kind, features of fakes and of reals (n, dim) -> the kind's values, and what defines them
Compare = Callable[
    [str, np.ndarray, np.ndarray, ImageSource], tuple[dict[str, float], dict[str, Any]]
]


@dataclass(frozen=True, eq=False)
class Family:
    """Kinds of metrics that look at the features of one network, in one pass over the images."""

    name: str
    load: Callable[[Tools, ImageSource], FeatureNetwork]
    compare: Compare
    least: Mapping[str, int]  # images of each sort that a kind needs at least
    alone: str = ""  # the kind that does not compare with reals
    evenly: bool = False  # take reals from the whole data, both ways round if they are mirrored
    of_reals: Callable[[FeatureNetwork], FeatureNetwork] = lambda network: network

    def measure(
        self, source: ImageSource, kinds: Collection[str], images: int, tools: Tools
    ) -> Measured:
        """Measure some kinds. Where the data has fewer than `images`, all of it is used.

        Features wait in files; in memory is a batch.
        """
        compared, num_reals = set(kinds) != {self.alone}, images
        if compared:
            ways = 2 if self.evenly and source.mirror else 1
            num_reals = min(images, len(source.real_images()) * ways)
        refused = {
            kind: f"found {images:,} samples and {num_reals:,} real images, at least "
            f"{self.least[kind]:,} of each are needed"
            for kind in kinds
            if num_reals < self.least[kind]
        }
        wanted = [kind for kind in kinds if kind not in refused]
        if not wanted:
            return Measured({}, {}, refused=refused)
        network = self.load(tools, source)
        fakes = extract_features(network, source.fakes(images), images, tools.cache)
        reals, about_reals = fakes, {}
        if set(wanted) != {self.alone}:
            reals = self.features_of_reals(source, self.of_reals(network), num_reals, tools)
            chosen = {"chosen": "evenly"} if self.evenly else {}
            about_reals = {"reals": {**source.about_reals(), "number": num_reals, **chosen}}

        def compare() -> dict[str, tuple[dict[str, float], dict[str, Any]]]:
            assert fakes is not None and reals is not None
            return {kind: self.compare(kind, fakes, reals, source) for kind in wanted}

        values, of_kinds = {}, {}
        for kind, (numbers, about) in from_rank0(compare).items():
            values[kind] = numbers
            of_kinds[kind] = about if kind == self.alone else {**about_reals, **about}
        return Measured(values, {**network.about(), "images": images}, of_kinds, refused)

    def features_of_reals(
        self, source: ImageSource, network: FeatureNetwork, num: int, tools: Tools
    ) -> np.ndarray | None:
        """Features of `num` reals in rank 0, from the cache if they are there."""
        about = {**source.about_reals(), **network.about(), "number": num, "evenly": self.evenly}
        return cached(
            tools.cache,
            f"{self.name}-features",
            {**about, "torch": torch.__version__},
            lambda: extract_features(
                network, source.reals(num, evenly=self.evenly), num, tools.cache
            ),
            tools.tell,
        )


def extract_features(
    network: FeatureNetwork, batches: Iterable[Tensor], num: int, folder: Path
) -> np.ndarray | None:
    """float32 (num, dim) in rank 0, of images whose parts the processes hold; None in others."""
    rows = Rows(num, network.dim, folder)

    def collect() -> None:
        for images in batches:
            rows.add(network(images))

    on_all_ranks(collect, at_once=True)
    return rows.gathered()


DISTANCES: dict[str, Callable[[np.ndarray, np.ndarray], Estimate]] = {
    "eff-fd": frechet_estimate,
    "eff-kid": kernel_estimate,
}


def compare_eff(
    kind: str, fakes: np.ndarray, reals: np.ndarray, source: ImageSource
) -> tuple[dict[str, float], dict[str, Any]]:
    """The values of one metric and what defines them, of features (n, dim) and (m, dim)."""
    if kind in DISTANCES:
        value, interval = DISTANCES[kind](fakes, reals)
        return {kind: value}, {"interval_95": {kind: interval}}
    precision, recall = precision_recall(fakes[: len(reals)], reals)
    used = {"neighborhood": NEIGHBORHOOD, "images_compared": min(len(fakes), len(reals))}
    return {"eff-precision": precision, "eff-recall": recall}, used


EFF = Family(
    "eff",
    lambda tools, source: efficientnet(source.device, source.size),
    compare_eff,
    {"eff-fd": 2 * GROUPS, "eff-kid": 2 * GROUPS, "eff-pr": LEAST_FOR_NEIGHBORHOODS},
    evenly=True,
)
