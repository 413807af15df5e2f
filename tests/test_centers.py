"""Truncation toward several centers: k-means, the nearest one, files, commands."""

import dataclasses

import numpy as np
import pytest
import torch
from helpers.commands import pixels, run_fails, run_ok
from helpers.tiny_generators import LABELED, random_generator, tiny_loaded
from torch.testing import assert_close

from stylegan import load_generator, sampling
from stylegan.ops import nearest, truncate
from stylegan.sampling.centers import find_centers, kmeans


def blobs(sizes=(30, 20, 10), spread=0.1, apart=10.0):
    """Rows around the points 10, 20, 30, ... of the first axis, and the means of each."""
    noise = torch.randn(sum(sizes), 3, generator=torch.Generator().manual_seed(1)) * spread
    kinds = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    rows = noise + apart * torch.eye(3)[0] * (kinds[:, None] + 1)
    return rows, torch.stack([rows[kinds == i].mean(dim=0) for i in range(len(sizes))])


def test_kmeans_sorts_clusters_by_size():
    rows, means = blobs()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(2))
    assert_close(kmeans(rows[order], 3), means)
    assert_close(kmeans(rows, 1)[0], rows.mean(dim=0))
    assert torch.equal(kmeans(rows, 5), kmeans(rows, 5))


def test_truncate_and_edit_pulls_toward_the_nearest_center():
    centers = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    ws = torch.tensor([[[1.0, 1.0], [8.0, 2.0]], [[-4.0, 0.0], [6.0, 6.0]]])
    assert_close(nearest(ws, centers)[..., 0], torch.tensor([[0.0, 10.0], [0.0, 10.0]]))
    found = sampling.SamplingSettings(8, 1, 0.5, None, centers).truncate_and_edit(
        ws, torch.full((2,), 99.0)
    )
    assert_close(found, (ws + nearest(ws, centers)) / 2)
    half = sampling.SamplingSettings(8, 1, 0.5, 1, centers).truncate_and_edit(ws, torch.zeros(2))
    assert_close(half[:, 0], found[:, 0])
    assert_close(half[:, 1], ws[:, 1])


def test_centers_equal_to_w_avg_change_nothing():
    loaded = tiny_loaded()
    same = loaded.with_settings(centers=loaded.generator.w_avg[None])
    for plain, centered in zip(loaded.generate([1, 2]), same.generate([1, 2]), strict=True):
        assert np.array_equal(plain, centered)
    ws = loaded.map_to_ws(sampling.latents([3], 8))
    assert_close(
        same.settings.truncate_and_edit(ws, loaded.generator.w_avg),
        truncate(ws, loaded.generator.w_avg, 0.7, 8),
    )


def test_find_centers_of_a_class_gives_the_mean_of_its_w():
    generator = random_generator(LABELED)
    means = find_centers(generator, "class")
    w = sampling.sample_w(generator, 10_000)
    assert_close(means[1], w[1::3].mean(dim=0), rtol=1e-4, atol=1e-5)
    one = find_centers(generator, "class", torch.eye(3)[1:2])
    of_class = sampling.sample_w(generator, 10_000, torch.eye(3)[1:2])
    assert_close(one[0], of_class.mean(dim=0), rtol=1e-4, atol=1e-5)
    assert_close(one, means[1:2], rtol=0, atol=0.05)  # of a third as many w
    of_many = random_generator(dataclasses.replace(LABELED, label_dim=1000))
    assert find_centers(of_many, 16, torch.eye(1000)[1:2]).shape == (16, 8)
    mixture = torch.tensor([[0.5, 0.5, 0.0]])
    of_mixture = sampling.sample_w(generator, 10_000, mixture).mean(dim=0)
    assert_close(find_centers(generator, "class", mixture)[0], of_mixture, rtol=1e-4, atol=1e-5)
    assert all((of_mixture - mean).norm() > 1e-3 for mean in means)
    with pytest.raises(ValueError, match="no labels, so there are no means"):
        find_centers(random_generator(), "class")


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_centers_option_is_stored_in_files_and_can_be_overridden(source, tmp_path, ending):
    run_ok("convert", source, tmp_path / "c.pt", "--centers", 4)
    path = tmp_path / f"c{ending}"
    if ending != ".pt":
        run_ok("export", tmp_path / "c.pt", path)
    loaded = load_generator(path)
    assert_close(loaded.settings.centers, find_centers(loaded.generator, 4))
    assert "toward 4 centers" in run_ok("info", path)
    shown = {
        "of the file": [path],
        "given": [source, "--centers", 4],
        "none": [path, "--centers", "none"],
        "plain": [source],
    }
    for name, words in shown.items():
        run_ok("generate", *words, "--seeds", 3, "--out", tmp_path / name)
        shown[name] = pixels(tmp_path / name / "seed0003.png")
    assert np.array_equal(shown["of the file"], shown["given"])
    assert np.array_equal(shown["none"], shown["plain"])


def test_centers_option_rejects_missing_classes_and_wrong_shapes(source):
    assert "no means of classes" in run_fails("generate", source, "--centers", "class")
    with pytest.raises(ValueError, match="centers must be rows of 8 numbers"):
        load_generator(source).with_settings(centers=torch.zeros(2, 7))
