"""Content of a file of weights, as every format and `loading.open_weights` return it."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from stylegan.networks import Discriminator, Generator
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.lineage import Lineage, LineageEntry


@dataclass(frozen=True, eq=False)
class Weights:
    """Networks in a file, their description, and where they came from.

    A run in the folder `mine`, initialized from `faces64`, writes generator-000600000.pt. Its

    - `lineage` is (faces64): where its weights came from;
    - `lineage_entry` is mine/generator-000600000.pt: the file's name in other lineages;
    - `child_lineage()` is (faces64, mine/generator-000600000.pt): of a run initialized from it.

    Nothing earlier is known of a foreign or bundled file: all three are the file itself.
    """

    file: Path
    kind: str  # "generator file", "official snapshot", ...
    loaded: Pretrained | None  # the average generator, for images
    generator: Generator | None = None  # as trained; the average if the file has no other
    discriminator: Discriminator | None = None
    lineage: Lineage = ()  # where the weights came from, oldest first
    lineage_entry: LineageEntry | None = None  # the file, in lineages that continue from it
    notes: Sequence[str] = ()  # assumptions, and differences from the original program
    source: str = ""  # as the user wrote it, if not the file
    skipped_files: Sequence[str] = ()  # newer files of the source that could not be used, and why

    def __str__(self) -> str:
        return self.source or str(self.file)

    @property
    def origin(self) -> str:
        return f"{self.kind} {self.file}"

    @property
    def generator_ema(self) -> Generator | None:
        return None if self.loaded is None else self.loaded.generator

    def networks(self) -> dict[str, Generator | Discriminator]:
        """Networks of the file, by their name in a training state."""
        named = {
            "generator": self.generator,
            "discriminator": self.discriminator,
            "generator_ema": self.generator_ema,
        }
        return {name: network for name, network in named.items() if network is not None}

    def require_loaded(self) -> Pretrained:
        """The average generator; ValueError if there is none."""
        if self.loaded is None:
            raise ValueError(
                f"{self.origin} holds no generator; pass a generator-*.pt, a state-*.pt or a "
                "run folder"
            )
        return self.loaded

    def require_discriminator(self) -> Discriminator:
        if self.discriminator is None:
            raise ValueError(
                f"{self.file} holds no discriminator; pass a state-*.pt, a file of `stylegan "
                "convert --discriminator`, faces64 or an official .pkl"
            )
        return self.discriminator

    def child_lineage(self, copied: str = "") -> Lineage:
        """Lineage of a run initialized from this file, which comes last.

        copied: how many tensors each network took; "" = the file as a whole.
        """
        if self.lineage_entry is None:
            return self.lineage
        before = [source for source in self.lineage if source.sha256 != self.lineage_entry.sha256]
        return (*before, dataclasses.replace(self.lineage_entry, copied=copied))

    def as_parent(self) -> Pretrained:
        """The generator as origin of other networks: its lineage ends with this file."""
        return self.require_loaded().replace(lineage=self.child_lineage())

    def with_lineage_of(self, entry: LineageEntry) -> Self:
        """Copy whose lineage is the file itself, `entry`: for foreign and bundled files."""
        loaded = self.loaded and self.loaded.replace(lineage=(entry,))
        return dataclasses.replace(self, loaded=loaded, lineage=(entry,), lineage_entry=entry)
