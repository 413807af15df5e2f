"""Statistics of features: moments, distances, neighbours, in memory that images do not fill."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stylegan import distributed

ROWS_AT_ONCE = 1024  # of either side of a table of distances
NEIGHBORHOOD = 3  # the k of precision and recall, as in the paper
LEAST_FOR_NEIGHBORHOODS = 100  # images of each sort, as measured: docs/metrics.md
GROUPS = 10  # of samples, each of which is left out once for an interval
STUDENT = 2.262  # 97.5 % quantile of Student's t with GROUPS - 1 degrees of freedom


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


class Estimate(NamedTuple):
    """A number and its 95 % interval over samples; the reals stay. A bias that depends on how many
    images there are is not in it."""

    value: float
    interval: tuple[float, float]


def estimate(value: float, without: Sequence[float] | np.ndarray) -> Estimate:
    """From the value without each of GROUPS groups of samples: the delete-a-group jackknife."""
    reach = STUDENT * np.sqrt((GROUPS - 1) * np.var(without))
    return Estimate(value, (float(value - reach), float(value + reach)))


def frechet_estimate(fakes: np.ndarray, reals: np.ndarray) -> Estimate:
    """Frechet distance of features (n, dim) and (m, dim)."""
    if len(fakes) + len(reals) < fakes.shape[1]:  # what they span is smaller, and all that counts
        basis = np.linalg.qr(np.concatenate([fakes, reals]).astype(np.float64).T).Q
        fakes, reals = fakes @ basis, reals @ basis
    groups, real = [moments_of(fakes[i::GROUPS]) for i in range(GROUPS)], moments_of(reals)
    mean, covariance = real.mean(), real.covariance()
    real_root = root(covariance)

    def distance(parts: Sequence[Moments]) -> float:
        """As `frechet_distance`, to about eight digits and in a fifth of the time."""
        moments = pooled(parts)
        ours, apart = moments.covariance(), moments.mean() - mean
        squares = np.linalg.eigvalsh(real_root.T @ ours @ real_root).clip(min=0)
        traces = np.trace(ours) + np.trace(covariance) - 2 * np.sqrt(squares).sum()
        return float(apart @ apart + traces)

    without = [distance(groups[:i] + groups[i + 1 :]) for i in range(GROUPS)]
    return estimate(distance(groups), without)


def moments_of(rows: np.ndarray) -> Moments:
    moments = Moments(rows.shape[1])
    for some in blocks(rows):
        moments.add(some)
    return moments


def kernel_estimate(fakes: np.ndarray, reals: np.ndarray) -> Estimate:
    """Kernel distance of features (n, dim) and (m, dim): the unbiased squared maximum mean
    discrepancy with k(a, b) = (a.b / dim + 1)^3. Binkowski et al. 2018; of all pairs of images,
    which the usual mean over subsets estimates."""
    n, m = len(fakes), len(reals)
    member = torch.eye(GROUPS, dtype=torch.float64).repeat(-(-n // GROUPS), 1)[:n]
    ours, itself = member.T @ kernel_sums(fakes, fakes, member), kernel_diagonal(fakes)
    across = member.T @ kernel_sums(fakes, reals, torch.ones(m, 1, dtype=torch.float64))
    theirs = kernel_sums(reals, reals, torch.ones(m, 1, dtype=torch.float64)).sum()
    real = (theirs - kernel_diagonal(reals).sum()) / (m * (m - 1))
    kept = 1 - torch.eye(GROUPS + 1, dtype=torch.float64)[:, 1:]  # all, and all but one
    number = kept @ member.sum(dim=0)
    pairs = ((kept @ ours) * kept).sum(dim=1) - kept @ (member.T @ itself)
    found = pairs / (number * (number - 1)) + real - 2 * (kept @ across[:, 0]) / (number * m)
    return estimate(float(found[0]), found[1:].numpy())


def kernel_sums(a: np.ndarray, b: np.ndarray, member: Tensor) -> Tensor:
    """(n, groups): sums of k(a_i, b_j) over the j of each group; `member` is (m, groups)."""
    rows = []
    for some in blocks(a):
        sums = torch.zeros(len(some), member.shape[1], dtype=torch.float64)
        for others, of_group in zip(blocks(b), member.split(ROWS_AT_ONCE), strict=True):
            sums += kernel(some.double() @ others.double().T, a.shape[1]) @ of_group
        rows.append(sums)
    return torch.cat(rows)


def kernel_diagonal(rows: np.ndarray) -> Tensor:
    squares = [some.double().square().sum(dim=1) for some in blocks(rows)]
    return kernel(torch.cat(squares), rows.shape[1])


def kernel(products: Tensor, dim: int) -> Tensor:
    return (products / dim + 1) ** 3


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
