"""Fonts that have the characters of a label: never a box in their place."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def font_of(texts: Sequence[str], size: int) -> Font:
    """A font of `legible` texts: Pillow's own, which has ASCII alone, else the first that has all
    of their characters."""
    characters = frozenset("".join(texts))
    file = None if ascii_only(characters) else file_with(characters)
    return ImageFont.load_default(size) if file is None else ImageFont.truetype(file, size)


def legible(texts: Sequence[str]) -> list[str]:
    """The texts, with escapes in the place of characters that cannot be drawn."""
    characters = frozenset("".join(texts))
    if ascii_only(characters) or file_with(characters):
        return list(texts)
    known = characters_of(str(next(font_files()))) | {*map(chr, range(32, 127))}
    return ["".join(c if c in known else ascii(c)[1:-1] for c in text) for text in texts]


def ascii_only(characters: frozenset[str]) -> bool:
    return all(" " <= c <= "~" for c in characters)


def font_files() -> Iterator[Path]:
    """DejaVu Sans, which comes with matplotlib (Latin, Greek, Cyrillic), then those of this
    machine."""
    import matplotlib
    from matplotlib.font_manager import findSystemFonts

    yield Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    yield from sorted(map(Path, findSystemFonts()))


@cache
def file_with(characters: frozenset[str]) -> str | None:
    """The first font file that has all of the characters."""
    return next((str(p) for p in font_files() if characters <= characters_of(str(p))), None)


@cache
def characters_of(file: str) -> frozenset[str]:
    """What a font file can draw; nothing if it cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(file).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
