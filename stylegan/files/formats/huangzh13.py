"""github.com/huangzh13/StyleGAN.pytorch: `GAN_GEN_*.pth` and `GAN_GEN_SHADOW_*.pth`.

Compared with the publisher's program, which computed the numbers in `tests/foreign/huangzh13.npz`.
A file holds the weights of one generator. Its layers and their widths specify the
network; what no configuration file of the publisher can set is taken as in its defaults.
The difference to the official network is the 1e-5 in the instance norm, for which weights are
scaled so that ours computes the same.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from stylegan.files.formats.foreign import (
    TRANSPOSED,
    Weights,
    built,
    has_names,
    layer,
    mapping_fields,
    names,
    normed,
    plain_weights,
    shape,
    trained_resolution,
    width_fields,
)
from stylegan.files.formats.matching import FUSED_FROM, Match
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.networks import NetworkConfig
from stylegan.schedule import resolutions

LAYOUT = "checkpoint of huangzh13/StyleGAN.pytorch"
START, BLOCK = "g_synthesis.init_block", "g_synthesis.blocks.{}"
AVERAGE = "truncation.avg_latent"
ASSUMED = (
    "not specified by the file, taken as published: leaky ReLU, use_wscale, normalized latents, "
    "mapping_lrmul 0.01, instance norm without pixel norm, truncation 0.7 of 8 layers"
)
TRUNCATED = (
    "their training truncates, and their sampling script does not: pass psi 1 to see what the "
    "latter shows"
)


def is_huangzh13(content: Mapping[str, Any]) -> bool:
    return has_names(content, [f"{START}.conv.weight"])


def read_huangzh13(content: Mapping[str, Any]) -> Snapshot:
    """The generator that the file consists of."""
    weights = plain_weights(content)
    config = config_of(weights)
    blocks = range(len(resolutions(config.resolution)) - 1 if config.blur else 0)
    blurs = [f"{BLOCK.format(i)}.conv0_up.intermediate.kernel" for i in blocks]
    averaged = AVERAGE in weights
    table = [*matches(config), *([Match("w_avg", AVERAGE)] if averaged else [])]
    network = built(config, table, weights, blurs=blurs)
    loaded = LoadedGenerator(
        network,
        LAYOUT,
        psi=0.7 if averaged else 1.0,
        cutoff=8 if averaged else None,
        resolution=trained_resolution(network.synthesis),
    )
    return Snapshot(LAYOUT, loaded, network, notes=(ASSUMED, TRUNCATED) if averaged else (ASSUMED,))


def config_of(weights: Weights) -> NetworkConfig:
    label_dim = 0
    if "class_embedding.weight" in weights:
        label_dim = shape(weights, "class_embedding.weight", 2)[0]
    layers = names(weights, "g_mapping.map.dense{}.weight")
    convolutions = [f"{START}.conv.weight", *names(weights, f"{BLOCK}.conv1.weight")]
    return NetworkConfig(
        **width_fields([shape(weights, name, 4)[0] for name in convolutions]),
        **mapping_fields(weights, layers, label_dim),
        image_channels=shape(weights, "g_synthesis.to_rgb.0.weight", 4)[0],
        blur=any(name.endswith(".intermediate.kernel") for name in weights),
    )


def matches(config: NetworkConfig) -> Iterator[Match]:
    if config.label_dim:
        yield Match("mapping.label_embedding", "class_embedding.weight")
    for i in range(config.mapping_layers):
        yield from layer(f"mapping.layers.{i}", f"g_mapping.map.dense{i}")
    yield normed("synthesis.input.const", f"{START}.const")
    yield from block_matches("synthesis.input", START, (START, f"{START}.conv"), "conv")
    for i, r in enumerate(resolutions(config.resolution)[1:]):
        ours, theirs = f"synthesis.blocks.{r}", BLOCK.format(i)
        up, rotated = f"{theirs}.conv0_up", r >= FUSED_FROM
        yield normed(f"{ours}.conv0.weight", f"{up}.weight", axes=TRANSPOSED, rotated=rotated)
        yield from block_matches(ours, theirs, (up, f"{theirs}.conv1"), "conv1")
    for i, r in enumerate(resolutions(config.resolution)):
        yield from layer(f"synthesis.to_rgb.{r}", f"g_synthesis.to_rgb.{i}")


def block_matches(ours: str, theirs: str, biased: tuple[str, str], second: str) -> Iterator[Match]:
    """The second convolution of a block, and what follows both; `biased`: who holds the biases."""
    yield normed(f"{ours}.{second}.weight", f"{biased[1]}.weight")
    for j, source in enumerate(biased):
        epilogue, after = f"{ours}.epilogue{j}", f"{theirs}.epi{j + 1}"
        yield normed(f"{epilogue}.bias", f"{source}.bias")
        yield normed(f"{epilogue}.noise.strength", f"{after}.top_epi.noise.weight")
        yield from layer(f"{epilogue}.style.affine", f"{after}.style_mod.lin")
