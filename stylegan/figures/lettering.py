"""Fonts that can draw a label: missing characters are never drawn as boxes."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
ASCII = frozenset(map(chr, range(32, 127)))


def font_of(texts: Sequence[str], size: int) -> Font:
    """A font for `legible` texts: Pillow's own, which has only ASCII, else the first that has all
    their characters."""
    file = file_with(frozenset("".join(texts)))
    return ImageFont.truetype(file, size) if file else ImageFont.load_default(size)


def legible(texts: Sequence[str]) -> list[str]:
    """The texts, with escapes for characters that cannot be drawn."""
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
    """The first font file that has all of the characters; "" if Pillow's own font has them."""
    if characters <= ASCII:
        return ""
    return next((str(p) for p in font_files() if characters <= characters_of(str(p))), None)


@cache
def characters_of(file: str) -> frozenset[str]:
    """The characters of a font file; none if it cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(file).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
