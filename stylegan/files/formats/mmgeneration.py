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
    HE,
    NORM_DETAIL,
    NORM_FACTOR,
    TRANSPOSED,
    Weights,
    blur_kernels,
    convolved,
    make_w_avg,
    mapping_fields,
    normed,
    numbered,
    plain_weights,
    scaled,
    shape,
    styled,
    trained_resolution,
    width_fields,
)
from stylegan.files.formats.matching import Account, Match, filled
from stylegan.files.snapshot import Snapshot
from stylegan.networks import Generator, NetworkConfig
from stylegan.schedule import resolutions

LAYOUT = "checkpoint of open-mmlab/mmgeneration"
NETWORKS = ("generator_ema", "generator", "discriminator")
CONSTANT = "convs.0.conv1.input"  # identifies the layout, with the mapping
MAPPING = "style_mapping.{}.linear.weight_orig"  # from 1 on
LATENT_NORM = 1 / (1 + 1e-6)  # root mean square of their latents, to 1e-7; ours have 1
NOTES = (
    "not specified by the file, taken as published: lr_mlp 0.01, images in the order blue, green, "
    "red",
    "the discriminator has RGB layers of 3x3 and another head than ours and is not converted",
)


def parts(content: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The weights by the name of their network, and what else is in the file."""
    state = content.get("state_dict", content)
    others = dict(content) if state is not content else {}
    others.pop("state_dict", None)
    networks: dict[str, dict[str, Any]] = {}
    for name, value in state.items() if isinstance(state, Mapping) else ():
        network, _, rest = str(name).partition(".")
        if network in NETWORKS and rest != "steps":  # the updates of mmagic's average
            networks.setdefault(network, {})[rest] = value
        else:
            others[str(name)] = value
    return (networks, others) if networks else ({"generator": dict(state)}, {})


def recognised(content: Mapping[str, Any]) -> bool:
    """Whether some generator has the names of this layout."""
    needed = {CONSTANT, MAPPING.format(1)}
    networks = parts(content)[0].values()
    return any(needed <= {str(name).removeprefix("module.") for name in w} for w in networks)


def read(content: Mapping[str, Any]) -> Snapshot:
    """The average generator, else the generator."""
    networks, others = parts(content)
    chosen = "generator_ema" if "generator_ema" in networks else "generator"
    weights = plain_weights(networks[chosen], chosen)
    config = config_of(weights)
    network, accounts = generator_of(config, weights)
    trained = network
    if chosen != "generator" and "generator" in networks:
        trained = generator_of(config, plain_weights(networks["generator"], "generator"))[0]
        accounts.append(Account("generator", "", "checked", "`train --init-from` goes on from it"))
    others |= {name: None for name in networks if name == "discriminator"}
    accounts += [Account(name, "", "ignored", "no network that is used here") for name in others]
    resolution = number(others, "_curr_scale_int")
    alpha = number(others, "_curr_transition_weight")
    seen = number(others, "shown_nkimg")
    return Snapshot(
        LAYOUT,
        trained,
        None,
        network,
        tuple(accounts),
        resolution=int(resolution)
        if resolution in resolutions(config.resolution)
        else trained_resolution(network.synthesis),
        alpha=alpha if alpha is not None and 0 <= alpha <= 1 else 1.0,
        images_seen=round(1000 * seen) if seen is not None and 0 <= seen < 1e9 else None,
        notes=NOTES,
    )


def number(content: Mapping[str, Any], name: str) -> float | None:
    """What a tensor of one number holds, if there is such a one."""
    value = content.get(name)
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta:
        return float(value.item())
    return None


def config_of(weights: Weights) -> NetworkConfig:
    blocks = numbered(weights, "convs.{}.conv2.conv.weight_orig")
    widths = [shape(weights, f"convs.{i}.conv2.conv.weight_orig", 4)[0] for i in range(blocks)]
    layers = 0
    while MAPPING.format(layers + 1) in weights:
        layers += 1
    return NetworkConfig(
        **width_fields(widths),
        **mapping_fields(weights, [MAPPING.format(i + 1) for i in range(layers)], 0),
        image_channels=shape(weights, "to_rgbs.0.conv.weight_orig", 4)[0],
        activation_before_blur=True,
    )


def generator_of(config: NetworkConfig, weights: Weights) -> tuple[Generator, list[Account]]:
    blocks = range(1, len(resolutions(config.resolution)))
    blurs = list(blur_kernels(weights, [f"convs.{i}.conv1.1.kernel" for i in blocks]))
    network, accounts = filled(lambda: Generator(config), matches(config), weights, blurs)
    accounts.append(make_w_avg(network))
    accounts.append(Account("", "synthesis.input.epilogue0.bias", "made", "zero: theirs has none"))
    return network, accounts


def matches(config: NetworkConfig) -> Iterator[Match]:
    for i in range(config.mapping_layers):
        why = "their He constant has 1 here, ours has sqrt(2)"
        factor = math.sqrt(0.5)
        if i == 0:
            why, factor = f"{why}; and their latents are shorter by 1e-6", factor * LATENT_NORM
        yield scaled(f"mapping.layers.{i}.weight", MAPPING.format(i + 1), factor, why)
        yield Match(f"mapping.layers.{i}.bias", f"style_mapping.{i + 1}.bias")
    for i, r in enumerate(resolutions(config.resolution)):
        block, ours = f"convs.{i}", "synthesis." + ("input" if r == 4 else f"blocks.{r}")
        if r == 4:
            yield normed(f"{ours}.const", f"{block}.conv1.input")
        else:
            up = f"{block}.conv1.0.conv"
            yield from convolved(ours, up, 0, axes=TRANSPOSED)
        conv = f"{block}.conv2.conv"
        yield from convolved(ours, conv, 1)
        for j in (0, 1):
            yield from epilogue_matches(config.channels(r), block, f"{ours}.epilogue{j}", i, j)
        rgb, why = f"to_rgbs.{i}.conv", "blue, green, red in the file"
        layout: dict[str, Any] = {"change": reversed_channels}
        weight = f"synthesis.to_rgb.{r}.weight", f"{rgb}.weight_orig"
        yield scaled(*weight, math.sqrt(2), f"{HE}; {why}", **layout)
        yield Match(f"synthesis.to_rgb.{r}.bias", f"{rgb}.bias", detail=why, **layout)


def epilogue_matches(channels: int, block: str, ours: str, i: int, j: int) -> Iterator[Match]:
    yield scaled(
        f"{ours}.noise.strength",
        f"{block}.noise_injector{j + 1}.weight",
        NORM_FACTOR,
        f"{NORM_DETAIL}; one for all channels",
        change=lambda strength: strength.expand(channels),
        shape=(1,),
    )
    yield Match(f"{ours}.noise.const", f"injected_noise_{2 * i + j}")
    yield from styled(ours, f"{block}.adain{j + 1}.affine")


def reversed_channels(rgb: Tensor) -> Tensor:
    return rgb.flip(0)
