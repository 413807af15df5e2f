"""Perceptual path length: how much images change along short steps in a latent space.

Karras et al. 2019, section 4.1, measured on whole images, as the official code does except for
faces, which it crops. There all images of a batch share noise maps, which are drawn again for each
batch; here both ends of a pair share noise drawn from the pair's seed. The expectation is the same.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from stylegan import streams
from stylegan.metrics.comparison import Comparison, GeneratorSamples
from stylegan.metrics.features import AVERAGED_DOWN, Scores, averaged_down
from stylegan.metrics.lpips import load_lpips
from stylegan.metrics.measurement import Measurement
from stylegan.sampling import deterministic_fp32, map_latents
from stylegan.sampling.curves import slerp
from stylegan.utils.distributed import all_gather, run_on_all_ranks

EPSILON = 1e-4  # length of a step, relative to the path between two latents
TRIM_PERCENT = 1  # of the lengths are dropped at either end
Distance = Callable[[Tensor, Tensor], Tensor]  # of images (n, C, r, r) from others -> (n,)


def path_length(m: Measurement, kind: str) -> Scores:
    """Measure ppl-z-full, ppl-w-full, ppl-z-end or ppl-w-end on `m.num` pairs of latents."""
    m.require_generator()
    lpips = m.once("lpips", lambda: load_lpips(m.tools.weights, m.device))
    protocol = {
        "pairs": m.num,
        **lpips.about(),
        "epsilon": EPSILON,
        "interpolation": "spherical in z, linear in w",
        "ends": "the same label and the same noise",
        "crop": "none; officially faces have one",
        "resize": AVERAGED_DOWN,
        "trim": f"lowest and highest {TRIM_PERCENT} %",
    }
    lengths = measured_lengths(m, kind, m.num, lpips.distance)
    return Scores({kind: trimmed_mean(lengths)}, protocol)


def measured_lengths(
    comparison: Comparison, kind: str, pairs: int, distance: Distance
) -> np.ndarray:
    """Distances (pairs,) between the ends of the steps, divided by EPSILON^2, in order of pairs."""
    samples = comparison.require_generator()
    _, space, where = kind.split("-")  # ppl, z or w, full or end

    def own_lengths() -> np.ndarray:
        lengths = [np.empty(0)]
        for indices in comparison.batches(pairs, kind):
            images, further = ends_of_steps(samples, indices, space, from_start=where == "end")
            of_pairs = distance(images, further) / EPSILON**2
            lengths.append(of_pairs.cpu().double().numpy())
        return np.concatenate(lengths)

    with torch.inference_mode(), deterministic_fp32():  # TF32 would round away a step of 1e-4
        return np.concatenate(all_gather(run_on_all_ranks(own_lengths, concurrent=True)))


def ends_of_steps(
    samples: GeneratorSamples, indices: range, space: str, *, from_start: bool
) -> list[Tensor]:
    """Images at random positions of the paths, or `from_start`, and images one step further on.

    Positions are interpolated in float64: in float32 the step would be off by 0.1 %. Vectors in z
    have length sqrt(z_dim), as latents do. The official code uses length 1, next to which a label
    would weigh too much.
    """
    generator = samples.generator
    labels = samples.labels(indices)
    z0, z1, t = latent_pairs(samples, indices)
    t = torch.zeros_like(t) if from_start else t
    places = (t, t + EPSILON)
    if space == "z":
        zs = [slerp(z0, z1, place) * math.sqrt(z0.shape[1]) for place in places]
        ws = [map_latents(generator, z, labels) for z in zs]
    else:
        w0, w1 = (map_latents(generator, z, labels).cpu().double() for z in (z0, z1))
        ws = [torch.lerp(w0, w1, place).to(generator.w_avg) for place in places]
    noise = samples.noise_maps(indices)
    premultiplied = generator.config.premultiplied
    images = (over_white(samples.synthesized(w, noise), premultiplied=premultiplied) for w in ws)
    return [averaged_down(image) for image in images]


def over_white(images: Tensor, *, premultiplied: bool) -> Tensor:
    """Composite images (n, 4, r, r), nominally in [-1, 1], over white; others are unchanged.

    Nothing is clamped or rounded, which would hide a short step.
    """
    if images.shape[1] != 4:
        return images
    colors, alpha = (images[:, :3] + 1) / 2, (images[:, 3:] + 1) / 2
    colors = colors if premultiplied else colors * alpha
    return 2 * (colors + 1 - alpha) - 1


def latent_pairs(samples: GeneratorSamples, indices: range) -> tuple[Tensor, Tensor, Tensor]:
    """Draw z0, z1 (n, z_dim) and t (n, 1) in [0, 1), float64. Pair i depends on (seed, i) alone."""
    draws = [streams.path_rng(samples.seed, i) for i in indices]
    z_dim = samples.generator.config.z_dim
    z = torch.from_numpy(np.stack([each.randn(2, z_dim) for each in draws]))
    t = torch.tensor([[each.random_sample()] for each in draws], dtype=torch.float64)
    return z[:, 0], z[:, 1], t


def trimmed_mean(lengths: np.ndarray) -> float:
    """Mean of the values between two percentiles, inclusive."""
    bad = np.count_nonzero(~np.isfinite(lengths))
    if bad:
        raise ValueError(f"{bad} of {len(lengths)} path lengths are not finite")
    low = np.percentile(lengths, TRIM_PERCENT, method="lower")
    high = np.percentile(lengths, 100 - TRIM_PERCENT, method="higher")
    return float(lengths[(low <= lengths) & (lengths <= high)].mean())
