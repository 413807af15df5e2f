"""Ranges of numbers: an option's type declares its range, a configuration checks them all."""

import functools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Range:
    """Finite numbers between bounds, of which `above` and `below` are not among them."""

    least: float = -sys.float_info.max
    most: float = sys.float_info.max
    above: float = -math.inf
    below: float = math.inf

    def check(self, name: str, value: float) -> None:
        """ValueError if the value is outside, or not a number at all."""
        if not (self.least <= value <= self.most and self.above < value < self.below):
            raise ValueError(f"{name} must be {self}, not {str(value)[:40]}")

    def __str__(self) -> str:
        bounds = {
            "at least": self.least,
            "above": self.above,
            "at most": self.most,
            "below": self.below,
        }
        texts = [
            f"{word} {bound:,.10g}"
            for word, bound in bounds.items()
            if abs(bound) < sys.float_info.max
        ]
        finite = [] if self.most < sys.float_info.max or self.below < math.inf else ["finite"]
        return " and ".join([*texts, *finite])


AtLeast0 = Annotated[float, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
Probability = Annotated[float, Range(least=0, most=1)]
Decay = Annotated[float, Range(least=0, below=1)]
Count = Annotated[int, Range(least=1)]


def check_ranges(config: object) -> None:
    """ValueError for a field of a dataclass, or an entry of a table by resolution, outside of the
    range that its type declares."""
    kind: type = type(config)
    for name, declared in ranges_of(kind).items():
        value = getattr(config, name)
        if isinstance(value, Mapping):
            for resolution, entry in value.items():
                declared.check(f"{name} at resolution {resolution}", entry)
        elif not isinstance(value, str):  # a word in place of a number
            declared.check(name, value)


@functools.lru_cache
def ranges_of(kind: type) -> dict[str, Range]:
    """The ranges that the types of a dataclass's fields declare, by name."""
    hints = get_type_hints(kind, include_extras=True)
    declared = {name: range_of(hint) for name, hint in hints.items()}
    return {name: numbers for name, numbers in declared.items() if numbers is not None}


def range_of(hint: object) -> Range | None:
    """The range in a type: its own, or that of a member of a union or of a table's values."""
    if get_origin(hint) is Annotated:
        declared = next((part for part in get_args(hint)[1:] if isinstance(part, Range)), None)
        return declared or range_of(get_args(hint)[0])
    return next(filter(None, map(range_of, get_args(hint))), None)
