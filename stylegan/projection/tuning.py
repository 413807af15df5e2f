"""Pivotal tuning: fine-tune a generator to match given images, while others change little.

Roich et al. 2021, arXiv 2106.05744. The latents found by a projection, the pivots, are fixed; the
weights of the synthesis network are trained.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan import sampling, streams
from stylegan.networks import Generator, Noise
from stylegan.networks.config import check_labels
from stylegan.projection.distance import Distance
from stylegan.projection.search import check_finite, spread_of_w
from stylegan.utils.validation import NonNegativeFloat, PositiveFloat, PositiveInt, validated

SAMPLES = 10_000  # number of w for their spread


@validated
@dataclass(frozen=True)
class TuningOptions:
    """Options of tuning; the defaults are the paper's, except the unit of `locality_radius`."""

    steps: PositiveInt = 350
    learning_rate: PositiveFloat = 3e-4
    pixel_weight: NonNegativeFloat = 1.0  # of the mean squared difference, added to the distance
    locality: NonNegativeFloat = 0.1  # weight of the loss that keeps other images
    # from the pivot to these images, in units of the spread of w
    locality_radius: PositiveFloat = 1.0


class TuningState(NamedTuple):
    """The tuning to N images after `step` updates."""

    step: int
    generator: Generator  # the same object at each step; its weights change
    distances: Tensor  # (N,), from its images of the pivots to the targets
    locality: Tensor  # (N,), unweighted loss of other images; 0 if its weight is 0


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
    """Train a copy of `generator` to synthesize `targets` (N, C, r, r) from the pivots `ws`.

    ws: (N, num_ws, w_dim), not truncated.
    noise: maps (N or 1, 1, r, r), None = the stored ones.
    labels: (1, label_dim), the class of the random w below.
    batch: targets at a time within a step, which affects round-off only.

    For each pivot, a step also compares the copy with the original at `locality_radius` from the
    pivot, toward a random w. Yields the state before the first update and after each; the generator
    of the last one is the result. Raises ValueError as soon as a distance is not finite.
    """
    options = options or TuningOptions()
    config = generator.config
    check_labels(labels, config.label_dim, 1)
    shape = (len(targets), config.num_ws(), config.w_dim)
    if not len(targets) or ws.shape != shape:
        raise ValueError(f"pivots must be {shape}, one per target, got {tuple(ws.shape)}")
    average = generator.w_avg
    n = len(targets)
    targets = targets.to(average)
    ws = ws.detach().to(average)
    maps = None if noise is None else [m.detach().to(average) for m in noise]
    rng = streams.tuning_rng(seed)
    radius = options.locality_radius * spread_of_w(generator, SAMPLES, labels)[1]
    tuned = copy.deepcopy(generator).requires_grad_(False)
    tuned.synthesis.requires_grad_(True)
    optimizer = torch.optim.Adam(tuned.synthesis.parameters(), lr=options.learning_rate)
    settings = sampling.SamplingSettings(
        config.resolution if resolution is None else resolution, alpha
    )

    def fit(ws: Tensor, noise: Noise, others: Tensor, weight: float) -> tuple[Tensor, Tensor]:
        """Distances (N,) of images from `others` (N, C, r, r), and their losses (N,).

        Their weighted sum is backpropagated here, so only one graph is in memory.
        """
        images = settings.synthesize(tuned, ws, noise)
        far = distance(images, others)
        losses = far + options.pixel_weight * (images - others).square().mean(dim=(1, 2, 3))
        if losses.requires_grad:
            (weight * losses.sum()).backward()
        return far.detach(), losses.detach()

    for step in range(options.steps + 1):
        z = torch.randn(n, config.z_dim, generator=rng)
        near = toward(ws, sampling.map_latents(generator, z, labels), radius)
        optimizer.zero_grad()
        distances, locality = torch.zeros(2, n).to(average)
        for rows in torch.arange(n).split(batch or n):
            with torch.set_grad_enabled(step < options.steps), sampling.deterministic_fp32():
                noise_of_rows = maps and [m[rows] if len(m) > 1 else m for m in maps]
                distances[rows], _ = fit(ws[rows], noise_of_rows or "const", targets[rows], 1 / n)
                if options.locality:
                    with torch.no_grad():
                        before = settings.synthesize(generator, near[rows], "const")
                    _, locality[rows] = fit(near[rows], "const", before, options.locality / n)
        check_finite(torch.cat([distances, locality]), "tuning", step, "a smaller --locality")
        if step == options.steps:
            tuned.requires_grad_(True).zero_grad()
        yield TuningState(step, tuned, distances, locality)
        if step < options.steps:
            optimizer.step()


def toward(ws: Tensor, w: Tensor, radius: float) -> Tensor:
    """Styles at distance `radius` from ws (N, num_ws, w_dim), toward w (N, w_dim)."""
    return ws + radius * F.normalize(w[:, None] - ws, dim=2)
