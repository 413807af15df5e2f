"""Sliced Wasserstein distance: against closed forms, and on pictures that are spoilt."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import ndimage

from stylegan import load_generator, streams
from stylegan.metrics import Comparison, Conditions, Measurement, Tools
from stylegan.metrics import swd as swd_module
from stylegan.metrics.swd import (
    DIRECTIONS,
    PATCH,
    PATCHES,
    distances,
    laplacian_pyramid,
    level_patches,
    level_sizes,
    normalized,
)
from stylegan.utils.console import SILENT


@pytest.fixture(scope="module")
def pictures(faces):
    return torch.from_numpy(faces.images(32)[:48].copy())


def swd(a, b, folder, *, batch=32, seed=0):
    of_images = SimpleNamespace(
        num=len(a),
        samples=SimpleNamespace(seed=seed),
        resolution=a.shape[-1],
        tools=Tools(folder),
        console=SILENT,
        require_reals=lambda: SimpleNamespace(store=SimpleNamespace(channels=a.shape[1])),
        real_batches=lambda num, evenly: a.split(batch),
        fake_batches=lambda num: b.split(batch),
        about_reals=dict,
    )
    return swd_module.swd(of_images).values


# The pyramid


def filtered(image):
    taps = np.array([1, 4, 6, 4, 1]) / 16
    return ndimage.correlate(image, np.outer(taps, taps), mode="mirror")


def test_laplacian_pyramid_equals_burt_and_adelson():
    image = np.random.default_rng(0).integers(0, 256, (32, 32)).astype(np.float64)
    half = filtered(image)[::2, ::2]
    spread = np.zeros_like(image)
    spread[::2, ::2] = half
    fine, coarse = laplacian_pyramid(torch.from_numpy(image)[None, None], 2)
    np.testing.assert_allclose(coarse[0, 0], half, rtol=1e-12)
    np.testing.assert_allclose(fine[0, 0], image - 4 * filtered(spread), rtol=0, atol=1e-10)


def test_level_sizes_end_at_16_pixels():
    assert [level_sizes(resolution) for resolution in (8, 16, 32)] == [[8], [16], [32, 16]]
    assert level_sizes(1024) == [1024, 512, 256, 128, 64, 32, 16]


# Patches and distance


def test_level_patches_lie_inside_the_image_and_are_normalized():
    x, y = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="xy")
    images = torch.stack([x, y, x + 0 * y + 3]).to(torch.uint8).expand(5, 3, 16, 16)
    ((level,),) = level_patches([images], 5, 1, 0)
    patches = level.numpy().reshape(-1, 3, PATCH, PATCH)
    assert len(patches) == 5 * PATCHES
    np.testing.assert_array_equal(
        patches[:, 0, 0] - patches[:, 0, 0, :1], [range(7)] * len(patches)
    )
    np.testing.assert_array_equal(patches[:, 2], patches[:, 0] + 3)
    assert set(patches[:, 0, 0, 0]) == set(patches[:, 1, 0, 0]) == set(range(10))
    rows = normalized(patches.reshape(5, -1), 3).reshape(-1, 3, 49)
    np.testing.assert_allclose(rows.mean(axis=(0, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(rows.std(axis=(0, 2)), 1, rtol=1e-6)


def test_distances_of_a_shifted_set_are_the_projected_shift():
    rows = np.random.default_rng(0).normal(size=(500, 20)).astype(np.float32)
    shift = np.linspace(-1, 2, 20, dtype=np.float32)
    directions = streams.slice_rng(3, 0).normal(size=(DIRECTIONS, 20))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    shuffled = np.random.default_rng(1).permutation(rows + shift)
    expected = np.abs(directions @ shift).mean()
    assert distances(rows, shuffled, streams.slice_rng(3, 0))[0] == pytest.approx(
        expected, rel=1e-5
    )


# Images


def test_swd_does_not_depend_on_batch_and_little_on_seed(pictures, tmp_path):
    a, b = pictures[::2], pictures[1::2]
    whole = swd(a, b, tmp_path, batch=40)
    assert swd(a, b, tmp_path, batch=7) == whole
    assert whole["swd"] == pytest.approx((whole["swd-32"] + whole["swd-16"]) / 2)
    for name, value in swd(a, b, tmp_path, seed=1).items():
        assert value == pytest.approx(whole[name], rel=0.2)
        assert value != whole[name]
    assert list(tmp_path.iterdir()) == []


# The generator


def test_swd_uses_every_real_and_its_mirror_image_if_few(faces, tmp_path):
    loaded = load_generator("faces64").with_settings(resolution=16)
    source = Comparison.from_generator(loaded, faces, Conditions(mirror=True))
    values, about = swd_module.swd(Measurement(**vars(source), num=100, tools=Tools(tmp_path)))
    assert list(values) == ["swd", "swd-16"]
    assert about["reals"]["number"] == len(faces) == 91
    reals = torch.cat(list(source.real_batches(182, evenly=True)))
    torch.testing.assert_close(reals[91:], reals[:91].flip(3))
    fewer = torch.cat(list(source.real_batches(30, evenly=True)))
    torch.testing.assert_close(fewer, reals[[i * 91 // 30 for i in range(30)]])
