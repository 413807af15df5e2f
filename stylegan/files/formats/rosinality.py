"""github.com/rosinality/style-based-gan-pytorch: `.model`, a full checkpoint or the average alone.

Compared with the publisher's program, which computed the numbers in
`tests/foreign/rosinality.npz`. It differs from the official one, and the weights are scaled so
that ours computes the same: He constants of sqrt(2) for styles and RGB and for noise strengths,
kernels of the fused upscaling four times as large, 1e-5 in the instance norm. The bias of the
enlarging convolutions comes before the low-pass filter, for which our network has a switch.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from stylegan.files.formats.foreign import (
    HE,
    NORM_DETAIL,
    NORM_FACTOR,
    TRANSPOSED,
    Weights,
    about_zero,
    blur_kernels,
    draw_noise_maps,
    make_w_avg,
    mapping_fields,
    normed,
    numbered,
    plain_weights,
    scaled,
    shape,
    trained_resolution,
    width_fields,
)
from stylegan.files.formats.matching import Match, filled
from stylegan.files.snapshot import Account, Snapshot
from stylegan.networks import Generator, NetworkConfig
from stylegan.schedule import resolutions

LAYOUT = "checkpoint of rosinality/style-based-gan-pytorch"
BLOCK = "generator.progression.{}"


def recognised(content: Mapping[str, Any]) -> bool:
    """Whether a full checkpoint, or weights of its generator."""
    names = [name.removeprefix("module.") for name in content]
    return "g_running" in names or any(n.startswith("generator.progression.") for n in names)


def read(content: Mapping[str, Any]) -> Snapshot:
    """The average generator of a full checkpoint, or the one that the file consists of."""
    full = "g_running" in content
    weights = plain_weights(content["g_running"] if full else content, "the generator")
    layers = [f"style.{2 * i + 1}.linear" for i in range(style_layers(weights))]
    config = config_of(weights, layers)
    blur = list(blur_kernels(weights, blur_names(weights, config)))
    table = matches(config, weights, layers)
    network, accounts = filled(lambda: Generator(config), table, weights, blur)
    accounts += draw_noise_maps(network.synthesis, shared=True)
    accounts.append(make_w_avg(network))
    accounts.append(Account("", "synthesis.input.epilogue0.bias", "made", "zero: theirs has none"))
    if full:
        accounts += [
            Account(name, "", "ignored", "not the average generator, or no network of ours")
            for name in content
            if name != "g_running"
        ]
    return Snapshot(
        LAYOUT,
        network,
        None,
        network,
        tuple(accounts),
        psi=0.7,
        cutoff=None,
        resolution=trained_resolution(network.synthesis),
        notes=(
            "the discriminator has other layer widths than ours and is not converted",
            "with noise drawn at random, our two layers of a resolution get a map each; theirs "
            "share one (the stored maps are shared here too)",
        ),
    )


def style_layers(weights: Weights) -> int:
    return sum(f"style.{2 * i + 1}.linear.weight_orig" in weights for i in range(100))


def config_of(weights: Weights, layers: list[str]) -> NetworkConfig:
    blocks = numbered(weights, BLOCK + ".conv2.conv.weight_orig")
    widths = [
        shape(weights, f"{BLOCK.format(i)}.conv2.conv.weight_orig", 4)[0] for i in range(blocks)
    ]
    return NetworkConfig(
        **width_fields(widths),
        **mapping_fields(weights, [f"{name}.weight_orig" for name in layers], 0),
        image_channels=shape(weights, "generator.to_rgb.0.conv.weight_orig", 4)[0],
        bias_before_blur=True,
    )


def is_fused(weights: Weights, i: int) -> bool:
    """Whether block i enlarges by a transposed convolution."""
    return f"{BLOCK.format(i)}.conv1.0.weight" in weights


def blur_names(weights: Weights, config: NetworkConfig) -> Iterator[str]:
    for i in range(1, len(resolutions(config.resolution))):
        place = 1 if is_fused(weights, i) else 2
        yield f"{BLOCK.format(i)}.conv1.{place}.weight"
        yield f"{BLOCK.format(i)}.conv1.{place}.weight_flip"


def matches(config: NetworkConfig, weights: Weights, layers: list[str]) -> Iterator[Match]:
    multiplier = 1 / config.mapping_lr_multiplier
    for i, name in enumerate(layers):
        for theirs, ours in (("weight_orig", "weight"), ("bias", "bias")):
            why = "as ours have a multiplier of 0.01"
            yield scaled(f"mapping.layers.{i}.{ours}", f"{name}.{theirs}", multiplier, why)
    for i, r in enumerate(resolutions(config.resolution)):
        block, ours = BLOCK.format(i), "synthesis." + ("input" if r == 4 else f"blocks.{r}")
        yield from upper_matches(weights, block, ours, i)
        second = f"{ours}.conv" if r == 4 else f"{ours}.conv1"
        conv = f"{block}.conv2.conv"
        yield normed(f"{second}.weight", f"{conv}.weight_orig")
        yield normed(f"{ours}.epilogue1.bias", f"{conv}.bias")
        for j in (0, 1):
            yield from epilogue_matches(config.channels(r), block, f"{ours}.epilogue{j}", j + 1)
        rgb = f"generator.to_rgb.{i}.conv"
        yield scaled(f"synthesis.to_rgb.{r}.weight", f"{rgb}.weight_orig", math.sqrt(2), HE)
        yield Match(f"synthesis.to_rgb.{r}.bias", f"{rgb}.bias")


def upper_matches(weights: Weights, block: str, ours: str, i: int) -> Iterator[Match]:
    """The constant of the first block, or the enlarging convolution of a later one."""
    if i == 0:
        yield normed(f"{ours}.const", f"{block}.conv1.input")
    elif is_fused(weights, i):
        why = f"{NORM_DETAIL}, and as ours are summed where theirs are averaged; rotated"
        source = f"{block}.conv1.0"
        name = f"{ours}.conv0.weight"
        yield scaled(name, f"{source}.weight", NORM_FACTOR / 4, why, rotated=True)
        yield normed(f"{ours}.epilogue0.bias", f"{source}.bias")
    else:
        source = f"{block}.conv1.1.conv"
        yield normed(f"{ours}.conv0.weight", f"{source}.weight_orig", axes=TRANSPOSED)
        yield normed(f"{ours}.epilogue0.bias", f"{source}.bias")


def epilogue_matches(channels: int, block: str, ours: str, j: int) -> Iterator[Match]:
    strength = NORM_FACTOR * math.sqrt(2 / channels)
    why = f"{NORM_DETAIL}; and their He constant, sqrt(2 / channels)"
    noise = f"{block}.noise{j}.weight_orig"
    layout: dict[str, Any] = {"change": per_channel, "shape": (1, channels, 1, 1)}
    yield scaled(f"{ours}.noise.strength", noise, strength, why, **layout)
    style = f"{block}.adain{j}.style.linear"
    yield scaled(f"{ours}.style.affine.weight", f"{style}.weight_orig", math.sqrt(2), HE)
    yield about_zero(f"{ours}.style.affine.bias", f"{style}.bias")


def per_channel(strength: Tensor) -> Tensor:
    """(1, C, 1, 1) -> (C,)"""
    return strength[0, :, 0, 0]
