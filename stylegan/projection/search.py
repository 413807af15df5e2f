"""The search: Adam on styles, and optionally on noise, toward a picture.

As Karras et al. describe it for StyleGAN2 (arXiv 1912.04958, appendix D): from the average w, with
noise on w that vanishes, a rate that rises and falls, and maps of noise that are kept white.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from stylegan import sampling, streams
from stylegan.machine.plain import AtLeast0, Count, Positive, checked
from stylegan.networks import Generator, NetworkConfig
from stylegan.networks.config import check_labels
from stylegan.ops import downsample
from stylegan.projection.distance import Distance
from stylegan.schedule import check_resolution

Space = Literal["w", "w+"]
START_PSI = 0.5  # of the way from the average, where the other starts are
CHUNK = 1000  # latents that are mapped at once
COARSEST = 8  # pixels a side, where the pyramid of a map of noise ends


@checked
@dataclass(frozen=True)
class SearchOptions:
    """Options of the search; the defaults are the paper's. Times are parts of all steps."""

    steps: Count = 1000
    space: Space = "w"  # one w for all layers, or one for each
    fit_noise: bool = False  # else the stored maps are used
    learning_rate: Positive = 0.1  # at most
    rise: Positive = 0.05  # time in which the rate rises from 0
    fall: Positive = 0.25  # time at the end in which it falls to 0
    search_noise: AtLeast0 = 0.05  # on w, at first, in units of the spread of w
    search_time: Positive = 0.75  # when it is 0
    noise_weight: AtLeast0 = 1e5  # of the autocorrelation penalty of the maps
    samples: Count = 10_000  # of w, for its average and spread

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step: a linear rise, a plateau, half a cosine down."""
        time = step / self.steps
        falling = 0.5 - 0.5 * math.cos(math.pi * min((1 - time) / self.fall, 1))
        return self.learning_rate * falling * min(time / self.rise, 1)

    def search_noise_at(self, step: int) -> float:
        """Return the deviation of the noise on w at a step, in units of the spread of w."""
        return self.search_noise * max(1 - step / self.steps / self.search_time, 0) ** 2


class SearchState(NamedTuple):
    """The search for N pictures after `step` updates."""

    step: int
    ws: Tensor  # (N, num_styles, w_dim), not truncated
    noise: list[Tensor] | None  # fitted maps (N, 1, r, r), None: the stored ones
    images: Tensor  # (N, C, r, r), made of `ws` with the noise of the search, at the end without
    distances: Tensor  # (N,) from the images to the targets


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
    """Search the latents of which `generator` makes `targets` (N, C, r, r) in [-1, 1].

    Yields the state before the first update and after each; the last one is the result. All that
    is random comes from `seed`, the same for each picture, so that none depends on the others but
    by the last bit of arithmetic. `labels` (1, label_dim) are the class that w is averaged over.
    Start 0 is the average, any other one half way from there to a random w. The generator stays
    as it is. ValueError at the first distance that is not finite.
    """
    options = options or SearchOptions()
    config = generator.config
    check_noise(options, config)
    check_labels(labels, config.label_dim, 1)
    full = config.resolution
    styles = config.num_styles()
    size = check_resolution(full if resolution is None else resolution, full)
    shape = (config.image_channels, size, size)
    if targets.ndim != 4 or len(targets) == 0 or targets.shape[1:] != shape:
        expected = f"(N, {', '.join(map(str, shape))})"
        raise ValueError(f"targets must be {expected}, not {tuple(targets.shape)}")
    targets = targets.to(generator.w_avg)
    rng = torch.Generator().manual_seed(seed)
    average, spread = spread_of_w(generator, options.samples, rng, labels)
    first = start_of(generator, average, labels, seed=seed, start=start)
    w = first.repeat(len(targets), styles if options.space == "w+" else 1, 1)
    maps = first_maps(generator, len(targets), size) if options.fit_noise else []
    fitted = [tensor.requires_grad_() for tensor in (w, *maps)]
    optimizer = torch.optim.Adam(fitted)
    synthesis = copy.deepcopy(generator.synthesis).requires_grad_(False)
    for step in range(options.steps + 1):
        deviation = options.search_noise_at(step) * spread
        offset = deviation * torch.randn(w.shape[1:], generator=rng).to(w)
        with torch.enable_grad(), sampling.repeatable():
            ws = (w + offset).expand(-1, styles, -1)
            images = synthesis(ws, resolution=size, alpha=alpha, noise=maps or "const")
            distances = distance(images, targets)
        check_finite(distances, "the search", step, "less noise on w (--search-noise)")
        reached = w.detach().expand(-1, styles, -1).clone()
        noise = [noise_map.detach().clone() for noise_map in maps] or None
        yield SearchState(step, reached, noise, images.detach(), distances.detach())
        if step == options.steps:
            return
        with torch.enable_grad(), sampling.repeatable():
            loss = distances.sum()  # not a mean: no picture's gradient depends on the others
            for noise_map in maps:
                loss = loss + options.noise_weight * autocorrelation_penalty(noise_map).sum()
            gradients = torch.autograd.grad(loss, fitted)
        for tensor, gradient in zip(fitted, gradients, strict=True):
            tensor.grad = gradient
        optimizer.param_groups[0]["lr"] = options.rate_at(step)
        optimizer.step()
        for noise_map in maps:
            normalize_(noise_map)


def start_of(
    generator: Generator, average: Tensor, labels: Tensor | None, *, seed: int, start: int
) -> Tensor:
    """Return the w (w_dim,) to begin at: the average, or half way from there to a random one."""
    if start == 0:
        return average
    z = torch.randn(1, generator.config.z_dim, generator=streams.start(seed, start))
    return average.lerp(sampling.mapped(generator, z, labels)[0], START_PSI)


def first_maps(generator: Generator, n: int, resolution: int) -> list[Tensor]:
    """Return the stored maps of noise, normalized: (n, 1, r, r) for each layer."""
    stored = generator.synthesis.noise_maps(n, resolution, "const")
    return [normalize_(m.detach().repeat(n, 1, 1, 1)) for m in stored if m is not None]


def check_noise(options: SearchOptions, config: NetworkConfig) -> None:
    """Raise ValueError if the network lacks the noise to fit."""
    if options.fit_noise and not config.noise:
        raise ValueError("this network has no noise inputs, so there is no noise to fit")


def check_finite(distances: Tensor, activity: str, step: int, advice: str) -> None:
    """Raise ValueError if a distance is not finite: the search cannot recover."""
    if not torch.isfinite(distances).all():
        raise ValueError(
            f"{activity} failed: after {step} steps the distances are {distances.tolist()}; choose "
            f"{advice}, and see whether the generator makes pictures at all"
        )


def spread_of_w(
    generator: Generator, samples: int, rng: torch.Generator, labels: Tensor | None = None
) -> tuple[Tensor, float]:
    """Average of w (w_dim,) of latents of a class (1, label_dim), and RMS distance from it."""
    chunks = [min(CHUNK, samples - start) for start in range(0, samples, CHUNK)]
    z = (torch.randn(n, generator.config.z_dim, generator=rng) for n in chunks)
    w = torch.cat([sampling.mapped(generator, latents, labels) for latents in z])
    mean = w.mean(dim=0)
    return mean, float((w - mean).square().sum(dim=1).mean().sqrt())


def autocorrelation_penalty(noise_map: Tensor) -> Tensor:
    """Measure the distance of each map (N, 1, r, r) from white noise: (N,), 0 at best.

    The squared correlation of neighbors in each direction, the borders joined, summed over the map
    and its pyramid of 2x2 averages down to 8x8, times 2 each so that their variance stays 1.
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
    """Give each map (N, 1, r, r) mean 0 and variance 1, in place; one of 0 stays."""
    noise_map -= noise_map.mean(dim=(1, 2, 3), keepdim=True)
    variance = noise_map.square().mean(dim=(1, 2, 3), keepdim=True)
    noise_map *= variance.clamp(min=torch.finfo(variance.dtype).tiny).rsqrt()
    return noise_map
