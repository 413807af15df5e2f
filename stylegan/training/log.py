"""What a run tells: log.jsonl always, TensorBoard events, and progress for whoever watches."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stylegan import distributed
from stylegan.messages import reason_of
from stylegan.networks import Generator
from stylegan.records import append_line, to_line
from stylegan.run_folder import RunFolder
from stylegan.schedule import Stage
from stylegan.training.step import Metrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@dataclass(frozen=True)
class Progress:
    """Where a run is, averaged since the last time it was told."""

    images_seen: int
    total_images: int
    stage: Stage
    metrics: dict[str, float]
    images_per_second: float  # all processes together
    data_wait_share: float  # of the time, spent waiting for images
    skipped_updates: int


@dataclass
class Meter:
    """Sums metrics and times between two log lines, without waiting for the device."""

    sums: Metrics = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # steps that had each metric
    images: int = 0
    waited: float = 0.0
    since: float = field(default_factory=time.perf_counter)

    def add(self, metrics: Metrics, batch_size: int, waited: float) -> None:
        for name, value in metrics.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
            self.counts[name] = self.counts.get(name, 0) + 1
        self.images += batch_size
        self.waited += waited

    def read(self) -> dict[str, float]:
        """Averages over the steps that had them, and processes."""
        if not self.sums:
            return {}
        names = sorted(self.sums)
        averages = distributed.mean(torch.stack([self.sums[n] / self.counts[n] for n in names]))
        return dict(zip(names, averages.tolist(), strict=True))

    def progress(self, images_seen: int, total: int, stage: Stage, skipped: int) -> Progress:
        metrics = self.read()  # waits for the device, so before looking at the clock
        seconds = max(time.perf_counter() - self.since, 1e-9)
        return Progress(
            images_seen,
            total,
            stage,
            metrics,
            self.images / seconds,
            self.waited / seconds,
            skipped,
        )


class Log:
    """The files of a run that grow: log.jsonl and TensorBoard events. Only rank 0 writes.

    What the disk refuses is told once and lost; training goes on.
    """

    def __init__(
        self,
        folder: RunFolder,
        tell: Callable[[str], None],
        *,
        tensorboard: bool = True,
        start: int = 0,
    ) -> None:
        self.folder = folder
        self.tell = tell
        self.refused = False  # whether the last line could not be written
        self.start = start  # images seen: what TensorBoard holds beyond was never saved
        self.enabled = distributed.rank() == 0
        self.tensorboard = tensorboard and self.enabled
        self.opened: SummaryWriter | None = None

    @contextmanager
    def events(self) -> Iterator["SummaryWriter | None"]:
        """TensorBoard's writer, if there is one. An event file that cannot be continued ends."""
        try:
            if self.tensorboard and self.opened is None:
                from torch.utils.tensorboard import SummaryWriter

                self.opened = SummaryWriter(
                    str(self.folder.tensorboard), purge_step=self.start or None
                )
            yield self.opened
        except OSError as error:
            self.tensorboard, self.opened = False, None
            self.tell(
                f"could not write TensorBoard's events: {reason_of(error)}; they end here, going on"
            )

    def line(self, event: str, **values: Any) -> None:
        """Append one JSON object to log.jsonl; a number that is not finite becomes null."""
        if self.enabled:
            record = {"event": event, "time": round(time.time(), 3), **values}
            try:
                append_line(self.folder.log_file, to_line(record))
                self.refused = False
            except OSError as error:
                if not self.refused:
                    self.tell(f"could not write log.jsonl: {reason_of(error)}; going on")
                self.refused = True

    def progress(self, progress: Progress) -> None:
        stage = progress.stage
        scalars = {
            **progress.metrics,
            "schedule/resolution": stage.resolution,
            "schedule/alpha": stage.alpha,
            "schedule/batch_size": stage.batch_size,
            "schedule/g_lr": stage.g_lr,
            "schedule/d_lr": stage.d_lr,
            "speed/images_per_second": progress.images_per_second,
            "speed/data_wait_share": progress.data_wait_share,
            "health/skipped_updates": progress.skipped_updates,
        }
        if torch.cuda.is_initialized():
            scalars["memory/peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        self.line("progress", images_seen=progress.images_seen, **scalars)
        self.scalars(scalars, progress.images_seen)

    def scores(self, scores: Mapping[str, float], images_seen: int) -> None:
        """Results of metrics."""
        self.line("metrics", images_seen=images_seen, **scores)
        self.scalars({f"metrics/{name}": value for name, value in scores.items()}, images_seen)

    def scalars(self, scalars: Mapping[str, float], images_seen: int) -> None:
        with self.events() as writer:
            if writer is not None:
                for name, value in scalars.items():
                    writer.add_scalar(name, value, images_seen)

    def picture(self, name: str, image: Tensor, images_seen: int) -> None:
        """`image` (C, H, W) uint8, shown in TensorBoard."""
        with self.events() as writer:
            if writer is not None:
                writer.add_image(name, image, images_seen)

    def histograms(self, name: str, network: nn.Module, images_seen: int) -> None:
        """Distributions of weights and of the last gradients."""
        for part, weight in network.named_parameters():
            self.histogram(f"{name}/{part}", weight, images_seen)
            if weight.grad is not None:
                self.histogram(f"{name}_gradient/{part}", weight.grad, images_seen)

    def histogram(self, tag: str, values: Tensor, images_seen: int) -> None:
        """The finite ones of `values`: the gradients of a skipped update need not be."""
        values = values.detach()[values.isfinite()]
        with self.events() as writer:
            if writer is not None and values.numel():
                writer.add_histogram(tag, values, images_seen)

    def graph(self, generator: Generator) -> None:
        """The generator's graph. TensorBoard traces it, which warns of every check of a shape."""
        config = generator.config
        z = generator.w_avg.new_zeros(1, config.z_dim)
        inputs = (z, z.new_zeros(1, config.label_dim)) if config.label_dim else (z,)
        with torch.no_grad(), warnings.catch_warnings(), self.events() as writer:
            warnings.simplefilter("ignore")
            if writer is not None:
                writer.add_graph(generator, inputs, use_strict_trace=False)

    def close(self) -> None:
        if self.opened is not None:
            with self.events():
                self.opened.close()
