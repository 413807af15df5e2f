"""Sources to measure, generators or image folders, with the reals to compare them with."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from stylegan.config import to_toml
from stylegan.data.images import is_image
from stylegan.files.loading import check_there, open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.metrics.comparison import DEFAULTS, Comparison, Conditions, StoreImages, store_of
from stylegan.metrics.engine import METRICS, MIN_IMAGES, MetricRequest, Result, evaluate, parse
from stylegan.metrics.features import Tools
from stylegan.metrics.image_folders import holds_images, open_images
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.console import SILENT, Console
from stylegan.utils.distributed import run_on_all_ranks
from stylegan.utils.text import pluralize


@dataclass(frozen=True, eq=False)
class MeasuredSource:
    """A source and its results. A baseline is compared with half of the reals: the source itself,
    or the other half."""

    name: str
    comparison: Comparison
    requests: Sequence[MetricRequest]
    psi: float | None = None  # None: not a generator
    run: RunFolder | None = None  # that the source belongs to
    setting: object = None  # hashable, equal for runs that differ only in their seed
    is_baseline: bool = False
    results: list[Result] = field(default_factory=list)  # so far

    def measure(self, tools: Tools) -> Iterator[Result]:
        """Measure the requested metrics, yielding each result when it is there."""
        for result in evaluate(self.comparison, self.requests, tools):
            self.results.append(result)
            yield result

    def missing(self) -> list[str]:
        """Requested metrics without a result; none for a baseline, which may lack some."""
        measured = [result.metric for result in self.results]
        names = [request.name for request in self.requests if not self.is_baseline]
        return [name for name in names if name not in measured]


def compare(
    sources: Sequence[str],
    data: Path | None,
    names: str,
    tools: Tools,
    *,
    device: torch.device,
    conditions: Conditions = DEFAULTS,
    adjust: Callable[[Pretrained], Pretrained] = lambda loaded: loaded,
) -> Iterator[MeasuredSource]:
    """Open one source after the other and yield its rows, which measure the metrics of `names`.

    A generator, changed by `adjust`, has a row for each psi, an image folder has one; baselines
    follow. If `data` is None, a run is compared with its training images.
    """
    for source in sources:
        if holds_images(source):
            comparison = open_images(
                Path(source), data, conditions, device=device, console=tools.console
            )
            assert isinstance(comparison.samples, StoreImages)
            num = len(comparison.samples.store)  # all, unless a name has a number
            requests = parse(names, num)
            rows = [MeasuredSource(source, comparison, requests)]
        else:
            weights = run_on_all_ranks(partial(open_weights, source, map_location=device))
            loaded = adjust(weights.require_loaded())
            size = loaded.resolution
            if conditions.resolution not in (None, size):
                raise ValueError(
                    f"{source} generates {size}x{size}, and --resolution resizes image folders "
                    f"only; pass --resolution {size}, or measure it in another command"
                )
            run = RunFolder.of(weights.file)
            requests = parse(names)
            comparison = compare_with_reals(
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
                MeasuredSource(source, comparison.at_psi(psi), requests, psi, run, setting)
                for psi in dict.fromkeys(conditions.psis)
            ]
        yield from rows
        if conditions.real_baseline:
            yield from real_baselines(rows[0], tools.console)


def compare_with_reals(
    loaded: Pretrained,
    run: RunFolder | None,
    data: Path | None,
    conditions: Conditions = DEFAULTS,
    *,
    needs_reals: bool = True,
    console: Console = SILENT,
) -> Comparison:
    """Samples of a generator at psi 1, and the reals of `data` or of the run."""
    labeled = loaded.generator.config.label_dim > 0
    store = store_of(loaded, run, data, console=console) if needs_reals or labeled else None
    config = run.config() if run else None
    if conditions.mirror is None:
        trained_on = config.data if config else loaded.trained_on
        conditions = replace(conditions, mirror=bool(trained_on and trained_on.mirror))
    if conditions.noise is None and config:
        conditions = replace(conditions, noise=config.noise_mode)
    return Comparison.from_generator(loaded, store, conditions, console)


def real_baselines(row: MeasuredSource, console: Console) -> list[MeasuredSource]:
    """Two rows measured against every second real image: the samples of `row`, and the other reals,
    whose score is that of a perfect generator. Both use at most as many images as the other half
    has, since distances depend on the number."""
    of_reals = [request for request in row.requests if METRICS[request.kind].reals]
    if not of_reals:
        return []
    reals = row.comparison.require_reals()
    most = len(reals.images()) // 2 * reals.ways
    if most < MIN_IMAGES:
        images = pluralize(len(reals.images()), "real image")
        console.info(f"no baseline of reals: a half of {images} is too few")
        return []
    name = "another half of the reals"
    half = replace(row.comparison, reals=replace(reals, step=2))
    other_half = replace(reals, first=1, step=2, name=name, device=half.device)
    requests = list(dict.fromkeys(MetricRequest(kind, min(n, most)) for kind, n in of_reals))
    against = f"{row.name} against half of the reals"
    of_half = replace(half, samples=other_half)
    return [
        MeasuredSource(against, half, requests, row.psi, row.run, is_baseline=True),
        MeasuredSource(name, of_half, requests, run=row.run, is_baseline=True),
    ]


def check_sources(
    sources: Sequence[str],
    conditions: Conditions,
    requests: Sequence[MetricRequest],
    *,
    centers: object,
) -> None:
    """Before any work, raise ValueError if an option does not apply or a source is a single image,
    FileNotFoundError if a source is missing or a run has not saved anything."""
    for path in map(Path, sources):
        if is_image(path.name) and path.is_file():
            raise ValueError(f"{path} is a single image; pass the folder with all of them")
    folders = [source for source in sources if holds_images(source)]
    for source in sources:
        if source not in folders:
            check_there(source)
    if folders and (
        set(conditions.psis) != {1} or conditions.noise is not None or centers is not None
    ):
        raise ValueError(
            f"{folders[0]} holds images; --psi, --centers and --noise apply to generators only. "
            "Measure the images in another command"
        )
    if centers not in (None, "none") and set(conditions.psis) == {1}:
        raise ValueError("--centers has no effect at psi 1; pass --psi, such as 0.5")
    with_reals = any(METRICS[request.kind].reals for request in requests)
    is_mixed = folders and len(folders) < len(sources)
    if with_reals and is_mixed and conditions.mirror is None:
        raise ValueError(
            f"{folders[0]} holds images, and other sources are generators: for the same reals, "
            "pass --mirror or --no-mirror"
        )
    if conditions.resolution is not None and not folders:
        raise ValueError("--resolution applies to image folders only; a generator has its own")
