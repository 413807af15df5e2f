"""Projection: closed forms of its parts, known latents found again, and the command."""

import dataclasses
import json
import math
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.commands import open_image, pixels, run_fails, run_ok, stylegan
from helpers.projecting import EXACT, draws, found_by_pixels, pictures_of
from helpers.tiny_generators import LABELED, TINY, loaded_of, random_generator, with_fine_noise_only
from PIL import Image
from torch import nn
from torch.testing import assert_close

from stylegan.files.formats.native import save_generator
from stylegan.files.latents import read_latents, write_latents
from stylegan.metrics.lpips import Lpips
from stylegan.networks import Generator
from stylegan.projection import (
    PerceptualDistance,
    PixelDistance,
    SearchOptions,
    choose_distance,
    project,
    psnr,
)
from stylegan.projection.batch import write_image, write_projection
from stylegan.projection.search import autocorrelation_penalty, normalize_, spread_of_w
from stylegan.sampling import latents, to_pil, to_uint8

FEW = SearchOptions(steps=12, samples=100)


@pytest.mark.parametrize(
    ("step", "rate", "noise"),
    [
        (0, 0.0, 0.05),
        (50, 0.1, 0.05 * (14 / 15) ** 2),
        (375, 0.1, 0.0125),
        (875, 0.05, 0.0),  # half of the fall
        (917, 0.1 * (0.5 - 0.5 * math.cos(math.pi * 83 / 250)), 0.0),
        (1000, 0.0, 0.0),
    ],
)
def test_search_options_rate_at_is_a_cosine_and_noise_a_square(step, rate, noise):
    assert SearchOptions().rate_at(step) == pytest.approx(rate, abs=1e-12)
    assert SearchOptions().search_noise_at(step) == pytest.approx(noise, abs=1e-12)


def test_autocorrelation_penalty_of_constant_maps_has_closed_form():
    # 2 * averages doubles the constant: correlations 1, 4, 16 at 32, 16, 8 pixels
    expected = torch.tensor([2 * (1 + 16 + 256), 0.0])
    maps = torch.stack([torch.ones(1, 32, 32), torch.zeros(1, 32, 32)])
    assert_close(autocorrelation_penalty(maps), expected)


def test_pixel_distance_averages_over_all_scales():
    images = torch.zeros(3, 3, 16, 16)
    targets = images.clone()
    targets[1] += 0.5  # the same at each scale
    targets[2, :, :, ::2], targets[2, :, :, 1::2] = 0.5, -0.5  # gone at 8 and 4 pixels
    assert_close(PixelDistance()(images, targets), torch.tensor([0, 0.25, 0.25 / 3]))


def test_psnr_has_a_maximum_and_can_use_a_rectangle():
    images = torch.zeros(3, 3, 16, 16)
    targets = torch.stack([images[0] + 0.2, images[0] + 2, images[0]])
    assert_close(psnr(images, targets), torch.tensor([20.0, 10 * math.log10(4), 100.0]))
    targets = draws(3, 3, 16, 16).clamp(-1, 1)
    found = psnr(images, targets, [1, 7, 0, 8])  # measured at half the size
    assert_close(found, psnr(images[:, :, 2:14], targets[:, :, 2:14]))


class MeanDifference(nn.Module):
    def forward(self, images, others):
        return (images - others).mean(dim=(1, 2, 3), keepdim=True) + images.shape[2]


@pytest.mark.parametrize(("size", "seen"), [(64, 64), (1024, 256)])
def test_perceptual_distance_downsamples_to_256_pixels(size, seen):
    distance = PerceptualDistance(Lpips(MeanDifference(), "", ""))
    images = torch.zeros(2, 1, size, size)
    assert_close(distance(images + 0.25, images), torch.tensor([0.25, 0.25]) + seen)


def chosen(name, *, resolution=16, channels=3, weights=None):
    config = dataclasses.replace(TINY, resolution=resolution, image_channels=channels)
    loaded = loaded_of(Generator(config))
    return choose_distance(name, loaded, weights)


@pytest.fixture
def no_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))


def test_choose_distance_auto_falls_back_to_pixels(no_weights):
    for shape, reason in (
        ({}, "the weights of VGG16 are missing"),
        ({"channels": 4}, "it needs gray or RGB images, got 4 channels"),
        ({"resolution": 8}, "it needs images of at least 16x16 pixels"),
    ):
        distance, why = chosen("auto", **shape)
        assert isinstance(distance, PixelDistance) and why.startswith(f"no LPIPS: {reason}")
        if shape:
            with pytest.raises(ValueError, match=f"LPIPS cannot be used: {reason}"):
                chosen("lpips", **shape)
    with pytest.raises(ValueError, match="of LPIPS, which --distance pixels does not use"):
        chosen("pixels", weights=Path("w"))


def test_choose_distance_eff_separates_images_and_has_gradients():
    distance, why = chosen("eff")
    assert (distance.about()["name"], why) == ("eff", "as asked")
    images = draws(2, 3, 16, 16).clamp(-1, 1)
    assert_close(distance(images, images), torch.zeros(2))
    moved, others = images.clone().requires_grad_(), images.flip(0)
    apart = distance(moved, others)
    assert (apart > 0.01).all()
    (gradient,) = torch.autograd.grad(apart.sum(), moved)
    nearer = images - 0.1 * gradient / gradient.abs().max()
    assert distance(nearer, others).sum() < apart.sum()
    with pytest.raises(ValueError, match="EfficientNet cannot be used: it needs gray or RGB"):
        chosen("eff", channels=4)


def test_spread_of_w_is_mean_and_deviation_of_w():
    config = dataclasses.replace(TINY, mapping_layers=0, normalize_latents=False)
    average, deviation = spread_of_w(Generator(config), 5000)  # w is z
    z = latents(range(5000), 8)
    assert_close(average, z.mean(dim=0))
    expected = (z - z.mean(dim=0)).square().sum(dim=1).mean().sqrt()
    assert deviation == pytest.approx(float(expected), rel=1e-5)
    assert deviation == pytest.approx(math.sqrt(8), rel=0.05)


def test_project_recovers_a_sample_of_the_generator():
    generator = random_generator()
    ws, targets = pictures_of(generator, [1, 2])
    settings = SearchOptions(steps=150, samples=500, search_noise=0.01)
    states = list(project(generator, targets, PixelDistance(), settings))
    assert [state.step for state in states] == list(range(151))
    found = states[-1]
    assert (found.distances < states[0].distances / 100).all()
    assert (psnr(found.images, targets) > 35).all()
    start = (states[0].ws - ws).norm(dim=(1, 2))
    assert ((found.ws - ws).norm(dim=(1, 2)) < start / 3).all()
    with torch.no_grad():
        again = generator.synthesis(found.ws, noise="const")
    assert_close(found.images, again, rtol=0, atol=1e-4)  # one gray level is 8e-3
    assert_close(found.distances, PixelDistance()(found.images, targets), **EXACT)


@pytest.mark.parametrize("space", ["w", "w+"])
def test_project_is_reproducible_in_any_batch(space):
    settings = dataclasses.replace(FEW, space=space, fit_noise=space == "w+")
    generator = random_generator()
    _, targets = pictures_of(generator, [1, 2, 3])
    together = found_by_pixels(generator, targets, settings)
    again = found_by_pixels(generator, targets, settings)
    assert_close(together._asdict(), again._asdict(), **EXACT)
    other = found_by_pixels(generator, targets, settings, seed=1)
    assert not torch.equal(other.ws, together.ws)
    apart = (together.ws - together.ws[:, :1])[:, 1:].abs().amax(dim=(0, 2))
    assert (apart > 0.01).all() if space == "w+" else not apart.any()
    for i in range(3):
        alone = found_by_pixels(generator, targets[i : i + 1], settings)
        assert_close(alone.ws, together.ws[i : i + 1], rtol=1e-3, atol=1e-3)
        assert_close(alone.distances, together.distances[i : i + 1], rtol=1e-3, atol=1e-4)


def test_project_fit_noise_normalizes_maps_and_comes_nearer():
    generator = random_generator()
    _, targets = pictures_of(generator, [1])
    targets = targets + 0.3 * draws(*targets.shape)
    settings = SearchOptions(100, samples=100, noise_weight=0.0)
    plain = found_by_pixels(generator, targets, settings)
    settings = dataclasses.replace(settings, fit_noise=True)
    fitted = found_by_pixels(generator, targets, settings)
    assert plain.noise is None and fitted.distances < 0.8 * plain.distances
    assert [tuple(m.shape) for m in fitted.noise] == [(1, 1, r, r) for r in (4, 4, 8, 8, 16, 16)]
    for noise_map in fitted.noise:
        assert float(noise_map.mean()) == pytest.approx(0, abs=1e-6)
        assert float(noise_map.var(correction=0)) == pytest.approx(1, rel=1e-5)
    with torch.no_grad():
        assert_close(fitted.images, generator.synthesis(fitted.ws, noise=fitted.noise))


def test_project_fit_noise_keeps_zero_maps_of_layers_without_noise(tmp_path):
    generator = with_fine_noise_only()
    _, targets = pictures_of(generator, [1])
    settings = dataclasses.replace(FEW, fit_noise=True)
    found = found_by_pixels(generator, targets + 0.3 * draws(*targets.shape), settings)
    assert [bool(m.any()) for m in found.noise] == [False] * 4 + [True] * 2
    assert all(m.isfinite().all() for m in found.noise)
    first = normalize_(generator.synthesis.epilogues(16)[4].noise.const.clone())
    assert not torch.allclose(found.noise[4], first, atol=0.01)
    write_latents(tmp_path / "found.npz", found.ws, found.noise)
    assert_close(read_latents(tmp_path / "found.npz", generator).noise, found.noise, **EXACT)
    with torch.no_grad():
        assert_close(found.images, generator.synthesis(found.ws, noise=found.noise))


def test_project_leaves_the_generator_unchanged():
    generator = random_generator().train()
    before = {name: tensor.clone() for name, tensor in generator.state_dict().items()}
    _, targets = pictures_of(generator, [1])
    settings = dataclasses.replace(FEW, fit_noise=True)
    with torch.no_grad():  # which a caller may have wanted for its own sake
        found_by_pixels(generator, targets, settings)
    assert_close(dict(generator.state_dict()), before, **EXACT)
    assert all(p.requires_grad and p.grad is None for p in generator.parameters())


def test_project_searches_at_the_stage_of_a_growing_network():
    generator = random_generator()
    _, targets = pictures_of(generator, [1], resolution=8, alpha=0.3)
    settings = SearchOptions(100, samples=100, search_noise=0.01)
    stage = {"resolution": 8, "alpha": 0.3}
    found = found_by_pixels(generator, targets, settings, **stage)
    assert found.images.shape == (1, 3, 8, 8) and found.ws.shape == (1, 6, 8)
    assert float(psnr(found.images, targets)) > 30
    fitted = dataclasses.replace(FEW, fit_noise=True)
    noise = found_by_pixels(generator, targets, fitted, **stage).noise
    assert [m.shape[2] for m in noise] == [4, 4, 8, 8]


def test_project_starts_at_the_mean_w_of_the_class():
    generator = random_generator(dataclasses.replace(TINY, label_dim=2))
    targets = torch.zeros(1, 3, 16, 16)
    starts = []
    for label in torch.eye(2).split(1):
        states = project(generator, targets, PixelDistance(), FEW, labels=label)
        average = spread_of_w(generator, FEW.samples, label)[0]
        starts.append(next(states).ws[0, 0])
        assert_close(starts[-1], average)
    assert not torch.allclose(*starts)


@pytest.mark.parametrize(
    ("config", "options", "shape", "message"),
    [
        ({}, {"space": "z"}, (1, 3, 16, 16), r"space is .z.: it must be"),
        ({}, {"fall": math.nan}, (1, 3, 16, 16), "fall is NaN: it must be a finite number"),
        ({}, {}, (1, 3, 8, 8), r"targets must be \(N, 3, 16, 16\), got \("),
        ({"noise": False}, {"fit_noise": True}, (1, 3, 16, 16), "noise inputs"),
    ],
)
def test_project_refuses_invalid_options_and_targets(config, options, shape, message):
    generator = Generator(dataclasses.replace(TINY, **config))
    with pytest.raises(ValueError, match=message):
        next(project(generator, torch.zeros(shape), PixelDistance(), SearchOptions(**options)))


@pytest.fixture
def folder(tmp_path, no_weights):
    """A generator, three pictures of it, and one that is none."""
    save_generator(tmp_path / "mine.pt", random_generator())
    _, images = pictures_of(random_generator(), [0, 1, 2])
    for name, content in zip("abc", to_uint8(images), strict=True):
        to_pil(content).save(tmp_path / f"{name}.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    return tmp_path


def request(folder, images, *arguments, source="mine.pt"):
    files = [folder / image for image in images.split()]
    options = ["--out", folder / "out", "--steps", 3, "--device", "cpu"]
    return ["project", folder / source, *files, *options, *arguments]


@pytest.mark.parametrize(
    ("images", "space"),
    [("a.png", ["--starts", 2]), ("a.png b.png c.png", ["--space", "w+", "--fit-noise"])],
)
def test_project_prints_a_generate_command_for_the_same_images(folder, images, space, monkeypatch):
    monkeypatch.chdir(folder)
    printed = run_ok(*request(folder, images, *space)).splitlines()
    assert printed[0].startswith("distance: pixels, mean squared difference of pixels")
    names = [image.removesuffix(".png") for image in images.split()]
    run_ok(*shlex.split(printed[-1])[1:])
    for i, name in enumerate(names):
        out = folder / "out" / name
        assert sorted(path.name for path in out.iterdir()) == [
            *("latents.npz", "projection.png", "result.json", "target.png")
        ]
        result = json.loads((out / "result.json").read_text())
        assert printed[i + 1].endswith(f", PSNR {result['psnr_db']:.1f} dB")
        starts = result.get("starts", [result["final_distance"]])
        assert result["final_distance"] == min(starts)
        assert len(set(starts)) == (2 if "--starts" in space else 1)
        assert np.array_equal(pixels(out / "target.png"), pixels(folder / f"{name}.png"))
        again = pixels(folder / "again" / f"latent000{i}.png")
        assert np.abs(pixels(out / "projection.png") - again).max() <= 1


def test_project_is_reproducible_and_overwrites_only_if_asked(folder):
    arguments = request(folder, "a.png b.png")
    run_ok(*arguments)
    files = {path: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}
    assert len(files) == 2 * 4 + 1
    assert "exists, with another seed; pass --overwrite" in run_fails(*arguments, "--seed", 1)
    run_ok(*arguments, "--overwrite", "--batch", 2)
    assert files == {path: path.read_bytes() for path in files}


def test_project_continues_after_an_interruption(folder, monkeypatch):
    whole = request(folder, "a.png b.png c.png", "--batch", 1, "--fit-noise")
    run_ok(*whole, "--out", folder / "whole")
    searched = []

    def interrupted(request, path, *more):
        searched.append(path.name)
        if path.name == "b.png" and searched.count("b.png") == 1:
            raise KeyboardInterrupt
        return write_projection(request, path, *more)

    monkeypatch.setattr("stylegan.projection.batch.write_projection", interrupted)
    assert stylegan(*whole).exit_code == 1
    out = folder / "out"
    assert [path.name for path in out.iterdir()] == ["a"]
    run_ok(*whole)
    run_ok(*whole)  # nothing is left
    assert searched == ["a.png", "b.png", "b.png", "c.png"]
    for path in (path for path in out.rglob("*") if path.is_file()):
        assert path.read_bytes() == (folder / "whole" / path.relative_to(out)).read_bytes()


@pytest.mark.parametrize(
    ("images", "options", "other"),
    [
        ("a.png", ["--starts", 2], "with another starts;"),
        ("a.png", ["--space", "w+"], "with another space;"),
        ("b.png", [], "latents.npz exists"),  # of all
        ("other/a.png", [], "image_sha256"),
    ],
)
def test_project_refuses_results_of_another_request(folder, images, options, other):
    (folder / "other").mkdir()
    (folder / "other" / "a.png").write_bytes((folder / "b.png").read_bytes())
    run_ok(*request(folder, "a.png"))
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("*")}
    message = run_fails(*request(folder, images, *options))
    assert other in message and "pass --overwrite" in message
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("*")}


def test_project_keeps_what_is_done_beside_added_images_and_from_another_folder(
    folder, monkeypatch
):
    words = request(folder, "a.png bad.png c.png")
    run_fails(*words)
    before = (folder / "out/c/result.json").stat().st_mtime_ns
    shutil.copy(folder / "b.png", folder / "bad.png")  # repaired
    monkeypatch.chdir(folder)
    words[1] = "mine.pt"
    printed = run_ok(*words)
    assert "kept in " in printed and ": 2 projections" in printed
    assert (folder / "out/c/result.json").stat().st_mtime_ns == before
    of_each = [np.load(folder / "out" / name / "latents.npz")["ws"] for name in ("a", "bad", "c")]
    assert np.array_equal(np.load(folder / "out/latents.npz")["ws"], np.concatenate(of_each))


@pytest.mark.parametrize("file", ["target.png", "mine.txt"])
def test_project_refuses_a_folder_without_result_json(folder, file, monkeypatch):
    (folder / "out/b").mkdir(parents=True)
    mine = folder / "out/b" / file
    mine.write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr("stylegan.projection.batch.project", None)  # no search
        message = run_fails(*request(folder, "a.png b.png"))
    assert f"{mine.parent} has files but no result.json; pass --overwrite" in message
    assert [path for path in (folder / "out").rglob("*") if path.is_file()] == [mine]
    run_ok(*request(folder, "a.png b.png", "--overwrite"))
    assert (mine.read_bytes() == b"mine") == (file == "mine.txt")


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
def test_project_never_shows_a_folder_without_result_json(folder, overwrite, monkeypatch):
    seen = []

    def looking(request, path, image):
        write_image(request, path, image)
        seen.append([path.parent.name, (folder / "out/a").exists()])

    monkeypatch.setattr("stylegan.projection.batch.write_image", looking)
    run_ok(*request(folder, "a.png", *overwrite))
    assert seen == [[".a.unfinished", False]] * 2
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["a", "latents.npz"]


def test_project_searches_padding_but_crops_it_from_its_images(folder):
    save_generator(folder / "cars.pt", random_generator(), active_rectangle=[2, 14, 0, 16])
    Image.new("RGB", (64, 48), "white").save(folder / "car.png")
    run_ok(*request(folder, "car.png", source="cars.pt"))
    out = folder / "out" / "car"
    assert open_image(out / "target.png").size == (16, 12)
    error = np.square((pixels(out / "projection.png") - 255.0) / 255).mean()  # of what is seen
    result = json.loads((out / "result.json").read_text())
    assert result["psnr_db"] == pytest.approx(-10 * math.log10(error), abs=0.1)
    assert (pixels(out / "target.png") == 255).all()


def test_project_help_says_when_a_class_is_needed(folder):
    save_generator(folder / "labeled.pt", random_generator(LABELED))
    assert "a class is needed" in run_fails(*request(folder, "a.png", source="labeled.pt"))
    text = " ".join(run_ok("project", "--help").split())
    assert "[default: none; required by" in text and "alternating" not in text


def test_project_skips_unreadable_images_and_names_them(folder):
    message = run_fails(*request(folder, "a.png bad.png gone.png"))
    assert message.startswith("Error: 2 images left out: ")
    assert "bad.png" in message and "gone.png" in message
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["a", "latents.npz"]
    message = run_fails(*request(folder, "gone.png", "--overwrite"))
    assert message.startswith("Error: there is no image file ") and "gone.png" in message
    assert "is a folder; pass its images: " in run_fails(*request(folder, "out", "--overwrite"))
