"""The states and generators that a run writes: to resume from, and for users."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stylegan import distributed
from stylegan.data import Store
from stylegan.files import checkpoint
from stylegan.schedule import Stage
from stylegan.training.recorder import Recorder

RETRY_SECONDS = 60


class Snapshots:
    """Writes the checkpoints of a run. What the disk refuses is reported, and training goes on."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self.recorder, self.folder, self.state = recorder, recorder.folder, recorder.state
        state = self.state
        self.saved_at = time.monotonic()  # when the state was last saved, or could not be
        labels, rectangle = state.config.data.labels, store.active_rectangle
        resolution = state.config.network.resolution
        self.identity = state.data or store.training_identity(resolution, labels=labels)
        self.about_data: dict[str, Any] = {
            "label_names": list(store.label_names) if labels else [],
            "active_rectangle": None if rectangle is None else list(rectangle),
        }

    def minutes_are_over(self) -> bool:
        """The last state is older than `save_minutes`, by the first process's clock."""
        passed, limit = time.monotonic() - self.saved_at, self.state.config.save_minutes * 60
        return distributed.rank() == 0 and 0 < limit < passed

    def write_state(self) -> bool:
        """Everything that a later call needs to continue; then older files may go."""
        self.saved_at = time.monotonic()
        state, config = self.state, self.state.config
        path = self.folder.state_file(state.images_seen)

        def write() -> None:
            about = {
                "data": self.identity,
                "processes": distributed.world_size(),
                "threads": torch.get_num_threads(),
            }
            payload = {**state.to_payload(), **self.about_data, **about}
            checkpoint.save(path, "state", payload)
            milestone = round(config.milestone_kimg * 1000)
            self.folder.retain_states(state.images_seen, config.keep_states, milestone)

        saved = self.written(path, write)
        if not saved:  # tried again in a minute
            self.saved_at -= max(config.save_minutes * 60 - RETRY_SECONDS, 0)
        return saved

    def write_generator(self, stage: Stage, path: Path | None = None) -> bool:
        """The average generator alone, for users."""
        state = self.state
        path = path or self.folder.generator_file(state.images_seen)

        def write() -> None:
            from stylegan.files.loading import save_generator  # knows all formats

            save_generator(
                path,
                state.generator_ema,
                images_seen=state.images_seen,
                resolution=stage.resolution,
                alpha=stage.alpha,
                lineage=state.lineage,
                **self.about_data,
            )

        return self.written(path, write)

    def written(self, path: Path, write: Callable[[], None]) -> bool:
        """Write in the first process; whether it could be done, in every process."""
        done = distributed.rank() > 0 or self.recorder.attempt(path, write)
        return not distributed.largest(not done)
