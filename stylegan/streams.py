"""Every random number generator (RNG) of the package, a function of seed, purpose and position.

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
    """RNG whose numbers NumPy promises never to change."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(key)))


def number(*key: int) -> int:
    """64 random bits."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


# Training: one global RNG per step, sliced by rank, except for the noise maps


def step(seed: int, images_seen: int) -> torch.Generator:
    """RNG of a step: latents, mixing, labels, penalty weights."""
    return torch_stream(seed, images_seen, 0)


def step_noise(seed: int, images_seen: int, rank: int, device: Device) -> torch.Generator:
    """RNG of the noise maps of one rank in one step, on `device` (the CPU for meta)."""
    device = "cpu" if torch.device(device).type == "meta" else device
    return torch_stream(seed, images_seen, 1, rank, device=device)


def step_mirror(seed: int, images_seen: int) -> torch.Generator:
    """RNG that decides which reals of a step are mirrored."""
    return torch_stream(seed, images_seen, 2)


def step_augment(seed: int, images_seen: int) -> torch.Generator:
    """RNG of the augmentation of a step."""
    return torch_stream(seed, images_seen, 3)


def data_order(seed: int, epoch: int) -> np.random.Generator:
    """RNG that shuffles the images of an epoch."""
    return numpy_stream(seed, epoch)


# Samples: the same seed always gives the same image


def latent(seed: int) -> np.random.RandomState:
    """RNG of the latent z of a seed, the same as in NVIDIA's scripts."""
    return np.random.RandomState(seed)


def image_noise(seed: int) -> np.random.RandomState:
    """RNG of the noise maps of a sample."""
    return frozen_stream(seed, 1)


def latent_loop(seed: int) -> np.random.RandomState:
    """RNG of the closed loop through z that starts at the latent of a seed."""
    return frozen_stream(seed, 10)


# Projection


def start(seed: int, index: int) -> torch.Generator:
    """RNG of starting point `index` of a projection; start 0 is the average w and needs none."""
    return torch_stream(seed, 0, 10, index)


def tuning(seed: int) -> torch.Generator:
    """RNG of the w where pivotal tuning compares the tuned generator with the original."""
    return torch_stream(seed, 0, 11)


# Metrics


def real_mirror(seed: int, index: int) -> int:
    """64 random bits that decide whether real `index` is mirrored."""
    return number(seed, 2, index)


def sample_label(seed: int, index: int) -> int:
    """64 random bits that choose the label of sample `index`."""
    return number(seed, 3, index)


def path(seed: int, index: int) -> np.random.RandomState:
    """RNG of a latent path: its two ends and the position on it."""
    return frozen_stream(seed, 4, index)


def patches(seed: int, index: int) -> np.random.Generator:
    """RNG of the patch positions in one image, for SWD."""
    return numpy_stream(seed, 5, index)


def directions(seed: int, index: int) -> np.random.Generator:
    """RNG of the projection directions at one level of the pyramid, for SWD."""
    return numpy_stream(seed, 6, index)
