"""Stores: what is written, what is skipped, what is left after a failure."""

import io
import os
import shutil

import numpy as np
import pytest
from helpers import reference
from helpers.consoles import RecordingConsole
from helpers.pictures import BAD, MIXED, MIXED_NAMES, names_of, png, store_of
from PIL import Image

from stylegan.data import (
    Preparation,
    Skipped,
    Store,
    batches,
    cached_store,
    prepare,
    prepare_images,
    pyramid,
)
from stylegan.data.sources import SequenceSource


def test_pyramid_equals_the_official_one_exactly():
    official, _ = reference.load("process_reals")
    levels = pyramid(official["pyramid/r64"])
    assert sorted(levels) == [4, 8, 16, 32, 64]
    for resolution, level in levels.items():
        np.testing.assert_array_equal(level, official[f"pyramid/r{resolution}"])


def test_store_holds_the_images_in_order_with_labels_and_names(mixed, tmp_path):
    store = prepare(mixed, tmp_path / "store")
    assert (store.num_images, store.resolution, store.channels) == (4, 16, 3)
    assert names_of(store) == MIXED_NAMES
    assert store.label_names == ["a", "b", "c"]
    assert store.labels is not None
    assert store.labels.tolist() == [0, 1, 1, 2]
    assert store.one_hot([2, 0]).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert store.one_hot(store.labels).sum(axis=0).tolist() == [1, 2, 1]  # images per class
    assert store.active_rectangle is None
    assert (store.skipped, store.meta.num_ignored) == ([], 1)
    for i, name in enumerate(names_of(store)):
        expected = np.asarray(Image.open(io.BytesIO(MIXED[name]))).transpose(2, 0, 1)
        for resolution, level in pyramid(expected).items():
            np.testing.assert_array_equal(store.images(resolution)[i], level)
    store.verify()


def test_store_is_plain_numpy_and_self_contained(tmp_path):
    store_of(tmp_path, {"0.png": png(), "1.png": png(seed=1)})
    shutil.rmtree(tmp_path / "images")
    moved = (tmp_path / "store").rename(tmp_path / "moved")
    assert sorted(p.name for p in moved.iterdir()) == [
        "0004.npy", "0008.npy", "0016.npy", "meta.json", "names.txt",
    ]  # fmt: skip
    assert np.load(moved / "0016.npy", allow_pickle=False).shape == (2, 3, 16, 16)
    assert str(tmp_path) not in (moved / "meta.json").read_text()
    store = Store(moved)
    assert isinstance(store.images(8), np.memmap)
    assert store.labels is None
    with pytest.raises(ValueError, match="labels were asked for"):
        store.one_hot([0])


def test_prepare_detects_resolution_from_the_first_readable_image(tmp_path):
    files = {"0.png": b"broken", "1.png": png(1, 300), "2.png": png(40, 33)}
    assert store_of(tmp_path, files).resolution == 32


def test_prepare_skips_bad_images_with_a_reason(tmp_path):
    seen = []
    store = store_of(tmp_path, BAD, console=RecordingConsole(done=lambda *done: seen.append(done)))
    assert names_of(store) == ["0.png", "5.png"]
    assert store.images(16).shape == (2, 3, 16, 16)
    assert [name for name, _ in store.skipped] == ["1.png", "2.png", "3.jpg", "4.png"]
    assert store.skipped[1] == Skipped("2.png", "the file is empty")
    assert store.skipped[3].reason == "image smaller than the resolution 16: 12x30"
    assert Store(store.path).skipped == store.skipped
    assert seen == [(i, 6) for i in range(1, 7)]


@pytest.mark.parametrize(("files", "resolution", "message"), [
    ({"1.png": b"text", "2.png": b""}, None, r"no image .* can be used: .*not a PNG"),
    ({"1.png": png(20, 30)}, 32, "smaller than the resolution 32: 20x30.*choose a smaller"),
])  # fmt: skip
def test_prepare_fails_without_usable_images(files, resolution, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        store_of(tmp_path, files, Preparation(resolution=resolution))
    assert not (tmp_path / "store").exists()


def test_check_disk_space_runs_before_anything_is_written(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=50_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"no disk space: 1 image at 64x64 need 0\.1 MiB"):
        store_of(tmp_path, {"0.png": png(64, 64)})
    assert os.listdir(tmp_path) == ["images"]


def test_check_disk_space_counts_the_room_of_unfinished_stores(tmp_path, monkeypatch):
    left = tmp_path / ".store.unfinished"
    left.mkdir()
    usage = shutil.disk_usage(tmp_path)

    def usage_of(path):
        return usage._replace(free=50_000 if left.exists() and any(left.iterdir()) else 2**30)

    (left / "64.npy").touch()
    monkeypatch.setattr(shutil, "disk_usage", usage_of)
    store_of(tmp_path, {"0.png": png(64, 64)})


def test_prepare_leaves_nothing_when_interrupted(tmp_path):
    def interrupt(done, total):
        assert any(name.endswith(".unfinished") for name in os.listdir(tmp_path))
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store_of(
            tmp_path,
            {f"{i}.png": png() for i in range(9)},
            console=RecordingConsole(done=interrupt),
        )
    assert os.listdir(tmp_path) == ["images"]


def test_batches_detect_truncated_files_and_read_deleted_ones(tmp_path):
    """To touch what is mapped beyond the end of a file would end the process."""
    store = store_of(tmp_path, {"0.png": png(), "1.png": png()})
    (store.path / "0008.npy").unlink()
    feed = batches(store, 8, batch_size=2, start=0, seed=0, workers=0)
    assert next(feed)[0].shape == (2, 3, 8, 8)
    feed = batches(store, 16, batch_size=2, start=0, seed=0, workers=0)
    assert next(feed)[0].shape == (2, 3, 16, 16)
    os.truncate(store.path / "0016.npy", 500)
    with pytest.raises(ValueError, match=r"damaged \(0016\.npy was truncated\)"):
        next(feed)


# Images that a program holds

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), np.uint8)


def test_prepare_images_accepts_arrays_and_pillow_images(tmp_path):
    pictures = [Image.fromarray(image) for image in PIXELS]
    (tmp_path / "files").mkdir()
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / "files" / f"{i}.png")
    wanted = prepare(tmp_path / "files", tmp_path / "wanted")
    for name, images in (("arrays", PIXELS), ("pictures", pictures)):
        store = prepare_images(images, tmp_path / name)
        assert (store.resolution, store.num_images, store.labels) == (16, 5, None)
        assert store.pixel_hash(16) == wanted.pixel_hash(16) == Store(store.path).pixel_hash(16)
        assert (store.images(16).transpose(0, 2, 3, 1) == PIXELS).all()


def test_prepare_images_keeps_labels_in_the_order_of_the_images(tmp_path):
    store = prepare_images(
        PIXELS, tmp_path / "s", Preparation(resolution=8), labels=["b", "a", "b", "c", "a"]
    )
    assert (store.label_names, store.labels.tolist()) == (["a", "b", "c"], [1, 0, 1, 2, 0])


def test_cached_store_rejects_images_without_files(tmp_path):
    source = SequenceSource(PIXELS, None, tmp_path / "images")
    with pytest.raises(
        ValueError, match=r"give the store that stylegan\.data\.prepare_images makes"
    ):
        cached_store(source, cache_dir=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(("images", "settings", "message"), [
    ([], {}, "is empty"),
    (PIXELS, {"labels": "abcd"}, "5 labels, one per image, got 4"),
    (PIXELS, {"labels": ["a", None, "b", "c", "a"]}, "labels must be names or numbers"),
    (np.zeros((2, 8, 8, 3)), {}, r"uint8 .*, got float64 \(8, 8, 3\)"),
    (np.zeros((2, 2, 2, 3), np.uint8), {}, "the smallest resolution is 4"),
])  # fmt: skip
def test_prepare_images_rejects_invalid_images_and_labels(images, settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        prepare_images(images, tmp_path / "s", **settings)
    assert not (tmp_path / "s").exists()
