"""Pictures arranged for people to look at."""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from stylegan.sampling import picture

SMALLEST_CELL, LARGEST_CELL = 96, 512  # pixels; pictures are resized by whole factors toward that
GAP = 4
PAPER, INK = (255, 255, 255), (60, 60, 60)


def grid(
    pictures: np.ndarray | Sequence[np.ndarray],
    columns: int | None = None,
    labels: Sequence[str] | None = None,
) -> Image.Image:
    """Pictures uint8 (N, H, W, C) in rows of `columns`, each over its label.

    Small ones are enlarged without smoothing, so that every pixel stays a sharp square; large ones
    are averaged down. Without `columns` the grid is about square.
    """
    if len(pictures) == 0:
        raise ValueError("a grid needs at least one picture")
    if labels is not None and len(labels) != len(pictures):
        raise ValueError(f"{len(labels)} labels were given for {len(pictures)} pictures")
    columns = columns or default_columns(len(pictures))
    if columns < 1:
        raise ValueError(f"a grid has at least 1 column, not {columns}")
    cells = [resized(picture(pixels)) for pixels in pictures]
    width, height = cells[0].size
    font = fitting_font(labels, width) if labels else None
    line = text_height(font) if font else 0
    rows = -(-len(cells) // columns)
    columns = min(columns, len(cells))
    step_x, step_y = width + GAP, height + GAP + line
    canvas = Image.new("RGB", (columns * step_x + GAP, rows * step_y + GAP), PAPER)
    draw = ImageDraw.Draw(canvas)
    for i, cell in enumerate(cells):
        x, y = GAP + i % columns * step_x, GAP + i // columns * step_y
        canvas.paste(cell, (x, y), cell if cell.mode == "RGBA" else None)
        if labels and font:
            draw.text((x + width / 2, y + height), labels[i], fill=INK, font=font, anchor="ma")
    return canvas


def default_columns(n: int) -> int:
    """The fewest columns that n pictures fill without a gap in a square or wider grid of up to
    four times its height; else those of a square with gaps."""
    square = math.isqrt(n - 1) + 1
    exact = [columns for columns in range(square, 2 * square) if n % columns == 0]
    return exact[0] if exact else square


def resized(image: Image.Image) -> Image.Image:
    """Enlarged (pixels repeated) or reduced (averaged) by a whole factor to a viewable size."""
    side = max(image.size)
    if side < SMALLEST_CELL:
        factor = -(-SMALLEST_CELL // side)
        return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    if side > LARGEST_CELL:
        return image.reduce(-(-side // LARGEST_CELL))
    return image


Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def fitting_font(labels: Sequence[str], width: int) -> Font:
    """Pillow's own font, as large as the longest label allows, from 9 to 16 pixels."""
    for size in range(16, 9, -1):
        font = ImageFont.load_default(size)
        if max(font.getlength(label) for label in labels) <= width:
            return font
    return ImageFont.load_default(9)


def text_height(font: Font) -> int:
    return int(font.getbbox("Ag")[3]) + 2  # the lower edge of "g", and a little air
