"""Weights of a network with fewer channels (Net2Net, Chen et al. 2016, arXiv 1511.05641)."""

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stylegan.layers import Equalized, EqualizedConvTranspose2d, Style
from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.networks.discriminator import DiscriminatorHead
from stylegan.schedule import resolutions

FREE = ("channel_base", "channel_decay", "max_channels", "resolution")
DIFFERENCE = 0.5  # of copies, times the root mean square of the weights that they came from


def is_multiple(config: NetworkConfig, theirs: NetworkConfig) -> bool:
    """Whether `config` has whole multiples of the channels of `theirs` and is otherwise alike."""
    alike = dataclasses.replace(theirs, **{name: getattr(config, name) for name in FREE})
    stock = config.generator == config.discriminator == "stylegan"
    exact = config.constant_input and config.equalized and config.deviation_features == 1
    if alike != config or not (stock and exact):
        return False
    sizes = (2, *resolutions(min(config.resolution, theirs.resolution)))
    counts = [(config.channels(r), theirs.channels(r)) for r in sizes]
    return all(new % old == 0 for new, old in counts) and any(new > old for new, old in counts)


def widened(
    network: Generator | Discriminator, weights: Mapping[str, Tensor], theirs: NetworkConfig
) -> dict[str, Tensor]:
    """Those of the `weights` of a network of `theirs` that are too small for `network`, made to
    fit, if its channels are a multiple of theirs (`is_multiple`); none otherwise.

    An added channel is a copy of one that is there, and a layer that reads it shares that one's
    weights out among the copies: the network makes the same of everything, up to rounding. The
    shares differ at random, by amounts that cancel, so that training tells the copies apart.
    """
    if not is_multiple(network.config, theirs):
        return {}
    draws = torch.Generator().manual_seed(0)  # the same signs in a generator and its average
    modules, found = dict(network.named_modules()), {}
    for name, wanted in network.state_dict().items():
        if name in weights and weights[name].shape != wanted.shape:
            layer = name.rpartition(".")[0]
            owner = modules[layer.rpartition(".")[0]]
            found[name] = fit(weights[name].cpu(), wanted.shape, modules[layer], owner, draws)
    return found


def fit(
    weight: Tensor, shape: torch.Size, layer: nn.Module, owner: nn.Module, draws: torch.Generator
) -> Tensor:
    """A tensor of `layer`, which is a part of `owner`, with its channels repeated up to `shape`."""
    read = 0 if isinstance(layer, EqualizedConvTranspose2d) else 1  # dimension of what enters
    for dim, (old, new) in enumerate(zip(weight.shape, shape, strict=True)):
        if new == old:
            continue
        if isinstance(owner, Style):  # scales and biases
            halves = weight.chunk(2, dim)
            weight = torch.cat([half for half in halves for _ in range(new // old)], dim)
        elif isinstance(layer, Equalized) and weight.ndim > 1 and dim == read:
            single = 0  # channels that stay as they are: the head's deviations
            if isinstance(owner, DiscriminatorHead) and layer is owner.conv:
                single = new - layer.weight.shape[0]
            channels, rest = weight.split([old - single, single], dim)
            parts = shares(channels, (new - single) // (old - single), draws)
            weight = torch.cat([*parts, rest], dim) * math.sqrt(new / old)  # the He constant falls
        else:
            weight = torch.cat([weight] * (new // old), dim)
    return weight


def shares(weight: Tensor, times: int, draws: torch.Generator) -> Tensor:
    """(times, *weight.shape): weights that differ and whose sum is `weight`."""
    noise = torch.randn(times, *weight.shape, generator=draws)
    noise *= DIFFERENCE * weight.square().mean().sqrt()
    return weight / times + noise - noise.mean(dim=0)
