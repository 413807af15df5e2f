"""What a step takes, at the position and stage asked for: reals, labels and random numbers."""

from collections.abc import Iterator
from time import perf_counter

import torch
from torch import Tensor

from stylegan.data import Batch, Store, batches, process_reals
from stylegan.schedule import Stage
from stylegan.training.draws import Draws, Share, draw, mirror_flags
from stylegan.training.state import TrainState


class Feed:
    """Processed batches, of one endless loader per resolution, and the draws beside them."""

    def __init__(self, state: TrainState, store: Store, workers: int) -> None:
        self.state, self.config, self.store = state, state.config, store
        self.workers = workers
        self.share = Share.of_process(state.device, state.generator.w_avg.dtype)
        self.loader: Iterator[Batch] = iter(())
        self.loading: tuple[int, int, int] | None = None  # resolution, batch size, next position
        self.waited = 0.0  # seconds, for the last batch
        self.label_pool: Tensor | None = None  # (images, classes), for generated images
        if state.config.data.labels:
            self.label_pool = torch.from_numpy(store.one_hot(store.require_labels()))

    def next(self, images_seen: int, stage: Stage) -> tuple[Tensor, Tensor | None]:
        """Images (n, C, r, r) in [-1, 1] and labels of this process."""
        started, config, share = perf_counter(), self.config, self.share
        images, labels = next(self.loader_at(images_seen, stage))
        self.loading = (stage.resolution, stage.batch_size, images_seen + stage.batch_size)
        mirror = None
        if config.data.mirror:
            mirror = mirror_flags(config.seed, images_seen, stage.batch_size, share)
        reals = process_reals(images, alpha=stage.alpha, mirror=mirror, dtype=share.dtype)
        self.waited = perf_counter() - started
        return reals, labels

    def draws(self, images_seen: int, stage: Stage) -> Draws:
        """The random numbers of the step; labels of generated images are those of the data."""
        probability = self.state.strength.probability
        return draw(self.config, images_seen, stage, self.label_pool, self.share, probability)

    def loader_at(self, images_seen: int, stage: Stage) -> Iterator[Batch]:
        """The loader in use, or a new one where it does not come next to what is asked for."""
        if self.loading != (stage.resolution, stage.batch_size, images_seen):
            self.loader = batches(
                self.store,
                stage.resolution,
                batch_size=stage.batch_size,
                start=images_seen,
                seed=self.config.seed,
                rank=self.share.rank,
                world_size=self.share.world_size,
                workers=self.workers,
                device=self.share.device,
                labels=self.config.data.labels,
            )
        return self.loader
