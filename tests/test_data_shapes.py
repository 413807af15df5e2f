"""Shapes that are not square, and pictures with alpha: from files to stores and back."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.pictures import save_picture
from helpers.tiny_generators import TINY, loaded_of, random_generator
from helpers.tiny_training import SHORT, tiny_config, train_tiny
from PIL import Image

from stylegan import NetworkConfig, sampling
from stylegan.config import build_config
from stylegan.data import Preparation, Store, cached_store, prepare
from stylegan.data.check import detect_channels
from stylegan.data.images import Fit, premultiply, unpremultiply
from stylegan.files.loading import open_weights

RANDOM = np.random.default_rng(0)


def noise(*shape):
    return RANDOM.integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize(
    ("crop", "size", "rectangle"),
    [("pad 3:4", (24, 32), (0, 32, 4, 28)), ("pad", (32, 24), (4, 28, 0, 32))],
)
def test_crop_pad_keeps_every_pixel_between_black_bars(crop, size, rectangle, tmp_path):
    width, height = size
    pixels = noise(height, width, 3)
    store = prepare(
        save_picture(tmp_path / "in" / "0.png", pixels), tmp_path / "store", Preparation(crop=crop)
    )
    assert (store.resolution, store.active_rectangle) == (32, rectangle)
    top, bottom, left, right = rectangle
    image = store.images(32)[0].copy()
    np.testing.assert_array_equal(image[:, top:bottom, left:right], pixels.transpose(2, 0, 1))
    image[:, top:bottom, left:right] = 0
    assert not image.any()
    assert Store(store.path).meta.crop == str(Fit.parse(crop))


@pytest.mark.parametrize("resolution", [8, 16, 64, 256])
@pytest.mark.parametrize("crop", ["pad", "pad 3:2", "pad 2:3", "pad 3:1", "pad 7:5", "pad 1:16"])
def test_fit_square_restores_the_bars_of_a_cropped_image(crop, resolution):
    fit = Fit.parse(crop)
    top, bottom, left, right = fit.active_rectangle(resolution)
    pixels = noise(bottom - top, right - left, 3)
    assert fit.native_size(right - left, bottom - top) == resolution
    square = np.asarray(fit.square(Image.fromarray(pixels), resolution))
    np.testing.assert_array_equal(square[top:bottom, left:right], pixels)
    assert np.count_nonzero(square) == np.count_nonzero(pixels)
    fit.square(Image.fromarray(pixels), 4 * resolution)  # enlarged, as a picture to project


@pytest.mark.parametrize("resolution", [64, 256, 1024])
@pytest.mark.parametrize("crop", ["pad", "pad 9:16", "pad 3:2", "pad 2:3", "pad 5:4", "pad 7:5"])
def test_fit_from_rectangle_has_that_rectangle(crop, resolution):
    rectangle = Fit.parse(crop).active_rectangle(resolution)
    assert rectangle is not None
    fit = Fit.of_rectangle(rectangle)
    assert fit.active_rectangle(resolution) == rectangle


@pytest.mark.parametrize("crop", ["pad", "pad 9:16"])
def test_pretrained_crops_images_to_its_active_rectangle(crop):
    rectangle = Fit.parse(crop).active_rectangle(256)
    network = random_generator(replace(TINY, resolution=8))
    loaded = loaded_of(network, active_rectangle=rectangle)
    assert loaded.crop == crop
    (picture,) = loaded.generate([0])
    assert picture.shape[:2] == loaded.image_size() != (8, 8)


def test_training_on_padded_images_crops_its_grids_and_what_its_files_generate(tmp_path):
    save_picture(tmp_path / "in" / "0.png", noise(24, 32, 3))
    wanted = Preparation(resolution=16, crop="pad")
    store = cached_store(tmp_path / "in", wanted, cache_dir=tmp_path / "cache")
    out = tmp_path / "run"
    train_tiny(tiny_config(schedule=SHORT, data={"crop": "pad"}), store, out)
    for kind in ("state", "generator"):
        loaded = open_weights(out / f"{kind}-000000012.pt").require_loaded()
        assert loaded.image_size() == (12, 16)
    with (
        Image.open(out / "reals.png") as grid,
        Image.open(out / "samples/000000_012.png") as samples,
    ):
        assert (grid.size, samples.size) == ((16, 12), (8 * 16, 4 * 12))


@pytest.mark.parametrize("crop", ["Center", "pad 0:1"])
def test_crop_option_rejects_unknown_values(crop, tmp_path):
    with pytest.raises(ValueError, match=r"crop must be center, pad, stretch or 'pad W:H'"):
        prepare(tmp_path, tmp_path / "store", Preparation(crop=crop))
    with pytest.raises(ValueError, match=r"data.*crop must be center"):
        build_config({"data": {"crop": crop}})


def test_unpremultiply_inverts_premultiply_up_to_rounding():
    pixels = noise(4, 64, 64)
    again = unpremultiply(premultiply(pixels))
    np.testing.assert_array_equal(again[3], pixels[3])
    clear = pixels[3] < 128
    assert np.abs(again[:3].astype(int) - pixels[:3])[:, ~clear].max() <= 1
    assert not again[:3][:, pixels[3] == 0].any()


def test_premultiplied_store_ignores_colors_of_transparent_pixels(tmp_path):
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[...] = (0, 255, 0, 0)  # green that nobody sees
    pixels[:, ::2] = (200, 100, 50, 255)
    source = save_picture(tmp_path / "in" / "0.png", pixels)
    store = prepare(source, tmp_path / "store", Preparation(channels=4, premultiplied=True))
    assert Store(store.path).meta.premultiplied
    shown = store.unpremultiplied(store.images(4)[0])
    assert np.abs(shown[:, 0, 0].astype(int) - (200, 100, 50, 128)).max() <= 1
    straight = store.unpremultiplied(store.images(8)[0]).transpose(1, 2, 0)
    np.testing.assert_array_equal(straight[:, ::2], pixels[:, ::2])


def test_to_uint8_unpremultiplies_images():
    colors = torch.tensor([0.0, -0.5, -1.0])  # times alpha 0.5, in [-1, 1]
    image = torch.cat([colors, torch.tensor([0.0])]).reshape(1, 4, 1, 1)
    expected = [255, 128, 0, 128]
    assert sampling.to_uint8(image, premultiplied=True).flatten().tolist() == expected
    with pytest.raises(ValueError, match="premultiplied needs image_channels 4"):
        NetworkConfig(premultiplied=True)


COLORED, CLEAR = noise(8, 8, 3), noise(8, 8, 4)


@pytest.mark.parametrize(("files", "channels", "words"), [
    ([noise(8, 8)] * 2, 1, "L: of 2 images read, 0 have transparent pixels, 2 are gray"),
    ([noise(8, 8), COLORED], 3, "RGB: of 2 images read"),
    ([CLEAR, CLEAR], 4, "RGBA: of 2 images read, 2 have"),
    ([CLEAR, COLORED, COLORED], 3, "RGB: of 3 images read, 1 have"),
])  # fmt: skip
def test_detect_channels_finds_gray_color_and_alpha(files, channels, words, tmp_path):
    for name, pixels in enumerate(files):
        source = save_picture(tmp_path / "in" / f"{name}.png", pixels)
    found, why = detect_channels(source)
    assert found == channels and words in why
    made = prepare(
        source, tmp_path / "store", Preparation(channels=channels, premultiplied=channels == 4)
    )
    assert detect_channels(made.path)[0] == channels
