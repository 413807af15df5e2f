"""The opponent of the benchmarks computes what our networks and our step compute."""

import sys
from pathlib import Path

import pytest
import torch
from tiny_training import NETWORK, reals_for, stage, tiny_config
from torch.testing import assert_close
from two_processes import float64_state

from stylegan import losses
from stylegan.training import Share, draw, train_step

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from textbook import (  # noqa: E402
    TextbookDiscriminator,
    TextbookGenerator,
    TextbookState,
    textbook_step,
    textbook_weights,
)

NARROWING = NETWORK | {"channel_base": 24, "mapping_layers": 8}  # 6, 6 and 3 channels
SHARE = Share(dtype=torch.float64)
GROWTH = [(4, 1.0), (4, 0.3), (8, 0.0), (8, 0.3), (8, 1.0), (16, 0.6), (16, 1.0)]


def pair(**options):
    """Our state with random weights in float64, and the textbook's of the same weights."""
    ours = float64_state(tiny_config(network=NARROWING, **options))
    ours.generator.w_avg.normal_()
    ours.generator_ema.load_state_dict(ours.generator.state_dict())
    weights = ours.generator.state_dict(), ours.discriminator.state_dict()
    return ours, TextbookState.create(ours.config, *weights)


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
def test_images_and_the_gradients_of_their_loss_are_ours(resolution, alpha, noise):
    ours, textbook = pair()
    z = torch.randn(4, NETWORK["z_dim"], dtype=torch.float64)
    maps = ours.generator.synthesis.noise_maps(4, resolution, "random")
    options = {
        "resolution": resolution,
        "alpha": alpha,
        "noise": maps if noise == "list" else noise,
    }
    images = [g(z, psi=0.7, **options) for g in (ours.generator, textbook.generator)]
    assert_close(images[1], images[0], rtol=0, atol=1e-12)
    logits = (
        ours.discriminator(images[0], alpha=alpha),
        textbook.discriminator(images[1], alpha),
    )
    for of_one in logits:
        losses.nonsaturating(of_one).backward()
    assert_equal_numbers(gradients(textbook.generator), gradients(ours.generator), 1e-12)


@pytest.mark.parametrize("batch", [2, 4, 8])
@pytest.mark.parametrize(("resolution", "alpha"), GROWTH)
def test_logits_r1_and_its_gradients_are_ours(resolution, alpha, batch):
    ours, textbook = pair()
    reals = reals_for(stage(resolution, alpha, batch), torch.float64).requires_grad_()
    logits = (
        ours.discriminator(reals, alpha=alpha),
        textbook.discriminator(reals, alpha),
    )
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
def test_three_steps_move_every_weight_as_ours_do(growth, mixing):
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


@pytest.mark.parametrize(("resolution", "alpha"), [(4, 1.0), (8, 0.3), (8, 1.0), (16, 1.0)])
def test_adam_keeps_state_of_exactly_the_active_parameters(resolution, alpha):
    ours, textbook = pair()
    now = stage(resolution, alpha)
    textbook_step(
        textbook, reals_for(now, torch.float64), now, draw(ours.config, 0, now, None, SHARE)
    )
    for name, optimizer in (
        ("generator", textbook.g_optimizer),
        ("discriminator", textbook.d_optimizer),
    ):
        network = getattr(ours, name)
        active = {id(p) for p in network.active_parameters(resolution, alpha)}
        ours_by_name = {n: p for n, p in network.named_parameters() if id(p) in active}
        found = {n for n, p in getattr(textbook, name).named_parameters() if optimizer.state[p]}
        assert found == textbook_weights(ours_by_name).keys()


def test_random_noise_is_drawn_for_every_image():
    _, textbook = pair()
    z = torch.ones(2, NETWORK["z_dim"], dtype=torch.float64)
    first, second = textbook.generator(z)
    assert (first - second).abs().max() > 0.01
    assert torch.equal(*textbook.generator(z, noise="const"))


@pytest.mark.parametrize(
    "options",
    [
        {"generator_loss": "saturating"},
        {"precision": "bf16"},
        {"network": {"blur": False}},
        {"network": {"label_dim": 3}},
    ],
)
def test_what_is_not_the_papers_is_refused(options):
    config = tiny_config(**options)
    (name,) = options.get("network", options)
    with pytest.raises(ValueError, match=f"leave out {name}"):
        TextbookState.create(config, {}, {})
    if "network" in options:
        for network in (TextbookGenerator, TextbookDiscriminator):
            with pytest.raises(ValueError, match=f"leave out {name}"):
                network(config.network)
