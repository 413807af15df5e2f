"""Statistics of features: moments, distances, neighbours, in memory that images do not fill."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from stylegan import distributed

ROWS_AT_ONCE = 1024  # of either side of a table of distances
NEIGHBORHOOD = 3  # the k of precision and recall, as in the paper


class Moments:
    """Mean and covariance of rows of features that arrive in batches; sums in float64."""

    def __init__(self, dim: int) -> None:
        self.count = 0
        self.shift: Tensor | None = None  # the first row: sums about it lose no digits
        self.sum = torch.zeros(dim, dtype=torch.float64)
        self.products = torch.zeros(dim, dim, dtype=torch.float64)

    def add(self, features: Tensor) -> None:
        """features (n, dim)."""
        rows = features.detach().to("cpu", torch.float64)
        if self.shift is None:
            self.shift = rows[0].clone()
        rows = rows - self.shift
        self.count += len(rows)
        self.sum += rows.sum(dim=0)
        self.products += rows.T @ rows

    def merged(self) -> "Moments":
        """Moments of the rows of all processes; equal in each of them."""
        return pooled(distributed.gather(self))

    def mean(self) -> np.ndarray:
        """(dim,)."""
        assert self.shift is not None
        mean: np.ndarray = (self.shift + self.sum / self.count).numpy()
        return mean

    def covariance(self) -> np.ndarray:
        """(dim, dim), unbiased."""
        if self.count < 2:
            raise ValueError(f"a covariance needs at least 2 images, not {self.count}")
        centered = self.products - torch.outer(self.sum, self.sum) / self.count
        covariance: np.ndarray = (centered / (self.count - 1)).numpy()
        return covariance


def pooled(parts: Iterable[Moments]) -> Moments:
    """Moments of the rows of all parts; at least one has some."""
    given = [part for part in parts if part.shift is not None]
    total = Moments(len(given[0].sum))
    for part in given:
        assert part.shift is not None
        if total.shift is None:
            total.shift = part.shift
        by = part.shift - total.shift  # moves the part's sums to the common shift
        total.count += part.count
        cross = torch.outer(part.sum, by)
        total.products += part.products + cross + cross.T + part.count * torch.outer(by, by)
        total.sum += part.sum + part.count * by
    return total


def frechet_distance(
    mean1: np.ndarray, covariance1: np.ndarray, mean2: np.ndarray, covariance2: np.ndarray
) -> float:
    """Distance of two Gaussians: |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)).

    Dowson and Landau 1982; Heusel et al. 2017, equation 6. The trace of the root is the sum of the
    singular values of R1^T R2, where C = R R^T: exact also where covariances are singular.
    """
    root1, root2 = root(covariance1), root(covariance2)
    overlap = np.linalg.svd(root1.T @ root2, compute_uv=False).sum()
    apart = mean1 - mean2
    return float(apart @ apart + np.trace(covariance1) + np.trace(covariance2) - 2 * overlap)


def root(covariance: np.ndarray) -> np.ndarray:
    """R with R R^T = C."""
    values, vectors = np.linalg.eigh(covariance)
    found: np.ndarray = vectors * np.sqrt(values.clip(min=0))
    return found


def frechet(a: Moments, b: Moments) -> float:
    return frechet_distance(a.mean(), a.covariance(), b.mean(), b.covariance())


def precision_recall(
    fakes: np.ndarray, reals: np.ndarray, k: int = NEIGHBORHOOD
) -> tuple[float, float]:
    """Both, of features (n, dim) and (m, dim). Kynkaanniemi et al. 2019, equations 1 and 2.

    Precision is the share of fakes that lie within a real's ball, as far as its k-th nearest other
    real; recall is the share of reals within a fake's ball.
    """
    if min(len(fakes), len(reals)) <= k:
        raise ValueError(
            f"precision and recall need more than {k} images of each sort, not {len(fakes)} "
            f"generated and {len(reals)} real ones"
        )
    return fraction_within(fakes, reals, k), fraction_within(reals, fakes, k)


def fraction_within(points: np.ndarray, centers: np.ndarray, k: int) -> float:
    """Share of the points that lie in the ball of a center."""
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
