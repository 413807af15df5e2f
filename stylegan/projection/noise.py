"""Keeping maps of noise noise, while they are fitted to a picture."""

import torch
from torch import Tensor

from stylegan.ops import downsample

SMALLEST = 8  # pixels a side, where the pyramid of a larger map ends


def autocorrelation_penalty(noise_map: Tensor) -> Tensor:
    """How far each map (N, 1, r, r) is from white noise: (N,), 0 at best.

    The squared correlation of neighbours in each direction, the borders joined, summed over the map
    and its pyramid of 2x2 averages down to 8x8, times 2 each so that their variance stays 1. Of
    white noise the correlation is 0 in expectation, its square 1 / r^2.
    """
    penalty = noise_map.new_zeros(len(noise_map))
    while True:
        for dim in (2, 3):
            products = noise_map * noise_map.roll(1, dim)
            penalty = penalty + products.mean(dim=(1, 2, 3)).square()
        if noise_map.shape[2] <= SMALLEST:
            return penalty
        noise_map = 2 * downsample(noise_map)


def normalize_(noise_map: Tensor) -> None:
    """Give each map (N, 1, r, r) mean 0 and variance 1, in place."""
    with torch.no_grad():
        noise_map -= noise_map.mean(dim=(1, 2, 3), keepdim=True)
        noise_map *= noise_map.square().mean(dim=(1, 2, 3), keepdim=True).rsqrt()
