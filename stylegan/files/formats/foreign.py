"""Checkpoints of other PyTorch programs -> our networks.

Each layout is a table: our tensors, their names in a file, and how the numbers differ. All four are
compared with the publishers' programs, which computed the numbers in `tests/foreign/`. Where a
program differs from the official one, weights are scaled so that our network computes the same.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stylegan.files.checkpoint import FLOATS, check_weights
from stylegan.files.formats.matching import FUSED_FROM, Match, filled, growth
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.weights import Weights
from stylegan.messages import readable, reason_of
from stylegan.networks import Generator, NetworkConfig, SynthesisNetwork
from stylegan.sampling import in_turn, mapped
from stylegan.schedule import resolutions

Tensors = Mapping[str, Tensor]
Fields = dict[str, Any]  # of a LoadedGenerator or a NetworkConfig, by name
Content = Mapping[str, Any]  # what a file holds: anything, until it is checked

AVERAGED = 10_240  # latents whose mean w stands for the average that a file lacks
CHUNK = 1024  # of them at once
# Instance normalization divides by sqrt(variance + epsilon). On features f times as large, our
# epsilon, 1e-8, acts as 1e-8 / f**2: with this f, as the 1e-5 of torch.nn.InstanceNorm2d.
NORM = math.sqrt(1e-8 / 1e-5)
HE = math.sqrt(2)  # of styles and RGB: their He constant has sqrt(2), ours 1
EPILOGUE = "noise.strength", "noise.const", "style.affine.weight", "style.affine.bias"
FLIPPED = methodcaller("flip", 0)  # blue, green, red -> red, green, blue
UP = (1, 0, 2, 3)  # (out, in, k, k) -> (in, out, k, k), as our enlarging convolution has it


@dataclass(frozen=True)
class Layout:
    """How a program stores a generator."""

    program: str
    needed: tuple[str, ...]  # names that no other layout has
    # `name` is a part (see `parts`), or the start of one with a weight and a bias; `path` is a
    # pattern. Of several for a part the first that the file has is taken; a part without a row is
    # 0, drawn or computed.
    rows: tuple[Match, ...]
    blur: str  # names of the low-pass filters
    blurs: int = 1  # of them in each block
    # weights are called weight_orig, all with sqrt(2) in the He constant; styles scale about 1
    original: bool = False
    optional: tuple[str, ...] = ()  # "average", "blur": not in every file
    ignored: tuple[str, ...] = ()
    config: Content = field(default_factory=dict)  # fields that no shape tells
    fused: bool = False  # from 128x128 on their enlarging kernels are ours turned by 180 degrees
    latent_norm: float = 1.0  # root mean square of their normalized latents; ours have 1
    shared_noise: bool = False  # one map for both layers of a resolution
    psi: float = 0.7
    cutoff: int | None = None
    # what else a checkpoint says of its generator, from all that it holds and the weights
    said: Callable[[Content, Tensors, NetworkConfig], Fields] = lambda *_: {}
    notes: tuple[str, ...] = ()

    def match(self, part: str, i: int, j: int, weights: Tensors, name: str = "") -> Match | None:
        """Of a part in the mapping layer or block `i`, layer `j` of it; None if there is no row."""
        block = "init_block" if i == 0 else f"blocks.{i - 1}"
        numbers = {"i": i, "next": i + 1, "odd": 2 * i + 1, "layer": 2 * i + j, "j": j + 1}
        fused = self.fused and part == "conv0.weight" and 4 * 2**i >= FUSED_FROM
        latent = self.latent_norm if (part, i) == ("dense.weight", 0) else 1
        he = HE if self.original and part in ("style.affine.weight", "rgb.weight") else 1
        rows = []
        for row in self.rows:
            end = part.removeprefix(row.name)
            change = row.change
            if end not in ("", ".weight", ".bias"):
                continue
            if self.original:
                end += "_orig" if end == ".weight" else ""
                change = about_zero if part == "style.affine.bias" else change
            path = row.path.format(block=block, **numbers) + end
            factor = row.factor * latent * he
            # the kernel of a transposed convolution, `row.rotated`, is (in, out, k, k) already
            axes = UP if part == "conv0.weight" and not row.rotated else ()
            rows.append(Match(name, path, axes, row.rotated or fused, factor, change, row.shape))
        return next((row for row in rows if row.path in weights), rows[0] if rows else None)

    def shapes(self, part: str, weights: Tensors) -> list[tuple[int, ...]]:
        """The shapes of a part in layer or block 0, 1, ... as far as there are such weights."""
        rows = (self.match(part, i, 0, weights) for i in itertools.count())
        paths = itertools.takewhile(weights.__contains__, (row.path if row else "" for row in rows))
        return [shape(weights, path) for path in paths]


def parts(config: NetworkConfig) -> Iterator[tuple[str, str, int, int]]:
    """The tensors of a generator: part, our name, mapping layer or block, layer of the block."""
    yield "average", "w_avg", 0, 0
    if config.label_dim:
        yield "labels", "mapping.label_embedding", 0, 0
    for i, kind in itertools.product(range(config.mapping_layers), ("weight", "bias")):
        yield f"dense.{kind}", f"mapping.layers.{i}.{kind}", i, 0
    for i, r in enumerate(resolutions(config.resolution)):
        ours = f"synthesis.blocks.{r}" if i else "synthesis.input"
        if i == 0:
            yield "const", f"{ours}.const", i, 0
        else:
            yield "conv0.weight", f"{ours}.conv0.weight", i, 0
        yield "conv1.weight", f"{ours}.conv1.weight" if i else f"{ours}.conv.weight", i, 1
        for j, before in enumerate(("conv0" if i else "start", "conv1")):
            yield f"{before}.bias", f"{ours}.epilogue{j}.bias", i, j
            for part in EPILOGUE:
                yield part, f"{ours}.epilogue{j}.{part}", i, j
        for kind in ("weight", "bias"):
            yield f"rgb.{kind}", f"synthesis.to_rgb.{r}.{kind}", i, 0


def import_weights(content: object, file: Path = Path("memory")) -> Weights:
    """The networks of a file of another PyTorch program, from its `content`, safely loaded.
    ValueError says what does not fit, going on from the name of the file."""
    if isinstance(content, Mapping):
        for weights, layout in itertools.product(generators_in(content), LAYOUTS):
            if weights.keys() >= set(layout.needed):
                try:
                    return read(layout, weights, content, file)
                except Exception as error:  # a hostile file can raise almost anything
                    reason = readable(reason_of(error), 1500)
                    raise ValueError(
                        f"looks like a checkpoint of {layout.program}, but {reason}"
                    ) from error
    raise ValueError(
        "is a PyTorch file, but not a checkpoint of this project, nor of one of "
        + ", ".join(layout.program for layout in LAYOUTS)
    )


def generators_in(content: Content) -> Iterator[Fields]:
    """What may be the weights of a generator, the average one first."""
    models = content.get("models", content)
    state = content.get("state_dict", content)
    if isinstance(models, Mapping):
        for name in ("g_running", "generator_smooth", "generator"):
            if isinstance(tensors := models.get(name), Mapping):
                yield starting(tensors, "")
    if isinstance(state, Mapping):
        yield from (starting(state, start) for start in ("generator_ema.", "generator.", ""))


def starting(weights: Content, start: str) -> Fields:
    """Those whose names begin so, without that and the prefix of DataParallel."""
    return {
        str(name).removeprefix(start).removeprefix("module."): value
        for name, value in weights.items()
        if str(name).startswith(start)
    }


def read(layout: Layout, stored: Content, content: Content, file: Path) -> Weights:
    """The generator whose weights are `stored`, in eval mode."""
    check_weights(stored)
    kernels = [name for name in stored if re.fullmatch(layout.blur, name)]
    left_out = {*kernels, *layout.ignored}
    weights = {name: tensor for name, tensor in stored.items() if name not in left_out}
    config = config_of(layout, weights, blur=bool(kernels) or "blur" not in layout.optional)
    blocks = len(resolutions(config.resolution)) - 1
    if len(kernels) != (layout.blurs * blocks if config.blur else 0):
        raise ValueError(f"{len(kernels)} low-pass filters are there for {blocks} blocks")
    for name in kernels:
        check_blur(name, stored[name])
    said = layout.said(content, stored, config)
    matches = [
        match
        for part, name, i, j in parts(config)
        if (match := layout.match(part, i, j, weights, name)) is not None
        and (match.path in weights or part not in layout.optional)
    ]
    network = filled(lambda: Generator(config), lambda _: matches, weights)
    names = {match.name for match in matches}
    if "synthesis.input.epilogue0.noise.const" not in names:
        draw_noise_maps(network.synthesis, shared=layout.shared_noise)
    psi = layout.psi
    cutoff = layout.cutoff
    notes = layout.notes
    if "w_avg" not in names:
        network.w_avg.copy_(mean_w(network))
        if "average" in layout.optional:  # trained without truncation
            psi = 1.0
            cutoff = None
            notes = notes[:1]
    if "resolution" not in said:
        said["resolution"] = trained_resolution(network.synthesis)
    kind = f"checkpoint of {layout.program}"
    loaded = LoadedGenerator(network, f"{kind} {file}", psi=psi, cutoff=cutoff, **said)
    return Weights(file, kind, loaded, network, notes=notes)


def config_of(layout: Layout, weights: Tensors, *, blur: bool) -> NetworkConfig:
    """The configuration that the shapes of weights imply."""
    dense = layout.shapes("dense.weight", weights)
    labels = layout.match("labels", 0, 0, weights)
    if not dense:
        raise ValueError("there are no layers of a mapping network")
    inputs = dense[0][1]
    label_dim = 0
    if labels is not None and labels.path in weights:
        label_dim = shape(weights, labels.path)[0]
        if inputs % 2:
            raise ValueError(f"the mapping network has {inputs} inputs, not a latent and a label")
    rgb = layout.match("rgb.weight", 0, 0, weights)
    assert rgb is not None
    return NetworkConfig(
        **width_fields([channels for channels, *_ in layout.shapes("conv1.weight", weights)]),
        label_dim=label_dim,
        z_dim=inputs // 2 if label_dim else inputs,
        w_dim=dense[-1][0],
        mapping_layers=len(dense),
        mapping_width=dense[0][0],
        image_channels=shape(weights, rgb.path)[0],
        blur=blur,
        **layout.config,
    )


def shape(weights: Tensors, name: str) -> tuple[int, ...]:
    """The shape of a tensor that the configuration is read from."""
    if name not in weights:
        raise ValueError(f"{name} is missing")
    sizes = tuple(weights[name].shape)
    if len(sizes) not in (2, 4) or 0 in sizes:
        raise ValueError(f"{name} has shape {sizes}, where 2 or 4 dimensions are due")
    return sizes


def width_fields(channels: list[int]) -> Fields:
    """resolution, channel_base and max_channels of layers so wide at 4x4, 8x8, ..."""
    if not 1 <= len(channels) <= 20:
        raise ValueError(f"the network has {len(channels)} blocks")
    sizes = [4 * 2**i for i in range(len(channels))]
    cap = max(channels)
    below = [(r, c) for r, c in zip(sizes, channels, strict=True) if c < cap]
    wanted = below[0][0] * below[0][1] // 2 if below else max(8192, cap * sizes[-1] // 2)
    for base in (8192, wanted):
        config = NetworkConfig(sizes[-1], channel_base=base, max_channels=cap)
        if [config.channels(r) for r in sizes] == channels:
            return {"resolution": sizes[-1], "channel_base": base, "max_channels": cap}
    raise ValueError(
        f"the layers have {', '.join(map(str, channels))} channels from 4x4 on; only widths that "
        "halve with each doubling below a maximum are supported"
    )


def check_blur(name: str, kernel: Tensor) -> None:
    """ValueError unless a stored low-pass filter is the one that we have."""
    row = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    expected = torch.outer(row, row) / 16
    right = kernel.dtype in FLOATS and kernel.numel() > 0
    right = right and (kernel.shape[1:] == (1, 3, 3) or kernel.shape == (3, 3))
    if not right or not torch.allclose(kernel.double(), expected.expand_as(kernel), atol=1e-4):
        raise ValueError(f"{name} is not the low-pass filter [1, 2, 1]; only that is supported")


def trained_resolution(synthesis: SynthesisNetwork) -> int:
    """The resolution up to which some noise strength has left zero, where training begins."""
    layers = synthesis.noise_layers(synthesis.config.resolution)
    moved = [i for i, e in enumerate(layers) if e.noise is not None and e.noise.strength.any()]
    if not moved:
        raise ValueError("all noise strengths are zero: nothing of the network has been trained")
    return int(4 * 2 ** (moved[-1] // 2))


def draw_noise_maps(synthesis: SynthesisNetwork, *, shared: bool) -> None:
    """Fill the stored noise maps from seed 0; `shared`: one map for both layers of a resolution."""
    random = torch.Generator().manual_seed(0)
    stored = [m for n, m in synthesis.named_buffers() if n.endswith("noise.const")]
    for first, second in zip(stored[::2], stored[1::2], strict=True):
        maps = [torch.randn(first.shape, generator=random) for _ in range(2)]
        first.copy_(maps[0])
        second.copy_(maps[0 if shared else 1])


def mean_w(generator: Generator) -> Tensor:
    """The average w for files that do not keep it: over fixed latents, and the labels in turn."""
    config = generator.config
    random = torch.Generator().manual_seed(0)
    total = torch.zeros(config.w_dim, dtype=torch.float64)
    labels = in_turn(range(CHUNK), config.label_dim)
    for _ in range(AVERAGED // CHUNK):
        z = torch.randn(CHUNK, config.z_dim, generator=random)
        total += mapped(generator, z, labels).double().sum(dim=0)
    return total / AVERAGED


def about_zero(bias: Tensor) -> Tensor:
    """Biases of a style whose first half are scales about 1; ours are about 0."""
    return torch.cat([bias.chunk(2)[0] - 1, bias.chunk(2)[1]])


def he_scaled(strength: Tensor) -> Tensor:
    """Noise strengths (1, channels, 1, 1) that have a He constant."""
    return strength.flatten().double() * (NORM * math.sqrt(2 / strength.numel()))


def said_by_genforce(content: Content, weights: Tensors, config: NetworkConfig) -> Fields:
    """Growth by the level of detail; images seen, where the file says it."""
    if "synthesis.lod" not in weights:
        raise ValueError("synthesis.lod is missing")
    metadata = content.get("running_metadata")
    seen = metadata.get("seen_img") if isinstance(metadata, Mapping) else None
    return {
        **growth("synthesis.lod", weights["synthesis.lod"].reshape(-1).tolist(), config.resolution),
        "images_seen": seen if type(seen) is int and seen >= 0 else None,
    }


def said_by_mmgen(content: Content, weights: Tensors, config: NetworkConfig) -> Fields:
    """Growth and images seen, where the file says them."""
    state = content.get("state_dict")
    others = {**content, **state} if isinstance(state, Mapping) else {}

    def scalar(name: str) -> float:
        value = others.get(name)
        return value.item() if isinstance(value, Tensor) and value.numel() == 1 else math.nan

    resolution = scalar("_curr_scale_int")
    seen = scalar("shown_nkimg")
    alpha = scalar("_curr_transition_weight")
    return {
        **({"resolution": int(resolution)} if resolution in resolutions(config.resolution) else {}),
        "alpha": alpha if 0 <= alpha <= 1 else 1.0,
        "images_seen": round(1000 * seen) if 0 <= seen < 1e9 else None,
    }


RB = "generator.progression.{i}"
RN = f"{RB}.noise{{j}}.weight_orig"
ROSINALITY = Layout(
    "rosinality/style-based-gan-pytorch",
    needed=("generator.progression.0.conv1.input",),
    rows=(
        Match("dense", "style.{odd}.linear", factor=100),  # our multiplier: 0.01
        Match("const", f"{RB}.conv1.input", factor=NORM),
        # enlarges by a transposed convolution; a quarter: ours are summed, theirs averaged
        Match("conv0.weight", f"{RB}.conv1.0.weight", rotated=True, factor=NORM / 4),
        Match("conv0.bias", f"{RB}.conv1.0.bias", factor=NORM),
        Match("conv0", f"{RB}.conv1.1.conv", factor=NORM),
        Match("conv1", f"{RB}.conv2.conv", factor=NORM),
        Match("noise.strength", RN, change=he_scaled, shape=(1, 0, 1, 1)),
        Match("style.affine", f"{RB}.adain{{j}}.style.linear"),
        Match("rgb", "generator.to_rgb.{i}.conv"),
    ),
    original=True,
    blur=r"generator\.progression\.\d+\.conv1\.[12]\.weight(_flip)?",
    blurs=2,
    config={"bias_before_blur": True},
    shared_noise=True,
    notes=(
        "the discriminator has other layer widths than ours and is not converted",
        "with noise drawn at random, our two layers of a resolution get a map each; theirs "
        "share one (the stored maps are shared here too)",
    ),
)
GL = "synthesis.layer{layer}"
GENFORCE = Layout(  # the official networks; its training, or converted from official snapshots
    "genforce/genforce",
    needed=("mapping.dense0.weight", "synthesis.layer0.style.weight"),
    rows=(
        Match("average", "truncation.w_avg"),
        Match("labels", "mapping.label_weight"),
        Match("dense", "mapping.dense{i}"),
        Match("const", f"{GL}.const"),
        Match("conv0.weight", f"{GL}.weight"),
        Match("conv1.weight", "synthesis.layer{odd}.weight"),
        *(Match(f"{part}.bias", f"{GL}.bias") for part in ("start", "conv0", "conv1")),
        Match("noise.strength", f"{GL}.apply_noise.weight"),
        Match("noise.const", f"{GL}.apply_noise.noise"),
        Match("style.affine", f"{GL}.style"),
        Match("rgb", "synthesis.output{i}"),
    ),
    blur=r"synthesis\.layer\d+\.blur\.kernel",
    ignored=("synthesis.lod",),
    fused=True,
    cutoff=8,
    said=said_by_genforce,
    notes=(
        "not specified by the file, taken as published: fused_scale auto, use_wscale, "
        "mapping_lr_mul 0.01, final_tanh off",
    ),
)
HB = "g_synthesis.{block}"
HS = f"{HB}.epi{{j}}"
HUANGZH13 = Layout(
    "huangzh13/StyleGAN.pytorch",
    needed=("g_synthesis.init_block.conv.weight",),
    rows=(
        Match("average", "truncation.avg_latent"),
        Match("labels", "class_embedding.weight"),
        Match("dense", "g_mapping.map.dense{i}"),
        Match("const", f"{HB}.const", factor=NORM),
        Match("start.bias", f"{HB}.bias", factor=NORM),
        Match("conv0", f"{HB}.conv0_up", factor=NORM),
        Match("conv1", f"{HB}.conv1", factor=NORM),
        Match("conv1", f"{HB}.conv", factor=NORM),
        Match("noise.strength", f"{HS}.top_epi.noise.weight", factor=NORM),
        Match("style.affine", f"{HS}.style_mod.lin"),
        Match("rgb", "g_synthesis.to_rgb.{i}"),
    ),
    blur=r"g_synthesis\.blocks\.\d+\.conv0_up\.intermediate\.kernel",
    optional=("average", "blur"),
    fused=True,
    cutoff=8,
    notes=(
        "not specified by the file, taken as published: leaky ReLU, use_wscale, normalized "
        "latents, mapping_lrmul 0.01, instance norm without pixel norm, truncation 0.7 of 8 layers",
        "their training truncates, and their sampling script does not: pass psi 1 to see what the "
        "latter shows",
    ),
)
MMGENERATION = Layout(  # and its successor mmagic: StyleGANV1
    "open-mmlab/mmgeneration",
    needed=("convs.0.conv1.input", "style_mapping.1.linear.weight_orig"),
    rows=(
        # of the mapping network: their He constant has 1, ours sqrt(2)
        Match("dense.weight", "style_mapping.{next}.linear.weight_orig", factor=math.sqrt(0.5)),
        Match("dense.bias", "style_mapping.{next}.bias"),
        Match("const", "convs.{i}.conv1.input", factor=NORM),
        Match("conv0", "convs.{i}.conv1.0.conv", factor=NORM),
        Match("conv1", "convs.{i}.conv2.conv", factor=NORM),
        # one strength for all channels
        Match("noise.strength", "convs.{i}.noise_injector{j}.weight", factor=NORM, shape=(1,)),
        Match("noise.const", "injected_noise_{layer}"),
        Match("style.affine", "convs.{i}.adain{j}.affine"),
        Match("rgb", "to_rgbs.{i}.conv", change=FLIPPED),
    ),
    original=True,
    blur=r"convs\.\d+\.conv1\.1\.kernel",
    ignored=("steps",),  # the updates of mmagic's average
    config={"activation_before_blur": True},
    latent_norm=1 / (1 + 1e-6),  # to 1e-7: they add 1e-6 to the norm of a latent
    psi=1.0,
    said=said_by_mmgen,
    notes=(
        "not specified by the file, taken as published: lr_mlp 0.01, images in the order blue, "
        "green, red",
        "the discriminator has RGB layers of 3x3 and another head than ours and is not converted",
    ),
)
LAYOUTS = ROSINALITY, GENFORCE, HUANGZH13, MMGENERATION
