"""What is filmed: styles as functions of a place on a path, for several pictures at once."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling, streams
from stylegan.edits import Edit, total_move
from stylegan.figures import (
    Points,
    StyleRange,
    check_ranges,
    default_columns,
    mixed,
    moment,
    nearest,
    pictures,
)
from stylegan.files.keyframes import Keyframes
from stylegan.files.loaded import LoadedGenerator
from stylegan.networks import NetworkConfig, Noise
from stylegan.paths import linear, places, spherical, spline
from stylegan.run_folder import images_of
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


def noise_loop(seed: int, z_dim: int, waves: int) -> Callable[[Tensor], Tensor]:
    """A random loop through z: places (n,) -> z (n, z_dim), which come again after t = 1.

    Each number of z is a sum of `waves` harmonics with random weights, and at every t normally
    distributed. t = 0 is the latent of the seed: the weights are drawn given that.
    """
    weights = torch.from_numpy(streams.latent_loop(seed).randn(2, waves, z_dim))
    start = sampling.latents([seed], z_dim)[0].double()
    cosines = weights[0] - weights[0].mean(dim=0) + start / math.sqrt(waves)

    def at(t: Tensor) -> Tensor:
        angles = 2 * math.pi * t.double()[:, None] * torch.arange(1, waves + 1)
        return (angles.cos() @ cosines + angles.sin() @ weights[1]) / math.sqrt(waves)

    return at


def loops_in_z(
    loaded: LoadedGenerator, seeds: Sequence[int], waves: int, labels: Tensor | None = None
) -> Scene:
    """A cell for each seed on its `noise_loop`; labels (1 or N, label_dim) where there are some."""
    curves = [noise_loop(seed, loaded.generator.config.z_dim, waves) for seed in seeds]

    def at(t: Tensor) -> Tensor:
        z = torch.stack([curve(t) for curve in curves], dim=1).flatten(0, 1).float()
        rows = labels
        if rows is not None:
            rows = rows.expand(len(seeds), -1).repeat(len(t), 1)
        return loaded.styles(z, rows).unflatten(0, (len(t), -1))

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
        cells = [mixed(own[None], moving, some.layers) for own in ws for some in ranges]
        return torch.stack(cells, dim=1)

    return at


def between(t: Tensor, first: float, last: float, *, closed: bool) -> Tensor:
    """A number at places from 0 to 1: evenly from `first` to `last`, or if `closed` there and back,
    slowly at both ends."""
    if closed:
        t = (1 - torch.cos(2 * math.pi * t)) / 2
    return torch.lerp(torch.tensor(first).to(t), torch.tensor(last).to(t), t)


def truncation_scene(
    loaded: LoadedGenerator, ws: Tensor, psis: tuple[float, float], *, closed: bool
) -> Scene:
    """ws (cells, num_styles, w_dim) at changing psi: see `between`. They are truncated already."""

    def at(t: Tensor) -> Tensor:
        there = between(t, *psis, closed=closed).tolist()
        return torch.stack([loaded.truncated(ws, psi=psi) for psi in there])

    return at


@dataclass(frozen=True, eq=False)
class Moves:
    """Edits whose strengths change from frame to frame."""

    strengths: Tensor  # float64 (frames, edits), times those of the edits
    edits: Sequence[Sequence[Edit]]  # each of one or several moves

    def at(self, part: slice, config: NetworkConfig) -> Tensor:
        """What is added to the styles of some frames: (n, 1, num_styles, w_dim)."""
        moves = torch.zeros(len(self.edits), config.num_styles(), config.w_dim).double()
        for row, edit in zip(moves, self.edits, strict=True):
            move = total_move(edit, config)
            if move is not None:
                row += move
        return torch.tensordot(self.strengths[part].double(), moves, dims=1)[:, None]

    def __add__(self, others: "Moves") -> "Moves":
        strengths = torch.cat([self.strengths, others.strengths], dim=1)
        return Moves(strengths, [*self.edits, *others.edits])


@dataclass(frozen=True, eq=False)
class Take:
    """What is filmed: a scene at the place of each frame, its cells in rows of `columns`, each over
    its label, all over the caption of the frame."""

    loaded: LoadedGenerator
    scene: Scene
    t: Tensor  # (frames,)
    columns: int = 1
    labels: Sequence[str] | None = None
    captions: Sequence[str] = ()
    noise: Noise = "const"
    moves: Moves | None = None  # after truncation


@dataclass(frozen=True, eq=False)
class Film:
    """Frames that are made as they are asked for."""

    frames: Iterator[np.ndarray]  # uint8 (H, W, 3)
    count: int
    size: tuple[int, int]  # width and height


def film(take: Take, *, scale: int | None = None) -> Film:
    """The frames of a take. See `Stage` for the scale."""
    stage = Stage.of(take.loaded.picture_size(), take.columns, scale, take.labels)
    cells = take.scene(take.t[:1]).shape[1]
    shots = filmed(take.loaded, take.scene, take.t, noise=take.noise, moves=take.moves)
    texts = take.captions or itertools.repeat("")
    frames = (stage.frame(shot, text) for shot, text in zip(shots, texts, strict=False))
    return Film(frames, len(take.t), stage.frame_size(cells, captions=bool(take.captions)))


def filmed(
    loaded: LoadedGenerator,
    scene: Scene,
    t: Tensor,
    *,
    noise: Noise = "const",
    moves: Moves | None = None,
) -> Iterator[np.ndarray]:
    """The pictures uint8 (cells, H, W, C) of the scene at each place t (n,), made as they are asked
    for, and moved after truncation. Random noise is another in every picture."""
    cells = scene(t[:1]).shape[1]
    at_once = max(1, sampling.default_batch(loaded.resolution) // cells)
    for start in range(0, len(t), at_once):
        part = slice(start, start + at_once)
        ws, how = scene(t[part]), loaded
        if moves is not None:
            move = moves.at(part, loaded.generator.config)
            ws = loaded.truncated(ws.flatten(0, 1)).unflatten(0, ws.shape[:2]) + move.to(
                loaded.generator.w_avg
            )
            how = loaded.adjusted(psi=1)
        ws = ws.flatten(0, 1)
        seeds = range(start * cells, start * cells + len(ws))
        pictures = list(how.pictures(seeds, ws=ws, noise=noise))
        for i in range(0, len(pictures), cells):
            yield np.stack(pictures[i : i + cells])


def truncation(
    loaded: LoadedGenerator,
    points: Points,
    psis: tuple[float, float],
    count: int,
    *,
    closed: bool,
) -> Take:
    """`count` frames of the points at changing psi, which is written below them: see `between`."""
    t = there_and_back(count, closed=closed)
    now = between(t, *psis, closed=closed)
    return Take(
        loaded.adjusted(psi=1),  # the scene has truncated
        truncation_scene(loaded, points.ws, psis, closed=closed),
        t,
        columns=default_columns(len(points.names)),
        captions=[f"psi {round(psi, 2) + 0:.2f}" for psi in now.tolist()],
        noise=points.noise,
    )


def editing(
    loaded: LoadedGenerator,
    points: Points,
    edits: Mapping[str, Sequence[Edit]],
    strengths: tuple[float, float],
    count: int,
    *,
    closed: bool,
) -> Take:
    """`count` frames of the points along edits, given by the names that are written below: the
    strengths go from the first to the last, see `between`."""
    t = there_and_back(count, closed=closed)
    now = between(t, *strengths, closed=closed)
    return Take(
        loaded,
        lambda t: points.ws[None].expand(len(t), -1, -1, -1),
        t,
        columns=default_columns(len(points.names)),
        captions=[f"{round(x, 2) + 0:+.2f} x {' '.join(edits)}" for x in now.tolist()],
        noise=points.noise,
        moves=Moves(now[:, None].expand(-1, len(edits)), list(edits.values())),
    )


def keyframe_walk(
    loaded: LoadedGenerator,
    keyframes: Keyframes,
    count: int,
    *,
    interpolation: Interpolation = "spline",
    noise: Noise = "const",
) -> Take:
    """`count` frames of a walk through keyframes, whose styles are not truncated again."""
    scene = walk_in_w(keyframes.ws[:, None], interpolation, closed=keyframes.loop)
    return Take(loaded.adjusted(psi=1), scene, keyframes.places(count), noise=noise)


def there_and_back(count: int, *, closed: bool) -> Tensor:
    """Places from 0 to 1 of evenly spread frames: see `places`."""
    return places(count, 1, closed=True) if closed else places(count, 2, closed=False)


def timelapse_film(
    files: Sequence[Path],
    load: Callable[[Path], LoadedGenerator],
    points_of: Callable[[LoadedGenerator], Points],
    count: int,
    *,
    scale: int | None = None,
) -> Film:
    """`count` frames of the same points over the training of a run, whose `files` are in order: at
    each moment the nearest of them, over how far the training was."""
    chosen = [files[i] for i in nearest([images_of(path) for path in files], count)]
    last = load(chosen[-1])
    n = len(points_of(last).names)
    stage = Stage.of(last.picture_size(), default_columns(n), scale)

    def frames() -> Iterator[np.ndarray]:
        for path, same in itertools.groupby(chosen):
            loaded = load(path)
            frame = stage.frame(pictures(loaded, points_of(loaded)), moment(loaded))
            yield from (frame for _ in same)

    return Film(frames(), count, stage.frame_size(n, captions=True))
