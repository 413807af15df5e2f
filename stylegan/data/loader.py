"""Endless batches of real images, positioned by the number of images seen."""

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan import streams
from stylegan.utils.distributed import to_device

from .prepare import prefetch_map
from .store import Store

RANGE_SCALE = float(np.float32(2 / 255))  # float32 in the official code, so rounded in float64 too
Indices = Iterator[np.ndarray]  # of images
# Reals uint8 (n, C, r, r) and, if requested, their labels float32 (n, label_dim)
Batches = Iterator[tuple[Tensor, Tensor | None]]


def epochs(num_images: int, seed: int, start: int) -> Indices:
    """Image indices of each epoch, endlessly, without the first `start`."""
    epoch, skip = divmod(start, num_images)
    for e in itertools.count(epoch):
        yield streams.epoch_rng(seed, e).permutation(num_images)[skip:]
        skip = 0


def process_reals(
    images: Tensor,
    *,
    alpha: float = 1.0,
    mirror: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Convert uint8 images (N, C, r, r) to what the discriminator sees.

    Values are in [-1, 1], flipped where `mirror`, bool (N,), is True, and blended with their 2x2
    averages by weight 1 - alpha.
    """
    if mirror is not None:  # by bits, since `where` is slow for bytes
        marked = mirror.to(torch.uint8).neg_()[:, None, None, None]  # 255 sets all bits
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
) -> Batches:
    """Endless batches at one resolution, without the first `start` images.

    All ranks follow one stream of indices that depends on the seed only. Its next `batch_size`
    indices are a global batch, of which each rank yields its contiguous part on `device`. `workers`
    threads read ahead; with 0, a batch is read when it is requested.
    """
    if batch_size % world_size:
        raise ValueError(f"batch_size {batch_size} is not divisible by world_size {world_size}")
    shape = store.images(resolution).shape[1:]
    device = torch.device(device)
    classes = store.require_labels() if labels else None
    on_gpu = device.type == "cuda"

    def read(indices: np.ndarray) -> tuple[Tensor, Tensor | None]:
        rows = torch.empty((len(indices), *shape), dtype=torch.uint8, pin_memory=on_gpu)
        # this mode writes into the rows without a copy, and releases the GIL
        np.take(store.images(resolution), indices, axis=0, out=rows.numpy(), mode="clip")
        labels = None if classes is None else torch.from_numpy(store.one_hot(classes[indices]))
        return rows, labels

    order = rank_batches(epochs(store.num_images, seed, start), batch_size, rank, world_size)
    # The current GPU is a thread's own: without this, pinning would open a context on GPU 0.
    begin = partial(torch.cuda.set_device, device) if on_gpu and device.index is not None else None
    ahead = prefetch_map(read, order, workers, workers + 1, begin) if workers else map(read, order)
    if on_gpu:
        return prefetch_to_device(ahead, device)
    return (on_device(*batch, device) for batch in ahead)


def rank_batches(epochs: Indices, batch_size: int, rank: int, world_size: int) -> Indices:
    """Indices of this rank's part of each global batch."""
    size = batch_size // world_size
    order = next(epochs)
    while True:
        while len(order) < batch_size:
            order = np.concatenate((order, next(epochs)))
        yield order[rank * size : (rank + 1) * size]
        order = order[batch_size:]


def on_device(
    images: Tensor, labels: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    return to_device(images, device), None if labels is None else to_device(labels, device)


def prefetch_to_device(source: Batches, device: torch.device) -> Batches:
    """Prefetch to the GPU: copy the next batch on a side stream while this one is in use."""
    copies = torch.cuda.Stream(device)

    def move(images: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor | None]:
        with torch.cuda.stream(copies):
            return on_device(images, labels, device)

    coming = move(*next(source))
    for following in source:
        current = torch.cuda.current_stream(device)
        current.wait_stream(copies)
        for tensor in coming:
            if tensor is not None:
                tensor.record_stream(current)  # keeps its memory until this stream has used it
        ready = coming
        coming = move(*following)
        yield ready
