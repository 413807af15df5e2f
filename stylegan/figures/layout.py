"""Grids and tables of images with labels. Characters without a glyph are drawn as escapes."""

import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from stylegan.sampling import over_checkerboard, to_pil
from stylegan.utils.filesystem import KEEP_EXISTING, OutputWriter, as_value_error

MIN_CELL = 96  # pixels; images are scaled into this range by integer factors
MAX_CELL = 512
GAP = 4
ASCII = frozenset(map(chr, range(32, 127)))
BACKGROUND = (255, 255, 255)
INK = (60, 60, 60)
MIN_TEXT = 9  # pixels
TEXT = 16
MAX_TEXT = 32
FORMATS: dict[str, tuple[str, Mapping[str, int]]] = {  # by ending: Pillow's name and options
    ".png": ("PNG", {}),
    ".webp": ("WEBP", {"lossless": True, "exact": True}),  # keeps colors where alpha is 0, too
    ".jpg": ("JPEG", {"quality": 95, "subsampling": 0}),
}
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def save_image(path: Path, image: Image.Image, *, outputs: OutputWriter = KEEP_EXISTING) -> None:
    """Write an image. Raises ValueError if `outputs` keeps an existing file of other content."""
    outputs.check(path, endings=FORMATS, exist_ok=True)
    kind, settings = FORMATS[path.suffix.lower()]
    buffer = io.BytesIO()
    with as_value_error(path, f"cannot be written as {kind}", "choose .png"):
        image.save(buffer, kind, **settings)
    outputs.content(path, buffer.getvalue())


def grid(
    images: np.ndarray | Sequence[np.ndarray],
    columns: int | None = None,
    labels: Sequence[str] | None = None,
) -> Image.Image:
    """Arrange images uint8 (N, H, W, C) in rows of `columns` (default: about square), each above
    its label. Small ones are upsampled by repeating pixels, large ones downsampled by averaging."""
    return tiled([resized(to_pil(pixels)) for pixels in images], columns, labels)


def tiled(
    cells: Sequence[Image.Image], columns: int | None = None, labels: Sequence[str] | None = None
) -> Image.Image:
    """Arrange images of equal size as `grid` does, without scaling."""
    width, height = cells[0].size
    labels = legible(labels or [])
    font = fitting_font(labels or [""], width)
    line = text_height(font) if labels else 0
    columns = min(columns or default_columns(len(cells)), len(cells))
    size = columns * (width + GAP) + GAP, -(-len(cells) // columns) * (height + line + GAP) + GAP
    canvas = Image.new("RGB", size, BACKGROUND)
    draw = ImageDraw.Draw(canvas)
    for i, cell in enumerate(cells):
        row, column = divmod(i, columns)
        x = GAP + column * (width + GAP)
        y = GAP + row * (height + line + GAP)
        paste(canvas, cell, (x, y))
        if labels:
            place = (x + width / 2, y + height)
            draw.text(place, labels[i], fill=INK, font=font, anchor="ma")
    return canvas


def image_table(
    rows: Sequence[Sequence[np.ndarray | Image.Image | None]],
    *,
    columns: Sequence[str],
    names: Sequence[str],
    title: str = "",
    bands: Sequence[tuple[str, int]] = (),
    apart: bool = False,
) -> Image.Image:
    """Arrange images (H, W, C) in a table.

    rows: cells; None leaves one empty. Sizes may differ: cells are as large as the finest requires.
    columns: labels above the columns; names: labels to the left of the rows.
    title: text above the columns. apart: separate the first column, which has no title.
    bands: (text, number of rows) of groups of rows; the text is at their left, rotated.
    """
    bands = bands or [("", len(rows))]
    columns, names, (title, *sides) = (
        legible(texts) for texts in (columns, names, [title, *(label for label, _ in bands)])
    )
    cells = [[to_pil(x) if isinstance(x, np.ndarray) else x for x in row] for row in rows]
    finest = max((cell for row in cells for cell in row if cell is not None), key=lambda c: c.width)
    width, height = resized(finest).size
    largest = min(max(TEXT, width // 16), MAX_TEXT)
    font = fitting_font([*columns, *names], width, largest, [title, *sides])
    line = text_height(font)
    ends = list(itertools.accumulate(n for _, n in bands))
    lengths = [n * (height + GAP) - GAP for _, n in bands]
    strips = [upward(side, font, length) for side, length in zip(sides, lengths, strict=True)]
    beside = max(strip.width for strip in strips)
    left = 3 * GAP + max(int(font.getlength(name)) for name in names)
    left += beside + 2 * GAP if beside > 1 else 0
    xs = steps(left, width, len(columns), {1} if apart else set())
    ys = steps(GAP + line * (1 + bool(title)), height, len(rows), set(ends))
    canvas = Image.new("RGB", (xs[-1] + width + GAP, ys[-1] + height + GAP), BACKGROUND)
    draw = ImageDraw.Draw(canvas)
    for x, label in zip(xs, columns, strict=True):
        draw.text((x + width / 2, ys[0] - line), label, fill=INK, font=font, anchor="ma")
    draw.text(((xs[apart] + xs[-1] + width) / 2, GAP), title, fill=INK, font=font, anchor="ma")
    for y, name, row in zip(ys, names, cells, strict=True):
        draw.text((xs[0] - 2 * GAP, y + height / 2), name, fill=INK, font=font, anchor="rm")
        for x, cell in zip(xs, row, strict=True):
            if cell is not None:
                paste(canvas, filling(cell, (width, height)), (x, y))
    for strip, end, (_, n) in zip(strips, ends, bands, strict=True):
        canvas.paste(strip, (GAP, ys[end - n]))
    return canvas


def span(smallest: int, largest: int) -> str:
    """`4-8 px` or `4 px`."""
    return f"{smallest} px" if smallest == largest else f"{smallest}-{largest} px"


def steps(start: int, size: int, n: int, wide_before: set[int]) -> list[int]:
    """Offsets of n cells of `size`; gaps before `wide_before` are four times as wide."""
    gaps = [0, *(4 * GAP if i in wide_before else GAP for i in range(1, n))]
    return [start + i * size + gap for i, gap in enumerate(itertools.accumulate(gaps))]


def upward(text: str, font: Font, length: int) -> Image.Image:
    """Draw text rotated by 90 degrees, centered in `length`, with line breaks between words."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else ""
        if longer and font.getlength(longer) <= length + GAP:
            lines[-1] = longer
        else:
            lines.append(word)
    line = text_height(font)
    strip = Image.new("RGB", (length, max(1, len(lines) * line)), BACKGROUND)
    for i, words in enumerate(lines):
        ImageDraw.Draw(strip).text((length / 2, i * line), words, fill=INK, font=font, anchor="ma")
    return strip.transpose(Image.Transpose.ROTATE_90)


def captioned(image: Image.Image, text: str) -> Image.Image:
    """Append a line of text below an image; the height depends on the width of the image only."""
    (text,) = legible([text])
    size = min(max(MIN_TEXT, image.width // 12), TEXT)
    height = image.height + text_height(font_of([], size)) + GAP
    canvas = Image.new("RGB", (image.width, height), BACKGROUND)
    paste(canvas, image, (0, 0))
    place = (image.width / 2, image.height)
    font = font_of([text], size)
    ImageDraw.Draw(canvas).text(place, text, fill=INK, font=font, anchor="ma")
    return canvas


def paste(canvas: Image.Image, image: Image.Image, place: tuple[int, int]) -> None:
    """Paste an image, RGBA over a checkerboard."""
    canvas.paste(
        to_pil(over_checkerboard(np.asarray(image))) if image.mode == "RGBA" else image, place
    )


def default_columns(n: int) -> int:
    """The fewest columns without gaps for n images, if the grid is then at most four times as wide
    as high; else those of a square with gaps."""
    square = math.isqrt(n - 1) + 1
    return next((columns for columns in range(square, 2 * square) if n % columns == 0), square)


def resized(image: Image.Image) -> Image.Image:
    """Scale by an integer factor to the size of a cell."""
    side = max(image.size)
    if side < MIN_CELL:
        return scaled(image, image.width * -(-MIN_CELL // side))
    return image.reduce(-(-side // MAX_CELL))


def scaled(image: Image.Image, width: int) -> Image.Image:
    """Upsample (repeat pixels) or downsample (average) to `width` by an integer factor."""
    if image.width > width:
        return image.reduce(-(-image.width // width))
    factor = width // image.width
    size = image.width * factor, image.height * factor
    return image.resize(size, Image.Resampling.NEAREST)


def filling(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Scale an image to fill a cell and crop what exceeds it.

    At 4x4, a network for 512x384 has half a row of padding above and below."""
    width, height = size
    shown = scaled(image, max(width, image.width * height // image.height))
    left = (shown.width - width) // 2
    top = (shown.height - height) // 2
    return shown.crop((left, top, left + width, top + height))


def fitting_font(
    labels: Sequence[str], width: int, largest: int = TEXT, others: Sequence[str] = ()
) -> Font:
    """Font for all texts, in the largest size up to `largest` at which labels fit into `width`."""
    for size in range(largest, MIN_TEXT - 1, -1):
        font = font_of([*labels, *others], size)
        if max(font.getlength(label) for label in labels) <= width:
            break
    return font


def text_height(font: Font) -> int:
    return int(font.getbbox("Ag")[3]) + 2  # lower edge of "g", plus a margin


def font_of(texts: Sequence[str], size: int) -> Font:
    """Font for `legible` texts: Pillow's own for ASCII, else the first one with all characters."""
    file = file_with(frozenset("".join(texts)))
    return ImageFont.truetype(file, size) if file else ImageFont.load_default(size)


def legible(texts: Sequence[str]) -> list[str]:
    """Escape characters that no font contains."""
    if file_with(frozenset("".join(texts))) is not None:
        return list(texts)
    known = ASCII | characters_of(str(next(font_files())))
    return ["".join(c if c in known else ascii(c)[1:-1] for c in text) for text in texts]


def font_files() -> Iterator[Path]:
    """DejaVu Sans of matplotlib (Latin, Greek, Cyrillic), then the fonts of this machine."""
    import matplotlib
    from matplotlib.font_manager import findSystemFonts

    yield Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    yield from sorted(map(Path, findSystemFonts()))


@cache
def file_with(characters: frozenset[str]) -> str | None:
    """The first font file with all characters, "" for Pillow's own font, or None."""
    if characters <= ASCII:
        return ""
    return next((str(p) for p in font_files() if characters <= characters_of(str(p))), None)


@cache
def characters_of(file: str) -> frozenset[str]:
    """Characters of a font file; none if it cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(file).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
