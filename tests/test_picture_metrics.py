"""Folders, zips and stores of pictures in the place of a generator."""

import json
import shutil
import zipfile

import numpy as np
import pytest
import torch
from helpers.commands import run_ok, stylegan
from helpers.pictures import colors, save_picture
from helpers.runs import json_lines
from helpers.tiny_training import write_pictures

from stylegan.data import Preparation, cached_store, prepare
from stylegan.metrics import Conditions, holds_images, open_images, parse


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def samples(tmp_path):
    return write_pictures(tmp_path / "samples", n=20, seed=1)


@pytest.fixture
def reals(tmp_path):
    return write_pictures(tmp_path / "reals", n=14)


def lines_of(*arguments):
    found = stylegan("metrics", *arguments, "--json")
    assert found.exit_code == 0, found.output
    return json_lines(found.stdout), found.stderr


def test_metrics_measures_all_images_of_a_folder_and_says_which(samples, reals, tmp_path):
    out = tmp_path / "results.jsonl"
    content = (samples / "a" / "0.png").read_bytes()
    (samples / "a" / "cut.png").write_bytes(content[: len(content) // 2])
    (line,), said = lines_of(samples, "--data", reals, "--metrics", "swd", "--out", out)
    assert line["metric"] == "swd20"
    assert "left out: 1 of the pictures: a/cut.png (" in said
    protocol = line["protocol"]
    assert protocol["generator"]["origin"] == f"pictures of {samples}"
    assert protocol["generator"]["sha256"] is None
    assert protocol["fakes"] == {
        "resolution": 16,
        "seed": 0,
        "pictures": cached_store(samples, Preparation(resolution=16)).pixel_hash(16),
        "of": 20,
        "left_out": 1,
        "channels": 3,
        "resized": False,
    }
    assert protocol["reals"]["number"] == 14
    assert json.loads(out.read_text()) == line


def test_metrics_are_equal_for_a_folder_a_zip_and_a_store(samples, reals, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", samples)
    prepare(samples, tmp_path / "store")
    settings = ("--data", reals, "--metrics", "swd")
    found, _ = lines_of(samples, archive, tmp_path / "store", *settings)
    assert len({line["values"]["swd"] for line in found}) == 1
    assert len({line["protocol"]["fakes"]["pictures"] for line in found}) == 1
    (line,), _ = lines_of(reals, "--data", reals, "--metrics", "swd")
    assert line["values"]["swd"] == 0  # of the reals themselves


def test_metrics_with_a_number_samples_a_folder_evenly(samples, reals):
    comparison = open_images(samples, reals, Conditions(batch=2))
    shown = cached_store(samples, Preparation(resolution=16)).images(16)
    np.testing.assert_array_equal(torch.cat(list(comparison.fake_batches(5))), shown[::4])
    assert parse("swd,eff-fd2k", 20) == parse("swd20,eff-fd2k")
    with pytest.raises(ValueError, match="30 images requested, but there are 20"):
        list(comparison.fake_batches(30))


def test_metrics_skips_the_grid_of_generated_images(source, reals):
    made = source.parent / "made"
    run_ok("generate", source, "--seeds", "0-3", "--out", made)
    (line,), said = lines_of(made, "--data", reals, "--metrics", "swd")
    assert line["metric"] == "swd4"
    assert "grids of generated samples: grid.png" in said


@pytest.mark.parametrize(("size", "real_size"), [(20, 16), (16, 32)])
def test_metrics_refuses_other_sizes_without_resolution(size, real_size, tmp_path):
    samples = write_pictures(tmp_path / "samples", n=4, size=size)
    reals = write_pictures(tmp_path / "reals", n=4, size=real_size)
    with pytest.raises(ValueError, match=r"sizes 16x16, \d\dx\d\d; --resolution 16 brings all"):
        open_images(samples, reals)
    comparison = open_images(samples, reals, Conditions(resolution=8))
    assert comparison.samples.protocol()["fakes"]["resized"]
    assert comparison.reals.images().shape == (4, 3, 8, 8)


def test_metrics_resolution_error_says_which_size_keeps_all_images(tmp_path):
    for i, size in enumerate([8, 20, 20, 33]):
        save_picture(tmp_path / "samples" / f"{i}.png", colors(size, 40, seed=i))
    with pytest.raises(
        ValueError, match=r"--resolution 8 brings all .* 16 leaves out 1 smaller image"
    ):
        open_images(tmp_path / "samples", None)
    save_picture(tmp_path / "samples" / "thin.png", colors(3, 40))
    with pytest.raises(ValueError, match="; --resolution 4 leaves out 1 smaller image"):
        open_images(tmp_path / "samples", None)


def test_metrics_channels_follow_the_store(samples, reals, tmp_path):
    gray = prepare(samples, tmp_path / "gray", Preparation(channels=1))
    comparison = open_images(gray.path, reals)
    assert comparison.samples.images().shape[1] == comparison.reals.images().shape[1] == 1


def test_metrics_of_images_refuses_metrics_that_need_a_generator(samples, reals):
    found = stylegan("metrics", samples, "--data", reals, "--metrics", "swd,ppl-w-end")
    assert found.exit_code == 1
    assert "| swd20 |" in found.stdout
    why = "this metric looks at latents, so it needs a generator, not images"
    assert f"ppl-w-end20 could not be measured: {why}" in found.stderr
    assert "not measured, see above: ppl-w-end20" in found.stderr


def test_metrics_distinguishes_images_from_weights(samples, tmp_path):
    torch.save({"x": torch.zeros(1)}, tmp_path / "weights.pt")  # a zip, too
    with zipfile.ZipFile(tmp_path / "without-ending", "w") as archive:
        archive.writestr("a/0.png", b"")
    run = tmp_path / "run"
    write_pictures(run / "samples", n=2)
    assert holds_images(str(run))
    for name in ("config.toml", "log.jsonl"):
        (run / name).touch()
    pictures = [samples, tmp_path / "without-ending"]
    others = [run, tmp_path / "weights.pt", tmp_path / "none", "faces64", "https://x.org/a.zip"]
    assert [holds_images(str(path)) for path in [*pictures, *others]] == [True] * 2 + [False] * 5
