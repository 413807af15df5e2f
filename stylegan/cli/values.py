"""Values of options: pure functions from text to Python, which refuse nonsense in one sentence."""

import math
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from stylegan.messages import readable

if TYPE_CHECKING:
    from stylegan.centers import Centers
    from stylegan.files.loaded import Cutoff

MOST_SEEDS = 1_000_000
LARGEST_SEED = 2**32 - 1  # of NumPy
LARGEST = 10**9  # of other numbers
MOST_LAYERS = 100
SHOWN = 40  # characters of a wrong value


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


def whole(text: str, least: int = 0, most: int = LARGEST) -> int:
    """A whole number within bounds."""
    found = int(text) if re.fullmatch(r"[+-]?\d{1,20}", text.strip(), re.ASCII) else None
    if found is None or not least <= found <= most:
        raise ValueError(f"{readable(text, SHOWN)} is not a whole number from {least} to {most}")
    return found


def number(text: str, least: float = -LARGEST, most: float = LARGEST) -> float:
    """A number within bounds, so a finite one."""
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not least <= found <= most:
        raise ValueError(f"{readable(text, SHOWN)} is not a number from {least:g} to {most:g}")
    return found


def whole_range(text: str, noun: str, most: int) -> range:
    """`3` or `0-7`, both ends included."""
    ends = [end.strip() for end in text.split("-")]
    if len(ends) > 2 or not all(re.fullmatch(r"\d{1,20}", end, re.ASCII) for end in ends):
        raise ValueError(
            f"{readable(text.strip(), SHOWN)} is neither a {noun} nor a range like 0-3"
        )
    first, last = int(ends[0]), int(ends[-1])
    if last > most:
        raise ValueError(f"a {noun} is a whole number from 0 to {most}, not {last}")
    if last < first:
        raise ValueError(f"the range {text.strip()} ends before it begins")
    return range(first, last + 1)


def seeds(text: str) -> list[int]:
    """`0-35,40`: each number once."""
    found: dict[int, None] = {}
    for part in text.split(","):
        some = whole_range(part, "seed", LARGEST_SEED)
        if len(found) + len(some) > MOST_SEEDS:
            raise ValueError(f"{part.strip()} is more than {MOST_SEEDS} seeds at once")
        found |= dict.fromkeys(some)
    return list(found)


def layer_ranges(text: str) -> list[range]:
    """`0-3,4-7,8`."""
    return [whole_range(part, "layer", MOST_LAYERS - 1) for part in text.split(",")]


def layer_range(text: str) -> range:
    """`0-7` or `3`."""
    found = layer_ranges(text)
    if len(found) > 1:
        raise ValueError(f"one range is needed, {text} are {len(found)}")
    return found[0]


def numbers(text: str) -> list[float]:
    """`1,0.5,-1`: finite numbers."""
    return [number(part) for part in text.split(",")]


def cutoff(text: str) -> "Cutoff":
    """A number of layers, or `all`."""
    return "all" if text == "all" else whole(text)


def centers(text: str) -> "Centers | Literal['none']":
    """A number of centres, `class` or `none`."""
    if text in ("class", "none"):
        return text  # type: ignore[return-value]
    return whole(text, 1, 1000)


def grid(text: str) -> tuple[int, int]:
    """`3x2`: columns and rows, at most 99 each."""
    found = re.fullmatch(r"([1-9]\d?)x([1-9]\d?)", text, re.ASCII)
    if not found:
        raise ValueError(f"{readable(text, SHOWN)} is not a grid like 3x2, columns by rows")
    return int(found[1]), int(found[2])


CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4, "1": 1, "3": 3, "4": 4}


def channels(text: str) -> int | Literal["auto"]:
    """`RGBA`, `4` or `auto`."""
    if text == "auto":
        return "auto"
    if text.upper() not in CHANNELS:
        raise ValueError(f"{readable(text, SHOWN)} is not auto, L (1), RGB (3) or RGBA (4)")
    return CHANNELS[text.upper()]


def aspect(text: str) -> str:
    """`3:4`; whether pictures can be cropped to it is not known yet."""
    if not re.fullmatch(r"\d{1,5}:\d{1,5}", text, re.ASCII):
        raise ValueError(f"{readable(text, SHOWN)} is not an aspect like 3:4, width to height")
    return text


def crop(crop: str | None, aspect: str | None) -> str | None:
    """What --crop and --aspect say together, as the configuration has it."""
    from stylegan.data.images import Fit

    if aspect is not None and crop not in (None, "pad"):
        raise click.UsageError("--aspect belongs to --crop pad: other squares are filled")
    return crop if aspect is None else str(Fit.of(f"pad {aspect}"))


def device(text: str) -> str:
    """The name of a device; whether it is there is not known yet."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", text, re.ASCII):
        raise ValueError(f"{readable(text, SHOWN)} is not a device: auto, cpu, cuda, cuda:1 or mps")
    return text


def edit(text: str) -> str:
    """The text of an edit; whether there is what it names is not known yet."""
    from stylegan.edits import parsed

    parsed(text)
    return text


def source(text: str) -> str:
    """A name, an address, or the path of a file or folder: nothing that waits or never ends."""
    if not text:
        raise ValueError("the name is empty")
    try:
        mode = Path(text).stat().st_mode
    except OSError:
        return text  # what reads it says so
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{readable(text)} is neither a regular file nor a folder")
    return text


class Number(click.FloatRange):
    """A finite number; click's own lets nan through."""

    def __init__(self, least: float = -LARGEST, most: float = LARGEST) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


SEEDS = Parsed("seeds", seeds)
LAYERS = Parsed("layers", layer_range)
LAYER_RANGES = Parsed("ranges", layer_ranges)
NUMBERS = Parsed("numbers", numbers)
CUTOFF = Parsed("layers", cutoff)
CENTERS = Parsed("n|class|none", centers)
GRID = Parsed("columns x rows", grid)
SEED = click.IntRange(0, LARGEST_SEED)
NUMBER = Number()
DEVICE = Parsed("device", device)
CHANNEL = Parsed("auto|L|RGB|RGBA", channels)
ASPECT = Parsed("W:H", aspect)
EDIT = Parsed("edit", edit)
SOURCE = Parsed("source", source)
INPUT = Parsed("path", lambda text: Path(source(text)))  # a file or folder to read
