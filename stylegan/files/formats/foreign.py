"""What the importers of other PyTorch programs share: shapes -> configuration, what files lack."""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from stylegan.files.checkpoint import FLOATS, check_weights, without_prefix
from stylegan.files.formats.matching import Match, filled
from stylegan.networks import Generator, MappingNetwork, NetworkConfig, SynthesisNetwork

Weights = Mapping[str, Tensor]

AVERAGED = 10_240  # latents whose mean w stands for the average that a file lacks
CHUNK = 1024  # of them at once
# Instance normalization divides by sqrt(variance + epsilon). On features f times as large, our
# epsilon, 1e-8, acts as 1e-8 / f**2: with this f, as the 1e-5 of torch.nn.InstanceNorm2d.
NORM_FACTOR = math.sqrt(1e-8 / 1e-5)
TRANSPOSED = (1, 0, 2, 3)  # (out, in, k, k) -> (in, out, k, k), as our enlarging convolution has it
HE_FACTOR = math.sqrt(2)  # their He constant has sqrt(2) where ours has 1


def normed(name: str, path: str, **layout: Any) -> Match:
    """A match of what an instance norm follows."""
    return Match(name, path, factor=NORM_FACTOR, **layout)


def layer(ours: str, theirs: str) -> Iterator[Match]:
    """Weight and bias of a layer."""
    yield Match(f"{ours}.weight", f"{theirs}.weight")
    yield Match(f"{ours}.bias", f"{theirs}.bias")


def convolved(ours: str, theirs: str, place: int, **layout: Any) -> Iterator[Match]:
    """Convolution `place` (0 or 1) of a block, of which 4x4 has one, and the bias after it."""
    name = "conv" if ours.endswith("input") else f"conv{place}"
    yield normed(f"{ours}.{name}.weight", f"{theirs}.weight_orig", **layout)
    yield normed(f"{ours}.epilogue{place}.bias", f"{theirs}.bias")


def styled(ours: str, theirs: str) -> Iterator[Match]:
    """The style of a layer, where its bias has a scale about 1 in the first half; ours about 0."""

    def about_zero(bias: Tensor) -> Tensor:
        return torch.cat([bias.chunk(2)[0] - 1, bias.chunk(2)[1]])

    affine = f"{ours}.style.affine"
    yield Match(f"{affine}.weight", f"{theirs}.weight_orig", factor=HE_FACTOR)
    yield Match(f"{affine}.bias", f"{theirs}.bias", change=about_zero)


def has_names(weights: Any, needed: Collection[str]) -> bool:
    """Whether these are among the names of weights."""
    found = weights if isinstance(weights, Mapping) else ()
    return set(needed) <= {str(name).removeprefix("module.") for name in found}


def plain_weights(weights: Any) -> dict[str, Tensor]:
    """Tensors by name, without the prefix of DataParallel; ValueError if they are others."""
    check_weights(weights)
    return without_prefix(weights)


def shape(weights: Weights, name: str, dimensions: int) -> tuple[int, ...]:
    """The shape of a tensor that the configuration is read from."""
    if name not in weights:
        raise ValueError(f"{name} is missing")
    found = tuple(weights[name].shape)
    if len(found) != dimensions or 0 in found:
        raise ValueError(f"{name} has shape {found}, where {dimensions} dimensions are due")
    return found


def names(weights: Weights, pattern: str, start: int = 0, step: int = 1) -> list[str]:
    """`pattern` with start, start + step, ... in place of {}, as long as there are such weights."""
    numbered = (pattern.format(n) for n in itertools.count(start, step))
    return list(itertools.takewhile(weights.__contains__, numbered))


def built(
    config: NetworkConfig,
    matches: Iterable[Match],
    weights: Weights,
    *,
    blurs: Collection[str],
    unused: Collection[str] = (),
    shared_noise: bool = False,
) -> Generator:
    """The generator of a file, whose low-pass filters are called `blurs`.

    Where the file has no noise maps or no average w, they are drawn and computed, the same each
    time; `shared_noise`: one map for both layers of a resolution.
    """
    table, without_match = list(matches), {*unused, *blur_kernels(weights, blurs)}
    network = filled(lambda: Generator(config), table, weights, without_match)
    in_file = {match.name for match in table}
    if not any(name.endswith("noise.const") for name in in_file):
        draw_noise_maps(network.synthesis, shared=shared_noise)
    if "w_avg" not in in_file:
        network.w_avg.copy_(mean_w(network.mapping))
    return network


def mapping_fields(weights: Weights, layers: Sequence[str], label_dim: int = 0) -> dict[str, Any]:
    """The fields of a configuration that weights (out, in) of the mapping layers imply."""
    shapes = [shape(weights, name, 2) for name in layers]
    if not shapes:
        raise ValueError("there are no layers of a mapping network")
    inputs = shapes[0][1]
    if label_dim and inputs % 2:
        raise ValueError(f"{layers[0]} has {inputs} inputs, not a latent and a label")
    return {
        "label_dim": label_dim,
        "z_dim": inputs // 2 if label_dim else inputs,
        "w_dim": shapes[-1][0],
        "mapping_layers": len(layers),
        "mapping_width": shapes[0][0],
    }


def width_fields(channels: Sequence[int]) -> dict[str, Any]:
    """resolution, channel_base and max_channels of layers so wide at 4x4, 8x8, ..."""
    if not 1 <= len(channels) <= 20:
        raise ValueError(f"the network has {len(channels)} blocks")
    sizes = [4 * 2**i for i in range(len(channels))]
    cap = max(channels)
    below = [(r, c) for r, c in zip(sizes, channels, strict=True) if c < cap]
    wanted = below[0][0] * below[0][1] // 2 if below else max(8192, cap * sizes[-1] // 2)
    for base in (8192, wanted):
        config = NetworkConfig(sizes[-1], channel_base=base, max_channels=cap)
        if [config.channels(r) for r in sizes] == list(channels):
            return {"resolution": sizes[-1], "channel_base": base, "max_channels": cap}
    raise ValueError(
        f"the layers have {', '.join(map(str, channels))} channels from 4x4 on; only widths that "
        "halve with each doubling below a maximum are supported"
    )


def blur_kernels(weights: Weights, names: Collection[str]) -> set[str]:
    """The names of stored low-pass filters. ValueError if one is not the filter that we have."""
    row = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    expected = torch.outer(row, row) / 16
    for name in names:
        kernel = weights.get(name, torch.empty(0))
        kernel = kernel.double() if kernel.dtype in FLOATS else torch.empty(0)
        right = (kernel.shape[1:] == (1, 3, 3) and kernel.numel() > 0) or kernel.shape == (3, 3)
        if not right or not torch.allclose(kernel, expected.expand_as(kernel), atol=1e-4):
            raise ValueError(f"{name} is not the low-pass filter [1, 2, 1]; only that is supported")
    return set(names)


def trained_resolution(synthesis: SynthesisNetwork) -> int:
    """The resolution up to which some noise strength has left zero, where it begins; layers beyond
    have not been trained."""
    layers = synthesis.noise_layers(synthesis.config.resolution)
    moved = [i for i, e in enumerate(layers) if e.noise is not None and e.noise.strength.any()]
    if not moved:
        raise ValueError("all noise strengths are zero: nothing of the network has been trained")
    return int(4 * 2 ** (moved[-1] // 2))


def draw_noise_maps(synthesis: SynthesisNetwork, *, shared: bool) -> None:
    """Fill the stored noise maps from seed 0; `shared`: one map for both layers of a resolution."""
    random = torch.Generator().manual_seed(0)
    stored = [m for n, m in synthesis.named_buffers() if n.endswith("noise.const")]
    first = torch.empty(0)
    for i, noise_map in enumerate(stored):
        drawn = torch.randn(noise_map.shape, generator=random)
        first = first if i % 2 else drawn
        noise_map.copy_(first if shared else drawn)


@torch.no_grad()
def mean_w(mapping: MappingNetwork) -> Tensor:
    """The average w for files that do not keep it: over fixed latents, and the labels in turn."""
    config, dtype = mapping.config, next(mapping.parameters()).dtype
    random = torch.Generator().manual_seed(0)
    total = torch.zeros(config.w_dim, dtype=torch.float64)
    for _ in range(AVERAGED // CHUNK):
        z = torch.randn(CHUNK, config.z_dim, generator=random).to(dtype)
        labels = None
        if config.label_dim:
            labels = torch.eye(config.label_dim)[torch.arange(CHUNK) % config.label_dim]
        total += mapping(z, labels).double().sum(dim=0)
    return total / AVERAGED
