"""Style mixing: w of one point in some layers, of another in the rest."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from stylegan.figures.layout import image_table, span
from stylegan.figures.points import LatentPoints, generate_images
from stylegan.networks import NetworkConfig
from stylegan.sampling.pretrained import Pretrained
from stylegan.schedule import resolutions

NAMES = ("coarse", "middle", "fine")


@dataclass(frozen=True)
class StyleRange:
    """Contiguous layers, numbered from 0, two for each resolution."""

    layers: range
    name: str = ""

    @property
    def label(self) -> str:
        """`coarse 4-8 px`, or without a name `layers 0-3, 4-8 px`."""
        first = self.layers[0]
        last = self.layers[-1]
        pixels = span(4 << first // 2, 4 << last // 2)
        return f"{self.name} {pixels}" if self.name else f"layers {first}-{last}, {pixels}"


def style_ranges(resolution: int) -> list[StyleRange]:
    """Coarse, middle and fine layers of a network that has grown to `resolution`.

    For 64 pixels and more, they are the paper's: 4-8, 16-32, and 64 upward. Below, they are the
    coarsest resolution, the next, and all others; below 16, there are fewer than three ranges.
    """
    n = len(resolutions(resolution))
    edges = [0, 2, 4, n] if resolution >= 64 else [0, 1, 2, n]
    return [
        StyleRange(range(2 * start, 2 * min(stop, n)), name)
        for name, start, stop in zip(NAMES, edges, edges[1:], strict=False)
        if start < min(stop, n)
    ]


def check_ranges(ranges: Sequence[StyleRange], config: NetworkConfig, resolution: int) -> None:
    """Raise ValueError if the network does not have these layers at `resolution`."""
    if not config.styles:
        raise ValueError("style mixing requires styles, but network.styles is off")
    count = config.num_layers(resolution)
    for layers in (style_range.layers for style_range in ranges):
        if not layers or not set(layers) <= set(range(count)):
            raise ValueError(
                f"layers at {resolution}x{resolution} must be within 0-{count - 1}, got "
                f"{layers.start}-{layers.stop - 1}"
            )


def mix_styles(ws: Tensor, other: Tensor, layers: Collection[int]) -> Tensor:
    """`ws` (N, num_ws, w_dim) with the rows of `layers` from `other`, which has the same shape
    or one row for all layers. Either may have N = 1."""
    taken = torch.tensor([row in layers for row in range(ws.shape[1])], device=ws.device)
    return torch.where(taken[:, None], other, ws)


def mixing(
    loaded: Pretrained,
    sources: LatentPoints,
    others: LatentPoints,
    ranges: Sequence[StyleRange] | None = None,
) -> Image.Image:
    """Figure 3 of the paper: for each range of layers, a row for each of `sources` (A) and a column
    for each of `others` (B), whose w is used in these layers. The noise is A's."""
    ranges = style_ranges(loaded.settings.synthesis_resolution) if ranges is None else ranges
    check_ranges(ranges, loaded.generator.config, loaded.settings.synthesis_resolution)
    of_sources = generate_images(loaded, sources)
    rows: list[list] = [[None, *generate_images(loaded, others)]]
    for style_range in ranges:
        for i, source in enumerate(of_sources):
            ws = mix_styles(sources.ws[i : i + 1], others.ws, style_range.layers)
            rows.append([source, *generate_images(loaded, sources.varied(i, ws))])
    return image_table(
        rows,
        columns=["source A", *others.names],
        names=["", *list(sources.names) * len(ranges)],
        title="source B",
        bands=[
            ("", 1),
            *((f"{style_range.label} from B", len(sources.ws)) for style_range in ranges),
        ],
        apart=True,
    )
