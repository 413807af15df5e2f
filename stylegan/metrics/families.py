"""Metrics of features: the steps that those of Inception and of EfficientNet share."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan.distributed import from_rank0, on_all_ranks
from stylegan.metrics.cache import Rows, cached
from stylegan.metrics.features import FeatureNetwork, Measured, Tools
from stylegan.metrics.sources import ImageSource

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
            if min(images, num_reals) < self.least[kind]
        }
        wanted = [kind for kind in kinds if kind not in refused]
        if not wanted:
            return Measured({}, {}, refused=refused)
        network = self.load(tools, source)
        fakes = extract_features(network, source.fakes(images), images, tools.cache)
        reals = fakes
        about_reals: dict[str, Any] = {}
        if set(wanted) != {self.alone}:
            reals = self.features_of_reals(source, self.of_reals(network), num_reals, tools)
            chosen = {"chosen": "evenly"} if self.evenly else {}
            about_reals = {"reals": {**source.about_reals(), "number": num_reals, **chosen}}

        def compare() -> dict[str, tuple[dict[str, float], dict[str, Any]]]:
            assert fakes is not None and reals is not None
            return {kind: self.compare(kind, fakes, reals, source) for kind in wanted}

        found = from_rank0(compare)
        of_kinds = {
            kind: about if kind == self.alone else {**about_reals, **about}
            for kind, (_, about) in found.items()
        }
        values = {kind: values for kind, (values, _) in found.items()}
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
