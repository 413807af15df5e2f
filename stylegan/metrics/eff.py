"""Distances, precision and recall in features of EfficientNet-Lite0: nothing is downloaded.

They rank generators of any data much as Inception's do, on a scale of their own: they say nothing
beside published numbers.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan.distributed import from_rank0, on_all_ranks
from stylegan.metrics.cache import Rows, cached, entry
from stylegan.metrics.efficientnet import efficientnet
from stylegan.metrics.features import FeatureNetwork, Measured, Tools, too_few
from stylegan.metrics.statistics import (
    GROUPS,
    LEAST_FOR_NEIGHBORHOODS,
    NEIGHBORHOOD,
    Estimate,
    frechet_estimate,
    kernel_estimate,
    precision_recall,
)
from stylegan.metrics.subject import Samples

VERSION = 2  # of what decides the features of reals except for the network
DISTANCES: dict[str, Callable[[np.ndarray, np.ndarray], Estimate]] = {
    "eff-fd": frechet_estimate,
    "eff-kid": kernel_estimate,
}
LEAST = {"eff-fd": 2 * GROUPS, "eff-kid": 2 * GROUPS, "eff-pr": LEAST_FOR_NEIGHBORHOODS}


def measure_eff(subject: Samples, kinds: Collection[str], images: int, tools: Tools) -> Measured:
    """`kinds` of eff-fd, eff-kid, eff-pr. One pass over the samples serves all.

    Where the data has fewer than `images`, all of it is used (mirrored and not, if reals are
    mirrored), and for precision and recall as many samples. Features wait in a file.
    """
    num_reals = min(images, len(subject.real_images()) * (2 if subject.mirror else 1))
    refused = too_few(kinds, LEAST, images, num_reals)
    wanted = [kind for kind in kinds if kind not in refused]
    if not wanted:
        return Measured({}, {}, refused=refused)
    network = efficientnet(subject.device, subject.size)
    fakes = look(network, subject.fakes(images), images, tools)
    reals = features_of_reals(subject, network, num_reals, tools)
    about: dict[str, Any] = {**network.about(), "images": images}
    about["reals"] = {**subject.about_reals(), "number": num_reals, "chosen": "evenly"}
    found = from_rank0(
        lambda: {kind: compare(kind, present(fakes), present(reals)) for kind in wanted}
    )
    return Measured(
        {kind: values for kind, (values, _) in found.items()},
        about,
        {kind: about_kind for kind, (_, about_kind) in found.items()},
        refused,
    )


def compare(
    kind: str, fakes: np.ndarray, reals: np.ndarray
) -> tuple[dict[str, float], dict[str, Any]]:
    """The values of one metric and what defines them, of features (n, dim) and (m, dim)."""
    if kind in DISTANCES:
        value, interval = DISTANCES[kind](fakes, reals)
        return {kind: value}, {"interval_95": {kind: interval}}
    precision, recall = precision_recall(fakes[: len(reals)], reals)
    used = {"neighborhood": NEIGHBORHOOD, "images_compared": min(len(fakes), len(reals))}
    return {"eff-precision": precision, "eff-recall": recall}, used


def look(
    network: FeatureNetwork, batches: Iterable[Tensor], num: int, tools: Tools
) -> np.ndarray | None:
    """float32 (num, dim) in the first process, of images whose parts the processes hold."""
    rows = Rows(num, network.dim, tools.cache)

    def collect() -> None:
        for images in batches:
            rows.add(network(images))

    on_all_ranks(collect, at_once=True)
    return rows.gathered()


def features_of_reals(
    subject: Samples, network: FeatureNetwork, num: int, tools: Tools
) -> np.ndarray | None:
    """The same of `num` reals, from the cache of the first process if they are there."""
    about = {**subject.about_reals(), "number": num, "chosen": "evenly", **network.about()}
    about |= {"version": VERSION, "torch": torch.__version__}
    place = entry(tools.cache, "eff-features", about, "<f4", (num, network.dim))

    def make(missing: Collection[str]) -> dict[str, np.ndarray | None]:
        return {"features": look(network, subject.reals(num, evenly=True), num, tools)}

    return cached({"features": place}, make, tools.tell)["features"]


def present(rows: np.ndarray | None) -> np.ndarray:
    """What the first process has."""
    assert rows is not None
    return rows
