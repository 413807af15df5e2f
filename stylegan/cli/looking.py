"""What `generate`, `figure` and `video` share: which points, looked at how."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stylegan.cli.common import Decorated, use_device

if TYPE_CHECKING:
    from stylegan.figures import Points, StyleRange
    from stylegan.files.loaded import Cutoff
    from stylegan.files.loading import LoadedGenerator


MOST_SEEDS = 1_000_000


class SeedRange(click.ParamType):
    """`0-35,40` as a list of whole numbers, each once."""

    name = "seeds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        if isinstance(value, list):
            return value
        seeds: dict[int, None] = {}
        for part in str(value).split(","):
            first, dash, last = (word.strip() for word in part.partition("-"))
            if not first.isdecimal() or (dash and not last.isdecimal()):
                self.fail(f"{part.strip()!r} is neither a seed nor a range like 0-35", param, ctx)
            numbers = range(int(first), int(last or first) + 1)
            if not numbers:
                self.fail(f"the range {part.strip()} ends before it begins", param, ctx)
            if len(seeds) + len(numbers) > MOST_SEEDS:
                self.fail(f"{part.strip()} is more than {MOST_SEEDS} seeds at once", param, ctx)
            seeds |= dict.fromkeys(numbers)
        return list(seeds)


class CutoffType(click.ParamType):
    """A number of layers, or `all`."""

    name = "layers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> "Cutoff":
        if value == "all":
            return "all"
        if not str(value).isdecimal():
            self.fail(f"{value!r} is neither a number of layers nor 'all'", param, ctx)
        return int(value)


class Numbers(click.ParamType):
    """`1,0.5,-1` as a list of finite numbers."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        if isinstance(value, list):
            return value
        numbers = []
        for part in str(value).split(","):
            try:
                number = float(part)
            except ValueError:
                self.fail(f"{part.strip()!r} is not a number", param, ctx)
            if not abs(number) < float("inf"):
                self.fail(f"{part.strip()} is not finite", param, ctx)
            numbers.append(number)
        return numbers


class LayerRanges(click.ParamType):
    """`0-3,4-7,8` as pairs of first and last layer."""

    name = "layers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[tuple[int, int]]:
        if isinstance(value, list):
            return value
        ranges = []
        for part in str(value).split(","):
            first, dash, last = (word.strip() for word in part.partition("-"))
            if not first.isdecimal() or (dash and not last.isdecimal()):
                self.fail(f"{part.strip()!r} is neither a layer nor a range like 0-3", param, ctx)
            if int(last or first) < int(first):
                self.fail(f"the range {part.strip()} ends before it begins", param, ctx)
            ranges.append((int(first), int(last or first)))
        return ranges


def together(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Several options as one, in their order."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def seeds_option(default: str, *, latents: bool = True) -> Callable[[Decorated], Decorated]:
    """`--seeds`, of a command that may have `--latents` too."""
    also = "; with --latents the numbers of those, from 0" if latents else ""
    otherwise = ", or all latents" if latents else ""
    return click.option(
        "--seeds",
        type=SeedRange(),
        help=f"Which images{also}.  [default: {default}{otherwise}]",
    )


SOURCE = click.argument("source")
LATENTS = click.option(
    "--latents",
    metavar="FILE.npz",
    type=click.Path(path_type=Path),
    help="Points of this file (ws, w or z) instead of those that seeds name.",
)
PSI = click.option(
    "--psi",
    type=float,
    help="Truncation: 0 = the average image, 1 = full variety, negative = the opposite.  "
    "[default: what the file says, else 0.7; with --latents 1]",
)
CUTOFF = click.option(
    "--cutoff",
    type=CutoffType(),
    help="How many layers truncation reaches, from the coarsest, or 'all'.  "
    "[default: what the file says, else 8]",
)
CUTOFF_ALL = click.option(
    "--cutoff",
    type=CutoffType(),
    help="How many layers truncation reaches, from the coarsest.  [default: all]",
)
NOISE = click.option(
    "--noise",
    type=click.Choice(["const", "random", "none"]),
    help="Fine detail: the stored maps, drawn from each image's seed, or left out.  "
    "[default: that of --latents if it has any, else const]",
)
CLASS = click.option(
    "--class", "class_name", metavar="NAME|NUMBER", help="The label, if it has labels."
)
RESOLUTION = click.option("--resolution", type=int, help="Of the images, 4 up to the network's.")
LAYERS = click.option(
    "--layers",
    type=LayerRanges(),
    metavar="RANGES",
    help="Layers that are mixed, from 0, two for each resolution: 0-3,4-7,8-17.  "
    "[default: coarse, middle and fine]",
)
DEVICE = click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, mps.")
OVERWRITE = click.option(
    "--overwrite", is_flag=True, help="Replace a file that shows something else."
)


@dataclasses.dataclass(frozen=True)
class Asked:
    """How to look at a generator; what is None is as its file says."""

    source: str
    device: str
    class_name: str | None = None
    latents: Path | None = None
    resolution: int | None = None
    psi: float | None = None
    cutoff: "Cutoff" = None

    @property
    def what(self) -> str:
        """What the points are named by."""
        return "seeds" if self.latents is None else "latents"

    def loaded(self, *, every_layer: bool = False) -> "LoadedGenerator":
        """The generator, to be truncated and grown as asked; `every_layer` if no cutoff is."""
        from stylegan.files.loading import load_source

        loaded = self.adjusted(load_source(self.source, map_location=use_device(self.device)))
        return loaded.adjusted(cutoff="all") if every_layer and self.cutoff is None else loaded

    def snapshots(self, paths: Iterable[Path]) -> "Iterator[LoadedGenerator]":
        """The generators of a run's files, one after the other."""
        from stylegan.files.loading import load_file

        device = use_device(self.device)
        return (self.adjusted(load_file(path, device)) for path in paths)

    def adjusted(self, loaded: "LoadedGenerator") -> "LoadedGenerator":
        note_untrained(loaded, self.resolution)
        psi = 1.0 if self.psi is None and self.latents is not None else self.psi
        return loaded.adjusted(psi=psi, cutoff=self.cutoff, resolution=self.resolution)

    def points(
        self, loaded: "LoadedGenerator", numbers: list[int] | None, default: str
    ) -> "Points":
        """Those of `numbers`: seeds, or latents of the file, of which all if none are chosen."""
        from stylegan.figures import of_seeds

        if self.latents is not None:
            return saved_points(loaded, self.latents, numbers, self.class_name)
        seeds = SeedRange().convert(default, None, None) if numbers is None else numbers
        return of_seeds(loaded, seeds, loaded.label(self.class_name))


def saved_points(
    loaded: "LoadedGenerator", path: Path, numbers: list[int] | None, class_name: str | None
) -> "Points":
    """The latents of a file that are wanted; None is all. Only z needs a class, if there are
    any."""
    from stylegan.figures import of_latents

    labels = None if class_name is None else loaded.label(class_name)
    return of_latents(loaded, path, numbers, labels)


def note_untrained(loaded: "LoadedGenerator", resolution: int | None) -> None:
    """Say so if a resolution is asked for that training has not reached."""
    full = loaded.generator.config.resolution
    if resolution is not None and loaded.resolution < resolution <= full:
        click.echo(
            f"training has reached {loaded.resolution}x{loaded.resolution}: layers beyond it are "
            "as they were drawn",
            err=True,
        )


def chosen_ranges(
    layers: list[tuple[int, int]] | None, loaded: "LoadedGenerator"
) -> "list[StyleRange]":
    """What `--layers` says, else those of the paper."""
    from stylegan.figures import StyleRange, style_ranges

    if layers is None:
        return style_ranges(loaded.resolution)
    return [StyleRange(first, last) for first, last in layers]
