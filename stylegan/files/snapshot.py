"""The networks of a file of weights."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from stylegan.files.loaded import LoadedGenerator
from stylegan.lineage import Lineage
from stylegan.networks import Discriminator, Generator


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a file of weights holds."""

    origin: str  # what the file is, and its path
    loaded: LoadedGenerator | None  # the average generator, to make pictures with
    generator: Generator | None = None  # the one that training moves; the average if it is alone
    discriminator: Discriminator | None = None
    lineage: Lineage = ()  # where the weights came from; for a foreign file, that file
    notes: Sequence[str] = ()  # what was assumed, what differs from the publisher's program

    @property
    def generator_ema(self) -> Generator | None:
        """The average generator."""
        return None if self.loaded is None else self.loaded.generator

    def to_generate(self) -> LoadedGenerator:
        """The generator to make pictures with. ValueError if there is none."""
        if self.loaded is None:
            raise ValueError(
                f"{self.origin} holds no generator; pictures need one: a generator-*.pt, a "
                "state-*.pt or the run folder"
            )
        return self.loaded

    def of_file(self, path: Path, lineage: Lineage) -> Self:
        """The same with the file that it was read from."""
        said: dict[str, Any] = {"origin": f"{self.origin} {path}", "lineage": lineage}
        loaded = self.loaded and dataclasses.replace(self.loaded, **said)
        return dataclasses.replace(self, loaded=loaded, **said)
