"""Pivotal tuning: retrains a generator to match given pictures, and keeps others as they were.

Roich et al. 2021, arXiv 2106.05744. The latents found by a projection stay, the pivots; the weights
of the synthesis network move.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan import sampling, streams
from stylegan.machine.plain import AtLeast0, Count, Positive, checked
from stylegan.networks import Generator, Noise
from stylegan.networks.config import check_labels
from stylegan.projection.distance import Distance
from stylegan.projection.search import check_finite, spread_of_w

SAMPLES = 10_000  # of w, for its spread


@checked
@dataclass(frozen=True)
class TuningOptions:
    """Options of tuning; the defaults are the paper's, except the unit of `locality_radius`."""

    steps: Count = 350
    learning_rate: Positive = 3e-4
    pixel_weight: AtLeast0 = 1.0  # of the mean squared difference, beside the distance
    locality: AtLeast0 = 0.1  # weight of what keeps other pictures as they were
    locality_radius: Positive = 1.0  # from the pivot to those, in units of the spread of w


class TuningState(NamedTuple):
    """The tuning to N pictures after `step` updates."""

    step: int
    generator: Generator  # the same at each step; its weights move
    distances: Tensor  # (N,) from its images of the pivots to the targets
    locality: Tensor  # (N,) unweighted loss of other pictures; 0 if its weight is 0


def tune(
    generator: Generator,
    targets: Tensor,
    ws: Tensor,
    distance: Distance,
    options: TuningOptions | None = None,
    *,
    noise: Sequence[Tensor] | None = None,
    labels: Tensor | None = None,
    resolution: int | None = None,
    alpha: float = 1.0,
    batch: int | None = None,
    seed: int = 0,
) -> Iterator[TuningState]:
    """Train a copy of `generator` until it makes `targets` (N, C, r, r) of the pivots `ws`
    (N, num_styles, w_dim) with the maps `noise` ((N, 1, r, r) each; None: the stored ones).

    Yields the state before the first update and after each; the last one's generator is the result.
    A step takes all pictures, `batch` at a time, which changes only round-off. Beside each pivot it
    compares copy and original at a w that lies `locality_radius` from it, toward a random one (of
    the class `labels` (1, label_dim)). ValueError at the first distance that is not finite.
    """
    options = options or TuningOptions()
    config = generator.config
    check_labels(labels, config.label_dim, 1)
    shape = (len(targets), config.num_styles(), config.w_dim)
    if not len(targets) or ws.shape != shape:
        raise ValueError(f"pivots must be {shape} for as many targets, not {tuple(ws.shape)}")
    average = generator.w_avg
    n = len(targets)
    targets = targets.to(average)
    ws = ws.detach().to(average)
    maps = None if noise is None else [m.detach().to(average) for m in noise]
    rng = streams.tuning(seed)
    radius = options.locality_radius * spread_of_w(generator, SAMPLES, rng, labels)[1]
    tuned = copy.deepcopy(generator).requires_grad_(False)
    tuned.synthesis.requires_grad_(True)
    optimizer = torch.optim.Adam(tuned.synthesis.parameters(), lr=options.learning_rate)
    look = sampling.Look(config.resolution if resolution is None else resolution, alpha)

    def fit(ws: Tensor, noise: Noise, others: Tensor, weight: float) -> tuple[Tensor, Tensor]:
        """Return the distances of images from `others` (N, C, r, r), and their losses, (N,) both.
        Go backward by the weighted sum of these at once, so that one graph is in memory."""
        images = look.images(tuned, ws, noise)
        far = distance(images, others)
        losses = far + options.pixel_weight * (images - others).square().mean(dim=(1, 2, 3))
        if losses.requires_grad:
            (weight * losses.sum()).backward()
        return far.detach(), losses.detach()

    for step in range(options.steps + 1):
        z = torch.randn(n, config.z_dim, generator=rng)
        near = toward(ws, sampling.mapped(generator, z, labels), radius)
        optimizer.zero_grad()
        distances, locality = torch.zeros(2, n).to(average)
        for rows in torch.arange(n).split(batch or n):
            with torch.set_grad_enabled(step < options.steps), sampling.repeatable():
                noise_of_rows = maps and [m[rows] if len(m) > 1 else m for m in maps]
                distances[rows], _ = fit(ws[rows], noise_of_rows or "const", targets[rows], 1 / n)
                if options.locality:
                    with torch.no_grad():
                        before = look.images(generator, near[rows], "const")
                    _, locality[rows] = fit(near[rows], "const", before, options.locality / n)
        check_finite(torch.cat([distances, locality]), "tuning", step, "a smaller --locality")
        if step == options.steps:
            tuned.requires_grad_(True).zero_grad()
        yield TuningState(step, tuned, distances, locality)
        if step < options.steps:
            optimizer.step()


def toward(ws: Tensor, w: Tensor, radius: float) -> Tensor:
    """Return styles at that distance from ws (N, num_styles, w_dim), toward w (N, w_dim)."""
    return ws + radius * F.normalize(w[:, None] - ws, dim=2)
