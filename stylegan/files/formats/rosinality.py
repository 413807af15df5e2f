"""github.com/rosinality/style-based-gan-pytorch: `.model`, a full checkpoint or the average alone.

Compared with the publisher's program, which computed the numbers in
`tests/foreign/rosinality.npz`. It differs from the official one, and the weights are scaled so
that ours computes the same: He constants of sqrt(2) for styles and RGB and for noise strengths,
kernels of the fused upscaling four times as large, 1e-5 in the instance norm. The bias of the
enlarging convolutions comes before the low-pass filter, for which our network has a switch.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import Tensor

from stylegan.files.formats.foreign import (
    HE_FACTOR,
    NORM_FACTOR,
    TRANSPOSED,
    Weights,
    built,
    convolved,
    has_names,
    mapping_fields,
    names,
    normed,
    plain_weights,
    shape,
    styled,
    trained_resolution,
    width_fields,
)
from stylegan.files.formats.matching import Match
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.networks import NetworkConfig
from stylegan.schedule import resolutions

LAYOUT = "checkpoint of rosinality/style-based-gan-pytorch"
NOTES = (
    "the discriminator has other layer widths than ours and is not converted",
    "with noise drawn at random, our two layers of a resolution get a map each; theirs "
    "share one (the stored maps are shared here too)",
)
DENSE = "style.{}.linear"
BLOCK = "generator.progression.{}"


def is_rosinality(content: Mapping[str, Any]) -> bool:
    return has_names(content.get("g_running", content), [f"{BLOCK.format(0)}.conv1.input"])


def read_rosinality(content: Mapping[str, Any]) -> Snapshot:
    """The average generator of a full checkpoint, or the one that the file consists of."""
    weights = plain_weights(content.get("g_running", content))
    config = config_of(weights)
    sizes = resolutions(config.resolution)
    fused = {i for i in range(len(sizes)) if f"{BLOCK.format(i)}.conv1.0.weight" in weights}
    blurs = [
        f"{BLOCK.format(i)}.conv1.{1 if i in fused else 2}.{name}"
        for i in range(1, len(sizes))
        for name in ("weight", "weight_flip")
    ]
    network = built(config, matches(config, fused), weights, blurs=blurs, shared_noise=True)
    resolution = trained_resolution(network.synthesis)
    loaded = LoadedGenerator(network, LAYOUT, resolution=resolution, psi=0.7, cutoff=None)
    return Snapshot(LAYOUT, loaded, network, notes=NOTES)


def config_of(weights: Weights) -> NetworkConfig:
    layers = names(weights, f"{DENSE}.weight_orig", 1, 2)
    blocks = names(weights, f"{BLOCK}.conv2.conv.weight_orig")
    return NetworkConfig(
        **width_fields([shape(weights, name, 4)[0] for name in blocks]),
        **mapping_fields(weights, layers),
        image_channels=shape(weights, "generator.to_rgb.0.conv.weight_orig", 4)[0],
        bias_before_blur=True,
    )


def matches(config: NetworkConfig, fused: Collection[int]) -> Iterator[Match]:
    """`fused`: the blocks that enlarge by a transposed convolution."""
    multiplier = 1 / config.mapping_lr_multiplier
    for i in range(config.mapping_layers):
        name = DENSE.format(2 * i + 1)
        for theirs, ours in (("weight_orig", "weight"), ("bias", "bias")):
            weight = f"mapping.layers.{i}.{ours}", f"{name}.{theirs}"
            yield Match(*weight, factor=multiplier)  # ours have a multiplier of 0.01
    for i, r in enumerate(resolutions(config.resolution)):
        block, ours = BLOCK.format(i), "synthesis." + ("input" if r == 4 else f"blocks.{r}")
        yield from upper_matches(block, ours, i, i in fused)
        yield from convolved(ours, f"{block}.conv2.conv", 1)
        for j in (0, 1):
            yield from epilogue_matches(config.channels(r), block, f"{ours}.epilogue{j}", j + 1)
        ours, rgb = f"synthesis.to_rgb.{r}", f"generator.to_rgb.{i}.conv"
        yield Match(f"{ours}.weight", f"{rgb}.weight_orig", factor=HE_FACTOR)
        yield Match(f"{ours}.bias", f"{rgb}.bias")


def upper_matches(block: str, ours: str, i: int, fused: bool) -> Iterator[Match]:
    """The constant of the first block, or the enlarging convolution of a later one."""
    if i == 0:
        yield normed(f"{ours}.const", f"{block}.conv1.input")
    elif fused:
        source = f"{block}.conv1.0"
        weight = f"{ours}.conv0.weight", f"{source}.weight"
        # a quarter: ours are summed where theirs are averaged
        yield Match(*weight, factor=NORM_FACTOR / 4, rotated=True)
        yield normed(f"{ours}.epilogue0.bias", f"{source}.bias")
    else:
        yield from convolved(ours, f"{block}.conv1.1.conv", 0, axes=TRANSPOSED)


def epilogue_matches(channels: int, block: str, ours: str, j: int) -> Iterator[Match]:
    yield Match(
        f"{ours}.noise.strength",
        f"{block}.noise{j}.weight_orig",
        factor=NORM_FACTOR * math.sqrt(2 / channels),  # their He constant
        change=Tensor.flatten,
        shape=(1, channels, 1, 1),
    )
    yield from styled(ours, f"{block}.adain{j}.style.linear")
