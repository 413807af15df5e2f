"""The same points in the checkpoints of a run."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from PIL import Image

from stylegan.figures.layout import chart
from stylegan.figures.points import Points, pictures
from stylegan.files.loaded import LoadedGenerator

PointsOf = Callable[[LoadedGenerator], Points]


def evenly(places: Sequence[float], most: int) -> list[int]:
    """Indices of at most `most` (2 or more) of the ascending places, nearest to evenly spread ones;
    always the first and the last."""
    return list(range(len(places))) if len(places) <= most else sorted(set(nearest(places, most)))


def nearest(places: Sequence[float], n: int) -> list[int]:
    """Indices of the ascending places nearest to n values spread evenly from first to last."""
    wanted = np.linspace(places[0], places[-1], n)
    distances = np.abs(np.asarray(places, np.float64) - wanted[:, None])
    return [int(i) for i in distances.argmin(axis=1)]


def timelapse(snapshots: Iterable[LoadedGenerator], points_of: PointsOf) -> Image.Image:
    """A row for each point, a column for each snapshot of a run."""
    columns, labels, names = [], [], []
    for loaded in snapshots:
        points = points_of(loaded)
        columns.append(pictures(loaded, points))
        labels.append(moment(loaded))
        names = list(points.names)
    return chart(list(zip(*columns, strict=True)), columns=labels, names=names)


def moment(loaded: LoadedGenerator) -> str:
    """`1,200 kimg, 64 px`."""
    kimg = (loaded.images_seen or 0) / 1000
    number = f"{kimg:,.0f}" if kimg >= 10 else f"{kimg:.2g}"
    return f"{number} kimg, {loaded.resolution} px"
