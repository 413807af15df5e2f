"""Clips: frames generated from ws, which are functions of a place on a path.

A place is a number: a point of a walk, or the psi or strength of a morph. A frame consists of
cells, one image each; a `Styles` function maps places to the ws of all cells.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stylegan import figures, sampling, streams
from stylegan.figures import LatentPoints, StyleRange
from stylegan.figures.layout import BACKGROUND, captioned, filling, paste, tiled
from stylegan.files.run_folder import images_seen_in_name
from stylegan.networks import Noise
from stylegan.networks.edits import Edit, apply_edits
from stylegan.sampling.curves import Curve, frame_positions, spline
from stylegan.sampling.pretrained import Pretrained

MIN_SIDE = 256  # pixels of an image, unless a scale is chosen
MAX_SIDE = 16_383  # pixels of a frame in WebP; H.264 allows one more
Styles = Callable[[Tensor], Tensor]  # places (n,) -> ws (n, cells, num_ws, w_dim)


@dataclass(frozen=True, eq=False)
class Clip:
    """Frames as images uint8 (cells, H, W, C) and a caption, generated on demand."""

    frames: Iterator[tuple[np.ndarray, str]]
    count: int
    resolution: tuple[int, int]  # height and width of the largest images
    columns: int = 1
    labels: Sequence[str] | None = None  # of the cells

    def arrange(self, scale: int | None = None) -> Iterator[np.ndarray]:
        """Frames uint8 (H, W, 3): images in rows of `columns` above their labels and the caption.

        Pixels are repeated `scale` times, by default to at least 256 pixels; in images of lower
        resolution more often, so that all fill their cells. Raises ValueError if a frame is too
        large for a video."""
        height, width = self.resolution
        scale = scale or -(-MIN_SIDE // max(height, width))
        cell = width * scale, height * scale
        for images, caption in self.frames:
            columns = min(self.columns, len(images))
            size = cell[0] * columns, cell[1] * -(-len(images) // columns)
            if max(size) > MAX_SIDE:
                raise ValueError(
                    f"frames of {size[0]}x{size[1]} pixels are too large for a video: choose a "
                    "smaller scale or resolution, or fewer images per frame"
                )
            cells = [filling(sampling.to_pil(pixels), cell) for pixels in images]
            if len(cells) == 1 and not self.labels:
                image = Image.new("RGB", cell, BACKGROUND)
                paste(image, cells[0], (0, 0))
            else:
                image = tiled(cells, self.columns, self.labels)
            yield np.asarray(captioned(image, caption) if caption else image)


def make_clip(
    loaded: Pretrained,
    styles: Styles,
    t: Tensor,
    *,
    columns: int = 1,
    labels: Sequence[str] | None = None,
    captions: Sequence[str] = (),
    noise: Noise = "const",
) -> Clip:
    """Clip with a frame for each place t (n,). Random noise differs between frames.

    Noise maps (1 or N, 1, r, r) belong to cells / N cells each, in order."""
    cells = styles(t[:1]).shape[1]

    def noise_of(frames: int) -> Noise:
        if isinstance(noise, str):
            return noise
        of_cells = [m.repeat_interleave(cells // len(m), dim=0) for m in noise]
        return [m.repeat(frames, 1, 1, 1) for m in of_cells]

    at_once = max(1, sampling.default_batch(loaded.settings.synthesis_resolution) // cells)

    def images() -> Iterator[np.ndarray]:
        for start in range(0, len(t), at_once):
            ws = styles(t[start : start + at_once]).flatten(0, 1)
            seeds = range(start * cells, start * cells + len(ws))
            yield from loaded.generate(seeds, ws=ws, noise=noise_of(len(ws) // cells))

    made = images()
    texts = captions or [""] * len(t)
    frames = ((np.stack(list(itertools.islice(made, cells))), text) for text in texts)
    return Clip(frames, len(t), loaded.image_size(), columns, labels)


def with_truncated(loaded: Pretrained, *points: Tensor) -> tuple[Pretrained, list[Tensor]]:
    """Truncate the ws (N, num_ws, w_dim) of points already, if the generator has centers.

    A video would jump where the nearest center of its frames changes.
    """
    if loaded.settings.centers is None:
        return loaded, [*points]
    w_avg = loaded.generator.w_avg
    truncated = [loaded.settings.truncate_and_edit(ws, w_avg) for ws in points]
    return loaded.with_settings(psi=1, edits=()), truncated


def walk_in_z(loaded: Pretrained, curves: Sequence[Curve], labels: Tensor | None = None) -> Styles:
    """Styles of a cell for each curve through z; labels (1 or cells, label_dim) or None."""

    def at(t: Tensor) -> Tensor:
        z = torch.stack([curve(t) for curve in curves], dim=1).flatten(0, 1)
        rows = labels
        if rows is not None:
            rows = rows.expand(len(curves), -1).repeat(len(t), 1)
        return loaded.map_to_ws(z, rows).unflatten(0, (len(t), -1))

    return at


def noise_loop(seed: int, z_dim: int, waves: int) -> Curve:
    """Random loop through z: places (n,) -> z (n, z_dim), with period 1.

    Each component of z is a sum of `waves` harmonics with random weights, normally distributed at
    every t. The weights are conditioned on the latent of the seed at t = 0.
    """
    weights = torch.from_numpy(streams.loop_rng(seed).randn(2, waves, z_dim))
    start = sampling.latents([seed], z_dim)[0].double()
    cosines = weights[0] - weights[0].mean(dim=0) + start / math.sqrt(waves)

    def at(t: Tensor) -> Tensor:
        angles = 2 * math.pi * t.double()[:, None] * torch.arange(1, waves + 1)
        return (angles.cos() @ cosines + angles.sin() @ weights[1]) / math.sqrt(waves)

    return at


def mixing_walk(
    loaded: Pretrained, ws: Tensor, path: Tensor, ranges: Sequence[StyleRange], *, closed: bool
) -> Styles:
    """Styles of a cell for each of ws (N, num_ws, w_dim) and each range: its layers walk
    through `path` (points, num_ws, w_dim), the others are constant."""
    figures.check_ranges(ranges, loaded.generator.config, loaded.settings.synthesis_resolution)
    ws = ws.cpu().double()
    walk = spline(path.cpu(), closed=closed)

    def at(t: Tensor) -> Tensor:
        moving = walk(t)
        cells = [
            figures.mix_styles(styles[None], moving, style_range.layers)
            for styles in ws
            for style_range in ranges
        ]
        return torch.stack(cells, dim=1)

    return at


def truncation_clip(loaded: Pretrained, points: LatentPoints, psis: Tensor) -> Clip:
    """Clip of the points with a frame for each psi."""

    def at(psis: Tensor) -> Tensor:
        looks = [loaded.settings.override(psi=psi) for psi in psis.tolist()]
        return torch.stack(
            [look.truncate_and_edit(points.ws, loaded.generator.w_avg) for look in looks]
        )

    return morph_clip(loaded, points, at, psis, [f"psi {psi:z.2f}" for psi in psis.tolist()])


def edit_clip(
    loaded: Pretrained, points: LatentPoints, edits: Mapping[str, Edit], strengths: Tensor
) -> Clip:
    """Clip of the points with a frame for each strength, a factor of all edits."""
    truncated = loaded.settings.truncate_and_edit(points.ws, loaded.generator.w_avg)
    still = torch.zeros(1, *truncated.shape[1:])
    moves = torch.cat([apply_edits(still, [edit]) for edit in edits.values()]).double()

    def at(strengths: Tensor) -> Tensor:
        move = torch.tensordot(strengths[:, None].expand(-1, len(moves)), moves, dims=1)
        return truncated + move[:, None].to(truncated)

    captions = [f"{strength:+z.2f} x {' '.join(edits)}" for strength in strengths.tolist()]
    return morph_clip(loaded, points, at, strengths, captions)


def morph_clip(
    loaded: Pretrained, points: LatentPoints, styles: Styles, t: Tensor, captions: Sequence[str]
) -> Clip:
    """Clip of `styles` that are already truncated and edited."""
    columns = figures.default_columns(len(points.names))
    final = loaded.with_settings(psi=1, edits=())
    return make_clip(final, styles, t, columns=columns, captions=captions, noise=points.noise)


def between(first: float, last: float, count: int, *, closed: bool) -> Tensor:
    """`count` values from `first` to `last`, evenly spaced, or if `closed` back again along a
    cosine."""
    t = frame_positions(count, 1 if closed else 2, closed=closed)
    if closed:
        t = (1 - torch.cos(2 * math.pi * t)) / 2
    return torch.lerp(torch.tensor(first).to(t), torch.tensor(last).to(t), t)


def timelapse_clip(
    files: Sequence[Path],
    load: Callable[[Path], Pretrained],
    points_of: Callable[[Pretrained], LatentPoints],
    count: int,
) -> Clip:
    """Clip of `count` frames of the same points, each by the checkpoint nearest in time."""
    nearest_files = [
        files[i] for i in figures.nearest([images_seen_in_name(path) for path in files], count)
    ]
    last = load(nearest_files[-1])
    columns = figures.default_columns(len(points_of(last).names))

    def frames() -> Iterator[tuple[np.ndarray, str]]:
        for path, same in itertools.groupby(nearest_files):
            loaded = load(path)
            frame = figures.generate_images(loaded, points_of(loaded)), figures.moment(loaded)
            yield from (frame for _ in same)

    return Clip(frames(), count, last.image_size(), columns)
