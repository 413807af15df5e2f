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
        self.state, self.config, self.store, self.workers = state, state.config, store, workers
        self.share = Share.of_process(state.device, state.generator.w_avg.dtype)
        self.loader: Iterator[Batch] = iter(())
        self.loading: tuple[int, int, int] | None = None  # resolution, batch size, next position
        self.waited = 0.0  # seconds, for the last batch
        self.label_pool: Tensor | None = None  # (images, classes), for generated images
        if state.config.data.labels:
            self.label_pool = torch.from_numpy(store.one_hot(store.require_labels()))

    def next(self, images_seen: int, stage: Stage) -> tuple[Tensor, Tensor | None, Draws]:
        """Images (n, C, r, r) in [-1, 1] and labels of this process, and the random numbers of the
        step; labels of generated images are those of the data."""
        started, config, share, n = perf_counter(), self.config, self.share, stage.batch_size
        if self.loading != (stage.resolution, n, images_seen):
            self.loader = batches(
                self.store,
                stage.resolution,
                batch_size=n,
                start=images_seen,
                seed=config.seed,
                rank=share.rank,
                world_size=share.world_size,
                workers=self.workers,
                device=share.device,
                labels=config.data.labels,
            )
        images, labels = next(self.loader)
        self.loading = stage.resolution, n, images_seen + n
        mirror = mirror_flags(config.seed, images_seen, n, share) if config.data.mirror else None
        reals = process_reals(images, alpha=stage.alpha, mirror=mirror, dtype=share.dtype)
        self.waited = perf_counter() - started
        probability = self.state.strength.probability
        draws = draw(config, images_seen, stage, self.label_pool, share, probability)
        return reals, labels, draws
