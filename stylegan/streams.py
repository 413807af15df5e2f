"""Every random stream of the package: a function of a seed, its purpose and a position.

The numbers below tell the purposes apart and are part of what a seed means: never change one.
"""

import numpy as np
import torch

Device = torch.device | str


def torch_stream(*key: int, device: Device = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(number(*key))


def numpy_stream(*key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(key))


def frozen_stream(*key: int) -> np.random.RandomState:
    """Return a stream that NumPy promises never to change."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(key)))


def number(*key: int) -> int:
    """Return 64 random bits."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


# Training: one global stream per step, sliced among the processes, but for the noise


def step(seed: int, images_seen: int) -> torch.Generator:
    """Return latents, mixing, labels and penalty factors of a training step."""
    return torch_stream(seed, images_seen, 0)


def step_noise(seed: int, images_seen: int, rank: int, device: Device) -> torch.Generator:
    """Return noise inputs of one process in one training step; on meta nothing is drawn."""
    device = "cpu" if torch.device(device).type == "meta" else device
    return torch_stream(seed, images_seen, 1, rank, device=device)


def step_mirror(seed: int, images_seen: int) -> torch.Generator:
    """Return the stream of the flips of a step's reals."""
    return torch_stream(seed, images_seen, 2)


def step_augment(seed: int, images_seen: int) -> torch.Generator:
    """Return stream of the transforms of a step's images before the discriminator."""
    return torch_stream(seed, images_seen, 3)


def data_order(seed: int, epoch: int) -> np.random.Generator:
    """Return the order of the images in an epoch."""
    return numpy_stream(seed, epoch)


# Samples: a seed names an image


def latent(seed: int) -> np.random.RandomState:
    """Return the latent of a seed, as NVIDIA's tools draw it."""
    return np.random.RandomState(seed)


def image_noise(seed: int) -> np.random.RandomState:
    """Return the noise inputs of an image."""
    return frozen_stream(seed, 1)


def latent_loop(seed: int) -> np.random.RandomState:
    """Return the loop through z that begins at the latent of a seed."""
    return frozen_stream(seed, 10)


# Projection


def start(seed: int, index: int) -> torch.Generator:
    """Return stream of the starts of a search, but for the average w."""
    return torch_stream(seed, 0, 10, index)


def tuning(seed: int) -> torch.Generator:
    """Return the w at which a tuned generator is held to what it was."""
    return torch_stream(seed, 0, 11)


# Metrics


def real_mirror(seed: int, index: int) -> int:
    """Return 64 random bits that decide whether a real is flipped."""
    return number(seed, 2, index)


def sample_label(seed: int, index: int) -> int:
    """Return the label of a sample: 64 random bits."""
    return number(seed, 3, index)


def path(seed: int, index: int) -> np.random.RandomState:
    """Return the ends of a path through latent space, and the point on it."""
    return frozen_stream(seed, 4, index)


def patches(seed: int, index: int) -> np.random.Generator:
    """Draw places in one image, of the sliced Wasserstein distance."""
    return numpy_stream(seed, 5, index)


def directions(seed: int, index: int) -> np.random.Generator:
    """Draw directions at one level of the pyramid, of the sliced Wasserstein distance."""
    return numpy_stream(seed, 6, index)
