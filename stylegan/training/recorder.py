"""Writes a run's files: log.jsonl, TensorBoard, grids of samples, states and generators."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stylegan import sampling
from stylegan.data import Store
from stylegan.files import checkpoint
from stylegan.files.formats.native import save_generator
from stylegan.files.run_folder import RunFolder
from stylegan.schedule import Stage
from stylegan.training.progress import TrainingProgress
from stylegan.training.state import TrainState
from stylegan.utils import distributed
from stylegan.utils.console import Console
from stylegan.utils.filesystem import ALLOW_OVERWRITE
from stylegan.utils.lineage import to_dicts
from stylegan.utils.records import append_line, device_name, to_line, versions
from stylegan.utils.text import error_reason

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

SAMPLE_IMAGES = 32  # in a grid of samples
GRID_COLUMNS = 8
RETRY_SECONDS = 60  # after a state could not be written


@dataclass
class Recorder:
    """Writes the files of a run, on rank 0.

    A file that cannot be written is reported, and training continues.
    """

    state: TrainState
    store: Store
    folder: RunFolder
    console: Console
    tensorboard: bool
    curves: "SummaryWriter | None" = None  # opened on first use
    refused: set[Path] = field(default_factory=set)  # files whose last write failed

    def __post_init__(self) -> None:
        self.writes = distributed.rank() == 0
        self.began = self.state.images_seen
        begun = self.folder.state_file(self.began)
        self.last_saved = begun.name if self.began and begun.exists() else ""
        self.save_seconds = self.state.config.save_minutes * 60  # 0: ticks only
        self.next_save_at = time.monotonic() + self.save_seconds
        rectangle = self.store.active_rectangle
        labels = self.state.config.data.labels
        vectors = labels and self.store.has_vector_labels
        resolution = self.state.config.network.resolution
        self.images = self.store.training_hash(resolution, labels=labels)
        self.about_data: dict[str, Any] = {  # for states and generator files
            "label_names": list(self.store.label_names) if labels else [],
            "label_rows": self.store.sample_labels(SAMPLE_IMAGES).tolist() if vectors else None,
            "active_rectangle": None if rectangle is None else list(rectangle),
        }

    def begin(self) -> None:
        """Log the start of this session; the first one of a run also writes its first grids."""
        state = self.state
        first = self.state.images_seen == 0
        self.line(
            "start" if first else "resume",
            images_seen=state.images_seen,
            device=str(state.device),
            device_name=device_name(state.device),
            precision=state.config.precision,
            processes=distributed.world_size(),
            hardware={"cpus": os.cpu_count(), "threads": torch.get_num_threads()},
            versions=versions(),
            **({"lineage": to_dicts(state.lineage)} if state.lineage else {}),
        )
        if first and state.lineage:
            self.write_samples(state.stage)
        if self.writes and not self.folder.reals_file.exists():
            images = self.store.images(state.config.network.resolution)
            shown = images[:: max(len(images) // SAMPLE_IMAGES, 1)][:SAMPLE_IMAGES]
            reals = self.store.unpremultiplied(np.array(shown)).transpose(0, 2, 3, 1)
            self.write_grid(self.folder.reals_file, reals, "reals")

    def line(self, event: str, /, **values: object) -> None:
        """Append a JSON object to log.jsonl; non-finite numbers become null."""
        if not self.writes:
            return
        own = {"event": event, "time": round(time.time(), 3)}
        text = to_line(own | values | own)  # first in the line, and not replaced by a measurement
        self.try_write(self.folder.log_file, lambda: append_line(self.folder.log_file, text))

    def try_write(self, path: Path, write: Callable[[], None]) -> bool:
        """Call `write`; on OSError report and log it once per `path`, and return False.

        Files that were saved before stay as they are.
        """
        try:
            self.folder.keep_locked()
            write()
        except OSError as error:
            if path not in self.refused:
                self.refused.add(path)
                reason = error_reason(error)
                self.console.info(
                    f"could not write {path.name}: {reason}; {self.last_state()}; going on"
                )
                self.line("not_written", what=path.name, reason=reason)
            return False
        self.refused.discard(path)
        return True

    def last_state(self) -> str:
        saved = self.last_saved
        return f"last good state: {saved}" if saved else "no state has been saved yet"

    def write_progress(self, progress: TrainingProgress) -> None:
        stage = progress.stage
        scalars = {
            **progress.metrics,
            "schedule/resolution": stage.resolution,
            "schedule/alpha": stage.alpha,
            "schedule/batch_size": stage.batch_size,
            "schedule/g_lr": stage.g_lr,
            "schedule/d_lr": stage.d_lr,
            "speed/images_per_second": progress.images_per_second,
            "speed/data_wait_share": progress.data_wait,
            "health/skipped_updates": progress.skipped_updates,
        }
        if torch.cuda.is_initialized():
            scalars["memory/peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        self.line("progress", images_seen=progress.images_seen, **scalars)
        self.log_tensorboard(scalars)

    def write_scores(self, scores: Mapping[str, float], records: Sequence[str]) -> None:
        """Log the scores of an evaluation, and append its `records` to metrics.jsonl."""
        path = self.folder.metrics_file
        for record in records if self.writes else ():
            self.try_write(path, partial(append_line, path, record))
        self.line("metrics", **scores)
        self.log_tensorboard(
            {f"metrics/{k}": value for k, value in scores.items() if k != "images_seen"}
        )

    def warn(self, event: str, reason: str) -> None:
        self.console.info(reason)
        self.line(event, images_seen=self.state.images_seen, reason=reason)

    def log_tensorboard(self, values: Mapping[str, float | Tensor]) -> None:
        """Write numbers and images, uint8 (C, H, W), to TensorBoard.

        The first OSError disables it, since the writer's thread is dead then.
        """
        if not (self.tensorboard and self.writes):
            return

        def write() -> None:
            if self.curves is None:
                # where it is used: programs that mirror TensorBoard patch it before, and it is slow
                from torch.utils.tensorboard import SummaryWriter

                # Discards what an earlier session wrote beyond the image where this one starts.
                folder = str(self.folder.tensorboard)
                self.curves = SummaryWriter(folder, purge_step=self.began + 1)
            for name, value in values.items():
                is_image = isinstance(value, Tensor) and value.ndim == 3
                add = self.curves.add_image if is_image else self.curves.add_scalar
                add(name, value, self.state.images_seen)
            self.curves.flush()  # raises if the disk is full

        self.tensorboard = self.try_write(self.folder.tensorboard, write)

    def write_samples(self, stage: Stage) -> None:
        """Write a grid of samples from fixed seeds by the average generator."""
        if not self.writes:
            return
        generator = self.state.generator_ema
        labels = None
        if generator.config.label_dim:
            labels = torch.from_numpy(self.store.sample_labels(SAMPLE_IMAGES))
        settings = sampling.SamplingSettings(stage.resolution, stage.alpha, psi=1.0)
        seeds = range(SAMPLE_IMAGES)
        rows = sampling.generate_batches(
            generator, settings, seeds, labels=labels, batch=GRID_COLUMNS
        )
        path = self.folder.sample_file(self.state.images_seen, stage.tick_kimg)
        self.write_grid(path, np.concatenate(list(rows)), "samples")

    def write_grid(self, path: Path, images: np.ndarray, name: str) -> None:
        """Write a grid of uint8 images (N, r, r, C), also to TensorBoard.

        They are enlarged to the full resolution and cropped to the active rectangle; transparent
        ones are composited onto a checkerboard.
        """
        from torchvision.utils import make_grid

        factor = self.state.config.network.resolution // images.shape[1]
        images = images.repeat(factor, 1).repeat(factor, 2)
        shown = sampling.over_checkerboard(
            sampling.crop_padding(images, self.store.active_rectangle)
        )
        image = make_grid(torch.from_numpy(shown).permute(0, 3, 1, 2), GRID_COLUMNS, padding=0)

        def write() -> None:
            with ALLOW_OVERWRITE.file(path) as file:
                Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, format="PNG")

        self.try_write(path, write)
        self.log_tensorboard({name: image})

    def is_save_due(self) -> bool:
        """Whether the last state is older than `save_minutes`, by the clock of rank 0."""
        return self.writes and self.save_seconds > 0 and time.monotonic() > self.next_save_at

    def write_state(self) -> bool:
        """Write all that resuming needs, then delete old states; False if it was not written."""
        began = time.monotonic()
        state = self.state
        config = self.state.config
        path = self.folder.state_file(state.images_seen)

        def write() -> None:
            payload = {
                **state.to_payload(),
                **self.about_data,
                "data": self.images,
                "num_images": self.store.num_images,
                "processes": distributed.world_size(),
                "threads": torch.get_num_threads(),
            }
            if not self.folder.config_file.is_file():  # removed, so the folder is not a run
                store = self.store
                self.folder.create(config, store.origin, store.skipped, state.lineage)
            checkpoint.save(path, "state", payload, outputs=ALLOW_OVERWRITE)
            milestone = round(config.milestone_kimg * 1000)
            self.folder.retain_states(state.images_seen, config.keep_states, milestone)

        saved = self.write_on_rank0(path, write)
        if saved:
            self.last_saved = path.name
            self.line("saved", images_seen=state.images_seen)
        seconds = self.save_seconds if saved else min(self.save_seconds, RETRY_SECONDS)
        self.next_save_at = began + seconds
        return saved

    def write_generator(self, stage: Stage, path: Path | None = None) -> bool:
        """Write a file of the average generator, for users."""
        state = self.state
        path = path or self.folder.generator_file(state.images_seen)
        return self.write_on_rank0(
            path,
            lambda: save_generator(
                path,
                state.generator_ema,
                resolution=stage.resolution,
                alpha=stage.alpha,
                images_seen=state.images_seen,
                lineage=state.lineage,
                trained_on=state.config.data,
                **self.about_data,
                outputs=ALLOW_OVERWRITE,
            ),
        )

    def set_best_aside(self, metric: str) -> None:
        """Rename the best generator by a metric that no longer decides, unless that was done: a
        run that was killed since repeats it."""
        best = self.folder.best_generator
        kept = best.with_stem(f"{best.stem}-{metric.replace('/', '-')}")
        is_due = self.writes and best.is_file() and not kept.exists()
        if is_due and self.try_write(best, lambda: os.replace(best, kept)):
            self.console.info(f"{kept.name} is the best by {metric}")

    def write_on_rank0(self, path: Path, write: Callable[[], None]) -> bool:
        """Call `write` on rank 0; every rank returns whether it succeeded."""
        done = distributed.rank() > 0 or self.try_write(path, write)
        return not distributed.max_over_ranks(not done)

    @contextmanager
    def telling_failure(self) -> Iterator[None]:
        """Report and log an error inside, naming the last good state."""
        try:
            yield
        except Exception as error:
            self.console.info(f"stopped at image {self.state.images_seen}; {self.last_state()}")
            self.end("failed", reason=str(error))
            raise

    def end(self, event: str, **values: object) -> None:
        """Log the end of this session and close its files."""
        try:
            self.line(event, images_seen=self.state.images_seen, **values)
        finally:
            if self.curves is not None:
                with suppress(OSError):  # a full disk must not fail the run now
                    self.curves.close()
