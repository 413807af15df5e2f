"""Places in the space of styles that a user has kept, and the way between two of them."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.explore.scene import Scene, View, final_styles, render
from stylegan.files.latents import write_latents

MOST_POINTS = 100  # of one user


@dataclass(frozen=True, eq=False)
class Point:
    """Final styles that a user has kept."""

    name: str
    styles: Tensor  # (num_styles, w_dim), moved and truncated
    picture: np.ndarray  # uint8 (H, W, C), as it was seen


def keep(points: Sequence[Point], point: Point) -> tuple[Point, ...]:
    """The points and one more. ValueError if there are too many."""
    if len(points) >= MOST_POINTS:
        raise ValueError(f"{MOST_POINTS} points are kept; remove some first")
    return (*points, point)


def point_of(scene: Scene, view: View, name: str) -> Point:
    return Point(name, final_styles(scene, view), render(scene, view))


def between(start: Point, end: Point, t: float) -> Tensor:
    """The styles a fraction t of the straight way from one point to another."""
    return torch.lerp(start.styles, end.styles, t)


def latents_file(scene: Scene, view: View) -> bytes:
    """A file for `stylegan generate --latents` that gives this picture again, at full growth.

    It holds final styles, and the maps of random noise for all layers that training has reached.
    """
    config, maps = scene.generator.config, None
    if view.noise == "random":
        maps = sampling.seed_noise([view.noise_seed], config, scene.loaded.resolution)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "latents.npz"
        write_latents(path, final_styles(scene, view)[None], maps)
        return path.read_bytes()
