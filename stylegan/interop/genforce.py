"""github.com/genforce/genforce: `.pth`, of its training or converted from official snapshots.

Compared with the publisher's program, which computed the numbers in `tests/foreign/genforce.npz`.
The networks are the official ones. What a file does not tell is taken as in all of the
publisher's configurations: `fused_scale` auto, `use_wscale`, mapping multiplier 0.01, no tanh.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from stylegan.interop.accounts import Account, Imported
from stylegan.interop.foreign import (
    Rule,
    Weights,
    blur_kernels,
    filled,
    mapping_fields,
    numbered,
    plain_weights,
    rotated_too,
    shape,
    transposed,
    width_fields,
)
from stylegan.messages import readable
from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.schedule import resolutions

LAYOUT = "checkpoint of genforce/genforce"
NETWORKS = ("generator_smooth", "generator", "discriminator")
LOD = "the level of detail: it sets the resolution reached"
FUSED_FROM = 128  # pixels: enlarged to from here on by a transposed convolution
ASSUMED = (
    "not told by the file, taken as published: fused_scale auto, use_wscale, mapping_lr_mul 0.01, "
    "final_tanh off"
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
    """Whether some generator has the names of this layout."""
    for weights in parts(content)[0].values():
        if isinstance(weights, Mapping):
            names = {str(name).removeprefix("module.") for name in weights}
            if {"mapping.dense0.weight", "synthesis.layer0.style.weight"} <= names:
                return True
    return False


def read(content: Mapping[str, Any]) -> Imported:
    """The average generator, else the generator; with its discriminator where there is one."""
    networks, others = parts(content)
    chosen = "generator_smooth" if "generator_smooth" in networks else "generator"
    weights = plain_weights(networks[chosen], chosen)
    config = config_of(weights)
    rest = [Account("synthesis.lod", "", "checked", LOD), *blurs(weights, config)]
    resolution, alpha = growth(weights, config)
    critic = networks.pop("discriminator", None)
    discriminator: Discriminator | None = None
    lines: list[Account] = []
    if critic is not None:
        judge = plain_weights(critic, "discriminator")
        config = with_deviation(config, judge)
        discriminator, lines = discriminator_of(config, judge)
    network, accounts = filled(lambda: Generator(config), rules(config), weights, rest)
    unused = [name for name in (*networks, *others) if name != chosen]
    detail = "not the average generator, or no network"
    return Imported(
        LAYOUT,
        network,
        (*accounts, *(Account(name, "", "ignored", detail) for name in unused)),
        psi=0.7,
        cutoff=8,
        resolution=resolution,
        alpha=alpha,
        images_seen=images_seen(content),
        discriminator=discriminator,
        discriminator_accounts=tuple(lines),
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


def with_deviation(config: NetworkConfig, judge: Weights) -> NetworkConfig:
    """`config` with the features of the minibatch deviation that a discriminator has."""
    last = 2 * (len(resolutions(config.resolution)) - 1)
    extra = shape(judge, f"layer{last}.weight", 4)[1] - config.channels(4)
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
        raise ValueError(f"synthesis.lod is {readable(str(lod))}, no level of this network")
    return config.resolution >> math.floor(lod[0]), 1 - lod[0] % 1


def images_seen(content: Mapping[str, Any]) -> int | None:
    metadata = content.get("running_metadata")
    seen = metadata.get("seen_img") if isinstance(metadata, Mapping) else None
    return seen if isinstance(seen, int) else None


def blurs(weights: Weights, config: NetworkConfig) -> Iterator[Account]:
    blocks = range(1, len(resolutions(config.resolution)))
    return blur_kernels(weights, [f"synthesis.layer{2 * i}.blur.kernel" for i in blocks])


def rules(config: NetworkConfig) -> Iterator[Rule]:
    yield Rule("w_avg", "truncation.w_avg")
    if config.label_dim:
        yield Rule("mapping.label_embedding", "mapping.label_weight")
    for i in range(config.mapping_layers):
        yield from layer(f"mapping.layers.{i}", f"mapping.dense{i}")
    for i, r in enumerate(resolutions(config.resolution)):
        ours = "synthesis." + ("input" if r == 4 else f"blocks.{r}")
        first, second = f"synthesis.layer{2 * i}", f"synthesis.layer{2 * i + 1}"
        yield first_rule(config, ours, first, r)
        yield Rule(f"{ours}.conv{'' if r == 4 else 1}.weight", f"{second}.weight")
        for j, theirs in enumerate((first, second)):
            epilogue = f"{ours}.epilogue{j}"
            yield Rule(f"{epilogue}.bias", f"{theirs}.bias")
            yield Rule(f"{epilogue}.noise.strength", f"{theirs}.apply_noise.weight")
            yield Rule(f"{epilogue}.noise.const", f"{theirs}.apply_noise.noise")
            yield from layer(f"{epilogue}.style.affine", f"{theirs}.style")
        yield from layer(f"synthesis.to_rgb.{r}", f"synthesis.output{i}")


def layer(ours: str, theirs: str) -> Iterator[Rule]:
    yield Rule(f"{ours}.weight", f"{theirs}.weight")
    yield Rule(f"{ours}.bias", f"{theirs}.bias")


def first_rule(config: NetworkConfig, ours: str, theirs: str, r: int) -> Rule:
    """The constant or dense layer of the 4x4 block, or an enlarging convolution."""
    if r == 4 and config.constant_input:
        return Rule(f"{ours}.const", f"{theirs}.const")
    if r == 4:
        detail = "a convolution of one pixel"
        return Rule(f"{ours}.dense.weight", f"{theirs}.weight", "rotated", detail, change=as_dense)
    weight = f"{ours}.conv0.weight", f"{theirs}.weight"
    if r < FUSED_FROM:
        return Rule(*weight, "transposed", change=transposed)
    detail = "by 180 degrees, as used unturned in the fused upscaling"
    return Rule(*weight, "rotated", detail, change=rotated_too)


def as_dense(kernel: Tensor) -> Tensor:
    """(C, w, 4, 4), applied to one pixel with a margin of 3, -> (16 C, w)"""
    return kernel.flip(2, 3).permute(0, 2, 3, 1).flatten(0, 2)


def discriminator_of(config: NetworkConfig, judge: Weights) -> tuple[Discriminator, list[Account]]:
    def rules() -> Iterator[Rule]:
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
    rest = [Account("lod", "", "ignored", LOD), *blur_kernels(judge, names)]
    return filled(lambda: Discriminator(config), rules(), judge, rest)
