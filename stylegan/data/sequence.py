"""A store of images that a program holds or makes: arrays, Pillow images, data sets of others."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .images import from_array
from .labels import Labels, of_classes
from .prepare import prepare
from .sources import Source
from .store import Store


class SequenceSource(Source):
    """Images by their position."""

    kind = "sequence"

    def __init__(
        self,
        images: Sequence[Image.Image | np.ndarray],
        labels: Sequence[str] | None,
        path: Path,
    ) -> None:
        self.images, self.classes = images, labels
        if labels is not None and len(labels) != len(images):
            raise ValueError(f"{len(labels)} labels are given for {len(images)} images")
        super().__init__(path, (f"{i:09}.png" for i in range(len(images))))

    def picture(self, name: str) -> Image.Image:
        image = self.images[int(name.removesuffix(".png"))]
        return image if isinstance(image, Image.Image) else from_array(image)

    def read_labels(self) -> Labels:
        classes = [None] * len(self.images) if self.classes is None else map(str, self.classes)
        return of_classes(list(classes))

    def listing(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        yield (len(self.images),)


def prepare_images(
    images: Sequence[Image.Image | np.ndarray],
    out: str | Path,
    *,
    labels: Sequence[str] | None = None,
    workers: int = 1,
    **settings: Any,
) -> Store:
    """As `prepare`, of the images of a sequence: Pillow images, or arrays uint8 (H, W[, C]).

    `images[i]` is asked for when its turn comes, by `workers` threads, so that the sequence may
    read or draw it then. `labels` name the class of each.
    """
    return prepare(SequenceSource(images, labels, Path(out)), out, workers=workers, **settings)
