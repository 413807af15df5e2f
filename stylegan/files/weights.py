"""The content of a file of weights: the answer of every format, and of `loading.open_weights`."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from stylegan.machine.lineage import Lineage, Source
from stylegan.networks import Discriminator, Generator
from stylegan.sampling.pretrained import Pretrained


@dataclass(frozen=True, eq=False)
class Weights:
    """The networks in a file, their description, and where they came from.

    A run in the folder `mine` that began from `faces64` writes generator-000600000.pt. Of that file

    - `lineage` is (faces64): where its weights came from;
    - `own_entry` is mine/generator-000600000.pt: the file as the lineages of others name it;
    - `child_lineage()` is (faces64, mine/generator-000600000.pt): of a run that begins from it.

    Of a foreign or bundled file nothing earlier is known: all three are the file itself.
    """

    file: Path
    kind: str  # "generator file", "official snapshot", ...
    loaded: Pretrained | None  # the average generator, to make pictures with
    generator: Generator | None = None  # the one that training moves; the average if it is alone
    discriminator: Discriminator | None = None
    lineage: Lineage = ()  # where the weights came from, the oldest first
    own_entry: Source | None = None  # the file itself, in the lineage of what begins from it
    notes: Sequence[str] = ()  # assumptions, and differences from the publisher's program
    source: str = ""  # as it was given, if not the file
    left_out: Sequence[str] = ()  # newer files of that source that were not used, with reasons

    def __str__(self) -> str:
        return self.source or str(self.file)

    @property
    def origin(self) -> str:
        return f"{self.kind} {self.file}"

    @property
    def generator_ema(self) -> Generator | None:
        return None if self.loaded is None else self.loaded.generator

    def networks(self) -> dict[str, Generator | Discriminator]:
        """Return the networks of the file, by their name in a state of training."""
        named = {
            "generator": self.generator,
            "discriminator": self.discriminator,
            "generator_ema": self.generator_ema,
        }
        return {name: network for name, network in named.items() if network is not None}

    def require_loaded(self) -> Pretrained:
        """Return the generator to make pictures with. Raise ValueError if there is none."""
        if self.loaded is None:
            raise ValueError(
                f"{self.origin} holds no generator; pass a generator-*.pt, a state-*.pt or the run "
                "folder"
            )
        return self.loaded

    def require_discriminator(self) -> Discriminator:
        if self.discriminator is None:
            raise ValueError(
                f"{self.file} holds no discriminator; those that do: state-*.pt of a run, what "
                "`stylegan convert --discriminator` writes, faces64, official .pkl"
            )
        return self.discriminator

    def child_lineage(self, copied: str = "") -> Lineage:
        """Return the lineage for a run that begins from this file, its last entry. `copied`:
        tensors that each network took over; "" = the file as a whole."""
        if self.own_entry is None:
            return self.lineage
        before = [source for source in self.lineage if source.sha256 != self.own_entry.sha256]
        return (*before, dataclasses.replace(self.own_entry, copied=copied))

    def as_parent(self) -> Pretrained:
        """Return the generator to make networks from: its lineage ends with this file."""
        return self.require_loaded().but(lineage=self.child_lineage())

    def with_lineage_of(self, entry: Source) -> Self:
        """Return a copy whose lineage is the file itself, `entry`: of a foreign or bundled one."""
        loaded = self.loaded and self.loaded.but(lineage=(entry,))
        return dataclasses.replace(self, loaded=loaded, lineage=(entry,), own_entry=entry)
