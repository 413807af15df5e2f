"""A store of images that a program holds or makes: arrays, Pillow images, data sets of others."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .images import from_array, normalize, tiff
from .labels import Labels, of_classes
from .prepare import prepare
from .sources import Source
from .store import Store

Picture = Image.Image | np.ndarray


class SequenceSource(Source):
    """Images by their position."""

    kind = "sequence"

    def __init__(
        self, images: Sequence[Picture], labels: Sequence[str] | None, channels: int, path: Path
    ) -> None:
        self.images, self.classes, self.channels = images, labels, channels
        if labels is not None and len(labels) != len(images):
            raise ValueError(f"{len(labels)} labels are given for {len(images)} images")
        super().__init__(path, (f"{i:09}.png" for i in range(len(images))))

    def read_labels(self) -> Labels:
        classes = [None] * len(self.images) if self.classes is None else map(str, self.classes)
        return of_classes(list(classes))

    def read(self, name: str) -> bytes:
        image = self.images[int(name.removesuffix(".png"))]
        if not isinstance(image, Image.Image):
            image = from_array(image)
        return tiff(normalize(image, channels=self.channels, name=name))

    def listing(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        yield (len(self.images),)


def prepare_images(
    images: Sequence[Picture],
    out: str | Path,
    *,
    labels: Sequence[str] | None = None,
    channels: int = 3,
    workers: int = 1,
    **settings: Any,
) -> Store:
    """As `prepare`, of the images of a sequence: Pillow images, or arrays uint8 (H, W[, C]).

    `images[i]` is asked for when its turn comes, by `workers` threads, so that the sequence may
    read or draw it then. `labels` name the class of each.
    """
    source = SequenceSource(images, labels, channels, Path(out))
    return prepare(source, out, channels=channels, workers=workers, **settings)
