"""Search for an image: Adam on styles, and optionally on noise maps.

As in StyleGAN2 (Karras et al., arXiv 1912.04958, appendix D): it starts at the average w, with
decaying noise on w, a learning rate that rises and falls, and noise maps that are kept white.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from stylegan import sampling, streams
from stylegan.networks import Generator, NetworkConfig
from stylegan.networks.config import check_labels
from stylegan.ops import downsample
from stylegan.projection.distance import Distance
from stylegan.schedule import check_resolution
from stylegan.utils.validation import NonNegativeFloat, PositiveFloat, PositiveInt, validated

Space = Literal["w", "w+"]
START_PSI = 0.5  # truncation of the random w at which starts from 1 on begin
COARSEST = 8  # pixels per side of the smallest level of a noise map's pyramid


@validated
@dataclass(frozen=True)
class SearchOptions:
    """Options of the search; the defaults are the paper's. Times are fractions of all steps."""

    steps: PositiveInt = 1000
    space: Space = "w"  # w = one for all layers, w+ = one per layer
    fit_noise: bool = False  # false = use the stored noise maps
    learning_rate: PositiveFloat = 0.1  # the maximum
    rise: PositiveFloat = 0.05  # time in which the learning rate rises from 0
    fall: PositiveFloat = 0.25  # time at the end in which the learning rate falls to 0
    search_noise: NonNegativeFloat = 0.05  # initial noise on w, in units of the spread of w
    search_time: PositiveFloat = 0.75  # time at which the noise on w has decayed to 0
    noise_weight: NonNegativeFloat = 1e5  # of the autocorrelation penalty of noise maps
    samples: PositiveInt = 10_000  # number of w for their average and spread

    def rate_at(self, step: int) -> float:
        """Learning rate of a step: a linear rise, a plateau, half a cosine down."""
        time = step / self.steps
        falling = 0.5 - 0.5 * math.cos(math.pi * min((1 - time) / self.fall, 1))
        return self.learning_rate * falling * min(time / self.rise, 1)

    def search_noise_at(self, step: int) -> float:
        """Standard deviation of the noise on w at a step, in units of the spread of w."""
        return self.search_noise * max(1 - step / self.steps / self.search_time, 0) ** 2


class SearchState(NamedTuple):
    """The search for N images after `step` updates."""

    step: int
    ws: Tensor  # (N, num_ws, w_dim), not truncated
    noise: list[Tensor] | None  # fitted maps (N, 1, r, r), None = the stored ones
    images: Tensor  # (N, C, r, r), from `ws` with the noise of the search, which is 0 at the end
    distances: Tensor  # (N,), from the images to the targets


def project(
    generator: Generator,
    targets: Tensor,
    distance: Distance,
    options: SearchOptions | None = None,
    *,
    labels: Tensor | None = None,
    resolution: int | None = None,
    alpha: float = 1.0,
    seed: int = 0,
    start: int = 0,
) -> Iterator[SearchState]:
    """Search for latents from which `generator` synthesizes `targets` (N, C, r, r) in [-1, 1].

    labels: (1, label_dim), the class over which w is averaged.
    seed: of all random numbers, which are the same for each target; so targets in one batch affect
        each other by round-off only.
    start: 0 begins at the average w, any other number half way from it to a random w.

    Yields the state before the first update and after each; the last one is the result. The
    generator is not changed. Raises ValueError as soon as a distance is not finite.
    """
    options = options or SearchOptions()
    config = generator.config
    check_noise(options, config)
    check_labels(labels, config.label_dim, 1)
    full = config.resolution
    styles = config.num_ws()
    size = check_resolution(full if resolution is None else resolution, full)
    shape = (config.image_channels, size, size)
    if targets.ndim != 4 or len(targets) == 0 or targets.shape[1:] != shape:
        expected = f"(N, {', '.join(map(str, shape))})"
        raise ValueError(f"targets must be {expected}, got {tuple(targets.shape)}")
    targets = targets.to(generator.w_avg)
    rng = torch.Generator().manual_seed(seed)
    average, spread = spread_of_w(generator, options.samples, labels)
    first = average
    if start:
        z = torch.randn(1, config.z_dim, generator=streams.projection_start_rng(seed, start))
        first = average.lerp(sampling.map_latents(generator, z, labels)[0], START_PSI)
    w = first.repeat(len(targets), styles if options.space == "w+" else 1, 1)
    maps = first_maps(generator, len(targets), size) if options.fit_noise else []
    fitted = [tensor.requires_grad_() for tensor in (w, *maps)]
    optimizer = torch.optim.Adam(fitted)
    synthesis = copy.deepcopy(generator.synthesis).requires_grad_(False)
    for step in range(options.steps + 1):
        deviation = options.search_noise_at(step) * spread
        offset = deviation * torch.randn(w.shape[1:], generator=rng).to(w)
        with torch.enable_grad(), sampling.deterministic_fp32():
            ws = (w + offset).expand(-1, styles, -1)
            images = synthesis(ws, resolution=size, alpha=alpha, noise=maps or "const")
            distances = distance(images, targets)
        check_finite(distances, "the search", step, "less noise on w (--search-noise)")
        reached = w.detach().expand(-1, styles, -1).clone()
        noise = [noise_map.detach().clone() for noise_map in maps] or None
        yield SearchState(step, reached, noise, images.detach(), distances.detach())
        if step == options.steps:
            return
        with torch.enable_grad(), sampling.deterministic_fp32():
            loss = distances.sum()  # unlike a mean, its gradients do not depend on the batch size
            for noise_map in maps:
                loss = loss + options.noise_weight * autocorrelation_penalty(noise_map).sum()
            gradients = torch.autograd.grad(loss, fitted)
        for tensor, gradient in zip(fitted, gradients, strict=True):
            tensor.grad = gradient
        optimizer.param_groups[0]["lr"] = options.rate_at(step)
        optimizer.step()
        for noise_map in maps:
            normalize_(noise_map)


def first_maps(generator: Generator, n: int, resolution: int) -> list[Tensor]:
    """The stored noise maps, normalized: (n, 1, r, r) for each layer."""
    stored = generator.synthesis.noise_maps(n, resolution, "const")
    return [normalize_(m.detach().repeat(n, 1, 1, 1)) for m in stored if m is not None]


def check_noise(options: SearchOptions, config: NetworkConfig) -> None:
    """Raise ValueError if noise is to be fitted to a network without any."""
    if options.fit_noise and not config.noise:
        raise ValueError("fit_noise needs a network with noise inputs; this one has none")


def check_finite(distances: Tensor, activity: str, step: int, advice: str) -> None:
    """Raise ValueError if a distance is not finite: an optimization cannot recover from that."""
    if not torch.isfinite(distances).all():
        raise ValueError(
            f"{activity} failed: distances after {step} steps must be finite, got "
            f"{distances.tolist()}; choose {advice}, and check the generator's samples"
        )


def spread_of_w(
    generator: Generator, samples: int, labels: Tensor | None = None
) -> tuple[Tensor, float]:
    """Average w (w_dim,) of a class `labels` (1, label_dim), and the RMS distance from it."""
    w = sampling.sample_w(generator, samples, labels)
    mean = w.mean(dim=0)
    return mean, float((w - mean).square().sum(dim=1).mean().sqrt())


def autocorrelation_penalty(noise_map: Tensor) -> Tensor:
    """How far each noise map (N, 1, r, r) is from white noise -> (N,), 0 at best.

    The squared correlation of neighbors along each axis, with borders joined, summed over a pyramid
    of 2x2 averages down to 8x8, each multiplied by 2 to keep its variance at 1.
    """
    penalty = noise_map.new_zeros(len(noise_map))
    while True:
        for dim in (2, 3):
            products = noise_map * noise_map.roll(1, dim)
            penalty = penalty + products.mean(dim=(1, 2, 3)).square()
        if noise_map.shape[2] <= COARSEST:
            return penalty
        noise_map = 2 * downsample(noise_map)


@torch.no_grad()
def normalize_(noise_map: Tensor) -> Tensor:
    """Give each noise map (N, 1, r, r) mean 0 and variance 1, in place; a map of 0 stays."""
    noise_map -= noise_map.mean(dim=(1, 2, 3), keepdim=True)
    variance = noise_map.square().mean(dim=(1, 2, 3), keepdim=True)
    noise_map *= variance.clamp(min=torch.finfo(variance.dtype).tiny).rsqrt()
    return noise_map
