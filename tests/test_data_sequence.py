"""A store of images that a program holds."""

import numpy as np
import pytest
from PIL import Image

from stylegan.data import Store, prepare, prepare_images


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), np.uint8)


def test_arrays_and_pictures_of_them_give_the_store_of_their_files(pixels, tmp_path):
    (tmp_path / "files").mkdir()
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / "files" / f"{i}.png")
    wanted = prepare(tmp_path / "files", tmp_path / "wanted")
    pictures = [Image.fromarray(image) for image in pixels]
    for name, images in (("arrays", pixels), ("pictures", pictures)):
        store = prepare_images(images, tmp_path / name)
        assert (store.resolution, store.num_images, store.labels) == (16, 5, None)
        assert store.identity(16) == wanted.identity(16) == Store(store.path).identity(16)
        assert (store.images(16).transpose(0, 2, 3, 1) == pixels).all()


def test_labels_are_those_given_in_the_order_of_the_images(pixels, tmp_path):
    store = prepare_images(pixels, tmp_path / "s", labels=["b", "a", "b", "c", "a"], resolution=8)
    assert store.label_names == ["a", "b", "c"]
    assert store.labels.tolist() == [1, 0, 1, 2, 0]
    with pytest.raises(ValueError, match="4 labels are given for 5 images"):
        prepare_images(pixels, tmp_path / "t", labels=list("abcd"))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "is empty"),
        (np.zeros((2, 8, 8, 3)), r"uint8 .*, not float64 \(8, 8, 3\)"),
        (np.zeros((2, 2, 2, 3), np.uint8), "the smallest resolution is 4"),
    ],
)
def test_what_is_no_image_is_refused(images, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        prepare_images(images, tmp_path / "s")
    assert not (tmp_path / "s").exists()
