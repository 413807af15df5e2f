"""The networks of a file of weights, and what became of each variable of a foreign one."""

import dataclasses
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from stylegan.files.loaded import LoadedGenerator
from stylegan.lineage import Lineage
from stylegan.networks import Discriminator, Generator

Change = Literal[
    "copied", "transposed", "rotated", "changed", "scaled", "checked", "ignored", "made"
]


@dataclass(frozen=True)
class Account:
    """One line of the table that `stylegan convert` prints."""

    variable: str  # name in the file; "" = the file has none
    name: str  # our tensor; "" = not used
    kind: Change  # copied: number by number; transposed: in another order; made: not of the file
    detail: str = ""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The networks of a file, how they came about, and how to generate with them."""

    layout: str  # what the file is
    generator: Generator | None  # the one that training moves; `generator_ema` if there is no other
    discriminator: Discriminator | None
    generator_ema: Generator | None  # the moving average, where there is one: to generate with
    accounts: Sequence[Account] = ()  # of generator_ema, of a foreign file
    discriminator_accounts: Sequence[Account] = ()
    _: KW_ONLY
    resolution: int  # that training had reached
    psi: float = 1.0  # truncation that the publisher generates with, 1.0 = none
    cutoff: int | None = None  # layers truncated, None = all
    alpha: float = 1.0  # how far that resolution had grown in
    images_seen: int | None = None
    label_names: Sequence[str] = ()
    active_rectangle: Sequence[int] | None = None  # the rest is padding
    lineage: Lineage = ()  # where the weights came from; of a foreign file, that file
    centers: Tensor | None = None  # of truncation, in place of the average
    notes: Sequence[str] = ()  # settings, what was taken for granted, what differs

    def loaded(self, path: Path) -> LoadedGenerator:
        """The generator to make pictures with, of the file at `path`. ValueError if it has none."""
        if self.generator_ema is None:
            raise ValueError(
                f"{path} is a {self.layout}; pictures need a generator: a generator-*.pt, a "
                "state-*.pt or the run folder"
            )
        names = [field.name for field in dataclasses.fields(LoadedGenerator)][2:]
        said = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return LoadedGenerator(self.generator_ema.eval(), f"{self.layout} {path}", **said)
