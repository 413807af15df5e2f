"""What is filmed: styles as functions of a place on a way, for several pictures at once."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.figures import (
    Points,
    StyleRange,
    check_ranges,
    mixed,
    moment,
    pictures,
    shown,
)
from stylegan.files.loading import LoadedGenerator
from stylegan.networks import Noise
from stylegan.paths import linear, spherical, spline
from stylegan.video.stage import Stage

Scene = Callable[[Tensor], Tensor]  # places (n,) -> ws (n, cells, num_styles, w_dim)
Interpolation = Literal["spline", "linear"]
CURVES = {"spline": spline, "linear": linear}


def walk_in_w(ws: Tensor, interpolation: Interpolation, *, closed: bool) -> Scene:
    """Through styles ws (points, cells, num_styles, w_dim), each cell through its own."""
    return CURVES[interpolation](ws.cpu(), closed=closed)


def walk_in_z(
    loaded: LoadedGenerator, z: Tensor, labels: Tensor | None = None, *, closed: bool
) -> Scene:
    """Along great circles through latents z (points, cells, z_dim), all of one label (1, label_dim)
    where there are labels."""
    curves = [spherical(points, closed=closed) for points in z.cpu().unbind(1)]

    def at(t: Tensor) -> Tensor:
        latents = torch.cat([curve(t) for curve in curves])
        return loaded.styles(latents, labels).unflatten(0, (len(curves), -1)).transpose(0, 1)

    return at


def mixing_scene(
    loaded: LoadedGenerator,
    ws: Tensor,
    others: Tensor,
    ranges: Sequence[StyleRange],
    interpolation: Interpolation,
    *,
    closed: bool,
) -> Scene:
    """A cell for each of ws (N, num_styles, w_dim) and each range: the styles of its layers walk
    through `others` (points, num_styles, w_dim), those of the other layers stay."""
    check_ranges(ranges, loaded.generator.config, loaded.resolution)
    ws, walk = ws.cpu().double(), CURVES[interpolation](others.cpu(), closed=closed)

    def at(t: Tensor) -> Tensor:
        moving = walk(t)
        return torch.stack([mixed(own[None], moving, some) for own in ws for some in ranges], dim=1)

    return at


def psi_at(t: Tensor, first: float, last: float, *, closed: bool) -> Tensor:
    """psi at places from 0 to 1: evenly from `first` to `last`, or if `closed` there and back,
    slowly at both ends."""
    if closed:
        t = (1 - torch.cos(2 * math.pi * t)) / 2
    return torch.lerp(torch.tensor(first).to(t), torch.tensor(last).to(t), t)


def truncation_scene(
    loaded: LoadedGenerator, ws: Tensor, psis: tuple[float, float], *, closed: bool
) -> Scene:
    """ws (cells, num_styles, w_dim) at changing psi: see `psi_at`. They are truncated already."""

    def at(t: Tensor) -> Tensor:
        there = psi_at(t, *psis, closed=closed).tolist()
        return torch.stack([loaded.truncated(ws, psi=psi) for psi in there])

    return at


def filmed(
    loaded: LoadedGenerator, scene: Scene, places: Tensor, *, noise: Noise = "const"
) -> Iterator[np.ndarray]:
    """The pictures uint8 (cells, H, W, C) of the scene at each place, made as they are asked for.

    Random noise is another in every picture.
    """
    cells = scene(places[:1]).shape[1]
    at_once = max(1, sampling.default_batch(loaded.resolution) // cells)
    for start in range(0, len(places), at_once):
        ws = scene(places[start : start + at_once])
        seeds = range(start * cells, (start + len(ws)) * cells)
        shots = pictures(loaded, ws.flatten(0, 1), noise=noise, seeds=seeds)
        yield from shots.reshape(len(ws), cells, *shots.shape[1:])


def timelapse_frames(
    snapshots: Iterable[LoadedGenerator],
    times: Sequence[int],
    points_of: Callable[[LoadedGenerator], Points],
    stage: Stage,
    *,
    noise: Noise = "const",
) -> Iterator[np.ndarray]:
    """Frames uint8 (H, W, 3) of the snapshots of a run, each as often as `times` says, over how far
    it was."""
    for loaded, often in zip(snapshots, times, strict=True):
        points = points_of(loaded)
        frame = stage.frame(shown(loaded, points, noise), moment(loaded))
        yield from itertools.repeat(frame, often)
