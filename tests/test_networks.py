"""Generator and discriminator: growth, truncation, noise, labels, initial values, errors."""

from dataclasses import replace

import pytest
import torch
from helpers.tiny_generators import ODD, random_generator
from torch.testing import assert_close

from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.ops import upsample

LABELED = replace(ODD, label_dim=3)
STAGES = [(r, alpha) for r in (4, 8, 16) for alpha in (0.0, 0.3, 1.0)]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def generator(config=ODD, dtype=torch.float64):
    return random_generator(config, biases=True).to(dtype)


def latents(n=2, dtype=torch.float64):
    return torch.randn(n, ODD.z_dim, dtype=dtype)


def one_hot(n=2, dtype=torch.float64):
    return torch.eye(3, dtype=dtype)[torch.arange(n) % 3]


@torch.no_grad()
@pytest.mark.parametrize("resolution", [8, 16])
def test_generator_fade_in_starts_at_the_upsampled_lower_resolution(resolution):
    network, z = generator(), latents()
    start = network(z, resolution=resolution, alpha=0.0, noise="const")
    below = network(z, resolution=resolution // 2, noise="const")
    assert_close(start, upsample(below), rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("resolution", [8, 16])
def test_discriminator_fade_in_starts_at_the_logits_of_half_size(resolution):
    network = Discriminator(ODD).double()
    half = torch.randn(4, 3, resolution // 2, resolution // 2, dtype=torch.float64)
    assert_close(network(upsample(half), alpha=0.0), network(half), rtol=0, atol=1e-12)


@pytest.mark.parametrize("config", [ODD, LABELED, replace(ODD, styles=False)])
@pytest.mark.parametrize(("resolution", "alpha"), STAGES)
def test_generator_active_parameters_are_those_with_a_gradient(config, resolution, alpha):
    network = generator(config)
    labels = one_hot() if config.label_dim else None
    images = network(latents(), labels, resolution=resolution, alpha=alpha)
    images.square().sum().backward()
    found = {p for p in network.parameters() if p.grad is not None}
    assert found == set(network.active_parameters(resolution, alpha))


@pytest.mark.parametrize(("resolution", "alpha"), STAGES)
def test_discriminator_active_parameters_are_those_with_a_gradient(resolution, alpha):
    network = Discriminator(ODD)
    network(torch.randn(4, 3, resolution, resolution), alpha=alpha).sum().backward()
    found = {p for p in network.parameters() if p.grad is not None}
    assert found == set(network.active_parameters(resolution, alpha))


@torch.no_grad()
def test_labels_select_an_embedding_and_a_logit():
    g, d, z = generator(LABELED), Discriminator(LABELED).double(), latents(3)
    images = g(z, one_hot(3), noise="const")
    assert not torch.allclose(images, g(z, one_hot(3).roll(1, 0), noise="const"))
    logits = torch.stack([d(images, one.expand(3, 3)) for one in one_hot(3)], dim=1)
    weights = torch.rand(3, 3, dtype=torch.float64)
    assert_close(d(images, weights), (logits * weights).sum(dim=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("config", "labels", "message"),
    [
        (ODD, one_hot(2), "labels must be None for a network without labels"),
        (LABELED, None, r"labels must have shape \(2, 3\), got none"),
        (LABELED, torch.zeros(1, 3), r"labels must have shape \(2, 3\), got \(1, 3\)"),
    ],
)
def test_networks_require_labels_exactly_if_label_dim_is_set(config, labels, message):
    with pytest.raises(ValueError, match=message):
        Generator(config).double()(latents(), labels)
    with pytest.raises(ValueError, match=message):
        Discriminator(config)(torch.zeros(2, 3, 16, 16), labels)


@torch.no_grad()
def test_generator_noise_is_const_random_none_or_given():
    network, z = generator(), latents()
    layers = network.synthesis.epilogues(16)
    const = network(z, noise="const")
    assert torch.equal(const, network(z, noise="const"))
    assert torch.equal(const, network(z, noise=[layer.noise.const for layer in layers]))
    assert not torch.equal(network(z, noise="random"), network(z, noise="random"))
    silent = network(z, noise=[torch.zeros_like(layer.noise.const) for layer in layers])
    # Without noise the first image is constant, and to normalize that enlarges round-off.
    assert_close(network(z, noise="none"), silent, rtol=0, atol=1e-7)
    each = [torch.randn(2, *layer.noise.const.shape[1:]).double() for layer in layers]
    second = network(z[1:], noise=[m[1:] for m in each])
    assert_close(network(z, noise=each)[1:], second, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("noise", ["const", "random", "given"])
def test_noise_maps_are_zero_for_layers_without_noise(noise):
    network, silent, z = generator(), generator(), latents()
    for layer in network.synthesis.epilogues(8):  # the ablation: none below 16x16
        layer.noise = None
    for layer in silent.synthesis.epilogues(8):
        layer.noise.strength.zero_()
    for mine, its in zip(*(g.synthesis.epilogues(16)[4:] for g in (network, silent)), strict=True):
        mine.noise.const.copy_(its.noise.const)
    maps = network.synthesis.noise_maps(2, 16, "const")
    assert [m.shape[-1] for m in maps] == [4, 4, 8, 8, 16, 16]
    assert [bool(m.any()) for m in maps] == [False] * 4 + [True] * 2
    assert_close(network(z, noise=maps), network(z, noise="const"))
    drawn = network.synthesis.noise_maps(2, 16, "random")
    assert [len(m) for m in drawn] == [1] * 4 + [2] * 2
    assert network(z, noise=drawn).isfinite().all()
    if noise == "given":
        noise = [torch.randn(2, 1, r, r).double() for r in (4, 4, 8, 8, 16, 16)]
    made = network(z, noise=noise)
    assert made.shape == (2, 3, 16, 16)
    if noise != "random":
        assert_close(made, silent(z, noise=noise))


def synthesize(**options):
    return generator()(latents(), **options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: synthesize(noise="loud"), "'const', 'random', 'none' or a list.*'loud'"),
        (lambda: synthesize(noise=[torch.zeros(1, 1, 4, 4)]), "6 maps, got 1"),
        (lambda: synthesize(noise=[torch.zeros(1, 1, 4, 4)] * 6), r"8, 8\).*\(1, 1, 4, 4\)"),
        (lambda: synthesize(resolution=32), "from 4 to 16, got 32"),
        (lambda: synthesize(alpha=1.5), "alpha .* 1.5"),
        (lambda: synthesize(cutoff=-2, psi=0.5), "cutoff .* -2"),
        (lambda: synthesize(psi=float("nan")), "psi .* nan"),
        (lambda: generator()(torch.zeros(2, 7)), r"z .*\(N, 5\).*\(2, 7\)"),
        (lambda: generator()(torch.zeros(0, 5)), "z must not be empty"),
        (lambda: Discriminator(ODD)(torch.zeros(0, 3, 16, 16)), "images must not be empty"),
        (lambda: generator().synthesis(torch.zeros(2, 4, 5)), r"ws .*\(N, 6, 7\).*\(2, 4, 5\)"),
        (lambda: Discriminator(ODD)(torch.zeros(1, 3, 8, 4)), r"images .*\(1, 3, 8, 4\)"),
    ],
)
def test_networks_refuse_arguments_that_do_not_fit(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_network_config_channels_equal_the_paper():
    widths = [NetworkConfig().channels(r) for r in (2, 4, 32, 64, 128, 256, 512, 1024)]
    assert widths == [512, 512, 512, 256, 128, 64, 32, 16]
    assert NetworkConfig().num_ws() == 18
    assert replace(ODD, channel_base=100, channel_decay=0.5, max_channels=60).channels(16) == 35


def test_generator_at_1024_has_the_published_parameter_count():
    with torch.device("meta"):
        network = Generator(NetworkConfig())
    assert sum(p.numel() for p in network.parameters()) == 26_219_627


def test_generator_starts_with_the_official_initial_values():
    config = NetworkConfig(
        resolution=32, max_channels=64, z_dim=64, w_dim=64, mapping_width=64, label_dim=20
    )
    checked = 0
    for name, value in Generator(config).state_dict().items():
        if name.endswith((".bias", ".strength", "w_avg")):
            assert not value.any(), name
        elif name == "synthesis.input.const":
            assert (value == 1).all()
        else:  # weights, noise maps, label embedding
            std = 100.0 if name.startswith("mapping.layers") else 1.0
            spread = 4 / (2 * value.numel()) ** 0.5  # four standard errors
            assert value.mean().item() == pytest.approx(0, abs=2 * spread * std), name
            assert value.std().item() == pytest.approx(std, rel=spread), name
            checked += 1
    assert checked == 1 + 8 + 8 + 8 + 7 + 4  # embedding, mapping, noise, styles, conv, to_rgb


def test_discriminator_starts_with_the_official_initial_values():
    for name, value in Discriminator(replace(ODD, max_channels=64)).state_dict().items():
        if name.endswith(".bias"):
            assert not value.any(), name
        else:
            spread = 4 / (2 * value.numel()) ** 0.5
            assert value.std().item() == pytest.approx(1, rel=spread), name
