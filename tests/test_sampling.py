"""Seeds, noise, pixels and chunks."""

import weakref

import numpy as np
import pytest
import torch
from helpers.tiny_generators import LABELED, TINY, random_generator
from torch.testing import assert_close

from stylegan.networks import NetworkConfig
from stylegan.sampling import (
    MAX_SEED,
    crop_padding,
    generate,
    latents,
    noise_from_seeds,
    over_checkerboard,
    to_uint8,
)


@pytest.fixture(scope="module")
def generator():
    return random_generator()


def pictures(generator, seeds, **options):
    return np.concatenate(list(generate(generator, seeds, **options)))


def test_latents_equal_the_official_tools():
    expected = [np.random.RandomState(seed).randn(512) for seed in (5, 0, MAX_SEED)]
    z = latents([5, 0, MAX_SEED], 512)
    assert z.dtype == torch.float32
    assert_close(z, torch.tensor(np.array(expected), dtype=torch.float32), rtol=0, atol=0)


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1])
def test_latents_refuse_seeds_beyond_32_bits(seed):
    with pytest.raises(ValueError, match=f"from 0 to 4294967295, got {seed}"):
        latents([1, seed], 4)


def test_noise_from_seeds_does_not_depend_on_batch_or_resolution():
    together = noise_from_seeds([3, 4, 5], TINY)
    alone = noise_from_seeds([4], TINY)
    lower = noise_from_seeds([4], TINY, 8)
    assert [m.shape for m in alone] == [(1, 1, r, r) for r in (4, 4, 8, 8, 16, 16)]
    assert all(torch.equal(a[1:2], b) for a, b in zip(together, alone, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(alone, lower, strict=False))
    assert len(lower) == 4


def test_noise_from_seeds_is_standard_normal_and_independent():
    config = NetworkConfig(resolution=64)
    maps = torch.cat([m.flatten(1) for m in noise_from_seeds(range(4), config)], dim=1)
    assert abs(maps.mean()) < 0.01
    assert abs(maps.std() - 1) < 0.01
    z = latents(range(4), maps.shape[1])
    correlations = torch.corrcoef(torch.cat([maps, z]))
    assert (correlations - torch.eye(8)).abs().max() < 0.05


@pytest.mark.parametrize(
    ("value", "level"),
    [
        *[(-1.0, 0), (1.0, 255), (0.0, 128), (-7, 0), (9, 255)],
        *[(-1 + 2 / 255, 1), (-1 + 0.999 / 255, 0)],
        *[(float("nan"), 0), (float("inf"), 255), (-float("inf"), 0)],
    ],
)
def test_to_uint8_rounds_to_the_nearest_level_and_clamps(value, level):
    images = torch.full((1, 1, 2, 2), value, dtype=torch.float64)
    assert np.array_equal(to_uint8(images), np.full((1, 2, 2, 1), level, np.uint8))


@pytest.mark.parametrize("noise", ["const", "random", "none"])
def test_generate_gives_one_image_per_seed_in_any_batch(generator, noise):
    seeds = range(11)
    one_by_one = pictures(generator, seeds, batch=1, noise=noise)
    for seed in (0, 5):
        assert np.array_equal(pictures(generator, [seed], noise=noise)[0], one_by_one[seed])
    chunks = list(generate(generator, seeds, batch=3, noise=noise))
    assert [len(chunk) for chunk in chunks] == [3, 3, 3, 2]
    assert np.abs(np.concatenate(chunks).astype(int) - one_by_one).max() <= 1
    assert one_by_one.std() > 20  # the pictures show something


def test_generate_refuses_batches_of_nothing_and_styles_of_another_shape(generator):
    for options, message in (
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"ws": torch.zeros(2, 3, 8)}, r"ws must be .* got \(2, 3, 8\)"),
    ):
        with pytest.raises(ValueError, match=message):
            pictures(generator, range(2), **options)


def test_generate_holds_one_batch_in_memory_and_no_graph(generator, monkeypatch):
    """Nothing is drawn before its batch is asked for, and nothing of the batches before is held."""
    alive = []
    forward = generator.synthesis.forward

    def counted(ws, **options):
        images = forward(ws, **options)
        assert not images.requires_grad
        assert not any(batch() is not None for batch in alive)
        alive.append(weakref.ref(images))
        return images

    monkeypatch.setattr(generator.synthesis, "forward", counted)
    batches = generate(generator, range(10_000), resolution=4, batch=500)
    assert not alive
    number = 0
    for number, batch in enumerate(batches, start=1):
        assert (len(batch), len(alive)) == (500, number)
    assert number == 20


def test_generate_random_noise_leaves_the_global_rng_unchanged(generator):
    before = torch.get_rng_state()
    drawn = pictures(generator, [3], noise="random")
    assert not np.array_equal(drawn, pictures(generator, [3], noise="const"))
    assert torch.equal(before, torch.get_rng_state())


def test_generate_accepts_one_label_for_all_or_one_per_image():
    network, rows = random_generator(LABELED), torch.eye(3)
    each = pictures(network, [9, 9, 9], labels=rows, batch=2).astype(int)
    same = pictures(network, [9, 9], labels=rows[1:2]).astype(int)
    assert np.abs(same - each[1]).max() <= 1
    assert not np.array_equal(each[0], each[1])


@pytest.mark.parametrize(
    ("size", "rows"), [(512, (64, 448)), (64, (8, 56)), (8, (1, 7)), (4, (0, 4))]
)
def test_crop_padding_works_at_any_resolution(size, rows):
    numbers = np.arange(size, dtype=np.uint16)[None, :, None, None].repeat(size, axis=2)
    found = crop_padding(numbers, [64, 448, 0, 512])
    assert found.shape == (1, rows[1] - rows[0], size, 1)
    assert (found[0, 0, 0, 0], found[0, -1, 0, 0]) == (rows[0], rows[1] - 1)


def test_over_checkerboard_blends_over_squares_of_8_pixels():
    levels = np.random.default_rng(0).integers(0, 256, (2, 16, 24, 4), np.uint8)
    levels[0, :, :, 3] = 0
    ground = np.kron([[255, 204, 255], [204, 255, 204]], np.ones((8, 8)))[..., None]
    alpha = levels[..., 3:] / 255
    shown = over_checkerboard(levels)
    assert np.abs(shown - (levels[..., :3] * alpha + ground * (1 - alpha))).max() <= 0.5
    assert np.array_equal(over_checkerboard(levels[..., :3]), levels[..., :3])
