"""examples/one_file.py, also the opponent of the benchmarks, computes what the package computes."""

import sys
import zipfile

import numpy as np
import pytest
import torch
from helpers.pictures import archive, png
from helpers.tiny_generators import ODD, ODD_OPTIONS
from helpers.tiny_training import reals_for, stage, tiny_config
from helpers.two_processes import float64_state
from PIL import Image
from textbook import one_file, one_file_options, textbook_state, textbook_step, textbook_weights
from torch.testing import assert_close

from stylegan import losses
from stylegan.config import load_config
from stylegan.data import open_source, process_reals, pyramid, read_image
from stylegan.schedule import ScheduleConfig, stage_at
from stylegan.training import Share, draw, train_step

NARROWING = ODD_OPTIONS | {"channel_base": 24, "mapping_layers": 8}  # 6, 6 and 3 channels
SHARE = Share(dtype=torch.float64)
GROWTH = [(4, 1.0), (4, 0.3), (8, 0.0), (8, 0.3), (8, 1.0), (16, 0.6), (16, 1.0)]


def pair(**options):
    """Our state with random weights in float64, and the textbook's of the same weights."""
    ours = float64_state(tiny_config(network=NARROWING, **options))
    ours.generator.w_avg.normal_()
    ours.generator_ema.load_state_dict(ours.generator.state_dict())
    weights = ours.generator.state_dict(), ours.discriminator.state_dict()
    return ours, textbook_state(ours.config, *weights)


def gradients(network):
    return {name: p.grad for name, p in network.named_parameters() if p.grad is not None}


def assert_equal_numbers(found, ours, tolerance):
    """Numbers by the textbook's names and by ours agree, relative to the largest of each tensor."""
    expected = textbook_weights(ours)
    assert found.keys() == expected.keys()
    for name, numbers in expected.items():
        scale = max(1.0, numbers.abs().max().item())
        assert_close(found[name], numbers, rtol=0, atol=tolerance * scale, msg=name)


@pytest.mark.parametrize("noise", ["const", "list"])
@pytest.mark.parametrize(("resolution", "alpha"), GROWTH)
def test_one_file_images_and_generator_gradients_equal_ours(resolution, alpha, noise):
    ours, textbook = pair()
    z = torch.randn(4, ODD.z_dim, dtype=torch.float64)
    maps = ours.generator.synthesis.noise_maps(4, resolution, "random")
    growth = {"resolution": resolution, "alpha": alpha}
    noise = maps if noise == "list" else noise
    images = [g(z, psi=0.7, noise=noise, **growth) for g in (ours.generator, textbook.generator)]
    assert_close(images[1], images[0], rtol=0, atol=1e-12)
    losses.nonsaturating(ours.discriminator(images[0], alpha=alpha)).backward()
    losses.nonsaturating(textbook.discriminator(images[1], alpha)).backward()
    assert_equal_numbers(gradients(textbook.generator), gradients(ours.generator), 1e-12)


@pytest.mark.parametrize("batch", [2, 8])
@pytest.mark.parametrize(("resolution", "alpha"), GROWTH)
def test_one_file_logits_r1_and_gradients_equal_ours(resolution, alpha, batch):
    ours, textbook = pair()
    reals = reals_for(stage(resolution, alpha, batch), torch.float64).requires_grad_()
    logits = ours.discriminator(reals, alpha=alpha), textbook.discriminator(reals, alpha)
    penalties = [losses.r1_penalty(of_one, reals) for of_one in logits]
    assert_close(logits[1], logits[0], rtol=0, atol=1e-12)
    assert_close(penalties[1], penalties[0], rtol=1e-12, atol=0)
    for of_one, penalty in zip(logits, penalties, strict=True):
        (losses.logistic_real(of_one) + penalty).backward()
    assert_equal_numbers(gradients(textbook.discriminator), gradients(ours.discriminator), 1e-12)


@pytest.mark.parametrize("mixing", [0.0, 1.0])
@pytest.mark.parametrize(
    "growth", [[(8, 0.3)] * 3, [(16, 1.0)] * 3, [(4, 1.0), (8, 0.1), (8, 1.0)]]
)
def test_one_file_training_steps_equal_ours(growth, mixing):
    ours, textbook = pair(style_mixing=mixing, r1_gamma=10.0)
    for resolution, alpha in growth:
        now = stage(resolution, alpha, batch_size=8)
        draws = draw(ours.config, ours.images_seen, now, None, SHARE)
        reals = reals_for(now, torch.float64, seed=ours.images_seen)
        found = textbook_step(textbook, reals, now, draws)
        expected = train_step(ours, reals, None, now, draws)
        for name, loss in found.items():
            assert_close(loss, expected[name], rtol=1e-9, atol=0, msg=name)
    for name in ("generator", "discriminator", "generator_ema"):
        weights = getattr(ours, name).state_dict()
        assert_equal_numbers(getattr(textbook, name).state_dict(), weights, 1e-9)
    moved = (ours.generator.w_avg - ours.generator_ema.w_avg).abs().max().item()
    assert moved > 1e-4


SCHEDULES = [
    {"stable_kimg": 2, "fade_kimg": 2, "initial_resolution": 8, "resolution": 32},
    {"stable_kimg": 0.5, "fade_kimg": 1.25, "initial_resolution": 4, "resolution": 64},
]


@pytest.mark.parametrize("options", SCHEDULES)
def test_one_file_stage_at_equals_the_schedule(options):
    ours = ScheduleConfig(batch_size={4: 16}, g_lr={4: 0.008}, d_lr={4: 0.004}, **options)
    theirs = one_file.Config(**options)
    for images_seen in range(0, 12_000, 16):
        expected, found = stage_at(images_seen, ours), one_file.stage_at(images_seen, theirs)
        assert found.resolution == expected.resolution
        assert found.alpha == pytest.approx(expected.alpha, abs=1e-12)
        assert found.batch_size == expected.batch_size
        assert (found.g_lr, found.d_lr) == (expected.g_lr, expected.d_lr)


def test_one_file_reals_equal_process_reals(tmp_path):
    with zipfile.ZipFile(one_file.DATA) as faces:
        names = [name for name in faces.namelist() if name.endswith(".webp")][:29]
        path = archive(tmp_path / "some.zip", {name: faces.read(name) for name in names})
    pictures, source = one_file.read_images(path), open_source(path)
    for picture, name in zip(pictures, source.names, strict=True):
        assert np.array_equal(picture.numpy(), read_image(source.read(name)))
    levels, mirror = one_file.pyramid(pictures), torch.arange(29) % 3 == 0
    for resolution, expected in pyramid(pictures.numpy()).items():
        assert np.array_equal(levels[resolution].numpy(), expected)
    with pytest.raises(ValueError, match=r"got \(32, 32, 3\)"):
        pyramid(np.zeros((32, 32, 3), np.uint8))
    for alpha in (0.3, 1.0):
        found = one_file.process_reals(levels[16], mirror, alpha)
        expected = process_reals(levels[16], alpha=alpha, mirror=mirror)
        assert_close(found, expected, rtol=0, atol=2e-7)


@pytest.mark.parametrize("size", [16, 48])
def test_one_file_refuses_images_of_another_size_before_it_trains(
    size, tmp_path, monkeypatch, capsys
):
    data = archive(tmp_path / "pictures.zip", {"0.png": png(size, size)})
    monkeypatch.setattr("sys.argv", ["one_file.py", "--data", str(data)])
    with pytest.raises(SystemExit):
        one_file.main()
    assert f"images must be 32, 64, ... wide, not {size}" in capsys.readouterr().err


def test_one_file_defaults_equal_the_quickstart():
    # R1 has one weight there, and is computed in every step.
    quickstart = load_config("quickstart", ["r1_interval=1", "r1_gamma=1"])
    options = one_file_options(quickstart.network) | one_file_options(quickstart)
    assert {name: getattr(one_file.Config(), name) for name in options} == options


def test_one_file_trains_and_writes_a_sample_grid(tmp_path, monkeypatch, capsys):
    arguments = ["one_file.py", "--kimg", "0.016", "--out", str(tmp_path / "grid.png")]
    monkeypatch.setattr(sys, "argv", arguments)
    one_file.main()
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.size == (64, 64)  # 8 rows and columns of 8x8
    assert "0.0 kimg, 8 px, d/logistic_fake" in capsys.readouterr().out
