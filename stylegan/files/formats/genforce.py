"""github.com/genforce/genforce: `.pth`, of its training or converted from official snapshots.

Compared with the publisher's program, which computed the numbers in `tests/foreign/genforce.npz`.
The networks are the official ones. What a file does not specify is as in all of the
publisher's configurations: `fused_scale` auto, `use_wscale`, mapping multiplier 0.01, no tanh.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from stylegan.files.formats.foreign import (
    TRANSPOSED,
    Weights,
    blur_kernel,
    blur_kernels,
    check_held,
    layer,
    mapping_fields,
    numbered,
    plain_weights,
    shape,
    width_fields,
)
from stylegan.files.formats.matching import FUSED_FROM, Account, Match, as_theirs, filled
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.messages import readable
from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.schedule import resolutions

LAYOUT = "checkpoint of genforce/genforce"
PROGRAM = LAYOUT.removeprefix("checkpoint of ")
NETWORKS = ("generator_smooth", "generator", "discriminator")
TURNED = "by 180 degrees, as used unturned in the fused upscaling"
BLUR = "synthesis.layer{}.blur.kernel"
LOD = "the level of detail: it sets the resolution reached"
GENERATOR = "mapping.dense0.weight", "synthesis.layer0.style.weight"  # identify the layout
CRITIC = "input0.weight", "layer0.weight", "layer1.blur.kernel"
ASSUMED = (
    "not specified by the file, taken as published: fused_scale auto, use_wscale, "
    "mapping_lr_mul 0.01, final_tanh off"
)


def parts(content: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The weights by the name of their network, whichever of the three forms the file has, and
    the names of what else is in it."""
    models = content.get("models")
    if isinstance(models, Mapping):
        networks = {name: models[name] for name in NETWORKS if name in models}
        others = [name for name in (*models, *content) if name not in (*networks, "models")]
        return networks, others
    networks = {name: content[name] for name in NETWORKS if name in content}
    if networks:
        return networks, [name for name in content if name not in networks]
    return {"generator": content}, []


def recognised(content: Mapping[str, Any]) -> bool:
    """Whether some generator has the names of this layout, or some discriminator."""
    networks = parts(content)[0].values()
    return any(has(weights, *GENERATOR) or has(weights, *CRITIC) for weights in networks)


def has(weights: Any, *names: str) -> bool:
    """Whether these are among the names of weights."""
    found = weights if isinstance(weights, Mapping) else ()
    return set(names) <= {str(name).removeprefix("module.") for name in found}


def read(content: Mapping[str, Any]) -> Snapshot:
    """The average generator, else the generator; with what else there is of them."""
    networks, others = parts(content)
    chosen = "generator_smooth" if "generator_smooth" in networks else "generator"
    if chosen not in networks or has(networks[chosen], *CRITIC):
        raise ValueError("it is a discriminator; pictures need a generator: generator_smooth")
    weights = plain_weights(networks[chosen], chosen)
    config = config_of(weights)
    resolution, alpha = growth(weights, config)
    critic = networks.pop("discriminator", None)
    discriminator: Discriminator | None = None
    lines: list[Account] = []
    if critic is not None:
        critic = plain_weights(critic, "discriminator")
        config = with_deviation(config, critic)
        discriminator, lines = discriminator_of(config, critic)
    network, accounts = generator_of(config, weights)
    trained = network
    if chosen != "generator" and "generator" in networks:
        trained = generator_of(config, plain_weights(networks["generator"], "generator"))[0]
        accounts.append(Account("generator", "", "checked", "`train --init-from` goes on from it"))
    accounts += [Account(name, "", "ignored", "no network that is used here") for name in others]
    return Snapshot(
        LAYOUT,
        trained,
        discriminator,
        network,
        tuple(accounts),
        tuple(lines),
        psi=0.7,
        cutoff=8,
        resolution=resolution,
        alpha=alpha,
        images_seen=images_seen(content),
        notes=(ASSUMED,),
    )


def config_of(weights: Weights) -> NetworkConfig:
    label_dim = 0
    if "mapping.label_weight" in weights:
        label_dim = shape(weights, "mapping.label_weight", 2)[0]
    layers = numbered(weights, "mapping.dense{}.weight")
    blocks = numbered(weights, "synthesis.output{}.weight")
    outputs = [shape(weights, f"synthesis.output{i}.weight", 4) for i in range(blocks)]
    fields = mapping_fields(weights, [f"mapping.dense{i}.weight" for i in range(layers)], label_dim)
    w_dim = shape(weights, "synthesis.layer0.style.weight", 2)[1]
    if fields["w_dim"] != w_dim:
        raise ValueError(
            f"the mapping gives {fields['w_dim']} numbers and a style takes {w_dim}: one w for "
            "each layer (repeat_w off) is not supported"
        )
    return NetworkConfig(
        **width_fields([found[1] for found in outputs]),
        **fields,
        image_channels=outputs[0][0],
        constant_input="synthesis.layer0.const" in weights,
    )


def with_deviation(config: NetworkConfig, critic: Weights) -> NetworkConfig:
    """`config` with the features of the minibatch deviation that a discriminator has."""
    last = 2 * (len(resolutions(config.resolution)) - 1)
    extra = shape(critic, f"layer{last}.weight", 4)[1] - config.channels(4)
    if extra < 0:
        raise ValueError("the discriminator is not that of the generator: it has other widths")
    if extra == 0:
        return dataclasses.replace(config, deviation_group=0)
    return dataclasses.replace(config, deviation_features=extra)


def growth(weights: Weights, config: NetworkConfig) -> tuple[int, float]:
    """Resolution and alpha of the level of detail that the file stores."""
    if "synthesis.lod" not in weights:
        raise ValueError("synthesis.lod is missing")
    lod = weights["synthesis.lod"].reshape(-1).tolist()
    if len(lod) != 1 or not 0 <= lod[0] < len(resolutions(config.resolution)):
        raise ValueError(f"synthesis.lod is {readable(str(lod))}, not a level of this network")
    return config.resolution >> math.floor(lod[0]), 1 - lod[0] % 1


def images_seen(content: Mapping[str, Any]) -> int | None:
    metadata = content.get("running_metadata")
    seen = metadata.get("seen_img") if isinstance(metadata, Mapping) else None
    return seen if type(seen) is int and seen >= 0 else None


def blurs(weights: Weights, config: NetworkConfig) -> Iterator[Account]:
    blocks = range(1, len(resolutions(config.resolution)))
    return blur_kernels(weights, [BLUR.format(2 * i) for i in blocks])


def generator_of(config: NetworkConfig, weights: Weights) -> tuple[Generator, list[Account]]:
    rest = [Account("synthesis.lod", "", "checked", LOD), *blurs(weights, config)]
    return filled(lambda: Generator(config), matches(config), weights, rest)


HELD = (
    *("resolution", "image_channels", "label_dim", "z_dim", "w_dim"),
    *("mapping_layers", "mapping_width", "constant_input"),
)
NOTE = "psi, cutoff and label names are not in the file: pass them to that program"


def content_of(loaded: LoadedGenerator) -> dict[str, Any]:
    """A checkpoint of this layout. ValueError if a network of it cannot be such a one."""
    network, config = loaded.generator, loaded.generator.config
    check_held(config, HELD, PROGRAM)
    weights = as_theirs(network.state_dict(), matches(config))
    dtype = network.w_avg.dtype
    for i, r in enumerate(resolutions(config.resolution)[1:], start=1):
        weights[BLUR.format(i * 2)] = blur_kernel(config.channels(r), dtype)
    lod = math.log2(config.resolution / loaded.resolution) + 1 - loaded.alpha
    weights["synthesis.lod"] = torch.tensor(lod, dtype=dtype)
    seen = {} if loaded.images_seen is None else {"seen_img": loaded.images_seen}
    return {"generator_smooth": weights} | ({"running_metadata": seen} if seen else {})


def matches(config: NetworkConfig) -> Iterator[Match]:
    yield Match("w_avg", "truncation.w_avg")
    if config.label_dim:
        yield Match("mapping.label_embedding", "mapping.label_weight")
    for i in range(config.mapping_layers):
        yield from layer(f"mapping.layers.{i}", f"mapping.dense{i}")
    for i, r in enumerate(resolutions(config.resolution)):
        ours = "synthesis." + ("input" if r == 4 else f"blocks.{r}")
        first, second = f"synthesis.layer{2 * i}", f"synthesis.layer{2 * i + 1}"
        yield first_match(config, ours, first, r)
        yield Match(f"{ours}.conv{'' if r == 4 else 1}.weight", f"{second}.weight")
        for j, theirs in enumerate((first, second)):
            epilogue = f"{ours}.epilogue{j}"
            yield Match(f"{epilogue}.bias", f"{theirs}.bias")
            yield Match(f"{epilogue}.noise.strength", f"{theirs}.apply_noise.weight")
            yield Match(f"{epilogue}.noise.const", f"{theirs}.apply_noise.noise")
            yield from layer(f"{epilogue}.style.affine", f"{theirs}.style")
        yield from layer(f"synthesis.to_rgb.{r}", f"synthesis.output{i}")


def first_match(config: NetworkConfig, ours: str, theirs: str, r: int) -> Match:
    """The constant or dense layer of the 4x4 block, or an enlarging convolution."""
    if r == 4 and config.constant_input:
        return Match(f"{ours}.const", f"{theirs}.const")
    if r == 4:
        file = config.channels(4), config.w_dim, 4, 4
        dense: dict[str, Any] = {
            "change": as_dense,
            "undo": as_kernel,
            "shape": file,
            "detail": "a convolution of one pixel",
        }
        return Match(f"{ours}.dense.weight", f"{theirs}.weight", **dense)
    weight = f"{ours}.conv0.weight", f"{theirs}.weight", TRANSPOSED
    if r < FUSED_FROM:
        return Match(*weight)
    return Match(*weight, rotated=True, detail=TURNED)


def as_dense(kernel: Tensor) -> Tensor:
    """(C, w, 4, 4), applied to one pixel with a margin of 3, -> (16 C, w)"""
    return kernel.flip(2, 3).permute(0, 2, 3, 1).flatten(0, 2)


def as_kernel(dense: Tensor) -> Tensor:
    """The way back of `as_dense`."""
    return dense.unflatten(0, (-1, 4, 4)).permute(0, 3, 1, 2).flip(2, 3)


def discriminator_of(config: NetworkConfig, critic: Weights) -> tuple[Discriminator, list[Account]]:
    def matches() -> Iterator[Match]:
        sizes = list(reversed(resolutions(config.resolution)))
        for k, r in enumerate(sizes):
            yield from layer(f"from_rgb.{r}.conv", f"input{k}")
            if r > 4:
                yield from layer(f"blocks.{r}.conv0", f"layer{2 * k}")
                yield from layer(f"blocks.{r}.conv1", f"layer{2 * k + 1}")
        last = 2 * len(sizes) - 2
        for i, name in enumerate(("head.conv", "head.dense", "head.out")):
            yield from layer(name, f"layer{last + i}")

    names = [
        f"layer{2 * k + 1}.blur.kernel" for k in range(len(resolutions(config.resolution)) - 1)
    ]
    level = [Account("lod", "", "ignored", LOD)] if "lod" in critic else []
    rest = [*level, *blur_kernels(critic, names)]
    return filled(lambda: Discriminator(config), matches(), critic, rest)
