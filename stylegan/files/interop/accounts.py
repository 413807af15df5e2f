"""The networks of a foreign file, what became of each of its variables, and where each of our
tensors came from."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from stylegan.networks import Discriminator, Generator

Kind = Literal["copied", "transposed", "rotated", "changed", "scaled", "checked", "ignored", "made"]
Rectangle = tuple[int, int, int, int]  # top, bottom, left, right


@dataclass(frozen=True)
class Account:
    """One line of the table that `stylegan convert` prints."""

    variable: str  # name in the file; "" = the file has none
    name: str  # our tensor; "" = not used
    kind: Kind  # copied: number by number; transposed: in another order; made: not of the file
    detail: str = ""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The networks of a foreign file, how they came about, and how to generate with them."""

    layout: str  # what the file is
    generator: Generator  # the one that training moves; `generator_ema` if the file has no other
    discriminator: Discriminator | None
    generator_ema: Generator  # the moving average, where there is one: to generate with
    accounts: tuple[Account, ...]  # of generator_ema
    discriminator_accounts: tuple[Account, ...] = ()
    _: KW_ONLY
    resolution: int  # that training had reached
    psi: float = 1.0  # truncation that the publisher generates with, 1.0 = none
    cutoff: int | None = None  # layers truncated, None = all
    alpha: float = 1.0  # how far that resolution had grown in
    images_seen: int | None = None
    active_rectangle: Rectangle | None = None  # the rest is padding
    notes: tuple[str, ...] = ()  # settings, what was taken for granted, what differs
