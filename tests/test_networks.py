"""Generator and discriminator: growth, truncation, noise, labels, initial values, errors."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from stylegan.networks import Discriminator, Generator, NetworkConfig, SynthesisNetwork
from stylegan.ops import upsample

TINY = NetworkConfig(
    resolution=16, max_channels=8, z_dim=6, w_dim=5, mapping_layers=2, mapping_width=7
)
LABELLED = replace(TINY, label_dim=3)
STAGES = [(r, alpha) for r in (4, 8, 16) for alpha in (0.0, 0.3, 1.0)]
DTYPES = [torch.float32, torch.float64]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def generator(config=TINY, dtype=torch.float64):
    """A generator none of whose parts is without effect."""
    network = Generator(config).to(dtype)
    with torch.no_grad():
        for layer in network.synthesis.noise_layers(config.resolution):
            layer.bias.normal_()
            if layer.noise is not None:
                layer.noise.strength.normal_()
        network.w_avg.normal_()
    return network


def latents(n=2, dtype=torch.float64):
    return torch.randn(n, TINY.z_dim, dtype=dtype)


def one_hot(n=2, dtype=torch.float64):
    return torch.eye(3, dtype=dtype)[torch.arange(n) % 3]


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("resolution", "alpha"), STAGES)
def test_every_stage_runs_through_both_networks_at_its_own_size(resolution, alpha, dtype):
    images = generator(dtype=dtype)(latents(dtype=dtype), resolution=resolution, alpha=alpha)
    assert images.shape == (2, 3, resolution, resolution)
    logits = Discriminator(TINY).to(dtype)(images, alpha=alpha)
    assert logits.shape == (2,)
    assert images.dtype == logits.dtype == dtype
    assert logits.isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("resolution", [8, 16])
def test_fade_in_starts_at_the_upsampled_lower_resolution(resolution):
    network, z = generator(), latents()
    start = network(z, resolution=resolution, alpha=0.0, noise="const")
    below = network(z, resolution=resolution // 2, noise="const")
    assert_close(start, upsample(below), rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("resolution", [8, 16])
def test_the_discriminator_starts_a_fade_in_with_what_it_thought_of_the_half_size(resolution):
    network = Discriminator(TINY).double()
    half = torch.randn(4, 3, resolution // 2, resolution // 2, dtype=torch.float64)
    assert_close(network(upsample(half), alpha=0.0), network(half), rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_fade_in_is_linear_in_alpha():
    network, z = generator(), latents()
    a, b, c = (network(z, alpha=alpha, noise="const") for alpha in (0.0, 0.25, 1.0))
    assert_close(b, 0.75 * a + 0.25 * c, rtol=0, atol=1e-12)


@pytest.mark.parametrize("config", [TINY, LABELLED, replace(TINY, styles=False)])
@pytest.mark.parametrize(("resolution", "alpha"), STAGES)
def test_active_parameters_of_the_generator_are_those_with_a_gradient(config, resolution, alpha):
    network = generator(config)
    labels = one_hot() if config.label_dim else None
    images = network(latents(), labels, resolution=resolution, alpha=alpha)
    images.square().sum().backward()
    found = {p for p in network.parameters() if p.grad is not None}
    assert found == set(network.active_parameters(resolution, alpha))


@pytest.mark.parametrize(("resolution", "alpha"), STAGES)
def test_active_parameters_of_the_discriminator_are_those_with_a_gradient(resolution, alpha):
    network = Discriminator(TINY)
    network(torch.randn(4, 3, resolution, resolution), alpha=alpha).sum().backward()
    found = {p for p in network.parameters() if p.grad is not None}
    assert found == set(network.active_parameters(resolution, alpha))


def test_at_full_size_all_but_the_lower_rgb_layers_are_active():
    for network in (generator(), Discriminator(TINY)):
        idle = set(network.parameters()) - set(network.active_parameters(16, 1.0))
        names = {
            n.split(".weight")[0].split(".bias")[0]
            for n, p in network.named_parameters()
            if p in idle
        }
        assert all("rgb.4" in n or "rgb.8" in n for n in names)
        assert len(names) == 2


@torch.no_grad()
def test_rows_of_ws_beyond_the_resolution_are_ignored():
    network = generator().synthesis
    ws = torch.randn(2, 6, TINY.w_dim, dtype=torch.float64)
    changed = ws.clone()
    changed[:, 4:] += 1
    images = network(ws, resolution=8, noise="const")
    assert torch.equal(images, network(changed, resolution=8, noise="const"))
    changed[:, 3] += 1
    assert not torch.equal(images, network(changed, resolution=8, noise="const"))


@torch.no_grad()
def test_every_row_of_ws_drives_its_own_layer():
    network = generator().synthesis
    ws = torch.randn(1, 6, TINY.w_dim, dtype=torch.float64)
    images = network(ws, noise="const")
    for i in range(6):
        changed = ws.clone()
        changed[:, i] += 1
        assert not torch.equal(images, network(changed, noise="const"))


def test_forward_changes_no_state():
    for training, (resolution, alpha) in itertools.product((True, False), STAGES):
        g, d = generator().train(training), Discriminator(TINY).double().train(training)
        before = [{k: v.clone() for k, v in n.state_dict().items()} for n in (g, d)]
        d(g(latents(), psi=0.5, resolution=resolution, alpha=alpha), alpha=alpha)
        for network, state in zip((g, d), before, strict=True):
            assert all(torch.equal(v, state[k]) for k, v in network.state_dict().items())


@torch.no_grad()
def test_training_and_evaluation_mode_are_the_same():
    network, z = generator(), latents()
    trained = network.train()(z, psi=0.5, noise="const")
    assert torch.equal(trained, network.eval()(z, psi=0.5, noise="const"))


@torch.no_grad()
def test_truncation_pulls_the_first_layers_toward_the_average():
    network, z = generator(), latents()
    w = network.mapping(z)
    for psi, cutoff in itertools.product((-0.5, 0.0, 0.7, 1.5), (None, 0, 2, 6)):
        ws = network.broadcast(w).clone()
        ws[:, :cutoff] = network.w_avg + psi * (ws[:, :cutoff] - network.w_avg)
        expected = network.synthesis(ws, noise="const")
        images = network(z, psi=psi, cutoff=cutoff, noise="const")
        assert_close(images, expected, rtol=0, atol=1e-11)


@torch.no_grad()
def test_psi_one_is_no_truncation_and_psi_zero_the_average_image():
    network, z = generator(), latents()
    plain = network.synthesis(network.broadcast(network.mapping(z)), noise="const")
    assert torch.equal(network(z, psi=1.0, cutoff=3, noise="const"), plain)
    first, second = network(z, psi=0.0, noise="const")
    assert_close(first, second, rtol=0, atol=1e-12)


@torch.no_grad()
def test_labels_select_an_embedding_and_a_logit():
    g, d, z = generator(LABELLED), Discriminator(LABELLED).double(), latents(3)
    images = g(z, one_hot(3), noise="const")
    assert not torch.allclose(images, g(z, one_hot(3).roll(1, 0), noise="const"))
    logits = torch.stack([d(images, one.expand(3, 3)) for one in one_hot(3)], dim=1)
    weights = torch.rand(3, 3, dtype=torch.float64)
    assert_close(d(images, weights), (logits * weights).sum(dim=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("config", "labels", "message"),
    [
        (TINY, one_hot(2), "labels were given to a network without labels"),
        (LABELLED, None, r"labels of shape \(2, 3\) are needed; none were given"),
        (LABELLED, torch.zeros(2, 4), r"labels of shape \(2, 3\) are needed; found \(2, 4\)"),
        (LABELLED, torch.zeros(1, 3), r"labels of shape \(2, 3\) are needed; found \(1, 3\)"),
    ],
)
def test_labels_are_given_exactly_when_needed(config, labels, message):
    with pytest.raises(ValueError, match=message):
        Generator(config).double()(latents(), labels)
    with pytest.raises(ValueError, match=message):
        Discriminator(config)(torch.zeros(2, 3, 16, 16), labels)


@torch.no_grad()
def test_noise_is_stored_drawn_given_or_left_out():
    network, z = generator(), latents()
    layers = network.synthesis.noise_layers(16)
    const = network(z, noise="const")
    assert torch.equal(const, network(z, noise="const"))
    assert torch.equal(const, network(z, noise=[layer.noise.const for layer in layers]))
    assert not torch.equal(network(z, noise="random"), network(z, noise="random"))
    silent = network(z, noise=[torch.zeros_like(layer.noise.const) for layer in layers])
    assert_close(network(z, noise="none"), silent, rtol=0, atol=0)
    each = [torch.randn(2, *layer.noise.const.shape[1:]).double() for layer in layers]
    second = network(z[1:], noise=[m[1:] for m in each])
    assert_close(network(z, noise=each)[1:], second, rtol=0, atol=1e-12)


@torch.no_grad()
def test_random_noise_differs_between_the_images_of_a_batch():
    network = generator()
    first, second = network(latents(1).expand(2, -1), noise="random")
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ("loud", "noise is 'const', 'random', 'none' or a list, not 'loud'"),
        ([torch.zeros(1, 1, 4, 4)], "6 noise maps are needed, found 1"),
        (
            [torch.zeros(1, 1, 4, 4)] * 6,
            r"noise map must be \(2 or 1, 1, 8, 8\), not \(1, 1, 4, 4\)",
        ),
        (
            [torch.zeros(3, 1, 4, 4)] * 6,
            r"noise map must be \(2 or 1, 1, 4, 4\), not \(3, 1, 4, 4\)",
        ),
    ],
)
def test_unusable_noise_is_refused(noise, message):
    with pytest.raises(ValueError, match=message):
        generator()(latents(), noise=noise)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resolution": 32}, "resolution 32 is not a power of two from 4 to 16"),
        ({"resolution": 12}, "resolution 12 is not a power of two from 4 to 16"),
        ({"resolution": 0}, "resolution 0 is not a power of two from 4 to 16"),
        ({"alpha": 1.5}, "alpha must be from 0 to 1, not 1.5"),
        ({"cutoff": -2, "psi": 0.5}, "cutoff must be None or at least 0, not -2"),
        ({"cutoff": 1.5, "psi": 0.5}, "cutoff must be None or a whole number, not 1.5"),
        ({"cutoff": "foo"}, "cutoff must be None or a whole number, not 'foo'"),
        ({"psi": float("nan")}, "psi must be a finite number of float32, not nan"),
        ({"psi": float("-inf")}, "psi must be a finite number of float32, not -inf"),
        ({"psi": 1e300}, r"psi must be a finite number of float32, not 1e\+300"),
        ({"psi": 10**400}, "psi must be a finite number of float32, not 1000"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        generator()(latents(), **options)


def test_inputs_of_another_shape_are_refused():
    g, d = generator(), Discriminator(TINY)
    with pytest.raises(ValueError, match=r"latents must be \(N, 6\), not \(2, 7\)"):
        g(torch.zeros(2, 7))
    with pytest.raises(ValueError, match=r"ws must be \(N, 6, 5\), not \(2, 4, 5\)"):
        g.synthesis(torch.zeros(2, 4, 5))
    with pytest.raises(ValueError, match=r"images must be \(N, 3, r, r\), not \(1, 3, 8, 4\)"):
        d(torch.zeros(1, 3, 8, 4))
    with pytest.raises(ValueError, match=r"images must be \(N, 3, r, r\), not \(1, 1, 8, 8\)"):
        d(torch.zeros(1, 1, 8, 8))
    with pytest.raises(ValueError, match="resolution 32 is not a power of two from 4 to 16"):
        d(torch.zeros(1, 3, 32, 32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resolution": 48}, "resolution 48 is not a power of two"),
        ({"resolution": 2048}, "resolution 2048 is not a power of two from 4 to 1024"),
        ({"resolution": 2}, "resolution 2 is not a power of two from 4 to 1024"),
        ({"z_dim": 0}, "z_dim must be at least 1, not 0"),
        ({"label_dim": -1}, "label_dim must be at least 0, not -1"),
        ({"mapping_layers": 0, "z_dim": 6, "w_dim": 5}, "w_dim must be 6, not 5"),
        (
            {"mapping_layers": 0, "label_dim": 2},
            "twice z_dim long because of the labels: w_dim must be 1024, not 512",
        ),
        ({"deviation_features": 3}, "512 channels at 4x4 do not split into 3 deviation features"),
        ({"activation": "tanh"}, "activation must be lrelu or relu, not 'tanh'"),
        ({"mapping_activation": "x"}, "mapping_activation must be lrelu or relu, not 'x'"),
    ],
)
def test_a_configuration_validates_itself(options, message):
    with pytest.raises(ValueError, match=message):
        NetworkConfig(**options)


def test_the_papers_widths():
    widths = [NetworkConfig().channels(r) for r in (2, 4, 32, 64, 128, 256, 512, 1024)]
    assert widths == [512, 512, 512, 256, 128, 64, 32, 16]
    assert NetworkConfig().num_styles() == 18
    assert replace(TINY, channel_base=100, channel_decay=0.5, max_channels=60).channels(16) == 35


def test_the_1024_generator_has_the_published_number_of_parameters():
    with torch.device("meta"):
        network = Generator(NetworkConfig())
    assert sum(p.numel() for p in network.parameters()) == 26_219_627


def test_a_new_generator_has_the_official_initial_values():
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


def test_a_new_discriminator_has_the_official_initial_values():
    for name, value in Discriminator(replace(TINY, max_channels=64)).state_dict().items():
        if name.endswith(".bias"):
            assert not value.any(), name
        else:
            spread = 4 / (2 * value.numel()) ** 0.5
            assert value.std().item() == pytest.approx(1, rel=spread), name


def test_gains_are_the_official_ones():
    dense = replace(TINY, constant_input=False, equalized=False)
    g, d = Generator(dense), Discriminator(TINY)
    assert g.synthesis.input.dense.weight_scale == 1
    assert SynthesisNetwork(replace(dense, equalized=True)).input.dense.weight_scale == (
        pytest.approx((2 / 5) ** 0.5 / 4)
    )
    assert Generator(TINY).synthesis.to_rgb["4"].weight_scale == pytest.approx(8**-0.5)
    assert d.from_rgb["16"].conv.weight_scale == pytest.approx((2 / 3) ** 0.5)
    assert d.head.dense.weight_scale == pytest.approx((2 / 128) ** 0.5)
    assert d.head.out.weight_scale == pytest.approx(8**-0.5)
