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

from stylegan.files.formats.foreign import (
    HE,
    NORM_DETAIL,
    NORM_FACTOR,
    TRANSPOSED,
    Weights,
    blur_kernel,
    blur_kernels,
    check_held,
    convolved,
    draw_noise_maps,
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
from stylegan.files.formats.matching import FUSED_FROM, Match, as_theirs, filled
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Account, Snapshot
from stylegan.networks import Generator, NetworkConfig
from stylegan.schedule import resolutions

LAYOUT = "checkpoint of rosinality/style-based-gan-pytorch"
PROGRAM = LAYOUT.removeprefix("checkpoint of ")
NOTE = (
    "w_avg and stored noise maps are not in the file: that program computes and draws them. It "
    "has nine blocks of the paper's widths: others need a change in its model.py, fewer blocks "
    "load_state_dict(..., strict=False)"
)
DENSE = "style.{}.linear"
BLOCK = "generator.progression.{}"


def recognised(content: Mapping[str, Any]) -> bool:
    """Whether a full checkpoint, or weights of its generator."""
    names = [name.removeprefix("module.") for name in content]
    return "g_running" in names or any(n.startswith("generator.progression.") for n in names)


def read(content: Mapping[str, Any]) -> Snapshot:
    """The average generator of a full checkpoint, or the one that the file consists of."""
    full = "g_running" in content
    weights = plain_weights(content["g_running"] if full else content, "the generator")
    config = config_of(weights)
    fused = [i for i in range(len(resolutions(config.resolution))) if is_fused(weights, i)]
    blur = list(blur_kernels(weights, blur_names(config, fused)))
    table = matches(config, fused)
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


def content_of(loaded: LoadedGenerator) -> dict[str, Any]:
    """A full checkpoint, of which the program generates with `g_running`. ValueError if a network
    of that program cannot compute the same."""
    network, config = loaded.generator, loaded.generator.config
    state = network.state_dict()
    size = {"z_dim": config.w_dim, "mapping_width": config.w_dim}
    before = {"bias_before_blur": config.bias_before_blur}
    check_held(config, ("resolution", "w_dim", "mapping_layers"), PROGRAM, **size, **before)
    sizes = resolutions(config.resolution)
    biases = [state[f"synthesis.blocks.{r}.epilogue0.bias"] for r in sizes[1:]]
    if not config.bias_before_blur and any(bias.any() for bias in biases):
        raise ValueError(
            f"networks of {PROGRAM} add a bias before the low-pass filter, and this one after it; "
            "train it with -o network.bias_before_blur=true, or write .pth, for genforce/genforce"
        )
    bias = state["synthesis.input.epilogue0.bias"]  # theirs has none
    state["synthesis.input.const"] = state["synthesis.input.const"] + bias[:, None, None]
    fused = [i for i, r in enumerate(sizes) if r >= FUSED_FROM]
    weights = as_theirs(state, matches(config, fused))
    for name, r in blur_names(config, fused).items():
        weights[name] = blur_kernel(config.channels(r), network.w_avg.dtype)
    return {"g_running": weights}


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


def is_fused(weights: Weights, i: int) -> bool:
    """Whether block i enlarges by a transposed convolution."""
    return f"{BLOCK.format(i)}.conv1.0.weight" in weights


def blur_names(config: NetworkConfig, fused: Collection[int]) -> dict[str, int]:
    """The names of the low-pass filters, and the resolution of each."""
    return {
        f"{BLOCK.format(i)}.conv1.{1 if i in fused else 2}.{name}": r
        for i, r in enumerate(resolutions(config.resolution))
        for name in ("weight", "weight_flip")
        if r > 4
    }


def matches(config: NetworkConfig, fused: Collection[int]) -> Iterator[Match]:
    """`fused`: the blocks that enlarge by a transposed convolution."""
    multiplier = 1 / config.mapping_lr_multiplier
    for i in range(config.mapping_layers):
        name = DENSE.format(2 * i + 1)
        for theirs, ours in (("weight_orig", "weight"), ("bias", "bias")):
            why = "as ours have a multiplier of 0.01"
            yield scaled(f"mapping.layers.{i}.{ours}", f"{name}.{theirs}", multiplier, why)
    for i, r in enumerate(resolutions(config.resolution)):
        block, ours = BLOCK.format(i), "synthesis." + ("input" if r == 4 else f"blocks.{r}")
        yield from upper_matches(block, ours, i, i in fused)
        conv = f"{block}.conv2.conv"
        yield from convolved(ours, conv, 1)
        for j in (0, 1):
            yield from epilogue_matches(config.channels(r), block, f"{ours}.epilogue{j}", j + 1)
        rgb = f"generator.to_rgb.{i}.conv"
        yield scaled(f"synthesis.to_rgb.{r}.weight", f"{rgb}.weight_orig", math.sqrt(2), HE)
        yield Match(f"synthesis.to_rgb.{r}.bias", f"{rgb}.bias")


def upper_matches(block: str, ours: str, i: int, fused: bool) -> Iterator[Match]:
    """The constant of the first block, or the enlarging convolution of a later one."""
    if i == 0:
        yield normed(f"{ours}.const", f"{block}.conv1.input")
    elif fused:
        why = f"{NORM_DETAIL}, and as ours are summed where theirs are averaged; rotated"
        source = f"{block}.conv1.0"
        name = f"{ours}.conv0.weight"
        yield scaled(name, f"{source}.weight", NORM_FACTOR / 4, why, rotated=True)
        yield normed(f"{ours}.epilogue0.bias", f"{source}.bias")
    else:
        source = f"{block}.conv1.1.conv"
        yield from convolved(ours, source, 0, axes=TRANSPOSED)


def epilogue_matches(channels: int, block: str, ours: str, j: int) -> Iterator[Match]:
    strength = NORM_FACTOR * math.sqrt(2 / channels)
    why = f"{NORM_DETAIL}; and their He constant, sqrt(2 / channels)"
    noise = f"{block}.noise{j}.weight_orig"
    layout: dict[str, Any] = {"shape": (1, channels, 1, 1)}
    layout |= {"change": lambda map_: map_.flatten(), "undo": lambda row: row[None, :, None, None]}
    yield scaled(f"{ours}.noise.strength", noise, strength, why, **layout)
    yield from styled(ours, f"{block}.adain{j}.style.linear")
