"""What a run writes as it goes: log.jsonl, events, grids of samples, states and generators."""

import os
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
from stylegan.files import checkpoint
from stylegan.files.formats.own import save_generator
from stylegan.lineage import to_plain
from stylegan.messages import reason_of
from stylegan.records import append_line, device_name, to_line, versions
from stylegan.run_folder import RunFolder
from stylegan.schedule import Stage
from stylegan.training.state import TrainState
from stylegan.training.step import Metrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

SAMPLE_IMAGES = 32  # in the grids that a run writes
GRID_COLUMNS = 8
RETRY_SECONDS = 60  # until a state that the disk refused is written again


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
        sums = [self.sums[n] if n in self.sums else torch.zeros_like(metrics[n]) for n in metrics]
        self.sums |= zip(metrics, torch._foreach_add(sums, list(metrics.values())), strict=True)
        self.counts |= {name: self.counts.get(name, 0) + 1 for name in metrics}
        self.images += images
        self.waited += waited

    def read(self) -> dict[str, float]:
        """Averages over the steps that had them, and processes."""
        names = sorted(self.sums)
        averages = distributed.mean(torch.stack([self.sums[n] / self.counts[n] for n in names]))
        return dict(zip(names, averages.tolist(), strict=True))


@dataclass
class Recorder:
    """Writes the files of a run, in the first process. What the disk refuses is reported."""

    state: TrainState
    store: Store
    folder: RunFolder
    tell: Callable[[str], None]
    report: Callable[[TrainingProgress], None]
    tensorboard: bool
    meter: Meter = field(default_factory=Meter)
    curves: "SummaryWriter | None" = None  # opened when first written to
    refused: bool = False  # the last line of the log, by the disk
    saved_at: float = field(default_factory=time.monotonic)  # or could not be

    def __post_init__(self) -> None:
        self.writes, self.began = distributed.rank() == 0, self.state.images_seen
        self.save_seconds = self.state.config.save_minutes * 60
        rectangle, labels = self.store.active_rectangle, self.state.config.data.labels
        self.about_data: dict[str, Any] = {
            "label_names": list(self.store.label_names) if labels else [],
            "active_rectangle": None if rectangle is None else list(rectangle),
        }

    def begin(self) -> None:
        """Log where this session starts; the first also shows data, and weights from elsewhere."""
        state, first = self.state, self.state.images_seen == 0
        self.line(
            "start" if first else "resume",
            images_seen=state.images_seen,
            device=str(state.device),
            device_name=device_name(state.device),
            precision=state.config.precision,
            processes=distributed.world_size(),
            hardware={"cpus": os.cpu_count(), "threads": torch.get_num_threads()},
            versions=versions(),
            **({"lineage": to_plain(state.lineage)} if state.lineage else {}),
        )
        if first and state.lineage:
            self.write_samples(state.stage)
        if self.writes and not self.folder.reals_file.exists():
            images = self.store.images(state.config.network.resolution)
            some = images[:: max(len(images) // SAMPLE_IMAGES, 1)][:SAMPLE_IMAGES]
            reals = self.store.pictures(np.array(some)).transpose(0, 2, 3, 1)
            self.write_grid(self.folder.reals_file, reals, "reals")

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
        """Write; if the disk refuses, say so and go on. What was saved before stays."""
        try:
            write()
        except OSError as error:
            reason = reason_of(error)
            self.tell(f"could not write {path.name}: {reason}; {self.last_state()}; going on")
            self.line("not_written", what=path.name, reason=reason)
            return False
        return True

    def last_state(self) -> str:
        files = self.folder.states()
        return f"last good state: {files[-1].name}" if files else "no state has been saved yet"

    def write_progress(self, stage: Stage) -> TrainingProgress:
        """A line of the log with averages since the last."""
        state, meter = self.state, self.meter
        metrics = meter.read()  # waits for the device, so before looking at the clock
        metrics["augment/probability"] = state.strength.probability
        seconds = max(time.perf_counter() - meter.since, 1e-9)
        self.meter = Meter()
        where = state.images_seen, state.config.schedule.total_images, stage
        speed, wait = meter.images / seconds, meter.waited / seconds
        counts = state.skipped()
        skipped = counts["skipped_g"] + counts["skipped_d"]
        progress = TrainingProgress(*where, metrics, meter.images, speed, wait, skipped)
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
        if not (self.tensorboard and self.writes):
            return
        try:
            if self.curves is None:
                from torch.utils.tensorboard import SummaryWriter

                # what an earlier process wrote beyond the state that this one began with is void
                self.curves = SummaryWriter(str(self.folder.tensorboard), purge_step=self.began + 1)
            for name, value in values.items():
                add = self.curves.add_image if isinstance(value, Tensor) else self.curves.add_scalar
                add(name, value, self.state.images_seen)
        except OSError as error:
            self.tensorboard = False
            self.tell(f"no more curves in TensorBoard: {reason_of(error)}; going on without")

    def write_samples(self, stage: Stage) -> None:
        """A grid of pictures of fixed seeds by the average generator."""
        if not self.writes:
            return
        generator, labels = self.state.generator_ema, None
        if generator.config.label_dim:
            labels = torch.from_numpy(self.store.sample_labels(SAMPLE_IMAGES))
        rows = sampling.generate(
            generator, range(SAMPLE_IMAGES), psi=1.0, labels=labels, resolution=stage.resolution,
            alpha=stage.alpha, batch=GRID_COLUMNS,
        )  # fmt: skip
        path = self.folder.sample_file(self.state.images_seen)
        self.write_grid(path, np.concatenate(list(rows)), "samples")

    def write_grid(self, path: Path, pictures: np.ndarray, name: str) -> None:
        """A grid of pictures (N, r, r, C), small ones enlarged to the full resolution, written and
        logged, without padding; what is transparent shows a checkered ground."""
        from PIL import Image
        from torchvision.utils import make_grid

        factor = self.state.config.network.resolution // pictures.shape[1]
        pictures = pictures.repeat(factor, 1).repeat(factor, 2)
        shown = sampling.over_squares(sampling.unpadded(pictures, self.store.active_rectangle))
        image = make_grid(torch.from_numpy(shown).permute(0, 3, 1, 2), GRID_COLUMNS, padding=0)

        def write() -> None:
            path.parent.mkdir(exist_ok=True)
            with atomic_file(path) as file:
                Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, format="PNG")

        self.attempt(path, write)
        self.show({name: image})

    def minutes_are_over(self) -> bool:
        """The last state is older than `save_minutes`, by the first process's clock."""
        passed = time.monotonic() - self.saved_at
        return distributed.rank() == 0 and 0 < self.save_seconds < passed

    def write_state(self) -> bool:
        """Everything that a later call needs to continue; then older files may go."""
        self.saved_at = time.monotonic()
        state, config = self.state, self.state.config
        path = self.folder.state_file(state.images_seen)

        def write() -> None:
            payload = {
                **state.to_payload(),
                **self.about_data,
                "data": state.data,
                "processes": distributed.world_size(),
                "threads": torch.get_num_threads(),
            }
            checkpoint.save(path, "state", payload)
            milestone = round(config.milestone_kimg * 1000)
            self.folder.retain_states(state.images_seen, config.keep_states, milestone)

        saved = self.written(path, write)
        if not saved:  # tried again in a minute
            self.saved_at -= max(self.save_seconds - RETRY_SECONDS, 0)
        return saved

    def write_generator(self, stage: Stage, path: Path | None = None) -> bool:
        """The average generator alone, for users."""
        state = self.state
        path = path or self.folder.generator_file(state.images_seen)
        fields = {"images_seen": state.images_seen, "lineage": state.lineage, **self.about_data}
        fields |= {"resolution": stage.resolution, "alpha": stage.alpha}
        return self.written(path, lambda: save_generator(path, state.generator_ema, **fields))

    def written(self, path: Path, write: Callable[[], None]) -> bool:
        """Write in the first process; whether it could be done, in every process."""
        done = distributed.rank() > 0 or self.attempt(path, write)
        return not distributed.largest(not done)

    def end(self, event: str, **values: Any) -> None:
        self.line(event, images_seen=self.state.images_seen, **values)
        if self.curves is not None:
            with suppress(OSError):  # a full disk at the end must not fail the run
                self.curves.close()
