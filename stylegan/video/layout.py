"""Where the pictures of a frame are placed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from stylegan.figures.layout import PAPER, captioned, filling, paste, tiled
from stylegan.sampling import picture

SMALLEST_SIDE = 256  # of a picture, unless a scale is chosen
LARGEST_SIDE = 16_383  # pixels of a frame, of WebP; H.264 has one more


@dataclass(frozen=True)
class FrameLayout:
    """Pictures in rows of `columns`, each above its label, all of them above a caption.

    Pictures of lower resolutions than `resolution` are enlarged more, so that all fill their cells.
    """

    resolution: tuple[int, int]  # height and width of the largest pictures
    columns: int = 1
    labels: Sequence[str] | None = None
    scale: int | None = None  # enlargement; None: to 256 pixels at least

    @property
    def cell(self) -> tuple[int, int]:
        """Width and height of a picture in the frame, its pixels repeated."""
        height, width = self.resolution
        scale = self.scale or -(-SMALLEST_SIDE // max(height, width))
        return width * scale, height * scale

    def frame(self, pictures: np.ndarray, caption: str = "") -> np.ndarray:
        """Pictures uint8 (cells, H, W, C) as a frame uint8 (height, width, 3). ValueError, before
        anything is drawn, if that is too large for a film."""
        columns = min(self.columns, len(pictures))
        width, height = self.cell[0] * columns, self.cell[1] * -(-len(pictures) // columns)
        if max(width, height) > LARGEST_SIDE:
            raise ValueError(
                f"frames of {width}x{height} pixels are too large for a film: choose a smaller "
                "scale or resolution, or fewer pictures at once"
            )
        cells = [filling(picture(pixels), self.cell) for pixels in pictures]
        if len(cells) == 1 and not self.labels:
            image = Image.new("RGB", self.cell, PAPER)
            paste(image, cells[0], (0, 0))
        else:
            image = tiled(cells, self.columns, self.labels)
        return np.asarray(captioned(image, caption) if caption else image)
