"""What a step takes, at the position and stage asked for: reals, labels and random numbers."""

from collections.abc import Iterator
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from stylegan.data import Batch, Store, batches, process_reals, split
from stylegan.data.loader import balanced
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
        holdout, seed = state.config.data.holdout, state.config.seed
        self.training, self.held_out = split(store.origins, holdout, seed)  # indices
        if state.config.data.labels:
            labels = store.require_labels()[self.training]
            if state.config.data.balanced:
                labels = labels[balanced(labels, np.random.default_rng(0))]  # whatever is left over
            self.label_pool = torch.from_numpy(store.one_hot(labels))

    def next(self, images_seen: int, stage: Stage) -> tuple[Tensor, Tensor | None]:
        """Images (n, C, r, r) in [-1, 1] and labels of this process."""
        started = perf_counter()
        images, labels = next(self.loader_at(images_seen, stage))
        self.loading = (stage.resolution, stage.batch_size, images_seen + stage.batch_size)
        reals = self.processed(images, images_seen, stage)
        self.waited = perf_counter() - started
        return reals, labels

    def look(
        self, among: np.ndarray, images_seen: int, stage: Stage
    ) -> tuple[Tensor, Tensor | None]:
        """As `next`, of the images of those indices, without moving on."""
        images, labels = next(self.batches(among, images_seen, stage, workers=0))
        return self.processed(images, images_seen, stage), labels

    def processed(self, images: Tensor, images_seen: int, stage: Stage) -> Tensor:
        """Images as the discriminator sees them, mirrored by the flags of the step."""
        mirror = None
        if self.config.data.mirror:
            mirror = mirror_flags(self.config.seed, images_seen, stage.batch_size, self.share)
        dtype = self.share.dtype
        return process_reals(images, alpha=stage.alpha, mirror=mirror, dtype=dtype)

    def draws(self, images_seen: int, stage: Stage) -> Draws:
        """The random numbers of the step; labels of generated images are those of the data."""
        return draw(
            self.config,
            images_seen,
            stage,
            self.label_pool,
            self.share,
            self.state.strength.probability,
        )

    def loader_at(self, images_seen: int, stage: Stage) -> Iterator[Batch]:
        """The loader in use, or a new one where it does not come next to what is asked for."""
        if self.loading != (stage.resolution, stage.batch_size, images_seen):
            self.loader = self.batches(self.training, images_seen, stage, workers=self.workers)
        return self.loader

    def batches(
        self, among: np.ndarray, start: int, stage: Stage, *, workers: int
    ) -> Iterator[Batch]:
        """Endless batches of the images of those indices, after the first `start`."""
        return batches(
            self.store,
            stage.resolution,
            batch_size=stage.batch_size,
            start=start,
            seed=self.config.seed,
            rank=self.share.rank,
            world_size=self.share.world_size,
            workers=workers,
            device=self.share.device,
            labels=self.config.data.labels,
            among=among,
            balance=self.config.data.balanced,
        )
