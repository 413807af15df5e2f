"""A generator whose metrics have a closed form; also what several processes measure of it."""

from types import SimpleNamespace

import torch

from helpers.tiny_generators import loaded_of
from stylegan.metrics import Comparison, Conditions
from stylegan.metrics.path_length import measured_lengths
from stylegan.metrics.separability import attribute_entropies
from stylegan.networks import NetworkConfig

KINDS = ("ppl-z-full", "ppl-w-full", "ppl-z-end", "ppl-w-end")


class LinearGenerator(torch.nn.Module):
    """z -> w = z -> the image `matrix @ w`.

    The noise of its first layer, 4x4, is added `loud` times to the corner of the image.
    """

    def __init__(self, matrix, size=4, loud=0.0):
        super().__init__()
        dim = matrix.shape[1]
        self.config = NetworkConfig(
            resolution=size, image_channels=1, z_dim=dim, w_dim=dim, mapping_width=dim
        )
        self.w_avg = torch.zeros(dim, dtype=matrix.dtype)
        self.matrix, self.size, self.loud = matrix, size, loud

    def mapping(self, z, labels=None):
        return z

    def broadcast(self, w):
        return w[:, None].expand(-1, self.config.num_ws(), -1)

    def synthesis(self, ws, *, resolution, alpha, noise):
        assert resolution == self.size and alpha == 1
        images = (ws[:, 0] @ self.matrix.T).unflatten(1, (1, self.size, self.size))
        if noise != "none":
            images[:, :, :4, :4] += self.loud * noise[0]
        return images


def linear_samples(size=4, dim=None, loud=0.0, seed=0, batch=64, rng=0):
    """Of a random matrix in float64; of the identity without `dim`."""
    pixels = size * size
    draws = torch.Generator().manual_seed(rng)
    matrix = torch.eye(pixels, dtype=torch.float64)
    if dim is not None:
        matrix = torch.randn(pixels, dim, generator=draws, dtype=torch.float64)
    noise = "random" if loud else "none"
    loaded = loaded_of(LinearGenerator(matrix, size, loud), cutoff=None)
    return Comparison.from_generator(loaded, None, Conditions(noise=noise, seed=seed, batch=batch))


def squared_distance(images, others):
    return (images - others).square().sum(dim=(1, 2, 3))


CLASSIFIERS = {
    "left": lambda images: images[:, 0, :, 0].mean(dim=1),
    "both": lambda images: torch.stack([images[:, 0, 1, 1], images[:, 0, 2, 2]], dim=1),
}


def measured(folder, batch):
    """Everything of both families, by whatever number of processes."""
    samples = linear_samples(dim=8, loud=1.0, seed=5, batch=batch)
    return SimpleNamespace(
        lengths={kind: measured_lengths(samples, kind, 21, squared_distance) for kind in KINDS},
        entropies=attribute_entropies(samples, CLASSIFIERS, 61, folder),
    )
