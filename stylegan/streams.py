"""Every random number generator (RNG) of the package, a function of seed, purpose and position.

The numbers below tell the purposes apart and are part of what a seed means: never change one.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch

Device = torch.device | str


def torch_rng(*key: int, device: Device = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(random_bits(*key))


def numpy_rng(*key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(key))


def legacy_rng(*key: int) -> np.random.RandomState:
    """RNG whose numbers NumPy promises never to change."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(key)))


def random_bits(*key: int) -> int:
    """64 random bits."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


# Training: one global RNG per step, sliced by rank, except for the noise maps


def step_rng(seed: int, images_seen: int) -> torch.Generator:
    """RNG of a step: latents, mixing, labels, penalty weights."""
    return torch_rng(seed, images_seen, 0)


def noise_rng(seed: int, images_seen: int, rank: int, device: Device) -> torch.Generator:
    """RNG of the noise maps of one rank in one step, on `device` (the CPU for meta)."""
    device = "cpu" if torch.device(device).type == "meta" else device
    return torch_rng(seed, images_seen, 1, rank, device=device)


def mirror_rng(seed: int, images_seen: int) -> torch.Generator:
    """RNG that decides which reals of a step are mirrored."""
    return torch_rng(seed, images_seen, 2)


def augment_rng(seed: int, images_seen: int) -> torch.Generator:
    """RNG of the augmentation of a step."""
    return torch_rng(seed, images_seen, 3)


def epoch_rng(seed: int, epoch: int) -> np.random.Generator:
    """RNG that shuffles the images of an epoch."""
    return numpy_rng(seed, epoch)


# Samples: the same seed always gives the same image


def latent_rngs(seeds: Iterable[int]) -> Iterator[np.random.RandomState]:
    """RNG of the latent z of each seed, the same as in NVIDIA's scripts; valid until the next."""
    rng = np.random.RandomState(0)
    for seed in seeds:
        rng.seed(seed)  # same numbers as a new RandomState(seed), 30 times as fast
        yield rng


def image_noise_rng(seed: int) -> np.random.RandomState:
    """RNG of the noise maps of a sample."""
    return legacy_rng(seed, 1)


def loop_rng(seed: int) -> np.random.RandomState:
    """RNG of the closed loop through z that starts at the latent of a seed."""
    return legacy_rng(seed, 10)


# Projection


def projection_start_rng(seed: int, index: int) -> torch.Generator:
    """RNG of starting point `index` of a projection; start 0 is the average w and needs none."""
    return torch_rng(seed, 0, 10, index)


def tuning_rng(seed: int) -> torch.Generator:
    """RNG of the w where pivotal tuning compares the tuned generator with the original."""
    return torch_rng(seed, 0, 11)


# Metrics


def mirror_bits(seed: int, index: int) -> int:
    """64 random bits that decide whether real `index` is mirrored."""
    return random_bits(seed, 2, index)


def label_bits(seed: int, index: int) -> int:
    """64 random bits that choose the label of sample `index`."""
    return random_bits(seed, 3, index)


def path_rng(seed: int, index: int) -> np.random.RandomState:
    """RNG of a latent path: its two ends and the position on it."""
    return legacy_rng(seed, 4, index)


def patch_rng(seed: int, index: int) -> np.random.Generator:
    """RNG of the patch positions in one image, for SWD."""
    return numpy_rng(seed, 5, index)


def slice_rng(seed: int, index: int) -> np.random.Generator:
    """RNG of the projection directions at one level of the pyramid, for SWD."""
    return numpy_rng(seed, 6, index)
