"""Style mixing: the styles of some layers from one point, of the others from another."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from stylegan.figures.layout import chart, span
from stylegan.figures.points import Points, pictures, shown
from stylegan.files.loading import LoadedGenerator
from stylegan.networks import NetworkConfig, Noise
from stylegan.schedule import resolutions

NAMES = ("coarse", "middle", "fine")


@dataclass(frozen=True)
class StyleRange:
    """Layers `first` to `last`, both included and counted from 0, two for each resolution."""

    first: int
    last: int
    name: str = "layers"

    @property
    def label(self) -> str:
        """`coarse 4-8 px`; with numbers of layers where they have no name."""
        pixels = span(4 << self.first // 2, 4 << self.last // 2)
        if self.name != "layers":
            return f"{self.name} {pixels}"
        return f"layers {self.first}-{self.last}, {pixels}"


def style_ranges(resolution: int) -> list[StyleRange]:
    """Coarse, middle and fine layers of a network that has grown to `resolution`.

    The paper's, 4-8, 16-32 and 64 pixels up, where there are layers of all three. Below 64 pixels
    the coarsest, the next and all other resolutions; below 16 there are fewer than three.
    """
    sizes = resolutions(resolution)
    edges = [0, 2, 4, len(sizes)] if resolution >= 64 else [0, 1, 2, len(sizes)]
    return [
        StyleRange(2 * start, 2 * min(stop, len(sizes)) - 1, name)
        for name, start, stop in zip(NAMES, edges, edges[1:], strict=False)
        if start < min(stop, len(sizes))
    ]


def check_ranges(ranges: Sequence[StyleRange], config: NetworkConfig, resolution: int) -> None:
    """ValueError for layers that the network does not have at `resolution`."""
    if not config.styles:
        raise ValueError("this network has no styles (network.styles is off), so none can be mixed")
    layers = config.num_layers(resolution)
    for some in ranges:
        if not 0 <= some.first <= some.last < layers:
            raise ValueError(
                f"layers {some.first}-{some.last} were asked for, but at "
                f"{resolution}x{resolution} there are layers 0-{layers - 1}"
            )


def mixed(ws: Tensor, other: Tensor, layers: StyleRange) -> Tensor:
    """`ws` (N, num_styles, w_dim) with the rows of `layers` from `other`, which is of the same
    shape, or one w for all rows; either may have N = 1."""
    rows = torch.arange(ws.shape[1], device=ws.device)
    taken = (rows >= layers.first) & (rows <= layers.last)
    return torch.where(taken[:, None], other, ws)


def mixing(
    loaded: LoadedGenerator,
    sources: Points,
    others: Points,
    ranges: Sequence[StyleRange] | None = None,
    *,
    noise: Noise | None = None,
) -> Image.Image:
    """Rows of `sources` (A) whose styles in a range of layers are those of `others` (B), a column
    each, once for every range. Figure 3 of the paper."""
    ranges = style_ranges(loaded.resolution) if ranges is None else ranges
    check_ranges(ranges, loaded.generator.config, loaded.resolution)
    own = shown(loaded, sources, noise)
    rows: list[list] = [[None, *shown(loaded, others, noise)]]
    for layers in ranges:
        for i in range(len(sources.ws)):
            ws = mixed(sources.ws[i : i + 1], others.ws, layers)
            seeds = [sources.seeds[i]] * len(ws)
            rows.append(
                [own[i], *pictures(loaded, ws, noise=noise_at(sources, i, noise), seeds=seeds)]
            )
    return chart(
        rows,
        columns=["source A", *others.names],
        names=["", *list(sources.names) * len(ranges)],
        title="source B",
        bands=[("", 1), *((f"{some.label} from B", len(sources.ws)) for some in ranges)],
        apart=True,
    )


def noise_at(points: Points, i: int, noise: Noise | None) -> Noise:
    """What enters every picture made of point i: `noise`, else the point's own, else const."""
    if noise is not None or points.noise is None:
        return noise or "const"
    return [m[i : i + 1] if len(m) > 1 else m for m in points.noise]
