"""Images of a subject as numbers, not as pictures, for what must look at small differences."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan import sampling
from stylegan.metrics.features import in_float32
from stylegan.metrics.images import Subject
from stylegan.networks import Noise
from stylegan.ops import truncate

LARGEST = 256  # of images that VGG16 and the attribute classifiers look at, officially


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Without gradients, in full float32, by kernels that give the same numbers again.

    TF32 keeps ten binary digits; a step of 1e-4 along a path would drown in its rounding.
    """
    with torch.inference_mode(), in_float32(), sampling.repeatable():
        yield


def noise_of(subject: Subject, indices: range) -> Noise:
    """What enters the images: drawn from each one's own seed, if it is "random"."""
    if subject.noise != "random":
        return subject.noise  # type: ignore[return-value]
    maps = sampling.seed_noise(subject.seeds(indices), subject.generator.config, subject.size)
    return [noise_map.to(subject.generator.w_avg) for noise_map in maps]


def mapped(subject: Subject, z: Tensor, indices: range) -> Tensor:
    """z (n, z_dim) -> w (n, w_dim), where the generator is, with the labels of `indices`."""
    like, labels = subject.generator.w_avg, subject.labels(indices)
    w: Tensor = subject.generator.mapping(z.to(like), None if labels is None else labels.to(like))
    return w


def synthesized(subject: Subject, w: Tensor, noise: Noise) -> Tensor:
    """w (n, w_dim) -> images (n, C, r, r), nominally in [-1, 1], not clamped."""
    generator = subject.generator
    ws = truncate(generator.broadcast(w), generator.w_avg, subject.psi, subject.cutoff)
    images: Tensor = generator.synthesis(
        ws, resolution=subject.size, alpha=subject.alpha, noise=noise
    )
    return images


def averaged_down(images: Tensor, largest: int = LARGEST) -> Tensor:
    """By box averages to `largest` pixels a side, if there are more."""
    factor = images.shape[2] // largest
    return F.avg_pool2d(images, factor) if factor > 1 else images
