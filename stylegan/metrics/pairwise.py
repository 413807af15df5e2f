"""Which rows of features are near which, in memory that does not depend on their number."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

ROWS_AT_ONCE = 1024  # of either side of a table of distances
NEIGHBORHOOD = 3  # the k of precision and recall, as in the paper


def precision_recall(
    fakes: np.ndarray, reals: np.ndarray, k: int = NEIGHBORHOOD
) -> tuple[float, float]:
    """Of features (n, dim) and (m, dim). Kynkaanniemi et al. 2019, equations 1 and 2.

    Precision is the share of fakes that lie within a real's ball, as far as its k-th nearest other
    real; recall is the share of reals within a fake's ball.
    """
    if min(len(fakes), len(reals)) <= k:
        raise ValueError(
            f"precision and recall need more than {k} images of each sort, not {len(fakes)} "
            f"generated and {len(reals)} real ones"
        )
    return share_within(fakes, reals, k), share_within(reals, fakes, k)


def share_within(points: np.ndarray, centers: np.ndarray, k: int) -> float:
    """Of the points, those that some center's ball holds."""
    radii = torch.cat([nearest_rows(some, centers, k + 1)[0][:, -1] for some in blocks(centers)])
    inside = 0
    for some in blocks(points):
        found = torch.zeros(len(some), dtype=torch.bool)
        for ball, radius in zip(blocks(centers), radii.split(ROWS_AT_ONCE), strict=True):
            found |= (distances(some, ball) <= radius).any(dim=1)
        inside += int(found.sum())
    return inside / len(points)


def nearest_rows(queries: Tensor, rows: np.ndarray, k: int) -> tuple[Tensor, Tensor]:
    """The k smallest distances of each query, (n, k), and whose they are."""
    best, whose = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
    for i, some in enumerate(blocks(rows)):
        names = torch.arange(len(some)) + i * ROWS_AT_ONCE
        best, whose = smallest(best, whose, distances(queries, some), names, k)
    return best, whose


def smallest(
    best: Tensor, whose: Tensor, found: Tensor, names: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k smallest of `best` (n, up to k) and `found` (n, m), ascending, with their names;
    `whose` (n, up to k) has those of `best`, `names` (m,) those of `found`."""
    values = torch.cat([best.to(found), found], dim=1)
    all_names = torch.cat([whose, names.expand(len(found), -1)], dim=1)
    values, places = values.sort(dim=1, stable=True)  # of equal ones the first
    return values[:, :k], all_names.gather(1, places[:, :k])


def blocks(rows: np.ndarray) -> Iterator[Tensor]:
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield torch.from_numpy(np.array(rows[start : start + ROWS_AT_ONCE]))


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean, (n, m); in float64, where the quick formula loses nothing that matters."""
    return torch.cdist(a.double(), b.double())
