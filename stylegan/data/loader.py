"""Endless batches of real images, positioned by the number of images seen."""

import itertools
import signal
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from .store import Store

RANGE_SCALE = float(np.float32(2 / 255))  # a float32 number officially, also in float64


class Batch(NamedTuple):
    """Real images uint8 (n, C, r, r) and, if asked for, their one-hot labels (n, classes)."""

    images: Tensor
    labels: Tensor | None


def shuffled(num_images: int, seed: int, start: int = 0) -> Iterator[int]:
    """Endless image indices, reshuffled each epoch, beginning after the first `start`."""
    epoch, skip = divmod(start, num_images)
    for e in itertools.count(epoch):
        order = np.random.default_rng(np.random.SeedSequence((seed, e))).permutation(num_images)
        yield from order[skip:].tolist()
        skip = 0


def process_reals(
    images: Tensor,
    *,
    alpha: float = 1.0,
    mirror: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """uint8 images (N, C, r, r) as the discriminator sees them: range [-1, 1].

    Those marked in `mirror`, bool (N,), are flipped left-right. While a resolution fades in, the
    reals fade as the fakes do: with their own 2x2 averages, which weigh 1 - alpha.
    """
    reals = images.to(dtype, copy=True).mul_(RANGE_SCALE).sub_(1)
    if mirror is not None:
        reals = torch.where(mirror[:, None, None, None], reals.flip(3), reals)
    if alpha < 1:
        averages = F.interpolate(F.avg_pool2d(reals, 2), scale_factor=2, mode="nearest")
        reals = torch.lerp(averages, reals, alpha)
    return reals


def batches(
    store: Store,
    resolution: int,
    *,
    batch_size: int,
    start: int,
    seed: int,
    rank: int = 0,
    world_size: int = 1,
    workers: int = 0,
    device: str | torch.device = "cpu",
    labels: bool = False,
) -> Iterator[Batch]:
    """Endless batches at one resolution, beginning after the first `start` images.

    All processes follow one stream of indices that depends on the seed only. A global batch is
    the next `batch_size` of them, of which each rank yields its contiguous part, on `device`.
    The number of worker processes changes the speed and nothing else: pixels need no decoding, so
    0 is usually enough; workers help where the disk is slow.
    """
    if batch_size % world_size:
        raise ValueError(
            f"a batch of {batch_size} images does not divide by {world_size} processes"
        )
    store.images(resolution)  # say now if there are none
    if labels:
        store.require_labels()
    rows = _Rows(store, resolution, labels)
    order = _RankOrder(store.num_images, seed, start, batch_size, rank, world_size)
    device = torch.device(device)
    pinned = device.type == "cuda"
    if workers == 0:
        return _moved((rows[indices] for indices in order), device, pin=pinned)
    loader = DataLoader(
        rows,
        batch_size=None,  # a batch is read in one go: `order` yields all its indices
        sampler=order,
        num_workers=workers,
        pin_memory=pinned,
        worker_init_fn=_ignore_interrupts,
        generator=torch.Generator(),  # its own: the global one must not depend on `workers`
    )
    return _moved(iter(loader), device, pin=False)


def _ignore_interrupts(worker: int) -> None:
    """Signals, also those to the whole group, are for the training process, which stops its workers
    when it has saved."""
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


class _Rows(Dataset[Batch]):
    """Reads a batch of images, given their indices."""

    def __init__(self, store: Store, resolution: int, labels: bool) -> None:
        self.store = store
        self.resolution = resolution
        self.labels = labels

    def __getitem__(self, indices: np.ndarray) -> Batch:
        images = np.asarray(self.store.images(self.resolution)[indices])
        if not self.labels:
            return Batch(torch.from_numpy(images), None)
        classes = self.store.require_labels()[indices]
        return Batch(torch.from_numpy(images), torch.from_numpy(self.store.one_hot(classes)))


class _RankOrder(Sampler[np.ndarray]):
    """The indices of this rank's part of each global batch."""

    def __init__(
        self, num_images: int, seed: int, start: int, batch_size: int, rank: int, world_size: int
    ) -> None:
        self.stream = num_images, seed, start
        self.batch_size = batch_size
        share = batch_size // world_size
        self.part = slice(rank * share, (rank + 1) * share)

    def __iter__(self) -> Iterator[np.ndarray]:
        stream = shuffled(*self.stream)
        while True:
            yield np.fromiter(stream, np.int64, count=self.batch_size)[self.part]


def _moved(source: Iterator[Batch], device: torch.device, *, pin: bool) -> Iterator[Batch]:
    """Batches on the device; from pinned memory the copy runs beside the computation."""
    for images, labels in source:
        if pin:
            images, labels = images.pin_memory(), None if labels is None else labels.pin_memory()
        moved = None if labels is None else labels.to(device, non_blocking=True)
        yield Batch(images.to(device, non_blocking=True), moved)
