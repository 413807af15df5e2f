"""Paths through given points, as functions of a position t: point i is at t = i."""

from collections.abc import Callable

import torch
from torch import Tensor

Curve = Callable[[Tensor], Tensor]  # positions (n,) -> points (n, ...)


def slerp(a: Tensor, b: Tensor, t: Tensor) -> Tensor:
    """Unit vectors (n, d) at fractions t (n, 1) of the great circles from a to b (n, d)."""
    a, b = (v / v.norm(dim=1, keepdim=True) for v in (a, b))
    cosine = (a * b).sum(dim=1, keepdim=True)
    across = b - cosine * a
    length = across.norm(dim=1, keepdim=True)
    across = across / length.clamp_min(torch.finfo(across.dtype).tiny)  # of equal vectors: 0
    angle = t * cosine.clamp(-1, 1).acos()
    return a * angle.cos() + across * angle.sin()


def spherical(points: Tensor, *, closed: bool) -> Curve:
    """Path along great circles from each point (N, d) to the next; lengths change linearly.

    A `closed` path returns to the first point at t = N and repeats; else t is from 0 to N - 1.
    """
    points = points.double()

    def at(t: Tensor) -> Tensor:
        first, second, part = neighbors(t, len(points), closed=closed)
        a = points[first]
        b = points[second]
        part = part[:, None]
        lengths = torch.lerp(a.norm(dim=1, keepdim=True), b.norm(dim=1, keepdim=True), part)
        return lengths * slerp(a, b, part)

    return at


def spline(points: Tensor, *, closed: bool) -> Curve:
    """Cubic spline through the points (N, ...), `closed` as in `spherical`, else natural."""
    n = len(points)
    points = points.double()
    identity = torch.eye(n, dtype=torch.float64)
    if closed:
        matrix = 4 * identity + identity.roll(1, dims=0) + identity.roll(-1, dims=0)
        sums = points.roll(-1, dims=0) - points.roll(1, dims=0)
    else:
        matrix = 3 * identity + torch.ones_like(identity).tril(1).triu(-1)
        matrix[0, 0] = matrix[-1, -1] = 2
        padded = torch.cat([points[:1], points, points[-1:]])
        sums = padded[2:] - padded[:-2]
    slopes = torch.linalg.solve(matrix, 3 * sums.reshape(n, -1)).reshape(points.shape)

    def at(t: Tensor) -> Tensor:
        first, second, s = neighbors(t, n, closed=closed)
        s = s.reshape(-1, *[1] * (points.ndim - 1))
        ahead = (1 + 2 * s) * points[first] + s * slopes[first]
        behind = (3 - 2 * s) * points[second] - (1 - s) * slopes[second]
        return (1 - s) ** 2 * ahead + s**2 * behind

    return at


def neighbors(t: Tensor, n: int, *, closed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of the points around each position t (m,), and the fraction between them."""
    if n < 2:
        raise ValueError(f"a path needs at least 2 points, got {n}")
    t = t.double()
    if closed:
        t = t.remainder(n)
    first = t.floor().long().clamp_max(n - 1 if closed else n - 2)
    return first, (first + 1) % n, t - first


def frame_positions(frames: int, points: int, *, closed: bool) -> Tensor:
    """Evenly spaced positions, float64 (frames,); a closed path omits its end, the start."""
    steps = torch.arange(frames, dtype=torch.float64)
    return steps * points / frames if closed else steps * (points - 1) / max(frames - 1, 1)
