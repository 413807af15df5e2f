"""The command that writes pictures."""

import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from stylegan.cli import main, values
from stylegan.files.formats.own import save_discriminator
from stylegan.files.loading import save_generator
from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.sampling import latents, to_uint8

ROOT = Path(__file__).parent.parent
SNAPSHOT = ROOT / "tests" / "reference" / "official_snapshot.pkl"
TINY = NetworkConfig(
    resolution=16, z_dim=8, w_dim=8, mapping_layers=2, mapping_width=8, max_channels=8
)


def random_generator(config=TINY):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        generator = Generator(config)
        generator.w_avg.normal_()
        for layer in generator.synthesis.noise_layers(config.resolution):
            torch.nn.init.normal_(layer.noise.strength)
    return generator


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator())
    return path


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def run(*arguments):
    return CliRunner().invoke(main, ["generate", *map(str, arguments), "--device", "cpu"])


def written(result, out):
    assert result.exit_code == 0, result.output
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def look(path):
    with Image.open(path) as image:
        return image.copy()


def pixels(path):
    return np.asarray(look(path)).astype(int)


def refused(result, exit_code=1):
    """The one line of an error."""
    assert result.exit_code == exit_code, result.output
    assert result.stdout == ""
    if exit_code == 1:
        assert result.stderr.count("\n") == 1
    return result.stderr


# What is written


def test_one_file_per_seed_and_a_grid(source, out):
    result = run(source, "--seeds", "0-2,10000", "--out", out)
    names = ["grid.png", "seed0000.png", "seed0001.png", "seed0002.png", "seed10000.png"]
    assert list(written(result, out)) == names
    assert (
        result.stdout == f"4 pictures and their grid in {out}, from the generator file {source}\n"
    )
    assert pixels(out / "seed0000.png").shape == (16, 16, 3)


def test_the_picture_of_a_seed_is_that_of_the_library(source, out):
    written(run(source, "--seeds", 7, "--psi", 0.5, "--cutoff", 2, "--out", out), out)
    with torch.no_grad():
        images = random_generator()(latents([7], 8), psi=0.5, cutoff=2, noise="const")
    assert np.array_equal(pixels(out / "seed0007.png"), to_uint8(images)[0])


def test_defaults_are_psi_07_for_8_layers_and_the_stored_noise(source, out, tmp_path):
    plain = written(run(source, "--seeds", 1, "--out", out), out)
    explicit = ["--psi", 0.7, "--cutoff", 8, "--noise", "const"]
    other = tmp_path / "other"
    assert plain == written(run(source, "--seeds", 1, "--out", other, *explicit), other)


def test_the_file_s_own_truncation_is_the_default(tmp_path, out):
    path = tmp_path / "own.pt"
    save_generator(path, random_generator(), psi=0.0, cutoff=None)
    written(run(path, "--seeds", "1,2", "--out", out), out)
    assert np.abs(pixels(out / "seed0001.png") - pixels(out / "seed0002.png")).max() <= 1
    again = run(path, "--seeds", "1,2", "--out", out, "--psi", 1, "--overwrite")
    written(again, out)
    assert np.abs(pixels(out / "seed0001.png") - pixels(out / "seed0002.png")).max() > 1


def test_cutoff_all_truncates_every_layer(source, out):
    written(run(source, "--seeds", "1,2", "--psi", 0, "--cutoff", "all", "--out", out), out)
    assert np.abs(pixels(out / "seed0001.png") - pixels(out / "seed0002.png")).max() <= 1


@pytest.mark.parametrize("noise", ["const", "random", "none"])
def test_the_same_command_twice_writes_the_same_bytes(source, out, tmp_path, noise):
    arguments = [source, "--seeds", "0-5", "--noise", noise]
    first = written(run(*arguments, "--out", out), out)
    other = tmp_path / "other"
    assert first == written(run(*arguments, "--out", other), other)
    assert first == written(run(*arguments, "--out", out), out)  # and on top of itself


def test_a_seed_alone_is_within_one_level_of_itself_in_a_range_and_equal_with_batch_1(
    source, out, tmp_path
):
    options = [source, "--noise", "random", "--no-grid"]
    alone, one = tmp_path / "alone", tmp_path / "one"
    together = written(run(*options, "--seeds", "0-8", "--out", out), out)
    single = written(run(*options, "--seeds", "0-8", "--batch", 1, "--out", one), one)
    assert written(run(*options, "--seeds", 5, "--out", alone), alone) == {
        "seed0005.png": single["seed0005.png"]
    }
    for name in together:
        assert np.abs(pixels(out / name) - pixels(one / name)).max() <= 1


@pytest.mark.parametrize("file_format", ["png", "webp"])
def test_lossless_formats_hold_the_pixels(source, out, file_format):
    written(run(source, "--seeds", 3, "--format", file_format, "--out", out), out)
    with torch.no_grad():
        images = random_generator()(latents([3], 8), psi=0.7, cutoff=8, noise="const")
    assert np.array_equal(pixels(out / f"seed0003.{file_format}"), to_uint8(images)[0])


def test_jpeg_is_near(source, out):
    written(run(source, "--seeds", "3", "--format", "jpg", "--resolution", 8, "--out", out), out)
    assert look(out / "seed0003.jpg").size == (8, 8)


@pytest.mark.parametrize(
    ("seeds", "option", "grid"),
    [("1", None, False), ("1,2", None, True), ("1,2", "--no-grid", False), ("1", "--grid", True)],
)
def test_the_grid_is_for_several_unless_said_otherwise(source, out, seeds, option, grid):
    result = run(source, "--seeds", seeds, "--out", out, *([option] if option else []))
    assert ("grid.png" in written(result, out)) == grid


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (4, "RGBA")])
def test_gray_and_transparent_pictures(tmp_path, out, channels, mode):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(dataclasses.replace(TINY, image_channels=channels)))
    written(run(path, "--seeds", "1,2", "--out", out), out)
    assert look(out / "seed0001.png").mode == mode
    assert look(out / "grid.png").mode == "RGB"


def test_padding_is_cut_off(tmp_path, out):
    path = tmp_path / "cars.pt"
    save_generator(path, random_generator(), active_rectangle=[2, 14, 0, 16])
    written(run(path, "--seeds", "1,2", "--out", out), out)
    assert look(out / "seed0001.png").size == (16, 12)


# Sources


def test_an_official_snapshot_is_a_source(out):
    written(run(SNAPSHOT, "--seeds", "1", "--out", out), out)
    assert look(out / "seed0001.png").size == (32, 32)


def test_a_run_that_still_grows_is_shown_at_its_stage(tmp_path, out):
    path = tmp_path / "generator-000000100.pt"
    save_generator(path, random_generator(), resolution=8, alpha=0.25)
    written(run(tmp_path, "--seeds", "1", "--out", out), out)
    with torch.no_grad():
        images = random_generator()(
            latents([1], 8), psi=0.7, cutoff=8, resolution=8, alpha=0.25, noise="const"
        )
    assert np.array_equal(pixels(out / "seed0001.png"), to_uint8(images)[0])
    larger = run(path, "--seeds", "2", "--resolution", 16, "--out", out)
    assert look(out / "seed0002.png").size == (16, 16)
    assert "training has reached 8x8" in larger.stderr


def test_classes_by_name_and_by_number(tmp_path, out):
    path = tmp_path / "mine.pt"
    config = NetworkConfig(resolution=4, z_dim=4, label_dim=3, max_channels=4)
    save_generator(path, random_generator(config), label_names=["cat", "dog", "2"])
    shown = []
    for name in ("dog", "1", "2", "cat"):
        written(run(path, "--seeds", 1, "--class", name, "--out", out, "--overwrite"), out)
        shown.append((out / "seed0001.png").read_bytes())
    assert shown[0] == shown[1]
    assert len(set(shown)) == 3


# Errors


def test_a_missing_source_says_what_is_accepted(tmp_path, out):
    assert "accepted are a run folder" in refused(run(tmp_path / "gone", "--out", out))
    assert not out.exists()


def test_a_discriminator_is_the_wrong_kind(tmp_path, out):
    path = tmp_path / "critic.pt"
    save_discriminator(path, Discriminator(TINY))
    assert "is a discriminator file" in refused(run(path, "--out", out))


@pytest.mark.parametrize("inside", ["", "deeper/still"])
def test_an_output_path_that_is_a_file_is_refused_before_any_work(source, inside):
    message = refused(run("gone.pt", "--out", source / inside))
    assert message == f"Error: {source} is a file; choose another folder\n"


def test_a_different_picture_is_not_overwritten_unless_told(source, out):
    before = written(run(source, "--seeds", "1,2", "--out", out), out)
    message = refused(run(source, "--seeds", "1,2", "--psi", 1, "--out", out))
    assert f"{out / 'seed0001.png'} exists; pass --overwrite" in message
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}
    after = written(run(source, "--seeds", "1,2", "--psi", 1, "--out", out, "--overwrite"), out)
    assert all(before[name] != after[name] for name in before)


def test_on_a_full_disk_the_error_names_the_picture_and_nothing_is_left(source, out, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = refused(run(source, "--seeds", 1, "--out", out))
    assert message == f"Error: {out / 'seed0001.png'}: No space left on device\n"
    assert not list(out.iterdir())


def test_a_class_for_a_network_without_labels_is_refused(source, out):
    assert "has no labels" in refused(run(source, "--class", "cat", "--out", out))


def test_a_network_with_labels_needs_a_known_class(tmp_path, out):
    path = tmp_path / "mine.pt"
    config = NetworkConfig(resolution=4, z_dim=4, label_dim=2, max_channels=4)
    save_generator(path, random_generator(config), label_names=["cat", "dog"])
    assert "choose one with --class; known: cat, dog" in refused(run(path, "--out", out))
    assert "no class 'dgo'; did you mean dog?" in refused(run(path, "--class", "dgo", "--out", out))
    assert "no class '2'; known: cat, dog" in refused(run(path, "--class", "2", "--out", out))
    save_generator(path, random_generator(config))
    assert "no class 'cat'; known: 0 to 1" in refused(run(path, "--class", "cat", "--out", out))


@pytest.mark.parametrize("resolution", [12, 32, 2, 0])
def test_a_resolution_that_the_network_lacks_is_refused(source, out, resolution):
    message = refused(run(source, "--resolution", resolution, "--out", out))
    assert f"resolution {resolution} is not a power of two from 4 to 16" in message


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ("x", "'x' is neither a seed nor a range like 0-3"),
        ("1,,2", "'' is neither"),
        ("-1", "'-1' is neither"),
        ("5-", "'5-' is neither"),
        ("5-1", "5-1 ends before it begins"),
        ("0-4294967295", "more than 1000000 seeds"),
    ],
)
def test_seeds_that_are_none_are_a_usage_error(source, out, seeds, message):
    assert message in refused(run(source, f"--seeds={seeds}", "--out", out), exit_code=2)


def test_a_seed_beyond_32_bits_is_refused(source, out):
    assert "0 to 4294967295" in refused(run(source, "--seeds", 2**32, "--out", out))


@pytest.mark.parametrize("seeds", [("0-3,7", [0, 1, 2, 3, 7]), ("5, 3-4,5", [5, 3, 4])])
def test_seed_ranges_include_both_ends_and_each_seed_once(seeds):
    assert values.seeds(seeds[0]) == seeds[1]


@pytest.mark.parametrize(
    ("device", "message"),
    [("gpu", "'gpu' is not a device; try cpu, cuda, cuda:1 or mps"), ("cuda:99", "device cuda:99")],
)
def test_a_device_that_is_not_there_is_refused(source, out, device, message):
    arguments = ["generate", str(source), "--out", str(out), "--device", device]
    assert message in refused(CliRunner().invoke(main, arguments))


def test_debug_shows_the_traceback(source, tmp_path):
    result = run(tmp_path / "gone.pt", "--debug")
    assert isinstance(result.exception, FileNotFoundError)


# Doors


@pytest.mark.parametrize("door", [["generate.py"], ["-m", "stylegan", "generate"]])
def test_the_root_script_and_the_module_are_the_same_command(tmp_path, door):
    done = subprocess.run(
        [sys.executable, *door, str(tmp_path / "gone.pt")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: there is no {tmp_path / 'gone.pt'}; accepted are")
    assert done.stderr.count("\n") == 1
