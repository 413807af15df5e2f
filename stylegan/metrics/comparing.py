"""Generators and pictures beside the real images that they should be compared with."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Self

import torch

from stylegan import sampling
from stylegan.config import to_toml
from stylegan.data import Store
from stylegan.data.images import is_image
from stylegan.distributed import on_all_ranks
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.loading import check_there, open_weights
from stylegan.messages import count, readable
from stylegan.metrics.engine import KINDS, Request, Result, evaluate, halves, parse
from stylegan.metrics.features import Tools
from stylegan.metrics.pictures import holds_pictures, open_pictures
from stylegan.metrics.sources import (
    Comparison,
    GeneratorSamples,
    ImageProgress,
    quiet,
    store_of,
)
from stylegan.run_folder import RunFolder

Noise = Literal["const", "random"]


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """How sources are measured, the same for all of them."""

    psis: Sequence[float] = (1.0,)  # of generators, each measured at all
    noise: Noise = "random"  # of generators
    resolution: int | None = None  # to which pictures are brought; None: their own
    mirror: bool | None = None  # flip half of the reals; None: as the run did
    yardsticks: bool = False  # measure half of the reals, too
    seed: int = 0  # of the first sample
    batch: int | None = None  # images at once; None: what fits into little memory


class Setting(NamedTuple):
    """What runs have in common that differ in nothing but their seed."""

    config: str  # TOML, but for the seed
    data: Path | None  # what the run was trained on
    images_seen: int | None

    @classmethod
    def of(cls, run: RunFolder, loaded: LoadedGenerator) -> Self:
        config = to_toml(dataclasses.replace(run.config(), seed=0))
        return cls(config, run.data(), loaded.images_seen)


@dataclass(frozen=True, eq=False)
class Measurable:
    """A source that is open and can be measured."""

    name: str
    requests: Sequence[Request]
    comparisons: Sequence[Comparison]  # of pictures one, of a generator one for each psi
    run: RunFolder | None = None  # to which the source belongs
    setting: Setting | None = None

    def rows(self, tools: Tools, *, yardsticks: bool) -> "Iterator[Row]":
        """A row for each comparison; then, as `yardsticks`, half of the reals compared with the
        first of what is measured and with the other half of them."""
        for comparison in self.comparisons:
            yield Row(
                name=self.name,
                psi=psi_of(comparison),
                run=self.run,
                setting=self.setting,
                is_yardstick=False,
                requests=self.requests,
                results=evaluate(comparison, self.requests, tools),
            )
        if yardsticks and need_reals(self.requests):
            against_half, other_half, fewer = halves(self.comparisons[0], self.requests)
            if not fewer:
                images = len(other_half.require_reals().store)
                tools.tell(f"no yardsticks: a half of {count(images, 'real image')} is too few")
                return
            named = {
                f"{self.name} against half of the reals": against_half,
                "another half of the reals": other_half,
            }
            for name, comparison in named.items():
                yield Row(
                    name=name,
                    psi=psi_of(comparison),
                    run=self.run,
                    setting=None,
                    is_yardstick=True,
                    requests=fewer,
                    results=evaluate(comparison, fewer, tools),
                )


class Row(NamedTuple):
    """A source, or a yardstick beside it, and what is measured of it. A yardstick is a comparison
    with half of the reals, of a generator or of the other half."""

    name: str
    psi: float | None  # None: it is not a generator
    run: RunFolder | None  # to which the source belongs
    setting: Setting | None  # None for what is not of a run, and for yardsticks
    is_yardstick: bool
    requests: Sequence[Request]
    results: Iterator[Result]  # measured as they are asked for


def compare(
    sources: Sequence[str],
    data: Path | None,
    names: str,
    tools: Tools,
    *,
    device: torch.device,
    conditions: Conditions | None = None,
    adjust: Callable[[LoadedGenerator], LoadedGenerator] = lambda loaded: loaded,
    progress: ImageProgress = quiet,
) -> Iterator[Row]:
    """Open each source in turn; its rows measure what `names` says when their results are read.

    A generator, after `adjust`, has a row for every psi, pictures have one; yardsticks follow.
    `data` None: what a run was trained on.
    """
    conditions = conditions or Conditions()
    for source in sources:
        if holds_pictures(source):
            measurable = measurable_pictures(
                source, data, names, conditions, device=device, tell=tools.tell, progress=progress
            )
        else:
            weights = on_all_ranks(partial(open_weights, source, map_location=device))
            measurable = measurable_generator(
                source,
                adjust(weights.require_loaded()),
                RunFolder.of(weights.file),
                data,
                parse(names),
                conditions,
                tell=tools.tell,
                progress=progress,
            )
        yield from measurable.rows(tools, yardsticks=conditions.yardsticks)


def psi_of(comparison: Comparison) -> float | None:
    samples = comparison.samples
    return samples.loaded.psi if isinstance(samples, GeneratorSamples) else None


def need_reals(requests: Sequence[Request]) -> bool:
    return any(KINDS[request.kind].reals for request in requests)


def measurable_pictures(
    source: str,
    data: Path | None,
    names: str,
    conditions: Conditions,
    *,
    device: torch.device,
    tell: Callable[[str], None],
    progress: ImageProgress,
) -> Measurable:
    """All pictures of a source; `names` may ask for a number of them."""
    pictures, reals = open_pictures(
        Path(source),
        data,
        resolution=conditions.resolution,
        mirror=bool(conditions.mirror),
        seed=conditions.seed,
        device=device,
        tell=tell,
        progress=partial(progress, "prepared"),
    )
    at_once = conditions.batch
    if at_once is None:
        at_once = sampling.default_batch(pictures.resolution)
    comparison = Comparison(pictures, reals, batch=at_once, progress=progress)
    return Measurable(source, parse(names, len(pictures.store)), [comparison])


def measurable_generator(
    source: str,
    loaded: LoadedGenerator,
    run: RunFolder | None,
    data: Path | None,
    requests: Sequence[Request],
    conditions: Conditions,
    *,
    tell: Callable[[str], None],
    progress: ImageProgress,
) -> Measurable:
    """A generator at every psi, beside the reals of `data` or of its run."""
    comparison = beside_reals(
        loaded,
        run,
        data,
        needs_reals=need_reals(requests),
        mirror=conditions.mirror,
        noise=conditions.noise,
        seed=conditions.seed,
        batch=conditions.batch,
        tell=tell,
        progress=progress,
    )
    comparisons = [comparison.at_psi(psi) for psi in dict.fromkeys(conditions.psis)]
    setting = Setting.of(run, loaded) if run else None
    return Measurable(source, requests, comparisons, run, setting)


def check_sources(sources: Sequence[str], conditions: Conditions, *, centers: object) -> None:
    """ValueError, before any work, if an option is not for the sources or one is a picture,
    FileNotFoundError if one is missing or has not saved anything."""
    for path in map(Path, sources):
        if is_image(path.name) and path.is_file():
            raise ValueError(f"{readable(path)} is a picture; give the folder with all of them")
    pictures = [source for source in sources if holds_pictures(source)]
    for source in sources:
        if source not in pictures:
            check_there(source)
    if pictures and (
        set(conditions.psis) != {1} or conditions.noise != "random" or centers is not None
    ):
        raise ValueError(
            f"{readable(pictures[0])} holds pictures; --psi, --centers and --noise apply to "
            "generators only. Measure the pictures in another command"
        )
    if conditions.resolution is not None and not pictures:
        raise ValueError("--resolution is for pictures; a generator has its own resolution")


def beside_reals(
    loaded: LoadedGenerator,
    run: RunFolder | None,
    data: Path | None,
    *,
    needs_reals: bool = True,
    mirror: bool | None = None,
    noise: Noise = "random",
    seed: int = 0,
    batch: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
    progress: ImageProgress = quiet,
) -> Comparison:
    """Samples of a generator at psi 1, which `at_psi` changes, and the reals of `data` or of its
    run, mirrored as the run did unless `mirror` says otherwise."""
    store: Store | None = None
    if needs_reals or loaded.generator.config.label_dim:
        store = store_of(loaded, run, data, tell=tell, progress=partial(progress, "prepared"))
    if mirror is None:
        mirror = bool(run and run.config().data.mirror)
    return Comparison.of(
        loaded, store, noise=noise, mirror=mirror, seed=seed, batch=batch, progress=progress
    )
