"""Generators and pictures beside the real images that they should be compared with."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from stylegan import sampling
from stylegan.config import to_toml
from stylegan.data import Store
from stylegan.distributed import on_all_ranks
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.loading import open_weights
from stylegan.messages import readable
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


class Row(NamedTuple):
    """A source, or a yardstick beside it, and what is measured of it."""

    name: str
    psi: float | None  # None: it is not a generator
    run: RunFolder | None  # to which the source belongs
    setting: str | None  # the configuration of the run but for its seed; None for yardsticks
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
    psis: Sequence[float] = (1.0,),
    adjust: Callable[[LoadedGenerator], LoadedGenerator] = lambda loaded: loaded,
    noise: Noise = "random",
    resolution: int | None = None,
    mirror: bool | None = None,
    yardsticks: bool = False,
    seed: int = 0,
    batch: int | None = None,
    progress: ImageProgress = quiet,
) -> Iterator[Row]:
    """Measure what `names` says of generators, `adjust`ed, each at every psi, and of pictures: a
    row for each, then its yardsticks. `data` None: what a run was trained on; `mirror` None: as the
    run did."""

    def row(
        name: str, comparison: Comparison, requests: Sequence[Request], *, is_yardstick: bool
    ) -> Row:
        samples = comparison.samples
        return Row(
            name=name,
            psi=samples.loaded.psi if isinstance(samples, GeneratorSamples) else None,
            run=run,
            setting=None if is_yardstick else setting,
            is_yardstick=is_yardstick,
            requests=requests,
            results=evaluate(comparison, requests, tools),
        )

    for source in sources:
        run: RunFolder | None = None
        setting: str | None = None
        requests = parse(names)
        if holds_pictures(source):
            pictures, reals = open_pictures(
                Path(source),
                data,
                resolution=resolution,
                mirror=bool(mirror),
                seed=seed,
                device=device,
                tell=tools.tell,
                progress=partial(progress, "prepared"),
            )
            requests = parse(names, len(pictures.store))
            at_once = sampling.default_batch(pictures.resolution) if batch is None else batch
            comparisons = [Comparison(pictures, reals, batch=at_once, progress=progress)]
        else:
            weights = on_all_ranks(partial(open_weights, source, map_location=device))
            run = RunFolder.of(weights.file)
            comparison = beside_reals(
                adjust(weights.require_loaded()),
                run,
                data,
                needs_reals=any(KINDS[request.kind].reals for request in requests),
                mirror=mirror,
                noise=noise,
                seed=seed,
                batch=batch,
                tell=tools.tell,
                progress=progress,
            )
            comparisons = [comparison.at_psi(psi) for psi in dict.fromkeys(psis)]
            setting = to_toml(dataclasses.replace(run.config(), seed=0)) if run else None
        for comparison in comparisons:
            yield row(source, comparison, requests, is_yardstick=False)
        if yardsticks and any(KINDS[request.kind].reals for request in requests):
            against_half, other_half, fewer = halves(comparisons[0], requests)
            name = f"{source} against half of the reals"
            yield row(name, against_half, fewer, is_yardstick=True)
            yield row("another half of the reals", other_half, fewer, is_yardstick=True)


def check_sources(
    sources: Sequence[str],
    *,
    psis: Sequence[float],
    centers: object,
    noise: str,
    resolution: int | None,
) -> None:
    """ValueError, before any work, if an option is not for the sources."""
    pictures = [source for source in sources if holds_pictures(source)]
    if pictures and (set(psis) != {1} or noise != "random" or centers is not None):
        raise ValueError(
            f"{readable(pictures[0])} holds pictures; --psi, --centers and --noise apply to "
            "generators only. Measure the pictures in another command"
        )
    if resolution is not None and not pictures:
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
    """Samples of a generator, not truncated, and the reals of `data` or of its run, mirrored as
    the run did unless `mirror` says otherwise."""
    store: Store | None = None
    if needs_reals or loaded.generator.config.label_dim:
        store = store_of(loaded, run, data, tell=tell, progress=partial(progress, "prepared"))
    if mirror is None:
        mirror = bool(run and run.config().data.mirror)
    return Comparison.of(
        loaded, store, noise=noise, mirror=mirror, seed=seed, batch=batch, progress=progress
    )
