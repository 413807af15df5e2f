"""Values of options that are lists, ranges and pairs: pure functions from text to Python."""

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stylegan.files.loaded import Cutoff

MOST_SEEDS = 1_000_000


class Parsed(click.ParamType):
    """What a function makes of a text; its ValueError is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # a default
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def whole_range(text: str, noun: str) -> range:
    """`3` or `0-7`, both ends included."""
    first, dash, last = (word.strip() for word in text.partition("-"))
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise ValueError(f"{text.strip()!r} is neither a {noun} nor a range like 0-3")
    found = range(int(first), int(last or first) + 1)
    if not found:
        raise ValueError(f"the range {text.strip()} ends before it begins")
    return found


def seeds(text: str) -> list[int]:
    """`0-35,40`: each number once."""
    found: dict[int, None] = {}
    for part in text.split(","):
        some = whole_range(part, "seed")
        if len(found) + len(some) > MOST_SEEDS:
            raise ValueError(f"{part.strip()} is more than {MOST_SEEDS} seeds at once")
        found |= dict.fromkeys(some)
    return list(found)


def layer_ranges(text: str) -> list[range]:
    """`0-3,4-7,8`."""
    return [whole_range(part, "layer") for part in text.split(",")]


def layer_range(text: str) -> range:
    """`0-7` or `3`."""
    found = layer_ranges(text)
    if len(found) > 1:
        raise ValueError(f"one range is needed, {text} are {len(found)}")
    return found[0]


def numbers(text: str) -> list[float]:
    """`1,0.5,-1`: finite numbers."""
    return [finite(part.strip()) for part in text.split(",")]


def finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number


def counts(text: str) -> list[int]:
    """`1,2,4`: whole numbers from 1."""
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < 1:
            raise ValueError(f"{part.strip()!r} is not a whole number from 1")
    return [int(part) for part in text.split(",")]


def cutoff(text: str) -> "Cutoff":
    """A number of layers, or `all`."""
    if text != "all" and not text.isdecimal():
        raise ValueError(f"{text!r} is neither a number of layers nor 'all'")
    return "all" if text == "all" else int(text)


def size(text: str) -> tuple[int, int]:
    """`512x384`: how many across, how many down."""
    across, cross, down = text.partition("x")
    if not (cross and across.isdecimal() and down.isdecimal()) or 0 in (int(across), int(down)):
        raise ValueError(f"{text!r} is not a size like 512x384, width by height")
    return int(across), int(down)


def grid(text: str) -> tuple[int, int]:
    """`3x2`: columns and rows, at most 99 each."""
    found = re.fullmatch(r"([1-9]\d?)x([1-9]\d?)", text)
    if not found:
        raise ValueError(f"{text!r} is not a grid like 3x2, columns by rows")
    return int(found[1]), int(found[2])


SEEDS = Parsed("seeds", seeds)
LAYERS = Parsed("layers", layer_range)
LAYER_RANGES = Parsed("ranges", layer_ranges)
NUMBERS = Parsed("numbers", numbers)
COUNTS = Parsed("counts", counts)
CUTOFF = Parsed("layers", cutoff)
SIZE = Parsed("WxH", size)
GRID = Parsed("columns x rows", grid)
