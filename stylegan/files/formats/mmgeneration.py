"""github.com/open-mmlab/mmgeneration and its successor mmagic: `.pth` of StyleGANV1.

Compared with the publisher's program, which computed the numbers in
`tests/foreign/mmgeneration.npz`. It differs from the official one. Weights are scaled so that ours
computes the same: He constants of 1 in the mapping and of sqrt(2) for styles and RGB, 1e-5 in the
instance norm, and 1e-6 added to the norm of a latent. One noise strength holds for all channels of
a layer, images have the order blue, green, red, and the enlarging convolutions have a bias and an
activation before the low-pass filter, for which our network has a switch.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from stylegan.files.formats.foreign import (
    HE_FACTOR,
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

LAYOUT = "checkpoint of open-mmlab/mmgeneration"
CONSTANT = "convs.0.conv1.input"  # identifies the layout, with the mapping
MAPPING = "style_mapping.{}.linear.weight_orig"  # from 1 on
LATENT_NORM = 1 / (1 + 1e-6)  # root mean square of their latents, to 1e-7; ours have 1
NOTES = (
    "not specified by the file, taken as published: lr_mlp 0.01, images in the order blue, green, "
    "red",
    "the discriminator has RGB layers of 3x3 and another head than ours and is not converted",
)


def parts(content: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The weights of the average generator, else of the generator; and what else is there."""
    state = content.get("state_dict", content)
    state = state if isinstance(state, Mapping) else {}
    for prefix in ("generator_ema.", "generator."):
        weights = {n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)}
        if weights:
            weights.pop("steps", None)  # the updates of mmagic's average
            return weights, {**content, **state}
    return dict(state), {}


def is_mmgeneration(content: Mapping[str, Any]) -> bool:
    return has_names(parts(content)[0], [CONSTANT, MAPPING.format(1)])


def read_mmgeneration(content: Mapping[str, Any]) -> Snapshot:
    """The generator, the average one if there is one."""
    found, others = parts(content)
    weights = plain_weights(found)
    config = config_of(weights)
    blurs = [f"convs.{i}.conv1.1.kernel" for i in range(1, len(resolutions(config.resolution)))]
    network = built(config, matches(config), weights, blurs=blurs)
    resolution = scalar(others, "_curr_scale_int")
    alpha = scalar(others, "_curr_transition_weight")
    seen = scalar(others, "shown_nkimg")
    loaded = LoadedGenerator(
        network,
        LAYOUT,
        psi=1.0,
        cutoff=None,
        resolution=int(resolution)
        if resolution in resolutions(config.resolution)
        else trained_resolution(network.synthesis),
        alpha=alpha if alpha is not None and 0 <= alpha <= 1 else 1.0,
        images_seen=round(1000 * seen) if seen is not None and 0 <= seen < 1e9 else None,
    )
    return Snapshot(LAYOUT, loaded, network, notes=NOTES)


def scalar(content: Mapping[str, Any], name: str) -> float | None:
    """What a tensor of one number holds, if there is one."""
    value = content.get(name)
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta:
        return float(value.item())
    return None


def config_of(weights: Weights) -> NetworkConfig:
    blocks = names(weights, "convs.{}.conv2.conv.weight_orig")
    return NetworkConfig(
        **width_fields([shape(weights, name, 4)[0] for name in blocks]),
        **mapping_fields(weights, names(weights, MAPPING, 1)),
        image_channels=shape(weights, "to_rgbs.0.conv.weight_orig", 4)[0],
        activation_before_blur=True,
    )


def matches(config: NetworkConfig) -> Iterator[Match]:
    for i in range(config.mapping_layers):
        # their He constant is 1 here, ours sqrt(2)
        factor = math.sqrt(0.5) * (LATENT_NORM if i == 0 else 1)
        yield Match(f"mapping.layers.{i}.weight", MAPPING.format(i + 1), factor=factor)
        yield Match(f"mapping.layers.{i}.bias", f"style_mapping.{i + 1}.bias")
    for i, r in enumerate(resolutions(config.resolution)):
        block, ours = f"convs.{i}", "synthesis." + ("input" if r == 4 else f"blocks.{r}")
        if r == 4:
            yield normed(f"{ours}.const", f"{block}.conv1.input")
        else:
            yield from convolved(ours, f"{block}.conv1.0.conv", 0, axes=TRANSPOSED)
        yield from convolved(ours, f"{block}.conv2.conv", 1)
        for j in (0, 1):
            yield from epilogue_matches(config.channels(r), block, f"{ours}.epilogue{j}", i, j)
        ours, rgb = f"synthesis.to_rgb.{r}", f"to_rgbs.{i}.conv"
        weight = f"{ours}.weight", f"{rgb}.weight_orig"
        yield Match(*weight, factor=HE_FACTOR, change=reversed_channels)
        yield Match(f"{ours}.bias", f"{rgb}.bias", change=reversed_channels)


def epilogue_matches(channels: int, block: str, ours: str, i: int, j: int) -> Iterator[Match]:
    yield normed(
        f"{ours}.noise.strength",
        f"{block}.noise_injector{j + 1}.weight",
        change=lambda strength: strength.expand(channels),
        shape=(1,),
    )
    yield Match(f"{ours}.noise.const", f"injected_noise_{2 * i + j}")
    yield from styled(ours, f"{block}.adain{j + 1}.affine")


def reversed_channels(rgb: Tensor) -> Tensor:
    """Blue, green, red <-> red, green, blue."""
    return rgb.flip(0)
