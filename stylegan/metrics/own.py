"""Quality as a small network sees it that we train on the data itself: nothing to download.

Its numbers compare generators of one data set at one resolution by one such network, whose hash is
part of a result. They say nothing beside numbers of other data or other networks, nor beside
published ones.
"""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan.agreement import at_once, from_first
from stylegan.metrics.cache import Rows, cached, entry
from stylegan.metrics.features import FeatureNetwork, Measured, Tools
from stylegan.metrics.own_network import RECIPE, Recipe, own_network
from stylegan.metrics.statistics import (
    NEIGHBORHOOD,
    ROWS_AT_ONCE,
    Moments,
    blocks,
    frechet,
    pooled,
    precision_recall,
)
from stylegan.metrics.subject import Subject

VERSION = 1  # of what decides the features of reals except for the network
NETWORK_SEED = 0  # of the network: the same for all seeds of images, so that results compare


def measure_own(
    subject: Subject,
    kinds: Collection[str],
    images: int,
    tools: Tools,
    recipe: Recipe = RECIPE,
) -> Measured:
    """`own-fd` and `own-pr`. One pass over the samples serves both.

    Where the data has fewer than `images`, all of it is used (mirrored and not, if reals are
    mirrored), and for precision and recall as many samples. Features that are compared in pairs
    wait in a file.
    """
    in_all = len(subject.real_images())
    paired = "own-pr" in kinds
    least = NEIGHBORHOOD + 1 if paired else 2
    num_reals = min(images, in_all * (2 if subject.mirror else 1))
    if num_reals < least or in_all < 2:
        raise ValueError(f"{' and '.join(kinds)}: {least} images of each sort are needed at least")
    network = own_network(subject, tools, recipe, NETWORK_SEED)
    rows = Rows(images, network.dim, tools.cache) if paired else None
    of_fakes = look(network, subject.fakes(images), rows)
    reals = features_of_reals(subject, network, num_reals, tools)
    fakes = None if rows is None else rows.gathered()
    about: dict[str, Any] = {**network.about(), "network_seed": NETWORK_SEED, "images": images}
    about["reals"] = {**subject.about_reals(), "number": num_reals, "chosen": "evenly"}
    values: dict[str, dict[str, float]] = {}
    of_kinds: dict[str, dict[str, Any]] = {}
    if "own-fd" in kinds:
        distance, apart = from_first(lambda: distances(of_fakes, present(reals), in_all))
        values["own-fd"] = {"own-fd": distance}
        of_kinds["own-fd"] = {"between_halves_of_reals": apart}
    if paired:
        precision, recall = from_first(
            lambda: precision_recall(present(fakes)[:num_reals], present(reals))
        )
        values["own-pr"] = {"own-precision": precision, "own-recall": recall}
        used = min(images, num_reals)
        of_kinds["own-pr"] = {"neighborhood": NEIGHBORHOOD, "images_compared": used}
    return Measured(values, about, of_kinds)


def look(network: FeatureNetwork, batches: Iterable[Tensor], rows: Rows | None) -> Moments:
    """Moments of the features of all images, whose parts the processes hold; `rows` get them."""
    moments = Moments(network.dim)

    def collect() -> None:
        for images in batches:
            features = network(images)
            moments.add(features)
            if rows is not None:
                rows.add(features)

    at_once(collect)
    return moments.merged()


def features_of_reals(
    subject: Subject, network: FeatureNetwork, num: int, tools: Tools
) -> np.ndarray | None:
    """float32 (num, dim) in the first process, from its cache if they are there; None in others."""
    about = {**subject.about_reals(), "number": num, "chosen": "evenly", **network.about()}
    about |= {"version": VERSION, "torch": torch.__version__}
    place = entry(tools.cache, "own-features", about, "<f4", (num, network.dim))

    def make(missing: Collection[str]) -> dict[str, np.ndarray | None]:
        rows = Rows(num, network.dim, tools.cache)
        look(network, subject.reals(num, evenly=True), rows)
        return {"features": rows.gathered()}

    return cached({"features": place}, make, tools.tell)["features"]


def distances(of_fakes: Moments, reals: np.ndarray, turn: int) -> tuple[float, float | None]:
    """Frechet distance of the fakes and the reals; and of reals with even and with odd numbers in
    a turn of the data, so that both views of a mirrored one are on one side."""
    halves = [Moments(reals.shape[1]), Moments(reals.shape[1])]
    for i, some in enumerate(blocks(reals)):
        odd = (torch.arange(len(some)) + i * ROWS_AT_ONCE) % turn % 2
        for which, half in enumerate(halves):
            if (odd == which).any():
                half.add(some[odd == which])
    apart = frechet(*halves) if min(half.count for half in halves) > 1 else None
    return frechet(of_fakes, pooled(halves)), apart


def present(rows: np.ndarray | None) -> np.ndarray:
    """What the first process has."""
    assert rows is not None
    return rows
