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
    blur_kernels,
    convolved,
    draw_noise_maps,
    mapping_fields,
    mean_w,
    normed,
    numbered,
    plain_weights,
    shape,
    styled,
    trained_resolution,
    width_fields,
)
from stylegan.files.formats.matching import Match, filled
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.networks import Generator, NetworkConfig
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
    """Whether a full checkpoint, or weights of its generator."""
    names = [name.removeprefix("module.") for name in content]
    return "g_running" in names or any(n.startswith("generator.progression.") for n in names)


def read_rosinality(content: Mapping[str, Any]) -> Snapshot:
    """The average generator of a full checkpoint, or the one that the file consists of."""
    weights = plain_weights(content.get("g_running", content), "the generator")
    config = config_of(weights)
    sizes = resolutions(config.resolution)
    fused = {i for i in range(len(sizes)) if f"{BLOCK.format(i)}.conv1.0.weight" in weights}
    blurs = [
        f"{BLOCK.format(i)}.conv1.{1 if i in fused else 2}.{name}"
        for i in range(1, len(sizes))
        for name in ("weight", "weight_flip")
    ]
    unused = blur_kernels(weights, blurs)
    network = filled(lambda: Generator(config), matches(config, fused), weights, unused)
    draw_noise_maps(network.synthesis, shared=True)
    network.w_avg.copy_(mean_w(network.mapping))
    resolution = trained_resolution(network.synthesis)
    loaded = LoadedGenerator(network, LAYOUT, resolution=resolution, psi=0.7, cutoff=None)
    return Snapshot(LAYOUT, loaded, network, notes=NOTES)


def config_of(weights: Weights) -> NetworkConfig:
    layers = [f"{DENSE.format(2 * i + 1)}.weight_orig" for i in range(100)]
    layers = [name for name in layers if name in weights]
    blocks = numbered(weights, BLOCK + ".conv2.conv.weight_orig")
    widths = [
        shape(weights, f"{BLOCK.format(i)}.conv2.conv.weight_orig", 4)[0] for i in range(blocks)
    ]
    return NetworkConfig(
        **width_fields(widths),
        **mapping_fields(weights, layers, 0),
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
        conv = f"{block}.conv2.conv"
        yield from convolved(ours, conv, 1)
        for j in (0, 1):
            yield from epilogue_matches(config.channels(r), block, f"{ours}.epilogue{j}", j + 1)
        rgb = f"generator.to_rgb.{i}.conv"
        weight = f"synthesis.to_rgb.{r}.weight", f"{rgb}.weight_orig"
        yield Match(*weight, factor=HE_FACTOR)
        yield Match(f"synthesis.to_rgb.{r}.bias", f"{rgb}.bias")


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
        source = f"{block}.conv1.1.conv"
        yield from convolved(ours, source, 0, axes=TRANSPOSED)


def epilogue_matches(channels: int, block: str, ours: str, j: int) -> Iterator[Match]:
    yield Match(
        f"{ours}.noise.strength",
        f"{block}.noise{j}.weight_orig",
        factor=NORM_FACTOR * math.sqrt(2 / channels),  # their He constant
        change=Tensor.flatten,
        shape=(1, channels, 1, 1),
    )
    yield from styled(ours, f"{block}.adain{j}.style.linear")
