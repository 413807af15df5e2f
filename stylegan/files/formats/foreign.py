"""Checkpoints of other PyTorch programs (see `layouts`) -> our networks."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch

from stylegan.files.checkpoint import FLOATS, check_weights
from stylegan.files.formats.layouts import LAYOUTS, Content, Layout, Tensors
from stylegan.files.formats.matching import network_from
from stylegan.files.weights import Weights
from stylegan.networks import Generator, NetworkConfig, SynthesisNetwork
from stylegan.sampling import SamplingSettings, mean_w
from stylegan.sampling.pretrained import Pretrained
from stylegan.schedule import resolutions
from stylegan.utils.filesystem import as_value_error


class UnknownLayout(ValueError):
    """The file contains no generator of a known layout."""


def import_weights(content: object, file: Path = Path("memory")) -> Weights:
    """Networks from the safely loaded `content` of a checkpoint of another PyTorch program."""
    if isinstance(content, Mapping):
        for weights, layout in itertools.product(generators_in(content), LAYOUTS):
            if weights.keys() >= set(layout.needed):
                with as_value_error(file, f"looks like a checkpoint of {layout.program}, but"):
                    return read_layout(layout, weights, content, file)
    raise UnknownLayout(
        f"{file} is a PyTorch file, but not a checkpoint of this project, nor of one of "
        + ", ".join(layout.program for layout in LAYOUTS)
    )


def generators_in(content: Content) -> Iterator[Content]:
    """Candidates for the weights of a generator; only the average generator, if there is one."""
    models = content.get("models", content)
    state = content.get("state_dict", content)
    if isinstance(models, Mapping):
        for name in ("g_running", "generator_smooth", "generator"):
            if isinstance(tensors := models.get(name), Mapping):
                yield starting(tensors, "")
                if name != "generator":
                    return
    if isinstance(state, Mapping):
        if average := starting(state, "generator_ema."):
            yield average
        else:
            yield from (starting(state, start) for start in ("generator.", ""))


def starting(weights: Mapping[object, object], start: str) -> Content:
    """Tensors whose names begin with `start`, which is removed, as is DataParallel's "module."."""
    return {
        str(name).removeprefix(start).removeprefix("module."): value
        for name, value in weights.items()
        if str(name).startswith(start)
    }


def read_layout(layout: Layout, stored: Content, content: Content, file: Path) -> Weights:
    """Build the generator whose weights are `stored`, in eval mode."""
    tensors = check_weights(stored)
    kernels = {name: t for name, t in tensors.items() if re.fullmatch(layout.blur, name)}
    left_out = {*kernels, *layout.ignored}
    weights = {name: tensor for name, tensor in tensors.items() if name not in left_out}
    config = config_of(layout, weights, blur=bool(kernels) or not layout.has_no_blur)
    check_blurs(layout, config, kernels)
    progress = layout.progress(content, tensors, config)
    network = network_from(
        lambda: Generator(config), lambda state: layout.matches(state, weights), weights
    )
    if layout.match("synthesis.input.epilogue0.noise.const", weights) is None:
        draw_noise_maps(network.synthesis, shared=layout.shared_noise)
    told = layout
    if layout.match("w_avg", weights) is None:
        network.w_avg.copy_(mean_w(network))
        if layout.may_lack_average:  # the training used no truncation
            told = dataclasses.replace(layout, psi=1.0, cutoff=None, notes=layout.notes[:1])
    kind = f"checkpoint of {layout.program}"
    resolution = progress.resolution or trained_resolution(network.synthesis)
    loaded = Pretrained(
        network,
        SamplingSettings(resolution, progress.alpha, psi=told.psi, cutoff=told.cutoff),
        f"{kind} {file}",
        images_seen=progress.images_seen,
    )
    return Weights(file, kind, loaded, network, notes=told.notes)


def config_of(layout: Layout, weights: Tensors, *, blur: bool) -> NetworkConfig:
    """Infer the configuration from the shapes of weights."""
    layers = (f"mapping.layers.{i}.weight" for i in itertools.count())
    blocks = (f"synthesis.blocks.{2**n}.conv1.weight" for n in itertools.count(3))
    dense = shapes(layout, layers, weights)
    if not dense:
        raise ValueError("the layers of the mapping network are missing")
    inputs = dense[0][1]
    labels = shapes(layout, ["mapping.label_embedding"], weights)
    label_dim = labels[0][0] if labels else 0
    convs = shapes(layout, itertools.chain(["synthesis.input.conv.weight"], blocks), weights)
    rgb = shapes(layout, ["synthesis.to_rgb.4.weight"], weights)
    if not rgb:
        raise ValueError("the RGB layer is missing")
    return dataclasses.replace(
        widths_of([channels for channels, *_ in convs]),
        label_dim=label_dim,
        z_dim=inputs // 2 if label_dim else inputs,
        w_dim=dense[-1][0],
        mapping_layers=len(dense),
        mapping_width=dense[0][0],
        image_channels=rgb[0][0],
        blur=blur,
        bias_before_blur=layout.bias_before_blur,
        activation_before_blur=layout.activation_before_blur,
    )


def shapes(layout: Layout, names: Iterable[str], weights: Tensors) -> list[tuple[int, ...]]:
    """Shapes in the file of the weights with our `names`, up to the first missing one."""
    found = []
    for match in (layout.match(name, weights) for name in names):
        if match is None or match.path not in weights:
            break
        sizes = tuple(weights[match.path].shape)
        if len(sizes) not in (2, 4) or 0 in sizes:
            raise ValueError(f"{match.path} must have 2 or 4 dimensions, got shape {sizes}")
        found.append(sizes)
    return found


def widths_of(channels: list[int]) -> NetworkConfig:
    """Configuration whose layers have these channels at 4x4, 8x8, ..."""
    if not 1 <= len(channels) <= 20:
        raise ValueError(f"the network must have 1 to 20 blocks, got {len(channels)}")
    sizes = [4 * 2**i for i in range(len(channels))]
    cap = max(channels)
    below = [(r, c) for r, c in zip(sizes, channels, strict=True) if c < cap]
    wanted = below[0][0] * below[0][1] // 2 if below else max(8192, cap * sizes[-1] // 2)
    for base in (8192, wanted):
        config = NetworkConfig(sizes[-1], channel_base=base, max_channels=cap)
        if [config.channels(r) for r in sizes] == channels:
            return config
    raise ValueError(
        "channels must halve with each doubling of the resolution below a maximum, got "
        f"{', '.join(map(str, channels))} from 4x4 on"
    )


def check_blurs(layout: Layout, config: NetworkConfig, kernels: Tensors) -> None:
    """Raise ValueError unless the low-pass filters are [1, 2, 1], and as many as blocks need."""
    blocks = len(resolutions(config.resolution)) - 1
    if len(kernels) != (layout.blurs * blocks if config.blur else 0):
        raise ValueError(f"found {len(kernels)} low-pass filters for {blocks} blocks")
    row = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    expected = torch.outer(row, row) / 16
    for name, kernel in kernels.items():
        right = kernel.dtype in FLOATS and kernel.numel() > 0
        right = right and (kernel.shape[1:] == (1, 3, 3) or kernel.shape == (3, 3))
        if not right or not torch.allclose(kernel.double(), expected.expand_as(kernel), atol=1e-4):
            raise ValueError(f"{name} must be the low-pass filter [1, 2, 1]")


def trained_resolution(synthesis: SynthesisNetwork) -> int:
    """Highest resolution with a noise strength that is not zero, the initial value."""
    layers = synthesis.epilogues(synthesis.config.resolution)
    moved = [i for i, e in enumerate(layers) if e.noise is not None and e.noise.strength.any()]
    if not moved:
        raise ValueError("all noise strengths are zero: the network is untrained")
    return int(4 * 2 ** (moved[-1] // 2))


def draw_noise_maps(synthesis: SynthesisNetwork, *, shared: bool) -> None:
    """Fill the stored noise maps from seed 0, with one map per resolution if `shared`."""
    random = torch.Generator().manual_seed(0)
    stored = [m for n, m in synthesis.named_buffers() if n.endswith("noise.const")]
    for first, second in zip(stored[::2], stored[1::2], strict=True):
        maps = [torch.randn(first.shape, generator=random) for _ in range(2)]
        first.copy_(maps[0])
        second.copy_(maps[0 if shared else 1])
