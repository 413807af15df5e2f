"""Distances, precision and recall in features of EfficientNet-Lite0: nothing is downloaded.

They rank generators of any data much as Inception's do, on a scale of their own: do not compare
them with published numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from stylegan.metrics.efficientnet import efficientnet
from stylegan.metrics.families import Family
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

DISTANCES: dict[str, Callable[[np.ndarray, np.ndarray], Estimate]] = {
    "eff-fd": frechet_estimate,
    "eff-kid": kernel_estimate,
}


def compare(
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
    compare,
    {"eff-fd": 2 * GROUPS, "eff-kid": 2 * GROUPS, "eff-pr": LEAST_FOR_NEIGHBORHOODS},
    evenly=True,
)
