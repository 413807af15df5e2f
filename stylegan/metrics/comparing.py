"""Generators and pictures beside the real images that they should be compared with."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from stylegan.config import to_toml
from stylegan.data import Store
from stylegan.distributed import on_all_ranks
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.loading import open_weights
from stylegan.messages import readable
from stylegan.metrics.engine import KINDS, Request, Result, evaluate, halves, parse
from stylegan.metrics.features import Tools
from stylegan.metrics.pictures import Pictures, holds_pictures
from stylegan.metrics.sources import GeneratorSamples, ImageProgress, ImageSource, quiet, store_of
from stylegan.run_folder import RunFolder

Noise = Literal["const", "random"]


class Row(NamedTuple):
    """A source, or a yardstick beside it, and what is measured of it."""

    name: str
    psi: float | None  # None: it is not a generator
    run: RunFolder | None  # to which the source belongs
    setting: str | None  # the configuration of the run but for its seed; None for yardsticks
    source: ImageSource
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
    options: dict[str, Any] = {"seed": seed, "progress": progress}
    if batch is not None:
        options["batch"] = batch
    requests = parse(names)
    for source in sources:
        run: RunFolder | None = None
        setting: str | None = None
        variants: list[tuple[str, ImageSource, list[Request]]]
        if holds_pictures(source):
            pictures = Pictures.of(
                Path(source),
                data,
                resolution=resolution,
                tell=tools.tell,
                preparing=partial(progress, "prepared"),
                mirror=bool(mirror),
                device=device,
                **options,
            )
            variants = [(source, pictures, parse(names, len(pictures.pictures)))]
        else:
            weights = on_all_ranks(partial(open_weights, source, map_location=device))
            run = RunFolder.of(weights.file)
            loaded = adjust(weights.require_loaded())
            samples = beside_reals(
                loaded,
                run,
                data,
                needs_reals=any(KINDS[request.kind].reals for request in requests),
                mirror=mirror,
                tell=tools.tell,
                noise=noise,
                **options,
            )
            variants = [
                (source, dataclasses.replace(samples, psi=psi), requests)
                for psi in dict.fromkeys(psis)
            ]
            setting = to_toml(dataclasses.replace(run.config(), seed=0)) if run else None
        if yardsticks:
            variants += halves(*variants[0])
        for name, variant, wanted in variants:
            yield Row(
                name=name,
                psi=variant.psi if isinstance(variant, GeneratorSamples) else None,
                run=run,
                setting=None if variant.half else setting,
                source=variant,
                requests=wanted,
                results=evaluate(variant, wanted, tools),
            )


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
            f"--psi, --centers and --noise choose what a generator shows, and "
            f"{readable(pictures[0])} is pictures; measure them in a command of their own"
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
    tell: Callable[[str], None] = lambda text: None,
    progress: ImageProgress = quiet,
    **options: Any,
) -> GeneratorSamples:
    """Samples of a generator, not truncated, and the reals of `data` or of its run, mirrored as
    the run did unless `mirror` says otherwise."""
    store: Store | None = None
    if needs_reals or loaded.generator.config.label_dim:
        store = store_of(loaded, run, data, tell=tell, progress=partial(progress, "prepared"))
    if mirror is None:
        mirror = bool(run and run.config().data.mirror)
    return GeneratorSamples.of(
        loaded,
        store,
        mirror=mirror,
        progress=progress,
        cutoff=loaded.cutoff,
        centers=loaded.centers,
        **options,
    )
