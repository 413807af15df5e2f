"""Order, batches and the processing of real images."""

import itertools
import threading

import numpy as np
import pytest
import torch
from helpers import reference
from PIL import Image
from torch.testing import assert_close

from stylegan.data import Store, batches, prepare, process_reals
from stylegan.data.loader import epochs
from stylegan.data.prepare import prefetch_map


def take(iterator, count):
    return list(itertools.islice(iterator, count))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Twelve images; every pixel of image i is 20 i."""
    root = tmp_path_factory.mktemp("loader")
    for i in range(12):
        (root / "images" / "abc"[i % 3]).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (20 * i,) * 3).save(root / f"images/{'abc'[i % 3]}/{i:02}.png")
    return prepare(root / "images", root / "store")


def shuffled(num_images, seed, start=0):
    return itertools.chain.from_iterable(epochs(num_images, seed, start))


def test_batches_are_read_before_they_are_requested(store, monkeypatch):
    reads, images = threading.Semaphore(0), Store.images
    monkeypatch.setattr(Store, "images", lambda *given: (reads.release(), images(*given))[1])
    feed = batches(store, 8, batch_size=4, start=0, seed=8, workers=2)
    next(feed)
    for _ in range(1 + 3):  # for the shape; the batch requested, and two ahead
        assert reads.acquire(timeout=60)


def shown(batch_images):
    return batch_images[:, 0, 0, 0].tolist()


def shown_by(stream):
    return [value for images, _ in stream for value in shown(images)]


def test_epochs_show_every_image_once_in_a_new_order():
    orders = np.array(take(shuffled(10, seed=3), 50)).reshape(5, 10)
    assert (np.sort(orders) == range(10)).all()
    assert len({tuple(epoch) for epoch in orders}) == 5


@pytest.mark.parametrize("start", [0, 1, 6, 7, 8, 25])
def test_epochs_continue_from_any_start(start):
    assert take(shuffled(7, 5, start), 20) == take(shuffled(7, 5), 60)[start : start + 20]


def test_process_reals_equals_the_official_one():
    arrays, about = reference.load("process_reals")
    assert len(about["cases"]) == 6
    for name, case in about["cases"].items():
        level = int(np.float32(case["lod"]))
        alpha = 1 - float(np.float32(case["lod"]) - level)
        reals = torch.from_numpy(arrays[f"{name}/reals_uint8"])
        expected = torch.from_numpy(arrays[f"{name}/processed"])
        native = expected[:, :, :: 2**level, :: 2**level]
        processed = process_reals(reals, alpha=alpha)
        assert processed.shape == native.shape
        assert_close(processed, native, atol=2e-7, rtol=0)
        double = process_reals(reals, alpha=alpha, dtype=torch.float64)
        assert_close(double, native.double(), atol=2e-7, rtol=0)


def test_process_reals_mirrors_before_the_fade():
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    flags = torch.tensor([True, False])
    mirrored = process_reals(images, alpha=0.3, mirror=flags)
    flipped = torch.stack([images[0].flip(2), images[1]])
    assert torch.equal(mirrored, process_reals(flipped, alpha=0.3))


def test_batches_follow_the_epoch_order_with_matching_labels(store):
    order = take(shuffled(12, 9), 30)
    stream = take(batches(store, 4, batch_size=5, start=0, seed=9, labels=True), 6)
    assert shown_by(stream) == [int(store.images(4)[i, 0, 0, 0]) for i in order]
    for number, (images, labels) in enumerate(stream):
        assert (images.shape, images.dtype) == ((5, 3, 4, 4), torch.uint8)
        assert labels.dtype == torch.float32
        expected = np.eye(3)[[i // 4 for i in order[5 * number : 5 * number + 5]]]
        np.testing.assert_array_equal(labels.numpy(), expected)
        assert (labels.argmax(1) == (images[:, 0, 0, 0] // 20) % 3).all()


def test_batches_of_all_ranks_join_to_the_batch_of_one_process(store):
    whole = take(batches(store, 8, batch_size=6, start=5, seed=2), 8)
    parts = [
        take(batches(store, 8, batch_size=6, start=5, seed=2, rank=r, world_size=3), 8)
        for r in range(3)
    ]
    for number, (images, _) in enumerate(whole):
        joined = torch.cat([part[number][0] for part in parts])
        assert torch.equal(joined, images)
    assert len(set(shown(whole[0][0]))) == 6  # within an epoch nothing is shown twice


def test_batches_continue_at_start_with_another_batch_size(store):
    whole = take(batches(store, 8, batch_size=4, start=0, seed=1), 12)
    values = shown_by(whole)
    resumed = take(batches(store, 8, batch_size=7, start=20, seed=1), 4)
    assert shown_by(resumed) == values[20:48]


def test_prefetch_map_begins_each_thread():
    """As with the choice of a GPU, which is a thread's own."""
    local = threading.local()

    def begin():
        local.gpu = 3

    assert list(prefetch_map(lambda i: (i, local.gpu), range(9), 2, 3, begin)) == [
        (i, 3) for i in range(9)
    ]


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_do_not_depend_on_the_number_of_workers(store, workers):
    settings = dict(batch_size=4, start=3, seed=8, rank=1, world_size=2, labels=True)
    alone = take(batches(store, 8, **settings), 12)
    state = torch.get_rng_state()
    helped = take(batches(store, 8, workers=workers, **settings), 12)
    assert torch.equal(torch.get_rng_state(), state)
    for (images, labels), (same_images, same_labels) in zip(alone, helped, strict=True):
        assert torch.equal(images, same_images) and torch.equal(labels, same_labels)


@pytest.mark.gpu
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_arrive_on_the_gpu_unchanged(store, workers):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    here = take(batches(store, 8, batch_size=4, start=0, seed=8), 20)
    there = batches(store, 8, batch_size=4, start=0, seed=8, workers=workers, device="cuda")
    for (images, _), (moved, _) in zip(here, there, strict=False):
        assert moved.is_cuda
        assert torch.equal(moved.cpu(), images)
