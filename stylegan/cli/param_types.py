"""Parameter types of options: text to Python values, with one-line errors."""

import math
import os.path
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import click

from stylegan.data.images import channels_of
from stylegan.utils.text import sanitize

T = TypeVar("T")
Centers = int | Literal["class", "none"] | None

MAX_SEEDS = 1_000_000
MAX_SEED = 2**32 - 1  # of NumPy
MAX_NUMBER = 10**9  # of other numbers
SHOWN = 40  # characters of an invalid value in messages


class Parsed(click.ParamType, Generic[T]):
    """Parameter type of a function that parses text; its ValueError is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self.parse = parse

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value  # a default
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Number(click.FloatRange):
    """Finite number; click's own type accepts nan."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def whole_range(text: str, noun: str, most: int) -> range:
    """Parse `3` or `0-7`, inclusive."""
    ends = re.fullmatch(r"\s*(\d{1,20})\s*(?:-\s*(\d{1,20})\s*)?", text, re.ASCII)
    if not ends:
        shown = sanitize(text.strip(), SHOWN)
        raise ValueError(f"{shown} is neither a {noun} nor a range like 0-3")
    first = int(ends[1])
    last = int(ends[2] or ends[1])
    if last > most:
        raise ValueError(f"a {noun} must be an integer from 0 to {most}, got {last}")
    if last < first:
        raise ValueError(f"the range {text.strip()} ends before it starts")
    return range(first, last + 1)


def seeds(text: str) -> list[int]:
    """Parse `0-35,40`; duplicates are dropped."""
    numbers: dict[int, None] = {}
    for part in text.split(","):
        part_numbers = whole_range(part, "seed", MAX_SEED)
        if len(numbers) + len(part_numbers) > MAX_SEEDS:
            raise ValueError(f"at most {MAX_SEEDS} seeds are possible, {part.strip()} is more")
        numbers |= dict.fromkeys(part_numbers)
    return list(numbers)


def grid(text: str) -> list[int]:
    """Parse `3x2`: columns and rows, at most 99 of each."""
    if not re.fullmatch(r"[1-9]\d?x[1-9]\d?", text, re.ASCII):
        raise ValueError(f"{sanitize(text, SHOWN)} is not a grid like 3x2, columns by rows")
    return list(map(int, text.split("x")))


def pair(text: str) -> tuple[float, float]:
    """Parse `1,-1`: first and last value."""
    numbers = NUMBERS.parse(text)
    if len(numbers) != 2:
        raise ValueError(f"{sanitize(text, SHOWN)} is not two numbers like 1,-1")
    return numbers[0], numbers[1]


def named(text: str) -> str:
    """Expand `~` to the home folder; shells do not in `--out=~/samples`."""
    if not text:  # for Path, the current folder
        raise ValueError("the name is empty")
    return os.path.expanduser(text)


def number_or(*words: str, least: int = 0, most: int = MAX_NUMBER) -> Callable[[str], int | str]:
    """Parser of one of `words` or an integer."""
    kind: click.ParamType = click.IntRange(least, most)
    return lambda text: text if text in words else kind.convert(text, None, None)


NUMBER = Number(-MAX_NUMBER, MAX_NUMBER)
NUMBERS = Parsed("numbers", lambda text: [NUMBER.convert(x, None, None) for x in text.split(",")])
PAIR = Parsed("first,last", pair)
SEEDS = Parsed("seeds", seeds)
LAYERS = Parsed("layers", partial(whole_range, noun="layer", most=99))
LAYER_RANGES = Parsed("ranges", lambda text: list(map(LAYERS.parse, text.split(","))))
CUTOFF = Parsed("layers", number_or("all"))
CENTERS = Parsed("n|class|none", number_or("class", "none", least=1, most=1000))
GRID = Parsed("columns x rows", grid)
CHANNEL = Parsed("auto|L|RGB|RGBA", channels_of)
SOURCE = Parsed("source", named)
INPUT = OUTPUT = Parsed("path", lambda text: Path(named(text)))  # a file or folder
EDIT = Parsed("edit", named)  # which may begin with a file
