"""TFRecords of the official program as a source, and the way back to a folder or zip."""

import numpy as np
import pytest
from helpers.commands import run_fails
from helpers.pictures import assert_same_store, encoded, png, write_folder
from helpers.tfrecords import record, write_records

from stylegan.data import Preparation, cached_store, check, open_source, prepare
from stylegan.data.prepare import pyramid

LABELS = np.eye(3, dtype=np.float32)[[2, 0, 0, 2, 2]]


def images(n=5, size=16, channels=3):
    return np.random.default_rng(1).integers(0, 256, (n, channels, size, size), np.uint8)


def official_set(path, pixels, labels=LABELS):
    """The files that the official `dataset_tool.py` writes, but for the order of the images."""
    path.mkdir()
    for size in (4, 8, 16):
        name = f"mine-r{size.bit_length() - 1:02}.tfrecords"
        write_records(path / name, (record(pyramid(image)[size]) for image in pixels))
    if labels is not None:
        with open(path / "mine-rxx.labels", "wb") as file:
            np.save(file, labels)
    return path


def as_folder(path, pixels, classes=None):
    files = {}
    for i, image in enumerate(pixels):
        name = f"{'' if classes is None else f'{classes[i]}/'}{i:03}.png"
        files[name] = encoded(image.transpose(1, 2, 0).squeeze())
    return write_folder(path, files)


@pytest.mark.parametrize("channels", [1, 3])
def test_tfrecords_give_the_same_store_as_an_image_folder(channels, tmp_path):
    pixels = images(channels=channels)
    path = official_set(tmp_path / "records", pixels, labels=None)
    wanted = prepare(
        as_folder(tmp_path / "images", pixels), tmp_path / "a", Preparation(channels=channels)
    )
    for i, source in enumerate((path, path / "mine-r04.tfrecords")):
        assert_same_store(
            prepare(source, tmp_path / str(i), Preparation(channels=channels)), wanted
        )
    write_folder(path, {"b/c/d.png": png()})  # pictures beside them are taken instead
    assert open_source(path).names == ["b/c/d.png"]


def test_tfrecords_one_hot_labels_are_classes_and_others_vectors(tmp_path):
    path = official_set(tmp_path / "records", images())
    found = cached_store(path, cache_dir=tmp_path / "cache", labels=True)
    assert (found.label_names, found.labels.tolist()) == (["0", "2"], [1, 0, 0, 1, 1])
    assert check(path, decode=False).labels.counts() == {"0": 2, "2": 3}
    numbers = np.float32([[0.5], [1], [2], [3], [4]])
    other = official_set(tmp_path / "numbers", images(), numbers)
    store = cached_store(other / "mine-r04.tfrecords", cache_dir=tmp_path / "cache", labels=True)
    np.testing.assert_array_equal(store.labels, numbers)
    none = official_set(tmp_path / "none", images(), np.zeros((5, 0), np.float32))
    assert prepare(none, tmp_path / "store").label_names == []
    for i, wrong in enumerate((np.full((5, 1), 1e39), np.full((5, 1), "a"), numbers[:4])):
        path = official_set(tmp_path / f"wrong{i}", images(), wrong)
        assert prepare(path, tmp_path / f"store{i}").labels is None


@pytest.mark.parametrize(("content", "message"), [
    ([], "mine.tfrecords is empty"),
    ([b"\x0a\xff\xff\xff\xff\x7f"], ".tfrecords must be an image"),
    ([record(images(1)[0].reshape(-1))], ".tfrecords has shape (768,), but 768 bytes"),
])  # fmt: skip
def test_tfrecords_with_invalid_records_are_rejected_in_one_line(content, message, tmp_path):
    file = tmp_path / "mine.tfrecords"
    write_records(file, content)
    assert message in run_fails("check", file)
