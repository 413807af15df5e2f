"""Places in the latent space that have names, and the pictures there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from stylegan import sampling
from stylegan.figures.layout import chart, grid
from stylegan.files.latents import read_latents
from stylegan.files.loading import LoadedGenerator
from stylegan.networks import Noise

PSIS = (1.0, 0.7, 0.5, 0.0, -0.5, -1.0)  # of figure 8


@dataclass(frozen=True, eq=False)
class Points:
    """Styles of N pictures."""

    names: Sequence[str]
    seeds: Sequence[int]  # of random noise
    ws: Tensor  # (N, num_styles, w_dim), not truncated
    noise: Sequence[Tensor] | None = None  # (1 or N, 1, r, r) for each layer: their own, if any
    z: Tensor | None = None  # (N, z_dim), where seeds name them
    origin: str = "what is shown"  # whose noise it is: a file

    def noise_at(self, resolution: int, other: Noise = "const") -> Sequence[Tensor] | None:
        """Their own noise, if any. ValueError, naming an `other` kind, if it ends below that
        resolution."""
        if self.noise is not None and self.noise[-1].shape[-1] < resolution:
            side = self.noise[-1].shape[-1]
            raise ValueError(
                f"{self.origin} holds noise up to {side}x{side}, pictures of {resolution}x"
                f"{resolution} need more: pass --noise {other}, or --resolution {side}"
            )
        return self.noise


def of_seeds(loaded: LoadedGenerator, seeds: Sequence[int], labels: Tensor | None = None) -> Points:
    """What the seeds name; `labels` (1 or N, label_dim) where the network has labels."""
    generator = loaded.generator
    if not seeds:
        raise ValueError("at least one seed is needed")
    z = sampling.latents(seeds, generator.config.z_dim).to(generator.w_avg)
    names = [f"seed {seed}" for seed in seeds]
    return Points(names, seeds, loaded.styles(z, labels), z=z)


def of_latents(
    loaded: LoadedGenerator,
    path: Path,
    rows: Sequence[int] | None = None,
    labels: Tensor | None = None,
) -> Points:
    """Those that a file holds: all, or some by number."""
    ws, noise = read_latents(path, loaded.generator, labels)
    rows = range(len(ws)) if rows is None else rows
    for row in rows:
        if not 0 <= row < len(ws):
            raise ValueError(f"{path} holds latents 0 to {len(ws) - 1}, but {row} was asked for")
    if noise is not None:
        noise = [m[list(rows)] if len(m) > 1 else m for m in noise]
    names = [f"latent {row}" for row in rows]
    return Points(names, rows, ws[list(rows)], noise, origin=str(path))


def pictures(
    loaded: LoadedGenerator,
    ws: Tensor,
    *,
    noise: Noise = "const",
    seeds: Sequence[int] | None = None,
    batch: int | None = None,
) -> np.ndarray:
    """Pictures uint8 (N, H, W, C) of styles ws (N, num_styles, w_dim), truncated and grown as
    `loaded` says, without padding. `seeds` are those of random noise."""
    return np.stack(list(loaded.pictures(seeds, ws=ws, noise=noise, batch=batch)))


def shown(loaded: LoadedGenerator, points: Points, noise: Noise | None = None) -> np.ndarray:
    """The pictures uint8 (N, H, W, C) of points, with their own noise unless another is given."""
    noise = noise or points.noise_at(loaded.resolution) or "const"
    return pictures(loaded, points.ws, noise=noise, seeds=points.seeds)


def labelled_grid(
    loaded: LoadedGenerator,
    points: Points,
    *,
    noise: Noise | None = None,
    columns: int | None = None,
) -> Image.Image:
    """One picture for each point, none left out. Figure 2 of the paper."""
    return grid(shown(loaded, points, noise), columns, labels=points.names)


def truncation(
    loaded: LoadedGenerator,
    points: Points,
    psis: Sequence[float] = PSIS,
    *,
    noise: Noise | None = None,
) -> Image.Image:
    """A row for each point, a column for each psi. Figure 8 of the paper: at psi 0 all are the
    average picture, below it their opposites."""
    rows = zip(*swept(loaded, points, psis, noise), strict=True)
    return chart(
        list(rows),
        columns=[f"psi {psi:g}" for psi in psis],
        names=points.names,
    )


def swept(
    loaded: LoadedGenerator, points: Points, psis: Sequence[float], noise: Noise | None = None
) -> list[np.ndarray]:
    """The pictures uint8 (N, H, W, C) of the points at each psi."""
    return [shown(loaded.adjusted(psi=psi), points, noise) for psi in psis]
