"""Every random stream of the package: a function of a seed, its purpose and a position.

The numbers below tell the purposes apart and are part of what a seed means: never change one.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

Stream = TypeVar("Stream")
Device = torch.device | str


def torch_stream(*key: int, device: Device = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(number(*key))


def numpy_stream(*key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(key))


def frozen_stream(*key: int) -> np.random.RandomState:
    """NumPy promises never to change what it draws."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(key)))


def number(*key: int) -> int:
    """64 random bits."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


def of_step(purpose: int) -> Callable[[int, int], torch.Generator]:
    """The stream of (seed, images_seen)."""
    return lambda seed, images_seen: torch_stream(seed, images_seen, purpose)


def of_seed(make: Callable[..., Stream], *purpose: int) -> Callable[[int], Stream]:
    return lambda seed: make(seed, *purpose)


def of_place(make: Callable[..., Stream], *purpose: int) -> Callable[[int, int], Stream]:
    """The stream of (seed, index)."""
    return lambda seed, index: make(seed, *purpose, index)


# Training: one global stream per step, sliced among the processes, but for the noise
step = of_step(0)  # latents, mixing, labels and penalty factors
step_mirror = of_step(2)  # which reals are flipped
step_augment = of_step(3)  # what happens to the images that the discriminator sees
data_order = of_place(numpy_stream)  # the order of the images in an epoch


def step_noise(seed: int, images_seen: int, rank: int, device: Device) -> torch.Generator:
    """Noise inputs of one process in one training step; on meta nothing is drawn."""
    device = "cpu" if torch.device(device).type == "meta" else device
    return torch_stream(seed, images_seen, 1, rank, device=device)


# Samples: a seed names an image
latent = np.random.RandomState  # as NVIDIA's tools draw it
image_noise = of_seed(frozen_stream, 1)  # the noise inputs of an image
latent_loop = of_seed(frozen_stream, 10)  # the loop through z that begins at the latent of a seed

# Projection
start = of_place(torch_stream, 0, 10)  # where a search begins that does not begin at the average w
tuning = of_seed(torch_stream, 0, 11)  # the w at which a tuned generator is held to what it was

# Metrics
real_mirror = of_place(number, 2)  # whether a real is flipped: 64 random bits
sample_label = of_place(number, 3)  # the label of a sample: 64 random bits
path = of_place(frozen_stream, 4)  # the ends of a path through latent space, and the point on it
patches = of_place(numpy_stream, 5)  # of the sliced Wasserstein distance: places in one image
directions = of_place(numpy_stream, 6)  # of that distance: directions at one level of the pyramid
