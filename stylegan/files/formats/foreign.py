"""What the importers of other PyTorch programs share: shapes -> configuration, what files lack."""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from stylegan.files.formats.matching import Match
from stylegan.files.limits import FLOATS
from stylegan.files.snapshot import Account
from stylegan.messages import listed, readable
from stylegan.networks import Generator, MappingNetwork, NetworkConfig, SynthesisNetwork
from stylegan.schedule import resolutions

Weights = Mapping[str, Tensor]

NOT_OF_A_GENERATOR = (  # fields that weights of one do not show, but for the widths of layers
    *("channel_base", "channel_decay", "max_channels"),
    *("deviation_group", "deviation_features", "generator", "discriminator"),
)
AVERAGED = 10_240  # latents whose mean w stands for the average that a file lacks
CHUNK = 1024  # of them at once
# Instance normalization divides by sqrt(variance + epsilon). On features f times as large, our
# epsilon, 1e-8, acts as 1e-8 / f**2: with this f, as the 1e-5 of torch.nn.InstanceNorm2d.
NORM_FACTOR = math.sqrt(1e-8 / 1e-5)
TRANSPOSED = (1, 0, 2, 3)  # (out, in, k, k) -> (in, out, k, k), as our enlarging convolution has it
HE = "their He constant has sqrt(2) here, ours has 1"
NORM_DETAIL = "so that the 1e-8 of our instance norm acts as their 1e-5"


def scaled(name: str, path: str, factor: float, why: str, **layout: Any) -> Match:
    """A match whose account has the factor and the reason."""
    return Match(name, path, factor=factor, detail=f"by {factor:.6g}, {why}", **layout)


def normed(name: str, path: str, **layout: Any) -> Match:
    """A match of what an instance norm follows."""
    return scaled(name, path, NORM_FACTOR, NORM_DETAIL, **layout)


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

    def moved(by: int) -> Callable[[Tensor], Tensor]:
        return lambda bias: torch.cat([bias.chunk(2)[0] + by, bias.chunk(2)[1]])

    detail = "the first half less 1, which ours adds"
    weight, bias = f"{ours}.style.affine.weight", f"{ours}.style.affine.bias"
    yield scaled(weight, f"{theirs}.weight_orig", math.sqrt(2), HE)
    yield Match(bias, f"{theirs}.bias", detail=detail, change=moved(-1), undo=moved(1))


def plain_weights(weights: Any, what: str) -> dict[str, Tensor]:
    """Tensors by name, without the prefix of DataParallel; ValueError if they are something else
    or hold no real numbers."""
    if not isinstance(weights, Mapping):
        raise ValueError(f"{what} is {type(weights).__name__}, not weights by name")
    plain = {}
    for name, tensor in weights.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"{what} holds {readable(repr(name))}, which is not a named tensor")
        if tensor.layout != torch.strided or tensor.dtype not in FLOATS or tensor.is_meta:
            kind = "no numbers" if tensor.is_meta else f"{tensor.dtype}, not plain real numbers"
            raise ValueError(f"{readable(name)} holds {kind}")
        short = name.removeprefix("module.")
        if short in plain:
            raise ValueError(f"{what} holds {readable(short)} twice, with and without module.")
        plain[short] = tensor
    return plain


def shape(weights: Weights, name: str, dimensions: int) -> tuple[int, ...]:
    """The shape of a tensor that the configuration is read from."""
    if name not in weights:
        raise ValueError(f"{name} is missing")
    found = tuple(weights[name].shape)
    if len(found) != dimensions or 0 in found:
        raise ValueError(f"{name} has shape {found}, where {dimensions} dimensions are due")
    return found


def numbered(weights: Weights, pattern: str) -> int:
    """How many of `pattern` with 0, 1, 2, ... in place of {} there are."""
    n = 0
    while pattern.format(n) in weights:
        n += 1
    return n


def mapping_fields(weights: Weights, layers: Sequence[str], label_dim: int) -> dict[str, Any]:
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


def blur_kernels(weights: Weights, names: Iterable[str]) -> Iterator[Account]:
    """The accounts of stored low-pass filters, if they are the one that we have."""
    row = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    expected = torch.outer(row, row) / 16
    for name in names:
        if name not in weights:
            raise ValueError(f"{name} is missing")
        kernel = weights[name].double()
        right = (kernel.shape[1:] == (1, 3, 3) and kernel.numel() > 0) or kernel.shape == (3, 3)
        if not right or not torch.allclose(kernel, expected.expand_as(kernel), atol=1e-4):
            raise ValueError(f"{name} is not the low-pass filter [1, 2, 1]; only that is supported")
        yield Account(name, "", "checked", "the low-pass filter [1, 2, 1]")


def blur_kernel(channels: int, dtype: torch.dtype) -> Tensor:
    """The low-pass filter as two programs store it."""
    row = torch.tensor([1.0, 2.0, 1.0], dtype=dtype)
    return (torch.outer(row, row) / 16).repeat(channels, 1, 1, 1)


def check_held(config: NetworkConfig, held: Collection[str], program: str, **fixed: Any) -> None:
    """ValueError names what of `config` the networks of another program cannot have: all fields
    but those `held`, which are not as by default, or as `fixed`."""
    lost = [
        f"{field.name} {getattr(config, field.name)}"
        for field in dataclasses.fields(config)
        if field.name not in (*held, *NOT_OF_A_GENERATOR)
        and getattr(config, field.name) != fixed.get(field.name, field.default)
    ]
    if lost:
        raise ValueError(f"networks of {program} cannot have {listed(lost)}")
    width_fields([config.channels(r) for r in resolutions(config.resolution)])


def trained_resolution(synthesis: SynthesisNetwork) -> int:
    """The resolution up to which some noise strength has left zero, where it begins; layers beyond
    have not been trained."""
    layers = synthesis.noise_layers(synthesis.config.resolution)
    moved = [i for i, e in enumerate(layers) if e.noise is not None and e.noise.strength.any()]
    if not moved:
        raise ValueError("all noise strengths are zero: nothing of the network has been trained")
    return int(4 * 2 ** (moved[-1] // 2))


def draw_noise_maps(synthesis: SynthesisNetwork, *, shared: bool) -> list[Account]:
    """Fill the stored noise maps from seed 0; `shared`: one map for both layers of a resolution."""
    random = torch.Generator().manual_seed(0)
    stored = {n: m for n, m in synthesis.named_buffers() if n.endswith("noise.const")}
    first = torch.empty(0)
    for i, noise_map in enumerate(stored.values()):
        drawn = torch.randn(noise_map.shape, generator=random)
        first = first if i % 2 else drawn
        noise_map.copy_(first if shared else drawn)
    detail = "drawn from seed 0; the file has no noise maps"
    return [Account("", f"synthesis.{name}", "made", detail) for name in stored]


def make_w_avg(network: Generator) -> Account:
    """Fill the average w, for files that do not keep it."""
    network.w_avg.copy_(mean_w(network.mapping))
    return Account("", "w_avg", "made", "the mean w of 10,240 latents, from seed 0")


@torch.no_grad()
def mean_w(mapping: MappingNetwork) -> Tensor:
    """The mean of w over fixed latents, and the labels in turn."""
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
