"""Where the pictures of a frame stand."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from stylegan.figures.layout import (
    GAP,
    PAPER,
    caption_font,
    captioned,
    filling,
    fitting_font,
    paste,
    text_height,
    tiled,
    tiled_size,
)
from stylegan.figures.lettering import legible
from stylegan.sampling import picture

SMALLEST_SIDE = 256  # of a picture, unless a scale is chosen


@dataclass(frozen=True)
class Stage:
    """Places of pictures in rows of `columns`, each over its label.

    Every picture is shown as large as one of `size` (height, width) enlarged `scale` times, its
    pixels repeated: those of lower resolutions are enlarged more.
    """

    size: tuple[int, int]
    columns: int
    scale: int
    labels: Sequence[str] | None = None

    @classmethod
    def of(
        cls,
        size: tuple[int, int],
        columns: int = 1,
        scale: int | None = None,
        labels: Sequence[str] | None = None,
    ) -> "Stage":
        """The scale makes pictures 256 pixels large at least, unless one is given."""
        return cls(size, columns, scale or -(-SMALLEST_SIDE // max(size)), labels)

    def frame_size(self, cells: int, *, captions: bool = False) -> tuple[int, int]:
        """Width and height of a frame of so many pictures, with a caption or without."""
        height, width = (side * self.scale for side in self.size)
        if cells > 1 or self.labels:
            line = text_height(fitting_font(legible(self.labels), width)) if self.labels else 0
            width, height = tiled_size(cells, self.columns, (width, height), line)
        return width, height + (text_height(caption_font(width)) + GAP if captions else 0)

    def frame(self, pictures: np.ndarray, caption: str = "") -> np.ndarray:
        """Pictures uint8 (cells, H, W, C) as a frame uint8 (height, width, 3)."""
        height, width = (side * self.scale for side in self.size)
        cells = [filling(picture(pixels), (width, height)) for pixels in pictures]
        if len(cells) == 1 and not self.labels:
            image = Image.new("RGB", (width, height), PAPER)
            paste(image, cells[0], (0, 0))
        else:
            image = tiled(cells, self.columns, self.labels)
        return np.asarray(captioned(image, caption) if caption else image)
