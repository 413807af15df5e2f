"""What the discriminator is shown, at the position and stage asked for."""

from collections.abc import Iterator

import torch
from torch import Tensor

from stylegan.data import Batch, Store, batches, process_reals
from stylegan.schedule import Stage
from stylegan.training.draws import Share, mirror_flags
from stylegan.training.state import TrainState


class Feed:
    """Processed batches; an endless loader per resolution."""

    def __init__(self, state: TrainState, store: Store, share: Share, workers: int) -> None:
        self.config, self.store, self.share, self.workers = state.config, store, share, workers
        self.loader: Iterator[Batch] = iter(())
        self.loading: tuple[int, int, int] | None = None  # resolution, batch size, next position

    def next(self, images_seen: int, stage: Stage) -> tuple[Tensor, Tensor | None]:
        """Images (n, C, r, r) in [-1, 1] and labels of this process."""
        wanted = (stage.resolution, stage.batch_size, images_seen)
        if self.loading != wanted:
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
        images, labels = next(self.loader)
        self.loading = (stage.resolution, stage.batch_size, images_seen + stage.batch_size)
        mirror = None
        if self.config.data.mirror:
            mirror = mirror_flags(self.config.seed, images_seen, stage.batch_size, self.share)
        dtype = self.share.dtype
        return process_reals(images, alpha=stage.alpha, mirror=mirror, dtype=dtype), labels


def label_pool(store: Store) -> Tensor:
    """The labels of all images (images, classes), from which generated ones are drawn."""
    assert store.labels is not None
    return torch.from_numpy(store.one_hot(store.labels))
