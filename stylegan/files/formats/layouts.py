"""How five other PyTorch programs store a generator.

For each program a function names our tensors, theirs, and how the numbers differ. All but
lernapparat's, whose forward pass a test writes down, are compared with the publishers' programs,
which computed the numbers in `tests/foreign/`. Where a program differs from the official one,
weights are scaled so that our network computes the same.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from stylegan.files.formats.matching import FUSED_FROM, Match, growth
from stylegan.networks import NetworkConfig
from stylegan.schedule import resolutions

Tensors = Mapping[str, Tensor]
Content = Mapping[str, object]  # what a file holds: anything, until it is checked
Matches = Callable[[NetworkConfig, Tensors], Iterator[Match]]
NameOf = Callable[[int], str]


# Instance normalization divides by sqrt(variance + epsilon). On features f times as large, our
# epsilon, 1e-8, acts as 1e-8 / f**2: with this f, as the 1e-5 of torch.nn.InstanceNorm2d.
NORM = math.sqrt(1e-8 / 1e-5)
HE = math.sqrt(2)  # of styles and RGB: their He constant has sqrt(2), ours 1
FLIPPED = methodcaller("flip", 0)  # blue, green, red -> red, green, blue
UP = (1, 0, 2, 3)  # (out, in, k, k) -> (in, out, k, k), as our enlarging convolution has it


class Progress(NamedTuple):
    """The progress of a generator's training, as far as a file records it."""

    resolution: int | None = None
    alpha: float = 1.0
    images_seen: int | None = None


class Ablations(TypedDict, total=False):
    """Fields of a NetworkConfig that no shape tells."""

    bias_before_blur: bool
    activation_before_blur: bool


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a program stores a generator."""

    program: str
    needed: tuple[str, ...]  # names that no other layout has
    matches: Matches  # a part of ours that none of them has is 0, drawn or computed
    # their names of the weights whose shapes tell the sizes
    dense: NameOf  # of a mapping layer
    conv: NameOf  # the last convolution of a block
    rgb: str  # a layer of it
    labels: str = ""  # the embedding
    blur: str  # names of the low-pass filters
    blurs: int = 1  # of them in each block
    has_no_blur: bool = False  # where the filters are missing; else that is an error
    ignored: tuple[str, ...] = ()
    config: Ablations = field(default_factory=Ablations)
    shared_noise: bool = False  # one map for both layers of a resolution
    psi: float = 0.7
    cutoff: int | None = None
    untruncated: bool = False  # where the average is missing
    # what else a checkpoint says, from all that it holds and the weights
    progress: Callable[[Content, Tensors, NetworkConfig], Progress] = lambda *_: Progress()
    notes: tuple[str, ...] = ()


class Block(NamedTuple):
    """A block of our synthesis network."""

    number: int
    resolution: int

    @property
    def name(self) -> str:
        return f"synthesis.blocks.{self.resolution}" if self.number else "synthesis.input"

    @property
    def last_conv(self) -> str:
        return f"{self.name}.conv1.weight" if self.number else f"{self.name}.conv.weight"

    @property
    def rgb(self) -> str:
        return f"synthesis.to_rgb.{self.resolution}"


def blocks_of(config: NetworkConfig) -> list[Block]:
    return [Block(i, r) for i, r in enumerate(resolutions(config.resolution))]


def weight_and_bias(ours: str, theirs: str, *, factor: float = 1.0) -> Iterator[Match]:
    yield Match(f"{ours}.weight", f"{theirs}.weight", factor=factor)
    yield Match(f"{ours}.bias", f"{theirs}.bias", factor=factor)


def about_zero(bias: Tensor) -> Tensor:
    """Biases of a style whose first half are scales about 1; ours are about 0."""
    return torch.cat([bias.chunk(2)[0] - 1, bias.chunk(2)[1]])


def he_scaled(strength: Tensor) -> Tensor:
    """Noise strengths (1, channels, 1, 1) that have a He constant."""
    return strength.flatten().double() * (NORM * math.sqrt(2 / strength.numel()))


def fused(block: Block) -> bool:
    """True if a program like the official one enlarges to this block by a transposed convolution,
    whose kernels are ours turned by 180 degrees."""
    return block.resolution >= FUSED_FROM


def like_original(ours: str, theirs: str) -> Iterator[Match]:
    """A style of programs whose weights are called weight_orig, and whose scales are about 1."""
    yield Match(f"{ours}.weight", f"{theirs}.weight_orig", factor=HE)
    yield Match(f"{ours}.bias", f"{theirs}.bias", change=about_zero)


def rosinality(config: NetworkConfig, weights: Tensors) -> Iterator[Match]:
    """Its weights are called weight_orig, with sqrt(2) in the He constant; styles scale about 1."""
    for i in range(config.mapping_layers):  # our multiplier is 0.01
        dense = f"style.{2 * i + 1}.linear"
        yield Match(f"mapping.layers.{i}.weight", f"{dense}.weight_orig", factor=100)
        yield Match(f"mapping.layers.{i}.bias", f"{dense}.bias", factor=100)
    for block in blocks_of(config):
        ours = block.name
        theirs = f"generator.progression.{block.number}"
        conv0 = f"{theirs}.conv1.1.conv"
        enlarging = f"{theirs}.conv1.0"
        if block.number == 0:
            yield Match(f"{ours}.const", f"{theirs}.conv1.input", factor=NORM)
        elif f"{enlarging}.weight" in weights:
            # a transposed convolution, whose kernel is (in, out, k, k) already; a quarter: ours are
            # summed, theirs averaged
            quarter = NORM / 4
            kernel = f"{enlarging}.weight"
            yield Match(f"{ours}.conv0.weight", kernel, rotated=True, factor=quarter)
            yield Match(f"{ours}.epilogue0.bias", f"{enlarging}.bias", factor=NORM)
        else:
            yield Match(f"{ours}.conv0.weight", f"{conv0}.weight_orig", UP, factor=NORM)
            yield Match(f"{ours}.epilogue0.bias", f"{conv0}.bias", factor=NORM)
        yield Match(block.last_conv, f"{theirs}.conv2.conv.weight_orig", factor=NORM)
        yield Match(f"{ours}.epilogue1.bias", f"{theirs}.conv2.conv.bias", factor=NORM)
        for j in range(2):
            epilogue = f"{ours}.epilogue{j}"
            noise = f"{theirs}.noise{j + 1}.weight_orig"
            yield Match(f"{epilogue}.noise.strength", noise, change=he_scaled, shape=(1, 0, 1, 1))
            yield from like_original(
                f"{epilogue}.style.affine", f"{theirs}.adain{j + 1}.style.linear"
            )
        rgb = f"generator.to_rgb.{block.number}.conv"
        yield Match(f"{block.rgb}.weight", f"{rgb}.weight_orig", factor=HE)
        yield Match(f"{block.rgb}.bias", f"{rgb}.bias")


def genforce(config: NetworkConfig, weights: Tensors) -> Iterator[Match]:
    """The official networks, layer by layer."""
    yield Match("w_avg", "truncation.w_avg")
    if config.label_dim:
        yield Match("mapping.label_embedding", "mapping.label_weight")
    for i in range(config.mapping_layers):
        yield from weight_and_bias(f"mapping.layers.{i}", f"mapping.dense{i}")
    for block in blocks_of(config):
        ours = block.name
        first, second = (f"synthesis.layer{2 * block.number + j}" for j in range(2))
        if block.number == 0:
            yield Match(f"{ours}.const", f"{first}.const")
        else:
            yield Match(f"{ours}.conv0.weight", f"{first}.weight", UP, rotated=fused(block))
        yield Match(block.last_conv, f"{second}.weight")
        for j, theirs in enumerate((first, second)):
            epilogue = f"{ours}.epilogue{j}"
            yield Match(f"{epilogue}.bias", f"{theirs}.bias")
            yield Match(f"{epilogue}.noise.strength", f"{theirs}.apply_noise.weight")
            yield Match(f"{epilogue}.noise.const", f"{theirs}.apply_noise.noise")
            yield from weight_and_bias(f"{epilogue}.style.affine", f"{theirs}.style")
        yield from weight_and_bias(block.rgb, f"synthesis.output{block.number}")


def progress_of_genforce(content: Content, weights: Tensors, config: NetworkConfig) -> Progress:
    """Growth by the level of detail; images seen, where the file says it."""
    if "synthesis.lod" not in weights:
        raise ValueError("synthesis.lod is missing")
    lod = weights["synthesis.lod"].reshape(-1).tolist()
    resolution, alpha = growth("synthesis.lod", lod, config.resolution)
    metadata = content.get("running_metadata")
    seen = metadata.get("seen_img") if isinstance(metadata, Mapping) else None
    images_seen = seen if type(seen) is int and seen >= 0 else None
    return Progress(resolution, alpha, images_seen)


def lernapparat_block(number: int) -> str:
    return f"g_synthesis.blocks.{4 << number}x{4 << number}"


def huangzh13_block(number: int) -> str:
    return f"g_synthesis.blocks.{number - 1}" if number else "g_synthesis.init_block"


def last_conv(block_of: NameOf) -> NameOf:
    """The last convolution of a block of either program."""
    return lambda number: f"{block_of(number)}.conv{1 if number else ''}.weight"


def lernapparat(config: NetworkConfig, weights: Tensors) -> Iterator[Match]:
    """As the official networks, but for the normalization; RGB of the full resolution alone."""
    for i in range(config.mapping_layers):
        yield from weight_and_bias(f"mapping.layers.{i}", f"g_mapping.dense{i}")
    for block in blocks_of(config):
        yield from block_of_lernapparat(block, lernapparat_block)
    yield from weight_and_bias(blocks_of(config)[-1].rgb, "g_synthesis.torgb")


def huangzh13(config: NetworkConfig, weights: Tensors) -> Iterator[Match]:
    """The networks of lernapparat with other names, with labels and all RGB layers."""
    if "truncation.avg_latent" in weights:  # of a training with truncation
        yield Match("w_avg", "truncation.avg_latent")
    if config.label_dim:
        yield Match("mapping.label_embedding", "class_embedding.weight")
    for i in range(config.mapping_layers):
        yield from weight_and_bias(f"mapping.layers.{i}", f"g_mapping.map.dense{i}")
    for block in blocks_of(config):
        yield from block_of_lernapparat(block, huangzh13_block)
        yield from weight_and_bias(block.rgb, f"g_synthesis.to_rgb.{block.number}")


def block_of_lernapparat(block: Block, block_of: NameOf) -> Iterator[Match]:
    """All but the RGB layer."""
    ours = block.name
    theirs = block_of(block.number)
    conv1 = last_conv(block_of)(block.number)
    if block.number == 0:
        yield Match(f"{ours}.const", f"{theirs}.const", factor=NORM)
        yield Match(f"{ours}.epilogue0.bias", f"{theirs}.bias", factor=NORM)
    else:
        conv0 = f"{theirs}.conv0_up"
        turned = fused(block)
        yield Match(f"{ours}.conv0.weight", f"{conv0}.weight", UP, rotated=turned, factor=NORM)
        yield Match(f"{ours}.epilogue0.bias", f"{conv0}.bias", factor=NORM)
    yield Match(block.last_conv, conv1, factor=NORM)
    bias = f"{conv1.removesuffix('weight')}bias"
    yield Match(f"{ours}.epilogue1.bias", bias, factor=NORM)
    for j in range(2):
        epilogue = f"{ours}.epilogue{j}"
        epi = f"{theirs}.epi{j + 1}"
        noise = f"{epi}.top_epi.noise.weight"
        yield Match(f"{epilogue}.noise.strength", noise, factor=NORM)
        yield from weight_and_bias(f"{epilogue}.style.affine", f"{epi}.style_mod.lin")


LATENT_NORM = 1 / (1 + 1e-6)  # to 1e-7: mmgeneration adds 1e-6 to the norm of a latent; ours is 1


def mmgeneration(config: NetworkConfig, weights: Tensors) -> Iterator[Match]:
    """Its weights are called weight_orig, with sqrt(2) in the He constant; styles scale about 1."""
    for i in range(config.mapping_layers):
        he = math.sqrt(0.5)  # of the mapping network: their He constant has 1, ours sqrt(2)
        dense = f"style_mapping.{i + 1}"
        factor = he * LATENT_NORM if i == 0 else he
        yield Match(f"mapping.layers.{i}.weight", f"{dense}.linear.weight_orig", factor=factor)
        yield Match(f"mapping.layers.{i}.bias", f"{dense}.bias")
    for block in blocks_of(config):
        ours = block.name
        theirs = f"convs.{block.number}"
        conv0 = f"{theirs}.conv1.0.conv"
        if block.number == 0:
            yield Match(f"{ours}.const", f"{theirs}.conv1.input", factor=NORM)
        else:
            yield Match(f"{ours}.conv0.weight", f"{conv0}.weight_orig", UP, factor=NORM)
            yield Match(f"{ours}.epilogue0.bias", f"{conv0}.bias", factor=NORM)
        yield Match(block.last_conv, f"{theirs}.conv2.conv.weight_orig", factor=NORM)
        yield Match(f"{ours}.epilogue1.bias", f"{theirs}.conv2.conv.bias", factor=NORM)
        for j in range(2):
            epilogue = f"{ours}.epilogue{j}"
            strength = f"{theirs}.noise_injector{j + 1}.weight"  # one for all channels
            yield Match(f"{epilogue}.noise.strength", strength, factor=NORM, shape=(1,))
            yield Match(f"{epilogue}.noise.const", f"injected_noise_{2 * block.number + j}")
            yield from like_original(f"{epilogue}.style.affine", f"{theirs}.adain{j + 1}.affine")
        rgb = f"to_rgbs.{block.number}.conv"
        weight = f"{rgb}.weight_orig"
        yield Match(f"{block.rgb}.weight", weight, factor=HE, change=FLIPPED)
        yield Match(f"{block.rgb}.bias", f"{rgb}.bias", change=FLIPPED)


def progress_of_mmgeneration(content: Content, weights: Tensors, config: NetworkConfig) -> Progress:
    """Growth and images seen, where the file says them."""
    state = content.get("state_dict")
    others = {**content, **state} if isinstance(state, Mapping) else {}

    def scalar(name: str) -> float:
        value = others.get(name)
        return value.item() if isinstance(value, Tensor) and value.numel() == 1 else math.nan

    resolution = scalar("_curr_scale_int")
    seen = scalar("shown_nkimg")
    alpha = scalar("_curr_transition_weight")
    return Progress(
        resolution=int(resolution) if resolution in resolutions(config.resolution) else None,
        alpha=alpha if 0 <= alpha <= 1 else 1.0,
        images_seen=round(1000 * seen) if 0 <= seen < 1e9 else None,
    )


LAYOUTS = (
    Layout(
        program="rosinality/style-based-gan-pytorch",
        needed=("generator.progression.0.conv1.input",),
        matches=rosinality,
        dense=lambda i: f"style.{2 * i + 1}.linear.weight_orig",
        conv=lambda block: f"generator.progression.{block}.conv2.conv.weight_orig",
        rgb="generator.to_rgb.0.conv.weight_orig",
        blur=r"generator\.progression\.\d+\.conv1\.[12]\.weight(_flip)?",
        blurs=2,
        config={"bias_before_blur": True},
        shared_noise=True,
        notes=(
            "the discriminator has other layer widths than ours and is not converted",
            "with noise drawn at random, our two layers of a resolution get a map each; theirs "
            "share one (the stored maps are shared here too)",
        ),
    ),
    Layout(  # the official networks; its training, or converted from official snapshots
        program="genforce/genforce",
        needed=("mapping.dense0.weight", "synthesis.layer0.style.weight"),
        matches=genforce,
        dense=lambda i: f"mapping.dense{i}.weight",
        conv=lambda block: f"synthesis.layer{2 * block + 1}.weight",
        rgb="synthesis.output0.weight",
        labels="mapping.label_weight",
        blur=r"synthesis\.layer\d+\.blur\.kernel",
        ignored=("synthesis.lod",),
        cutoff=8,
        progress=progress_of_genforce,
        notes=(
            "not specified by the file, taken as published: fused_scale auto, use_wscale, "
            "mapping_lr_mul 0.01, final_tanh off",
        ),
    ),
    Layout(  # official snapshots, converted: karras2019stylegan-ffhq-1024x1024.for_g_all.pt
        program="lernapparat/lernapparat",
        needed=("g_mapping.dense0.weight", "g_synthesis.blocks.4x4.const"),
        matches=lernapparat,
        dense=lambda i: f"g_mapping.dense{i}.weight",
        conv=last_conv(lernapparat_block),
        rgb="g_synthesis.torgb.weight",
        blur=r"g_synthesis\.blocks\.\d+x\d+\.conv0_up\.intermediate\.kernel",
        ignored=("truncation.avg_latent",),  # of some use of it; ours is over more latents
        cutoff=8,
        progress=lambda content, weights, config: Progress(config.resolution),
        notes=(
            "not specified by the file, taken as published: leaky ReLU, use_wscale, mapping_lrmul "
            "0.01, instance norm without pixel norm, truncation 0.7 of 8 layers",
            "of the RGB layers only that of the full resolution is there",
        ),
    ),
    Layout(
        program="huangzh13/StyleGAN.pytorch",
        needed=("g_synthesis.init_block.conv.weight",),
        matches=huangzh13,
        dense=lambda i: f"g_mapping.map.dense{i}.weight",
        conv=last_conv(huangzh13_block),
        rgb="g_synthesis.to_rgb.0.weight",
        labels="class_embedding.weight",
        blur=r"g_synthesis\.blocks\.\d+\.conv0_up\.intermediate\.kernel",
        has_no_blur=True,
        cutoff=8,
        untruncated=True,
        notes=(
            "not specified by the file, taken as published: leaky ReLU, use_wscale, normalized "
            "latents, mapping_lrmul 0.01, instance norm without pixel norm, truncation 0.7 of 8 "
            "layers",
            "their training truncates, and their sampling script does not: pass psi 1 to see what "
            "the latter shows",
        ),
    ),
    Layout(  # and of its successor mmagic: StyleGANV1
        program="open-mmlab/mmgeneration",
        needed=("convs.0.conv1.input", "style_mapping.1.linear.weight_orig"),
        matches=mmgeneration,
        dense=lambda i: f"style_mapping.{i + 1}.linear.weight_orig",
        conv=lambda block: f"convs.{block}.conv2.conv.weight_orig",
        rgb="to_rgbs.0.conv.weight_orig",
        blur=r"convs\.\d+\.conv1\.1\.kernel",
        ignored=("steps",),  # the updates of mmagic's average
        config={"activation_before_blur": True},
        psi=1.0,
        progress=progress_of_mmgeneration,
        notes=(
            "not specified by the file, taken as published: lr_mlp 0.01, images in the order blue, "
            "green, red",
            "the discriminator has RGB layers of 3x3 and another head than ours and is not "
            "converted",
        ),
    ),
)
