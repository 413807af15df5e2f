"""Metrics measured during training."""

import math

from stylegan import sampling
from stylegan.config import TrainConfig
from stylegan.data import Store
from stylegan.files.run_folder import RunFolder
from stylegan.metrics.comparison import Comparison, Conditions, StoreImages
from stylegan.metrics.engine import METRICS, MetricRequest, evaluate, parse, score_name
from stylegan.metrics.features import Tools
from stylegan.sampling import SamplingSettings
from stylegan.sampling.pretrained import Pretrained
from stylegan.schedule import Stage
from stylegan.training import Evaluation, TrainState


def measurable(names: str, reals: StoreImages | None = None) -> list[MetricRequest]:
    """Parse `names` of metrics. Raises ValueError if one can never be measured during training on
    `reals`, or, if None, on any images."""
    requests = parse(names)
    for request in requests:
        if request.kind == "ls":
            raise ValueError(
                "ls needs classifiers, which train does not take; use stylegan metrics"
            )
        if reason := METRICS[request.kind].unavailable_reason(request.images, reals):
            raise ValueError(f"{request.name} cannot be measured: {reason}")
    return requests


def evaluation_of(
    names: str,
    every_kimg: float | None,
    run: RunFolder,
    *,
    config: TrainConfig,
    store: Store,
    tools: Tools,
) -> Evaluation:
    """Evaluation of a run of `config` against its training images. The first of `names` decides
    which generator is best."""
    mirror = config.data.mirror
    reals = StoreImages(store=store, resolution=store.resolution, mirror=mirror)
    requests = measurable(names, reals)
    first = requests[0]
    metric = METRICS[first.kind]
    best_by = score_name(first.name, metric.best_by or first.kind)
    records: list[str] = []

    def measure(state: TrainState, stage: Stage) -> dict[str, float]:
        records.clear()
        average = Pretrained(
            state.generator_ema,
            SamplingSettings(stage.resolution, stage.alpha, cutoff=None),
            f"the run {run.path}",
            images_seen=state.images_seen,
        )
        batch = min(sampling.default_batch(stage.resolution), stage.batch_size)
        conditions = Conditions(mirror=mirror, noise=config.noise_mode, batch=batch)
        comparison = Comparison.from_generator(average, store, conditions, tools.console)
        scores: dict[str, float] = {"resolution": stage.resolution}
        for result in evaluate(comparison, requests, tools):
            records.append(result.line())
            scores |= result.scores()
        scores.setdefault(best_by, math.nan)  # if it could not be measured
        return scores

    return Evaluation(measure, best_by, metric.lower_is_better, every_kimg, records)
