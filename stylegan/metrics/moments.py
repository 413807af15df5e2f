"""Means and covariances of features, of any number of images in constant memory."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from stylegan import distributed


class Moments:
    """Of rows of features that arrive in batches; exact in float64 whatever their number."""

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
        """Of the rows of all processes; equal in each of them."""
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
    """Of the rows of all parts; at least one has some."""
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
    """Between two Gaussians: |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)).

    Dowson and Landau 1982; Heusel et al. 2017, equation 6. The trace of the root is the sum of the
    singular values of R1^T R2, where C = R R^T: exact also where covariances are singular.
    """
    root1, root2 = _root(covariance1), _root(covariance2)
    overlap = np.linalg.svd(root1.T @ root2, compute_uv=False).sum()
    apart = mean1 - mean2
    return float(apart @ apart + np.trace(covariance1) + np.trace(covariance2) - 2 * overlap)


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)
    root: np.ndarray = vectors * np.sqrt(values.clip(min=0))
    return root
