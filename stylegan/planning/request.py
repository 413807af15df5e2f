"""A request for a training: the options of `stylegan train`, and of Python."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

RESOLUTION = "network.resolution"
LENGTH = "schedule.total_kimg"


@dataclass(frozen=True)
class Request:
    """A training, as far as it is asked for. None: as the run in `out` remembers, else chosen.

    Raise ValueError if something is given twice.
    """

    out: str | Path | None = None  # run folder; of none the default is runs/<config>
    data: str | Path | None = None  # pictures; a new run without takes the bundled ones
    config: str | None = None  # name, TOML file, or auto
    # Lengths and widths of a named configuration are fitted to these four.
    resolution: int | None = None
    kimg: float | None = None  # length, in thousands of pictures shown
    minutes: float | None = None  # length, in minutes on this machine
    width: int | None = None  # the largest number of channels of a layer
    options: Mapping[str, object] = field(default_factory=dict)  # others, by `name`, `section.name`
    channels: int | Literal["auto"] | None = None
    init_from: str | Path | None = None  # weights to begin from

    def __post_init__(self) -> None:
        if self.minutes is not None and LENGTH in self.asked:
            raise ValueError("--minutes and --kimg both give the length; leave one out")
        own = {
            RESOLUTION: self.resolution,
            LENGTH: self.kimg,
            "network.max_channels": self.width,
            "network.image_channels": self.channels,
        }
        for name, value in own.items():
            if value is not None and name in self.options:
                raise ValueError(f"{name} is given twice, also among the other options (-o)")

    @property
    def asked(self) -> dict[str, object]:
        """Return the requested options of the configuration, by their names."""
        fitted = {RESOLUTION: self.resolution, LENGTH: self.kimg}
        given = {name: value for name, value in fitted.items() if value is not None}
        return {**given, **self.options}

    @property
    def is_to_fit(self) -> bool:
        """True if lengths and widths are to be fitted to a request."""
        return (self.resolution, self.kimg, self.width, self.minutes) != (None,) * 4
