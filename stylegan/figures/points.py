"""Named points of the latent space, and their images."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL.Image import Image
from torch import Tensor

from stylegan import sampling
from stylegan.data.images import decode
from stylegan.figures.layout import grid, image_table
from stylegan.files.latents import read_latents
from stylegan.networks import Noise
from stylegan.sampling.pretrained import Pretrained


@dataclass(frozen=True, eq=False)
class LatentPoints:
    """The ws and the noise of N images."""

    names: Sequence[str]
    seeds: Sequence[int]  # for random noise
    ws: Tensor  # (N, num_ws, w_dim), not truncated
    noise: Noise = "const"  # mode, or maps (1 or N, 1, r, r) for each layer
    z: Tensor | None = None  # (N, z_dim), of seeds

    def varied(self, i: int, ws: Tensor) -> "LatentPoints":
        """Points with other ws (n, num_ws, w_dim), but the name and noise of point i."""
        noise = self.noise
        if not isinstance(noise, str):
            noise = [m[i : i + 1] if len(m) > 1 else m for m in noise]
        return LatentPoints([self.names[i]] * len(ws), [self.seeds[i]] * len(ws), ws, noise)


def points_from_seeds(
    loaded: Pretrained, seeds: Sequence[int], labels: Tensor | None = None, noise: Noise = "const"
) -> LatentPoints:
    """Points of seeds; `labels` (1 or N, label_dim) if the network has labels."""
    if not seeds:
        raise ValueError("seeds must not be empty")
    z = sampling.latents(seeds, loaded.generator.config.z_dim).to(loaded.generator.w_avg)
    return LatentPoints(
        [f"seed {seed}" for seed in seeds], seeds, loaded.map_to_ws(z, labels), noise, z
    )


def of_latents(
    loaded: Pretrained,
    path: Path,
    rows: Sequence[int] | None = None,
    labels: Tensor | None = None,
    noise: Noise | None = None,
) -> LatentPoints:
    """Points of the latents in a file, all or those of `rows`, with its noise unless `noise` is
    given. Raises ValueError if a row does not exist."""
    ws, maps = read_latents(path, loaded.generator, labels)
    rows = list(range(len(ws)) if rows is None else rows)
    for row in rows:
        if not 0 <= row < len(ws):
            raise ValueError(f"{path} contains latents 0 to {len(ws) - 1}, got {row}")
    ws = ws.to(loaded.generator.w_avg.device)
    names = [f"latent {row}" for row in rows]
    if noise is None and maps is not None:
        noise = [m[rows] if len(m) > 1 else m for m in maps]
    return LatentPoints(names, rows, ws[rows], "const" if noise is None else noise)


def generate_images(loaded: Pretrained, points: LatentPoints) -> np.ndarray:
    """Images uint8 (N, H, W, C) of points, with the settings of `loaded`, without padding."""
    return np.stack(list(loaded.generate(points.seeds, ws=points.ws, noise=points.noise)))


def labeled_grid(loaded: Pretrained, points: LatentPoints, columns: int | None = None) -> Image:
    """Figure 2 of the paper: uncurated images of points."""
    return grid(generate_images(loaded, points), columns, labels=points.names)


def truncation(loaded: Pretrained, points: LatentPoints, psis: Sequence[float]) -> Image:
    """Figure 8 of the paper: a row for each point, a column for each psi."""
    columns = [generate_images(loaded.with_settings(psi=psi), points) for psi in psis]
    names = [f"psi {psi:g}" for psi in psis]
    return image_table(list(zip(*columns, strict=True)), columns=names, names=points.names)


def classes(
    loaded: Pretrained, seeds: Sequence[int], shown: Sequence[str] = (), noise: Noise = "const"
) -> Image:
    """A row for each seed, a column for each class, or for those `shown`, by name or number: the
    same z with each label. Raises ValueError if the network has no labels."""
    count = loaded.generator.config.label_dim
    if not count:
        raise ValueError(f"the {loaded.origin} has no labels")
    if not shown and loaded.label_rows is not None:
        raise ValueError(
            f"the labels of the {loaded.origin} are numbers, not classes; choose some by --classes"
        )
    shown = shown or list(loaded.label_names) or [str(i) for i in range(count)]
    points = [points_from_seeds(loaded, seeds, loaded.label(name), noise) for name in shown]
    columns = [generate_images(loaded, of_class) for of_class in points]
    return image_table(list(zip(*columns, strict=True)), columns=shown, names=points[0].names)


def timelapse(
    snapshots: Iterable[Pretrained], points_of: Callable[[Pretrained], LatentPoints]
) -> Image:
    """A row for each point, a column for each snapshot of a run."""
    columns = []
    labels = []
    for loaded in snapshots:
        points = points_of(loaded)
        columns.append(generate_images(loaded, points))
        labels.append(moment(loaded))
    return image_table(list(zip(*columns, strict=True)), columns=labels, names=points.names)


def timelapse_of_samples(
    grids: Sequence[tuple[float, Path]], seeds: Sequence[int], *, columns: int, rows: int
) -> Image:
    """A `timelapse` of `seeds` from grids of samples, (kimg, file) each, in which seed 0, 1, ...
    fill `rows` of `columns`."""
    shown: list[list[np.ndarray]] = []
    for _, path in grids:
        pixels = np.asarray(decode(path.read_bytes(), name=str(path)))
        height = pixels.shape[0] // rows
        width = pixels.shape[1] // columns
        places = [(seed // columns * height, seed % columns * width) for seed in seeds]
        shown.append([pixels[y : y + height, x : x + width] for y, x in places])
    names = [f"seed {seed}" for seed in seeds]
    labels = [f"{kimg:,.4g} kimg" for kimg, _ in grids]
    return image_table(list(zip(*shown, strict=True)), columns=labels, names=names)


def moment(loaded: Pretrained) -> str:
    """When a generator was saved: `1,200 kimg, 64 px`."""
    kimg = (loaded.images_seen or 0) / 1000
    number = f"{kimg:,.0f}" if kimg >= 10 else f"{kimg:.2g}"
    return f"{number} kimg, {loaded.resolution} px"


def evenly(places: Sequence[float], most: int) -> list[int]:
    """Indices of at most `most` (2 or more) ascending places: first, last, evenly spaced ones."""
    return list(range(len(places))) if len(places) <= most else sorted(set(nearest(places, most)))


def nearest(places: Sequence[float], n: int) -> list[int]:
    """Indices of the ascending places nearest to n evenly spaced values from first to last."""
    wanted = np.linspace(places[0], places[-1], n)
    distances = np.abs(np.asarray(places, np.float64) - wanted[:, None])
    return [int(i) for i in distances.argmin(axis=1)]
