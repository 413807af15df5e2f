"""Perceptual path length: closed forms of a linear generator. LPIPS: what torchmetrics says."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from helpers.linear_generator import KINDS, linear_samples, squared_distance
from helpers.tiny_generators import TINY, loaded_of, random_generator
from torch.testing import assert_close
from torchmetrics.functional.image import learned_perceptual_image_patch_similarity
from torchvision.models import vgg16

from stylegan.metrics import Comparison
from stylegan.metrics.lpips import WEIGHTS, load_lpips
from stylegan.metrics.path_length import (
    EPSILON,
    latent_pairs,
    measured_lengths,
    over_white,
    trimmed_mean,
)
from stylegan.networks import Generator

CPU = torch.device("cpu")
DEEP = dataclasses.replace(TINY, mapping_layers=8)


def lengths(source, kind, pairs):
    return measured_lengths(source, kind, pairs, squared_distance)


def angle(a, b):
    return torch.nn.functional.cosine_similarity(a, b).acos()[:, None]


def test_measured_lengths_in_w_equal_the_image_difference():
    source = linear_samples(dim=5)
    z0, z1, _ = latent_pairs(source.samples, range(100))
    expected = ((z1 - z0) @ source.samples.generator.matrix.T).square().sum(dim=1)
    for kind in ("ppl-w-full", "ppl-w-end"):  # a straight line is as long everywhere
        assert_close(torch.from_numpy(lengths(source, kind, 100)), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", ["ppl-z-full", "ppl-z-end"])
def test_measured_lengths_in_z_equal_the_squared_angle(kind):
    """A chord of the circle of radius sqrt(k): |2 sin(epsilon angle / 2) / epsilon|^2 k."""
    source = linear_samples()
    z0, z1, _ = latent_pairs(source.samples, range(100))
    chord = 2 * torch.sin(EPSILON * angle(z0, z1) / 2) / EPSILON
    expected = 16 * chord.square().flatten()
    assert_close(torch.from_numpy(lengths(source, kind, 100)), expected, rtol=1e-7, atol=0)


def test_measured_lengths_use_the_same_noise_at_both_ends():
    quiet, noisy = (lengths(linear_samples(loud=loud), "ppl-w-end", 20) for loud in (0.0, 100.0))
    np.testing.assert_allclose(quiet, noisy, rtol=1e-6)


@pytest.mark.parametrize("premultiplied", [False, True])
def test_over_white_composites_without_rounding(premultiplied):
    color, alpha, step = 0.2, 0.6, 1e-4  # in [0, 1]
    shown = color * alpha + 1 - alpha
    stored = color * alpha if premultiplied else color
    pixels = 2 * torch.tensor([[stored, 1.0, 0.0, alpha]], dtype=torch.float64) - 1
    images = pixels[:, :, None, None]
    over = over_white(images, premultiplied=premultiplied)
    assert_close(over[0, 0, 0, 0].item(), 2 * shown - 1)
    moved = over_white(images + torch.eye(4)[:1, :, None, None] * step, premultiplied=premultiplied)
    wanted = step if premultiplied else step * alpha
    assert_close((moved - over)[0, :, 0, 0].tolist(), [wanted, 0.0, 0.0])
    assert torch.equal(over_white(images[:, :3], premultiplied=premultiplied), images[:, :3])


@pytest.mark.parametrize("premultiplied", [False, True])
def test_measured_lengths_of_images_with_alpha_are_those_over_white(premultiplied):
    config = dataclasses.replace(TINY, image_channels=4, premultiplied=premultiplied)
    generator = random_generator(config).double()
    source = Comparison.from_generator(loaded_of(generator), None)
    seen, made = [], []
    generator.synthesis.register_forward_hook(lambda module, inputs, images: made.append(images))

    def distance(images, others):
        seen.extend((images, others))
        return squared_distance(images, others)

    assert measured_lengths(source, "ppl-w-full", 4, distance).min() > 0
    assert len(seen) == len(made) > 0
    for shown, images in zip(seen, made, strict=True):
        assert_close(shown, over_white(images, premultiplied=premultiplied))


def test_trimmed_mean_drops_extreme_percentiles_and_refuses_nan():
    values = np.arange(101.0)  # percentiles 1 and 99 are 1 and 99
    values[0], values[100] = -1e9, 1e12
    assert trimmed_mean(values) == np.arange(1.0, 100.0).mean() == 50
    with pytest.raises(ValueError, match="1 of 3 path lengths are not finite"):
        trimmed_mean(np.array([1.0, np.nan, 2.0]))


@pytest.mark.parametrize("kind", KINDS)
def test_measured_lengths_do_not_depend_on_batch_or_later_pairs(kind):
    one, many = (linear_samples(dim=8, loud=1.0, batch=batch) for batch in (1, 7))
    np.testing.assert_allclose(lengths(one, kind, 10), lengths(many, kind, 17)[:10], rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_measured_lengths_are_accurate_in_float32(kind):
    """Measured in float32 and in float64, the mean differs by less than two hundredths.

    By less than a thousandth on one processor; products that are off by 1e-6 lead to a hundredth.
    """
    torch.manual_seed(0)
    generator = Generator(DEEP).eval()
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    loaded = loaded_of(generator, cutoff=None)
    found = lengths(Comparison.from_generator(loaded), kind, 64).mean()
    generator.double()
    exact = lengths(Comparison.from_generator(loaded), kind, 64).mean()
    assert found == pytest.approx(exact, rel=0.02)


@pytest.fixture(scope="module")
def vgg_file(tmp_path_factory):
    """torchvision's VGG16 with random weights, under the published name, small on the disk."""
    path = tmp_path_factory.mktemp("hub") / "hub" / "checkpoints" / WEIGHTS.rpartition("/")[2]
    path.parent.mkdir(parents=True)
    rng = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in vgg16(weights=None).state_dict().items()}
    weights = {
        name: torch.randn(shape, generator=rng) * math.sqrt(2 / max(1, math.prod(shape[1:])))
        if name.startswith("features")
        else torch.zeros(1).expand(shape)
        for name, shape in shapes.items()
    }
    torch.save(weights, path)
    return path


@pytest.fixture(scope="module")
def lpips(vgg_file):
    return load_lpips(vgg_file, CPU)


def test_lpips_distance_equals_torchmetrics(lpips, vgg_file, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(vgg_file.parents[2]))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    rng = torch.Generator().manual_seed(1)
    images, others = torch.rand(2, 3, 3, 24, 24, generator=rng) * 2 - 1
    expected = learned_perceptual_image_patch_similarity(
        images, others, net_type="vgg", reduction="none"
    )
    assert_close(lpips.distance(images, others), expected, rtol=1e-6, atol=0)
    assert expected.min() > 0
    gray = images[:, :1], others[:, :1]
    colored = (x.repeat(1, 3, 1, 1) for x in gray)
    assert_close(lpips.distance(*gray), lpips.distance(*colored))
    assert lpips.about()["network"] == "LPIPS on a VGG16 of one's own"
    with pytest.raises(ValueError, match="at least 16x16 pixels, got 8x8"):
        lpips.distance(images[:, :, :8, :8], others[:, :, :8, :8])
