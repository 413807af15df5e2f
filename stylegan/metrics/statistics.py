"""Statistics of features: moments, distances, neighbors. Rows are read in blocks."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

CHUNK_ROWS = 1024  # per block, on either side of a matrix of distances
NEIGHBORHOOD = 3  # the k of precision and recall, as in the paper
MIN_FOR_NEIGHBORHOODS = 100  # samples, and reals: with 50, draws differ by 0.2, docs/metrics.md
GROUPS = 10  # of samples, each of which the jackknife leaves out once
STUDENT = 2.262  # 97.5 % quantile of Student's t with GROUPS - 1 degrees of freedom


class Moments(NamedTuple):
    """Moments of feature rows, as float64 sums about one of them."""

    number: int
    shift: Tensor  # a row, subtracted from all so that sums lose no digits
    sum: Tensor
    products: Tensor

    def gaussian(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (dim,) and unbiased covariance (dim, dim) of at least 2 rows."""
        mean = self.shift + self.sum / self.number
        centered = self.products - torch.outer(self.sum, self.sum) / self.number
        return mean.numpy(), (centered / (self.number - 1)).numpy()


def moments_of(rows: np.ndarray, at_once: int = CHUNK_ROWS) -> Moments:
    """Moments of rows (n, dim), n > 0, read `at_once` at a time."""
    shift = torch.from_numpy(np.array(rows[0])).double()
    total = torch.zeros_like(shift)
    products = shift.new_zeros(len(shift), len(shift))
    for block in blocks(rows, at_once):
        centered = block.double() - shift
        total += centered.sum(dim=0)
        products += centered.T @ centered
    return Moments(len(rows), shift, total, products)


def pooled(parts: Sequence[Moments]) -> Moments:
    number, shift, total, products = parts[0]
    for part in parts[1:]:
        by = part.shift - shift  # moves the sums of `part` to the common shift
        cross = torch.outer(part.sum, by)
        number += part.number
        total = total + (part.sum + part.number * by)
        products = products + (part.products + cross + cross.T + part.number * by.outer(by))
    return Moments(number, shift, total, products)


def frechet_distance(
    mean1: np.ndarray, covariance1: np.ndarray, mean2: np.ndarray, covariance2: np.ndarray
) -> float:
    """Frechet distance of two Gaussians: |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)).

    Dowson and Landau 1982; Heusel et al. 2017, equation 6. The trace of the root is the sum of the
    singular values of R1^T R2, where C = R R^T, which is exact for singular covariances, too.
    """
    overlap = np.linalg.svd(root(covariance1).T @ root(covariance2), compute_uv=False).sum()
    apart = mean1 - mean2
    return float(apart @ apart + np.trace(covariance1) + np.trace(covariance2) - 2 * overlap)


def root(covariance: np.ndarray) -> np.ndarray:
    """R with R R^T = C."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(values.clip(min=0))


def interval_95(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """95 % interval by the delete-a-group jackknife, given the estimate on all samples, then
    without each group. Reals are fixed, and bias from the number of images is ignored."""
    value, *without = map(float, values)
    reach = STUDENT * float(np.sqrt((GROUPS - 1) * np.var(without)))
    return value - reach, value + reach


def frechet_estimates(fakes: np.ndarray, reals: np.ndarray) -> list[float]:
    """Frechet distance of features (n, dim) and (m, dim), n at least 2 * GROUPS; then without each
    group of fakes."""
    if len(fakes) + len(reals) < fakes.shape[1]:  # project onto the subspace that they span
        basis = np.linalg.qr(np.concatenate([fakes, reals]).astype(np.float64).T).Q
        fakes = fakes @ basis
        reals = reals @ basis
    groups = [moments_of(fakes[i::GROUPS]) for i in range(GROUPS)]
    mean, covariance = moments_of(reals).gaussian()
    real_root = root(covariance)

    def distance(parts: Sequence[Moments]) -> float:
        """`frechet_distance` to about eight digits, in a fifth of the time."""
        center, spread = pooled(parts).gaussian()
        squares = np.linalg.eigvalsh(real_root.T @ spread @ real_root).clip(min=0)
        traces = np.trace(spread) + np.trace(covariance) - 2 * np.sqrt(squares).sum()
        return float((center - mean) @ (center - mean) + traces)

    without = [distance(groups[:i] + groups[i + 1 :]) for i in range(GROUPS)]
    return [distance(groups), *without]


def kernel_estimates(fakes: np.ndarray, reals: np.ndarray) -> list[float]:
    """Kernel distance of features (n, dim) and (m, dim): the unbiased squared maximum mean
    discrepancy with k(a, b) = (a.b / dim + 1)^3, over all pairs; then without each group of fakes.
    Binkowski et al. 2018."""
    n = len(fakes)
    m = len(reals)
    member = torch.eye(GROUPS, dtype=torch.float64).repeat(-(-n // GROUPS), 1)[:n]
    every = torch.ones(m, 1, dtype=torch.float64)
    ours = member.T @ kernel_sums(fakes, fakes, member)
    itself = kernel_diagonal(fakes)
    across = member.T @ kernel_sums(fakes, reals, every)
    theirs = kernel_sums(reals, reals, every).sum()
    real = (theirs - kernel_diagonal(reals).sum()) / (m * (m - 1))
    # row 0 keeps all groups, row i leaves out group i
    without = 1 - torch.eye(GROUPS + 1, dtype=torch.float64)[:, 1:]
    number = without @ member.sum(dim=0)
    pairs = ((without @ ours) * without).sum(dim=1) - without @ (member.T @ itself)
    values = pairs / (number * (number - 1)) + real - 2 * (without @ across[:, 0]) / (number * m)
    return values.tolist()


def kernel_sums(a: np.ndarray, b: np.ndarray, member: Tensor) -> Tensor:
    """Sums (n, groups) of k(a_i, b_j) over the j of each group, given by `member` (m, groups)."""
    sums = torch.zeros(len(a), member.shape[1], dtype=torch.float64)
    for block, of_some in zip(blocks(a), sums.split(CHUNK_ROWS), strict=True):
        for others, of_group in zip(blocks(b), member.split(CHUNK_ROWS), strict=True):
            of_some += kernel(block.double() @ others.double().T, a.shape[1]) @ of_group
    return sums


def kernel_diagonal(rows: np.ndarray) -> Tensor:
    squares = torch.cat([block.double().square().sum(dim=1) for block in blocks(rows)])
    return kernel(squares, rows.shape[1])


def kernel(products: Tensor, dim: int) -> Tensor:
    return (products / dim + 1) ** 3


def fraction_in_manifold(
    points: np.ndarray, centers: np.ndarray, device: torch.device | str = "cpu"
) -> float:
    """Fraction of points (n, dim) that lie in the ball of a center (m, dim) whose radius is the
    distance to its k-th nearest other center: precision for fakes among reals, recall for reals
    among fakes. Kynkaanniemi et al. 2019, equations 1 and 2. The `device` must have float64."""
    every = torch.from_numpy(np.array(centers)).to(device)
    rank = NEIGHBORHOOD + 1  # the nearest center is the center itself
    radii = [distances(block.to(device), every).kthvalue(rank).values for block in blocks(centers)]
    radius = torch.cat(radii)
    inside = [(distances(block.to(device), every) <= radius).any(dim=1) for block in blocks(points)]
    return int(torch.cat(inside).sum()) / len(points)


def blocks(rows: np.ndarray, at_once: int = CHUNK_ROWS) -> Iterator[Tensor]:
    for start in range(0, len(rows), at_once):
        yield torch.from_numpy(np.array(rows[start : start + at_once]))


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances (n, m), in float64: in float32 the fast formula would be too inexact."""
    return torch.cdist(a.double(), b.double())
