"""What became of each variable of a foreign file, and where each of our tensors came from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from stylegan.interop.correspondence import Match
from stylegan.networks import Discriminator, Generator

Kind = Literal["copied", "transposed", "rotated", "scaled", "checked", "ignored", "made"]


@dataclass(frozen=True)
class Account:
    """One line of the table that `stylegan convert` prints."""

    variable: str  # name in the file; "" = the file has none
    name: str  # our tensor; "" = not used
    kind: Kind  # copied: number by number; transposed: in another order; made: not of the file
    detail: str = ""


@dataclass(frozen=True, eq=False)
class Imported:
    """The networks of a foreign file, and how they came about."""

    layout: str  # what the file is
    generator: Generator  # the moving average, where there is one
    accounts: tuple[Account, ...]  # of the generator
    psi: float = 1.0  # truncation that the publisher generates with, 1.0 = none
    cutoff: int | None = None  # layers truncated, None = all
    resolution: int = 0  # that training had reached
    alpha: float = 1.0  # how far that resolution had grown in
    images_seen: int | None = None
    active_rectangle: tuple[int, int, int, int] | None = None  # top, bottom, left, right
    trained: Generator | None = None  # the one that training moves, beside its average
    discriminator: Discriminator | None = None
    discriminator_accounts: tuple[Account, ...] = ()
    notes: tuple[str, ...] = field(default=())  # settings, what was taken for granted, what differs


def official_accounts(matches: Iterable[Match], variables: Iterable[str]) -> Iterator[Account]:
    """The lines of official `variables` that `matches` have been checked to fit."""
    by_path = {match.path: match for match in matches}
    for path in variables:
        match = by_path.get(path)
        if match is None:
            detail = "the level of detail: it sets the resolution reached"
            yield Account(path, "", "ignored", detail)
        elif match.rotated:
            detail = "by 180 degrees, as officially used unturned in the fused upscaling"
            yield Account(path, match.name, "rotated", detail)
        else:
            yield Account(path, match.name, "transposed" if match.axes else "copied")
