"""Names of a generator's tensors in five other PyTorch programs, and differences of their values.

Tests compare all with outputs of the original programs in `tests/foreign/`, lernapparat's with
huangzh13's, whose layers it has. Where a program differs from the official one, weights are
scaled so that our network computes the same.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import methodcaller
from typing import NamedTuple

import torch
from torch import Tensor

from stylegan.files.formats.matching import Match, growth, numbers_in
from stylegan.networks import NetworkConfig
from stylegan.schedule import resolutions

Tensors = Mapping[str, Tensor]
Content = Mapping[str, object]  # of a file, unchecked

# Instance normalization divides by sqrt(variance + epsilon). On features f times as large, our
# epsilon, 1e-8, acts as 1e-8 / f**2: with this f, as the 1e-5 of torch.nn.InstanceNorm2d.
NORM = math.sqrt(1e-8 / 1e-5)
HE = math.sqrt(2)  # for styles and RGB: their He constant has sqrt(2), ours 1
HE_DENSE = math.sqrt(0.5)  # for mmgeneration's mapping: their constant has 1, ours sqrt(2)
LATENT_NORM = 1 / (1 + 1e-6)  # to 1e-7: mmgeneration adds 1e-6 to the norm of a latent; ours is 1
FLIPPED = methodcaller("flip", 0)  # blue, green, red -> red, green, blue
UP = (1, 0, 2, 3)  # (out, in, k, k) -> (in, out, k, k), as in our upsampling convolution
LAST_CONV = "*.conv[.1]*"  # `conv` in the input block, `conv1` in others
# blocks from 128x128 (`matching.FUSED_FROM`), which are resolutions of three or more digits
FUSED = "*.blocks.???*.conv0.weight"


class Progress(NamedTuple):
    """Progress of a generator's training, as far as a file contains it."""

    resolution: int | None = None
    alpha: float = 1.0
    images_seen: int | None = None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Tensors of a generator in a program's files, and settings that these files lack.

    A rule is a `Match` of patterns: our names as in `fnmatch`, their name as a template with
    `numbers_in` ours and the `block`. A tensor without a rule is 0, drawn or computed.
    """

    program: str
    needed: tuple[str, ...]  # names that identify the layout
    rules: tuple[Match, ...]
    block: str = ""  # prefix of names in a block
    first_block: str = ""  # prefix in the 4x4 block, if it differs
    blur: str  # regex of the names of low-pass filters
    blurs: int = 1  # low-pass filters per block
    has_no_blur: bool = False  # if the filters are missing; otherwise that is an error
    ignored: tuple[str, ...] = ()
    bias_before_blur: bool = False  # as in NetworkConfig
    activation_before_blur: bool = False
    shared_noise: bool = False  # one map for both layers of a resolution
    psi: float = 0.7
    cutoff: int | None = None
    may_lack_average: bool = False  # w_avg may be missing; then there is no truncation
    # from the whole content of a file and the weights
    progress: Callable[[Content, Tensors, NetworkConfig], Progress] = lambda *_: Progress()
    notes: tuple[str, ...] = ()

    def match(self, name: str, weights: Tensors) -> Match | None:
        """First match of our `name` in the file, else the last; None if the file may lack it."""
        numbers = numbers_in(name)
        block = self.first_block if self.first_block and numbers["b"] == 0 else self.block
        terms = {**numbers, "block": block.format_map(numbers), "end": name.rpartition(".")[2]}
        found = [
            dataclasses.replace(rule, name=name, path=rule.path.format_map(terms))
            for rule in self.rules
            if fnmatchcase(name, rule.name)
        ]
        for match in found:
            if match.path in weights:
                return match
        if not found or (name == "w_avg" and self.may_lack_average):
            return None
        return found[-1]

    def matches(self, names: Iterable[str], weights: Tensors) -> Iterable[Match]:
        """Matches of our names, one for each of their tensors."""
        # the last counts: a single RGB layer belongs to the full resolution
        found = [match for name in names if (match := self.match(name, weights))]
        return {match.path: match for match in found}.values()


def about_zero(bias: Tensor) -> Tensor:
    """Subtract 1 from the scales, the first half of a style's biases: ours are about 0."""
    return torch.cat([bias.chunk(2)[0] - 1, bias.chunk(2)[1]])


def he_scaled(strength: Tensor) -> Tensor:
    """Scale noise strengths (1, C, 1, 1) with a He constant -> (C,)."""
    return strength.flatten().double() * (NORM * math.sqrt(2 / strength.numel()))


def progress_of_genforce(content: Content, weights: Tensors, config: NetworkConfig) -> Progress:
    lod = weights["synthesis.lod"].reshape(-1).tolist()
    resolution, alpha = growth("synthesis.lod", lod, config.resolution)
    metadata = content.get("running_metadata")
    seen = metadata.get("seen_img") if isinstance(metadata, Mapping) else None
    images_seen = seen if type(seen) is int and seen >= 0 else None
    return Progress(resolution, alpha, images_seen)


def progress_of_mmgeneration(content: Content, weights: Tensors, config: NetworkConfig) -> Progress:
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


# Weights are called weight_orig, with sqrt(2) in the He constant; styles scale about 1.
ROSINALITY = (
    Match("mapping.layers.*.weight", "style.{2i+1}.linear.weight_orig", factor=100),  # ours: 0.01
    Match("mapping.layers.*.bias", "style.{2i+1}.linear.bias", factor=100),
    Match("*.input.const", "{block}.conv1.input", factor=NORM),
    # of a transposed convolution: (in, out, k, k); a quarter, as ours sums and theirs averages
    Match("*.conv0.weight", "{block}.conv1.0.weight", rotated=True, factor=NORM / 4),
    Match("*.conv0.weight", "{block}.conv1.1.conv.weight_orig", UP, factor=NORM),
    Match("*.blocks.*.epilogue0.bias", "{block}.conv1.0.bias", factor=NORM),
    Match("*.blocks.*.epilogue0.bias", "{block}.conv1.1.conv.bias", factor=NORM),
    Match(LAST_CONV, "{block}.conv2.conv.weight_orig", factor=NORM),
    Match("*.epilogue1.bias", "{block}.conv2.conv.bias", factor=NORM),
    Match("*.strength", "{block}.noise{j+1}.weight_orig", change=he_scaled, shape=(1, 0, 1, 1)),
    Match("*.affine.weight", "{block}.adain{j+1}.style.linear.weight_orig", factor=HE),
    Match("*.affine.bias", "{block}.adain{j+1}.style.linear.bias", change=about_zero),
    Match("*.to_rgb.*.weight", "generator.to_rgb.{b}.conv.weight_orig", factor=HE),
    Match("*.to_rgb.*.bias", "generator.to_rgb.{b}.conv.bias"),
)
# The official networks, layer by layer.
GENFORCE = (
    Match("w_avg", "truncation.w_avg"),
    Match("mapping.label_embedding", "mapping.label_weight"),
    Match("mapping.layers.*", "mapping.dense{i}.{end}"),
    Match("*.input.const", "synthesis.layer0.const"),
    Match(FUSED, "synthesis.layer{2b+j}.weight", UP, rotated=True),
    Match("*.conv0.weight", "synthesis.layer{2b+j}.weight", UP),
    Match(LAST_CONV, "synthesis.layer{2b+j}.weight"),
    Match("*.epilogue?.bias", "synthesis.layer{2b+j}.bias"),
    Match("*.strength", "synthesis.layer{2b+j}.apply_noise.weight"),
    Match("*.noise.const", "synthesis.layer{2b+j}.apply_noise.noise"),
    Match("*.affine.*", "synthesis.layer{2b+j}.style.{end}"),
    Match("*.to_rgb.*", "synthesis.output{b}.{end}"),
)
# The official networks, except for the normalization.
BLOCKS_OF_LERNAPPARAT = (
    Match("*.input.const", "{block}.const", factor=NORM),
    Match("*.input.epilogue0.bias", "{block}.bias", factor=NORM),
    Match(FUSED, "{block}.conv0_up.weight", UP, rotated=True, factor=NORM),
    Match("*.conv0.weight", "{block}.conv0_up.weight", UP, factor=NORM),
    Match("*.blocks.*.epilogue0.bias", "{block}.conv0_up.bias", factor=NORM),
    Match("*.input.conv.weight", "{block}.conv.weight", factor=NORM),
    Match("*.input.epilogue1.bias", "{block}.conv.bias", factor=NORM),
    Match("*.conv1.weight", "{block}.conv1.weight", factor=NORM),
    Match("*.blocks.*.epilogue1.bias", "{block}.conv1.bias", factor=NORM),
    Match("*.strength", "{block}.epi{j+1}.top_epi.noise.weight", factor=NORM),
    Match("*.affine.*", "{block}.epi{j+1}.style_mod.lin.{end}"),
)
LERNAPPARAT = (
    Match("mapping.layers.*", "g_mapping.dense{i}.{end}"),
    *BLOCKS_OF_LERNAPPARAT,
    Match("*.to_rgb.*", "g_synthesis.torgb.{end}"),  # of the full resolution
)
HUANGZH13 = (
    Match("w_avg", "truncation.avg_latent"),
    Match("mapping.label_embedding", "class_embedding.weight"),
    Match("mapping.layers.*", "g_mapping.map.dense{i}.{end}"),
    *BLOCKS_OF_LERNAPPARAT,
    Match("*.to_rgb.*", "g_synthesis.to_rgb.{b}.{end}"),
)
# As rosinality's, except for the mapping network and the order of colors.
MMGENERATION = (
    Match(
        "mapping.layers.0.weight",
        "style_mapping.1.linear.weight_orig",
        factor=HE_DENSE * LATENT_NORM,
    ),
    Match("mapping.layers.*.weight", "style_mapping.{i+1}.linear.weight_orig", factor=HE_DENSE),
    Match("mapping.layers.*.bias", "style_mapping.{i+1}.bias"),
    Match("*.input.const", "{block}.conv1.input", factor=NORM),
    Match("*.conv0.weight", "{block}.conv1.0.conv.weight_orig", UP, factor=NORM),
    Match("*.blocks.*.epilogue0.bias", "{block}.conv1.0.conv.bias", factor=NORM),
    Match(LAST_CONV, "{block}.conv2.conv.weight_orig", factor=NORM),
    Match("*.epilogue1.bias", "{block}.conv2.conv.bias", factor=NORM),
    # one strength for all channels
    Match("*.strength", "{block}.noise_injector{j+1}.weight", factor=NORM, shape=(1,)),
    Match("*.noise.const", "injected_noise_{2b+j}"),
    Match("*.affine.weight", "{block}.adain{j+1}.affine.weight_orig", factor=HE),
    Match("*.affine.bias", "{block}.adain{j+1}.affine.bias", change=about_zero),
    Match("*.to_rgb.*.weight", "to_rgbs.{b}.conv.weight_orig", factor=HE, change=FLIPPED),
    Match("*.to_rgb.*.bias", "to_rgbs.{b}.conv.bias", change=FLIPPED),
)

LAYOUTS = (
    Layout(
        program="rosinality/style-based-gan-pytorch",
        needed=("generator.progression.0.conv1.input",),
        rules=ROSINALITY,
        block="generator.progression.{b}",
        blur=r"generator\.progression\.\d+\.conv1\.[12]\.weight(_flip)?",
        blurs=2,
        bias_before_blur=True,
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
        rules=GENFORCE,
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
        rules=LERNAPPARAT,
        block="g_synthesis.blocks.{r}x{r}",
        blur=r"g_synthesis\.blocks\.\d+x\d+\.conv0_up\.intermediate\.kernel",
        ignored=("truncation.avg_latent",),  # ours averages more latents
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
        rules=HUANGZH13,
        block="g_synthesis.blocks.{b-1}",
        first_block="g_synthesis.init_block",
        blur=r"g_synthesis\.blocks\.\d+\.conv0_up\.intermediate\.kernel",
        has_no_blur=True,
        cutoff=8,
        may_lack_average=True,
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
        rules=MMGENERATION,
        block="convs.{b}",
        blur=r"convs\.\d+\.conv1\.1\.kernel",
        ignored=("steps",),  # the updates of mmagic's average
        activation_before_blur=True,
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
