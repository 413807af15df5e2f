"""Endless batches of real images, positioned by the number of images seen."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan import streams
from stylegan.distributed import sent

from .store import Store

RANGE_SCALE = float(np.float32(2 / 255))  # a float32 number officially, also in float64


class Batch(NamedTuple):
    """Real images uint8 (n, C, r, r) and, if asked for, their one-hot labels (n, classes)."""

    images: Tensor
    labels: Tensor | None


def epochs(num_images: int, seed: int, start: int) -> Iterator[np.ndarray]:
    """Endless image indices: the order of each epoch, the first without what is before `start`."""
    epoch, skip = divmod(start, num_images)
    for e in itertools.count(epoch):
        yield streams.data_order(seed, e).permutation(num_images)[skip:]
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
    if mirror is not None:  # by bits, while they are bytes: `where` is slow for those
        marked = mirror.to(torch.uint8).neg_()[:, None, None, None]  # 255, all bits
        flipped = images.flip(3)
        images = flipped.bitwise_xor_(images).bitwise_and_(marked).bitwise_xor_(images)
    reals = images.to(dtype, copy=True).mul_(RANGE_SCALE).sub_(1)
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
    workers: int = 1,
    device: str | torch.device = "cpu",
    labels: bool = False,
) -> Iterator[Batch]:
    """Endless batches at one resolution, beginning after the first `start` images.

    All processes follow one stream of indices that depends on the seed only. A global batch is the
    next `batch_size` of them, of which each rank yields its contiguous part, on `device`. Rows of a
    memory-mapped file need no decoding, so threads read them, `workers` at once and a batch or more
    ahead; with 0 a batch is read when it is asked for. Their number changes the speed and nothing
    else.
    """
    if batch_size % world_size:
        raise ValueError(
            f"a batch of {batch_size} images does not divide by {world_size} processes"
        )
    store.images(resolution)  # raises now if there are none
    if labels:
        store.require_labels()
    device = torch.device(device)

    def read(indices: np.ndarray) -> Batch:
        images = rows(store.images(resolution), indices, pinned=device.type == "cuda")
        if not labels:
            return Batch(images, None)
        return Batch(images, torch.from_numpy(store.one_hot(store.require_labels()[indices])))

    order = shares(epochs(store.num_images, seed, start), batch_size, rank, world_size)
    ahead = read_ahead(read, order, workers) if workers else map(read, order)
    if device.type == "cuda":
        return moved(ahead, device)
    return (
        Batch(b.images.to(device), None if b.labels is None else b.labels.to(device)) for b in ahead
    )


def rows(images: np.ndarray, indices: np.ndarray, *, pinned: bool) -> Tensor:
    """A copy of some images, in memory that a GPU can fetch by itself if `pinned`."""
    rows = torch.empty((len(indices), *images.shape[1:]), dtype=torch.uint8, pin_memory=pinned)
    # in this mode it writes straight into the rows, and other threads run meanwhile
    np.take(images, indices, axis=0, out=rows.numpy(), mode="clip")
    return rows


def shares(
    epochs: Iterator[np.ndarray], batch_size: int, rank: int, world_size: int
) -> Iterator[np.ndarray]:
    """The indices of this rank's part of each global batch."""
    size = batch_size // world_size
    order = next(epochs)
    while True:
        while len(order) < batch_size:
            order = np.concatenate((order, next(epochs)))
        yield order[rank * size : (rank + 1) * size]
        order = order[batch_size:]


def read_ahead(
    read: Callable[[np.ndarray], Batch], order: Iterator[np.ndarray], workers: int
) -> Iterator[Batch]:
    """Batches in their order, read by threads while the last one is in use."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="read")
    try:
        pending = deque(pool.submit(read, next(order)) for _ in range(workers + 1))
        while True:
            yield pending.popleft().result()
            pending.append(pool.submit(read, next(order)))
    finally:
        pool.shutdown(cancel_futures=True)


def moved(source: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Batches on the GPU, each copied there while the one before is in use."""
    copies = torch.cuda.Stream(device)

    def move(batch: Batch) -> Batch:
        with torch.cuda.stream(copies):
            images = batch.images.to(device, non_blocking=True)
            if batch.labels is None:
                return Batch(images, None)
            return Batch(images, sent(batch.labels, device))

    coming = move(next(source))
    for following in source:
        current = torch.cuda.current_stream(device)
        current.wait_stream(copies)
        for tensor in coming:
            if tensor is not None:
                tensor.record_stream(current)  # its memory is not free before its use has ended
        ready, coming = coming, move(following)
        yield ready
