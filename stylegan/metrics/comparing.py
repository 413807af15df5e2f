"""Generators and pictures beside the real images that they should be compared with."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from stylegan import sampling
from stylegan.config import to_toml
from stylegan.data.images import is_image
from stylegan.files.loading import check_there, open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.machine.console import SILENT, Console
from stylegan.machine.distributed import on_all_ranks
from stylegan.machine.messages import count
from stylegan.metrics.engine import LEAST, METRICS, Request, Result, evaluate, parse
from stylegan.metrics.features import Tools
from stylegan.metrics.pictures import holds_pictures, open_pictures
from stylegan.metrics.sources import Comparison, store_of
from stylegan.sampling.pretrained import Pretrained


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions under which all sources are measured."""

    psis: Sequence[float] = (1.0,)  # of generators, each measured at all
    noise: Literal["const", "random"] = "random"  # of generators
    resolution: int | None = None  # to which pictures are brought; None: their own
    mirror: bool | None = None  # flip half of the reals; None: as in training
    yardsticks: bool = False  # measure half of the reals, too
    seed: int = 0  # of the first sample
    batch: int | None = None  # images at once; None: what fits into little memory


@dataclass(frozen=True, eq=False)
class Row:
    """A source that is open, or a yardstick beside it: a comparison with half of the reals, of a
    generator or of the other half."""

    name: str
    comparison: Comparison
    requests: Sequence[Request]
    psi: float | None = None  # None: it is not a generator
    run: RunFolder | None = None  # to which the source belongs
    setting: object = None  # hashable, equal for runs that differ in their seed alone; else None
    is_yardstick: bool = False
    results: list[Result] = field(default_factory=list)  # so far

    def measure(self, tools: Tools) -> Iterator[Result]:
        """Yield the requested results, one after the other."""
        for result in evaluate(self.comparison, self.requests, tools):
            self.results.append(result)
            yield result

    def missing(self) -> list[str]:
        """Names of metrics that a source still lacks; a yardstick may."""
        measured = [result.metric for result in self.results]
        names = [request.name for request in self.requests if not self.is_yardstick]
        return [name for name in names if name not in measured]


def compare(
    sources: Sequence[str],
    data: Path | None,
    names: str,
    tools: Tools,
    *,
    device: torch.device,
    conditions: Conditions | None = None,
    adjust: Callable[[Pretrained], Pretrained] = lambda loaded: loaded,
) -> Iterator[Row]:
    """Open each source in turn; its rows can measure what `names` says.

    A generator, after `adjust`, has a row for every psi, pictures have one; yardsticks follow.
    `data` None: the images that a run was trained on.
    """
    conditions = conditions or Conditions()
    for source in sources:
        if holds_pictures(source):
            pictures, reals = open_pictures(
                Path(source),
                data,
                resolution=conditions.resolution,
                mirror=bool(conditions.mirror),
                seed=conditions.seed,
                device=device,
                console=tools.console,
            )
            batch = conditions.batch or sampling.default_batch(pictures.resolution)
            comparison = Comparison(pictures, reals, batch=batch, console=tools.console)
            requests = parse(names, len(pictures.store))  # all, unless a name has a number
            rows = [Row(source, comparison, requests)]
        else:
            weights = on_all_ranks(partial(open_weights, source, map_location=device))
            loaded = adjust(weights.require_loaded())
            run = RunFolder.of(weights.file)
            requests = parse(names)
            comparison = beside_reals(
                loaded,
                run,
                data,
                conditions,
                needs_reals=any(METRICS[request.kind].reals for request in requests),
                console=tools.console,
            )
            setting: object = None
            if run is not None:
                config = to_toml(replace(run.config(), seed=0))
                setting = config, run.data(), loaded.images_seen
            rows = [
                Row(source, comparison.at_psi(psi), requests, psi, run, setting)
                for psi in dict.fromkeys(conditions.psis)
            ]
        yield from rows
        if conditions.yardsticks:
            yield from yardsticks(rows[0], tools.console)


def beside_reals(
    loaded: Pretrained,
    run: RunFolder | None,
    data: Path | None,
    conditions: Conditions | None = None,
    *,
    needs_reals: bool = True,
    console: Console = SILENT,
) -> Comparison:
    """Samples at psi 1, which `at_psi` changes, and the reals of `data` or of the run."""
    conditions = conditions or Conditions()
    labeled = loaded.generator.config.label_dim > 0
    store = store_of(loaded, run, data, console=console) if needs_reals or labeled else None
    mirror = conditions.mirror
    if mirror is None:
        trained_on = run.config().data if run else loaded.trained_on
        mirror = trained_on is not None and trained_on.mirror
    return Comparison.of(
        loaded,
        store,
        noise=conditions.noise,
        mirror=mirror,
        seed=conditions.seed,
        batch=conditions.batch,
        console=console,
    )


def yardsticks(row: Row, console: Console) -> list[Row]:
    """Two rows next to the even half of the reals: of what `row` measures, and of the odd half,
    which no generator should be expected to beat unless it copies.

    Both have as many images, at most those of the odd half: their number changes a distance.
    """
    of_reals = [request for request in row.requests if METRICS[request.kind].reals]
    if not of_reals:
        return []
    reals = row.comparison.require_reals()
    most = len(reals.images()) // 2 * reals.ways
    if most < LEAST:
        images = count(len(reals.images()), "real image")
        console.tell(f"no yardsticks: a half of {images} is too few")
        return []
    name = "another half of the reals"
    half = replace(row.comparison, reals=replace(reals, step=2))
    other_half = replace(reals, first=1, step=2, name=name, device=half.device)
    requests = list(dict.fromkeys(Request(kind, min(n, most)) for kind, n in of_reals))
    against = f"{row.name} against half of the reals"
    of_half = replace(half, samples=other_half)
    return [
        Row(against, half, requests, row.psi, row.run, is_yardstick=True),
        Row(name, of_half, requests, run=row.run, is_yardstick=True),
    ]


def check_sources(sources: Sequence[str], conditions: Conditions, *, centers: object) -> None:
    """Raise ValueError, before any work, if an option is not for the sources or one is a picture,
    FileNotFoundError if one is missing or has not saved anything."""
    for path in map(Path, sources):
        if is_image(path.name) and path.is_file():
            raise ValueError(f"{path} is a picture; give the folder with all of them")
    pictures = [source for source in sources if holds_pictures(source)]
    for source in sources:
        if source not in pictures:
            check_there(source)
    if pictures and (
        set(conditions.psis) != {1} or conditions.noise != "random" or centers is not None
    ):
        raise ValueError(
            f"{pictures[0]} holds pictures; --psi, --centers and --noise apply to generators only. "
            "Measure the pictures in another command"
        )
    if conditions.resolution is not None and not pictures:
        raise ValueError("--resolution is for pictures; a generator has its own resolution")
