"""github.com/genforce/genforce: `.pth`, of its training or converted from official snapshots.

Compared with the publisher's program, which computed the numbers in `tests/foreign/genforce.npz`.
The networks are the official ones. What a file does not specify is as in all of the
publisher's configurations: `fused_scale` auto, `use_wscale`, mapping multiplier 0.01, no tanh.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from stylegan.files.formats.foreign import (
    TRANSPOSED,
    Weights,
    blur_kernels,
    built,
    layer,
    mapping_fields,
    names,
    plain_weights,
    shape,
    width_fields,
)
from stylegan.files.formats.matching import FUSED_FROM, Match, filled
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.messages import readable
from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.schedule import resolutions

LAYOUT = "checkpoint of genforce/genforce"
NETWORKS = ("generator_smooth", "generator", "discriminator")
BLUR = "synthesis.layer{}.blur.kernel"
GENERATOR = "mapping.dense0.weight", "synthesis.layer0.style.weight"  # identify the layout
CRITIC = "input0.weight", "layer0.weight", "layer1.blur.kernel"
ASSUMED = (
    "not specified by the file, taken as published: fused_scale auto, use_wscale, "
    "mapping_lr_mul 0.01, final_tanh off"
)


def networks_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The weights by the name of their network, whichever of the three forms the file has."""
    models = content.get("models")
    found = models if isinstance(models, Mapping) else content
    return {name: found[name] for name in NETWORKS if name in found} or {"generator": content}


def is_genforce(content: Mapping[str, Any]) -> bool:
    """Whether some generator has the names of this layout, or some discriminator."""
    networks = networks_of(content).values()
    return any(has(weights, *GENERATOR) or has(weights, *CRITIC) for weights in networks)


def has(weights: Any, *names: str) -> bool:
    """Whether these are among the names of weights."""
    found = weights if isinstance(weights, Mapping) else ()
    return set(names) <= {str(name).removeprefix("module.") for name in found}


def read_genforce(content: Mapping[str, Any]) -> Snapshot:
    """The average generator, else the generator; with the other networks of the file."""
    networks = networks_of(content)
    generators = [plain_weights(networks[n], n) for n in NETWORKS[:2] if n in networks]
    if not generators or has(generators[0], *CRITIC):
        raise ValueError("it is a discriminator; pictures need a generator: generator_smooth")
    config = config_of(generators[0])
    resolution, alpha = growth(generators[0], config)
    discriminator: Discriminator | None = None
    if "discriminator" in networks:
        critic = plain_weights(networks["discriminator"], "discriminator")
        config = with_deviation(config, critic)
        discriminator = discriminator_of(config, critic)
    made = [generator_of(config, weights) for weights in generators]
    loaded = LoadedGenerator(
        made[0],
        LAYOUT,
        psi=0.7,
        cutoff=8,
        resolution=resolution,
        alpha=alpha,
        images_seen=seen_of(content),
    )
    return Snapshot(LAYOUT, loaded, made[-1], discriminator, notes=(ASSUMED,))


def config_of(weights: Weights) -> NetworkConfig:
    label_dim = 0
    if "mapping.label_weight" in weights:
        label_dim = shape(weights, "mapping.label_weight", 2)[0]
    fields = mapping_fields(weights, names(weights, "mapping.dense{}.weight"), label_dim)
    outputs = [shape(weights, n, 4) for n in names(weights, "synthesis.output{}.weight")]
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


def seen_of(content: Mapping[str, Any]) -> int | None:
    """Images seen, where the file says it."""
    metadata = content.get("running_metadata")
    seen = metadata.get("seen_img") if isinstance(metadata, Mapping) else None
    return seen if type(seen) is int and seen >= 0 else None


def generator_of(config: NetworkConfig, weights: Weights) -> Generator:
    blurs = [BLUR.format(2 * i) for i in range(1, len(resolutions(config.resolution)))]
    return built(config, matches(config), weights, blurs=blurs, unused=["synthesis.lod"])


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
        shape_in_file = config.channels(4), config.w_dim, 4, 4
        weight = f"{ours}.dense.weight", f"{theirs}.weight"
        return Match(*weight, change=as_dense, shape=shape_in_file)
    rotated = r >= FUSED_FROM  # the fused upscaling uses the kernel unturned
    return Match(f"{ours}.conv0.weight", f"{theirs}.weight", TRANSPOSED, rotated=rotated)


def as_dense(kernel: Tensor) -> Tensor:
    """(C, w, 4, 4), applied to one pixel with a margin of 3, -> (16 C, w)"""
    # a 4x4 convolution of a 1x1 input padded by 3 uses each tap once, in reverse order
    return kernel.flip(2, 3).permute(0, 2, 3, 1).flatten(0, 2)


def discriminator_of(config: NetworkConfig, critic: Weights) -> Discriminator:
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

    blocks = range(len(resolutions(config.resolution)) - 1)
    unused = {"lod", *blur_kernels(critic, [f"layer{2 * k + 1}.blur.kernel" for k in blocks])}
    return filled(lambda: Discriminator(config), matches(), critic, unused)
