"""What a run records as it goes: log.jsonl, events, grids of samples, progress."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from stylegan import distributed, sampling
from stylegan.data import Store
from stylegan.disk import atomic_file
from stylegan.lineage import to_plain
from stylegan.messages import reason_of
from stylegan.records import append_line, device_name, hardware, to_line, versions
from stylegan.run_folder import RunFolder
from stylegan.schedule import Stage
from stylegan.training.state import TrainState
from stylegan.training.step import Metrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

SAMPLE_IMAGES = 32  # in the grids that a run writes
GRID_COLUMNS = 8


@dataclass(frozen=True)
class TrainingProgress:
    """Where a run is, averaged since the last line of its log."""

    images_seen: int
    total_images: int
    stage: Stage
    metrics: dict[str, float]
    images: int  # averaged over
    images_per_second: float  # all processes together
    data_wait: float  # fraction of the time spent waiting for images
    skipped_updates: int


@dataclass
class Meter:
    """Sums metrics and times between two log lines, without waiting for the device."""

    sums: Metrics = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # steps that had each metric
    images: int = 0
    waited: float = 0.0
    since: float = field(default_factory=time.perf_counter)

    def add(self, metrics: Metrics, images: int, waited: float) -> None:
        for name, value in metrics.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
            self.counts[name] = self.counts.get(name, 0) + 1
        self.images += images
        self.waited += waited

    def read(self) -> dict[str, float]:
        """Averages over the steps that had them, and processes."""
        if not self.sums:
            return {}
        names = sorted(self.sums)
        averages = distributed.mean(torch.stack([self.sums[n] / self.counts[n] for n in names]))
        return dict(zip(names, averages.tolist(), strict=True))


class Recorder:
    """Writes the log, the events and the samples of a run; only the first process does.

    What the disk refuses is reported, and training goes on.
    """

    def __init__(
        self,
        state: TrainState,
        store: Store,
        folder: RunFolder,
        *,
        tell: Callable[[str], None],
        report: Callable[[TrainingProgress], None],
        tensorboard: bool = True,
    ) -> None:
        self.state, self.store, self.folder = state, store, folder
        self.tell, self.report = tell, report
        self.writes = distributed.rank() == 0
        self.refused = False  # the last line of the log, by the disk
        self.meter = Meter()
        self.began = state.images_seen
        self.tensorboard = tensorboard and self.writes
        self.curves: SummaryWriter | None = None  # opened when first written to

    def begin(self) -> None:
        """Where this part of the run starts; the first one shows the data, and weights from
        elsewhere as they came."""
        device, first = self.state.device, self.state.images_seen == 0
        lineage = self.state.lineage
        self.line(
            "start" if first else "resume",
            images_seen=self.state.images_seen,
            device=str(device),
            device_name=device_name(device),
            processes=distributed.world_size(),
            hardware=hardware(),
            versions=versions(),
            **({"lineage": to_plain(lineage)} if lineage else {}),
        )
        if first and lineage:
            self.write_samples(self.state.stage)
        if self.writes and not self.folder.reals_file.exists():
            self.write_grid(self.folder.reals_file, self.real_pictures(), "reals")

    def line(self, event: str, **values: Any) -> None:
        """Append one JSON object to log.jsonl; a number that is not finite becomes null."""
        if not self.writes:
            return
        text = to_line({"event": event, "time": round(time.time(), 3), **values})
        try:
            append_line(self.folder.log_file, text)
            self.refused = False
        except OSError as error:
            if not self.refused:
                self.tell(f"could not write log.jsonl: {reason_of(error)}; going on")
            self.refused = True

    def attempt(self, path: Path, write: Callable[[], None]) -> bool:
        """Write; where the disk refuses, say so and go on: what was saved before is not touched."""
        try:
            write()
        except OSError as error:
            reason = reason_of(error)
            self.tell(f"could not write {path.name}: {reason}; {self.last_state()}; going on")
            self.line("not_written", what=path.name, reason=reason)
            return False
        return True

    def last_state(self) -> str:
        """The newest file to continue from, for a message."""
        files = self.folder.states()
        return f"last good state: {files[-1].name}" if files else "no state has been saved yet"

    def write_progress(self, stage: Stage) -> TrainingProgress:
        """A line of the log with averages since the last."""
        state, meter = self.state, self.meter
        metrics = meter.read()  # waits for the device, so before looking at the clock
        state.read()
        metrics["augment/probability"] = state.strength.probability
        seconds = max(time.perf_counter() - meter.since, 1e-9)
        self.meter = Meter()
        progress = TrainingProgress(
            state.images_seen,
            state.config.schedule.total_images,
            stage,
            metrics,
            meter.images,
            meter.images / seconds,
            meter.waited / seconds,
            state.skipped_g + state.skipped_d,
        )
        schedule = ("resolution", "alpha", "batch_size", "g_lr", "d_lr")
        scalars = {
            **metrics,
            **{f"schedule/{name}": getattr(stage, name) for name in schedule},
            "speed/images_per_second": progress.images_per_second,
            "speed/data_wait_share": progress.data_wait,
            "health/skipped_updates": progress.skipped_updates,
        }
        if torch.cuda.is_initialized():
            scalars["memory/peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        self.line("progress", images_seen=state.images_seen, **scalars)
        self.show(scalars)
        self.report(progress)
        return progress

    def show(self, values: Mapping[str, float | Tensor]) -> None:
        """Numbers, and pictures uint8 (C, H, W), in TensorBoard. The first refusal of the disk ends
        that, and training goes on."""
        if not self.tensorboard:
            return
        seen = self.state.images_seen
        try:
            if self.curves is None:
                from torch.utils.tensorboard import SummaryWriter

                # what an earlier process wrote beyond the state that this one began with is void
                folder = str(self.folder.tensorboard)
                self.curves = SummaryWriter(folder, purge_step=self.began + 1)
            for name, value in values.items():
                if isinstance(value, Tensor):
                    self.curves.add_image(name, value, seen)
                else:
                    self.curves.add_scalar(name, value, seen)
        except OSError as error:
            self.tensorboard = False
            self.tell(f"no more curves in TensorBoard: {reason_of(error)}; going on without")

    def write_scores(self, scores: Mapping[str, float]) -> None:
        """Results of metrics."""
        self.line("metrics", images_seen=self.state.images_seen, **scores)
        self.show({f"metrics/{name}": value for name, value in scores.items()})

    def write_samples(self, stage: Stage) -> None:
        """A grid of samples."""
        if self.writes:
            path = self.folder.sample_file(self.state.images_seen)
            self.write_grid(path, self.sample_pictures(stage), "samples")

    def sample_pictures(self, stage: Stage) -> Tensor:
        """Pictures of fixed seeds by the average generator, uint8 (N, C, r, r)."""
        generator = self.state.generator_ema
        kinds = generator.config.label_dim
        labels = torch.from_numpy(self.store.sample_labels(SAMPLE_IMAGES)) if kinds else None
        pictures = sampling.generate(
            generator,
            range(SAMPLE_IMAGES),
            psi=1.0,
            labels=labels,
            resolution=stage.resolution,
            alpha=stage.alpha,
            batch=GRID_COLUMNS,
        )
        return torch.cat([torch.from_numpy(row) for row in pictures]).permute(0, 3, 1, 2)

    def real_pictures(self) -> Tensor:
        images = self.store.images(self.state.config.network.resolution)
        step = max(len(images) // SAMPLE_IMAGES, 1)
        return torch.from_numpy(self.store.pictures(np.array(images[::step][:SAMPLE_IMAGES])))

    def write_grid(self, path: Path, pictures: Tensor, name: str) -> None:
        """A plain grid, small pictures enlarged to the full resolution, written and logged, without
        padding; what is transparent shows a chequered ground."""
        from PIL import Image
        from torchvision.utils import make_grid

        factor = self.state.config.network.resolution // pictures.shape[-1]
        pictures = pictures.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
        shown = sampling.crop(pictures.permute(0, 2, 3, 1).numpy(), self.store.active_rectangle)
        shown = np.ascontiguousarray(sampling.over_squares(shown).transpose(0, 3, 1, 2))
        image = make_grid(torch.from_numpy(shown), nrow=GRID_COLUMNS, padding=0)

        def write() -> None:
            path.parent.mkdir(exist_ok=True)
            with atomic_file(path) as file:
                Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, format="PNG")

        self.attempt(path, write)
        self.show({name: image})

    def end(self, event: str, **values: Any) -> None:
        """The last line of this part of the run."""
        self.line(event, images_seen=self.state.images_seen, **values)
        if self.curves is not None:
            with suppress(OSError):  # a full disk at the end must not fail the run
                self.curves.close()
