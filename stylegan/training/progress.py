"""Averages between two lines of a run's log."""

import time
from dataclasses import dataclass, field

import torch

from stylegan.config import TrainConfig
from stylegan.schedule import Stage
from stylegan.training.state import TrainState
from stylegan.training.step import Metrics
from stylegan.utils import distributed


@dataclass(frozen=True, kw_only=True)
class TrainingProgress:
    """Progress of a run, averaged since the last line of its log."""

    images_seen: int
    total_images: int  # length of the schedule, or more if the last steps went beyond it
    stage: Stage
    metrics: dict[str, float]
    images: int  # number averaged over
    images_per_second: float  # over all processes
    data_wait: float  # fraction of the time spent waiting for images
    skipped_updates: int
    config: TrainConfig

    def __str__(self) -> str:
        stage = self.stage
        fade = f" fade {stage.alpha:.2f}" if stage.alpha < 1 else ""
        return f"res {stage.resolution}{fade}, {self.images_per_second:.0f} img/s"


@dataclass
class Meter:
    """Sums of metrics and times since a line of the log, taken without waiting for the device."""

    sums: Metrics = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # number of steps with each metric
    images: int = 0
    waited: float = 0.0  # for images [seconds]
    since: float = field(default_factory=time.perf_counter)

    def add(self, metrics: Metrics, *, images: int, waited: float) -> None:
        sums = [self.sums[n] if n in self.sums else torch.zeros_like(metrics[n]) for n in metrics]
        self.sums |= zip(metrics, torch._foreach_add(sums, list(metrics.values())), strict=True)
        self.counts |= {name: self.counts.get(name, 0) + 1 for name in metrics}
        self.images += images
        self.waited += waited

    def read(self, state: TrainState, stage: Stage) -> TrainingProgress:
        """Average over the steps so far and all ranks."""
        names = sorted(self.sums)
        averages = distributed.mean_over_ranks(
            torch.stack([self.sums[n] / self.counts[n] for n in names])
        )
        # This waits for the device, so the clock is read afterwards.
        metrics = dict(zip(names, averages.tolist(), strict=True))
        metrics["augment/probability"] = state.strength.probability
        seconds = max(time.perf_counter() - self.since, 1e-9)
        counts = state.skipped()
        return TrainingProgress(
            images_seen=state.images_seen,
            total_images=max(state.config.schedule.total_images, state.images_seen),
            stage=stage,
            metrics=metrics,
            images=self.images,
            images_per_second=self.images / seconds,
            data_wait=self.waited / seconds,
            skipped_updates=counts["skipped_g"] + counts["skipped_d"],
            config=state.config,
        )
