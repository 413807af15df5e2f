"""Statistics of features: moments, distances, neighbours; rows are read in blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

ROWS_AT_ONCE = 1024  # of either side of a table of distances
NEIGHBORHOOD = 3  # the k of precision and recall, as in the paper
LEAST_FOR_NEIGHBORHOODS = 100  # images of each sort: among 50 draws differ by 0.2, docs/metrics.md
GROUPS = 10  # of samples; an interval leaves out each group once
STUDENT = 2.262  # 97.5 % quantile of Student's t with GROUPS - 1 degrees of freedom


@dataclass
class Moments:
    """Count, mean and covariance of feature rows, as float64 sums about their first row."""

    count: int
    shift: Tensor  # the first row: sums about it lose no digits
    sum: Tensor
    products: Tensor

    def mean(self) -> np.ndarray:
        """(dim,)."""
        mean: np.ndarray = (self.shift + self.sum / self.count).numpy()
        return mean

    def covariance(self) -> np.ndarray:
        """(dim, dim), unbiased; of at least 2 rows."""
        centered = self.products - torch.outer(self.sum, self.sum) / self.count
        covariance: np.ndarray = (centered / (self.count - 1)).numpy()
        return covariance


def moments_of(rows: np.ndarray, at_once: int = ROWS_AT_ONCE) -> Moments:
    """Moments of rows (n, dim), n > 0, read in blocks."""
    dim = rows.shape[1]
    shift = torch.from_numpy(np.array(rows[0])).double()
    total = torch.zeros(dim, dtype=torch.float64)
    products = torch.zeros(dim, dim, dtype=torch.float64)
    for some in blocks(rows, at_once):
        centered = some.double() - shift
        total += centered.sum(dim=0)
        products += centered.T @ centered
    return Moments(len(rows), shift, total, products)


def pooled(parts: Sequence[Moments]) -> Moments:
    """Moments of the rows of all parts."""
    first = parts[0]
    count, total, products = first.count, first.sum.clone(), first.products.clone()
    for part in parts[1:]:
        by = part.shift - first.shift  # moves the part's sums to the common shift
        count += part.count
        cross = torch.outer(part.sum, by)
        products += part.products + cross + cross.T + part.count * torch.outer(by, by)
        total += part.sum + part.count * by
    return Moments(count, first.shift, total, products)


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
    """A number and its 95 % interval over samples, with fixed reals. It does not contain the bias
    that depends on the number of images."""

    value: float
    interval: tuple[float, float]


def estimate(value: float, without: Sequence[float] | np.ndarray) -> Estimate:
    """The delete-a-group jackknife: `without` has the value without each group of samples."""
    reach = STUDENT * np.sqrt((GROUPS - 1) * np.var(without))
    return Estimate(value, (float(value - reach), float(value + reach)))


def frechet_estimate(fakes: np.ndarray, reals: np.ndarray) -> Estimate:
    """Frechet distance of features (n, dim) and (m, dim), n at least 2 * GROUPS."""
    if len(fakes) + len(reals) < fakes.shape[1]:  # work in the subspace that they span
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


def kernel_estimate(fakes: np.ndarray, reals: np.ndarray) -> Estimate:
    """Kernel distance of features (n, dim) and (m, dim): the unbiased squared maximum mean
    discrepancy with k(a, b) = (a.b / dim + 1)^3. Binkowski et al. 2018. It uses all pairs of
    images; the usual mean over subsets estimates the same."""
    n, m = len(fakes), len(reals)
    member = torch.eye(GROUPS, dtype=torch.float64).repeat(-(-n // GROUPS), 1)[:n]
    ours, itself = member.T @ kernel_sums(fakes, fakes, member), kernel_diagonal(fakes)
    across = member.T @ kernel_sums(fakes, reals, torch.ones(m, 1, dtype=torch.float64))
    theirs = kernel_sums(reals, reals, torch.ones(m, 1, dtype=torch.float64)).sum()
    real = (theirs - kernel_diagonal(reals).sum()) / (m * (m - 1))
    # row 0 keeps all groups, row i leaves out group i
    kept = 1 - torch.eye(GROUPS + 1, dtype=torch.float64)[:, 1:]
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
    """Precision and recall of features (n, dim) and (m, dim).
    Kynkaanniemi et al. 2019, equations 1 and 2.

    Precision is the share of fakes that lie within a real's ball, whose radius is the distance to
    its k-th nearest other real; recall is the share of reals within a fake's ball.
    """
    return fraction_within(fakes, reals, k), fraction_within(reals, fakes, k)


def fraction_within(points: np.ndarray, centers: np.ndarray, k: int) -> float:
    """Share of the points that lie in the ball of a center."""
    all_centers = torch.from_numpy(np.array(centers))
    radii = [distances(some, all_centers).kthvalue(k + 1).values for some in blocks(centers)]
    radius = torch.cat(radii)  # a center is its own nearest one, so its k-th other is number k + 1
    inside = [(distances(some, all_centers) <= radius).any(dim=1) for some in blocks(points)]
    return int(torch.cat(inside).sum()) / len(points)


def blocks(rows: np.ndarray, at_once: int = ROWS_AT_ONCE) -> Iterator[Tensor]:
    for start in range(0, len(rows), at_once):
        yield torch.from_numpy(np.array(rows[start : start + at_once]))


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean, (n, m); in float64, where the quick formula loses nothing that matters."""
    return torch.cdist(a.double(), b.double())
