"""Loss terms against closed forms."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stylegan import losses
from stylegan.config import build_config
from stylegan.networks import Discriminator
from stylegan.schedule import Stage
from stylegan.training.terms import (
    discriminator_images,
    discriminator_logits,
    discriminator_terms,
    penalty_weights,
)

REAL = torch.tensor([-2.0, 0.5, 3.0], dtype=torch.float64)
FAKE = torch.tensor([1.5, -0.25, -4.0], dtype=torch.float64)


def average(function, logits):
    return sum(function(x) for x in logits.tolist()) / len(logits)


def softplus(x):
    return math.log1p(math.exp(x))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (losses.nonsaturating(FAKE), average(lambda x: softplus(-x), FAKE)),
        (losses.saturating(FAKE), -average(softplus, FAKE)),
        (losses.wgan_generator(FAKE), -average(float, FAKE)),
        (losses.logistic_fake(FAKE), average(softplus, FAKE)),
        (losses.logistic_real(REAL), average(lambda x: softplus(-x), REAL)),
        (losses.wgan_fake(FAKE), average(float, FAKE)),
        (losses.wgan_real(REAL), average(lambda x: 0.001 * x * x - x, REAL)),
        (losses.wgan_real(REAL, drift=0.5), average(lambda x: 0.5 * x * x - x, REAL)),
        (losses.hinge_fake(FAKE), average(lambda x: max(0.0, 1 + x), FAKE)),
        (losses.hinge_real(REAL), average(lambda x: max(0.0, 1 - x), REAL)),
        (
            losses.DISCRIMINATOR_LOSSES["relativistic"].of(REAL, FAKE),
            average(softplus, FAKE - REAL),
        ),
        (losses.GENERATOR_LOSSES["relativistic"].of(REAL, FAKE), average(softplus, REAL - FAKE)),
    ],
)
def test_losses_equal_their_closed_forms(loss, expected):
    assert loss.shape == ()
    assert loss.item() == pytest.approx(expected, abs=1e-15)


def test_losses_of_extreme_logits_stay_finite():
    extreme = torch.tensor([-1e4, 1e4], requires_grad=True)
    for loss in (losses.nonsaturating, losses.saturating, losses.logistic_real):
        value = loss(extreme)
        (grad,) = torch.autograd.grad(value, extreme)
        assert abs(value.item()) == 5e3
        assert grad.isfinite().all()


def test_relativistic_real_signs_use_real_minus_fake_logits():
    config = build_config({"discriminator_loss": "relativistic", "r1_gamma": 0.0})
    now = Stage(4, 1.0, batch_size=3, g_lr=0.0, d_lr=0.0, tick_kimg=1)
    real = REAL.clone().requires_grad_()
    terms = discriminator_terms(config, "real", real, real, now, 0.0, FAKE + 1)
    assert {term.name: term.value.item() for term in terms}["d/real_signs"] == pytest.approx(-1 / 3)


class Linear(nn.Module):
    """D(x) = a . x, whose gradient is `a` everywhere."""

    def __init__(self, a):
        super().__init__()
        self.a = nn.Parameter(a)

    def forward(self, images, labels=None, *, alpha=1.0):
        return (images * self.a).sum(dim=(1, 2, 3))


def linear_setup():
    torch.manual_seed(0)
    a = torch.randn(3, 4, 4, dtype=torch.float64)
    images = torch.randn(5, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    return Linear(a), images


def test_r1_and_r2_penalty_of_linear_discriminator_is_squared_norm():
    d, images = linear_setup()
    squared = d.a.square().sum().item()
    for penalty in (losses.r1_penalty, losses.r2_penalty):
        value = penalty(d(images), images)
        assert value.item() == pytest.approx(squared, rel=1e-14)
        (grad,) = torch.autograd.grad(value, d.a)
        assert torch.allclose(grad, 2 * d.a, rtol=1e-14, atol=0)


@pytest.mark.parametrize("target", [1.0, 750.0])
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_gradient_penalty_of_linear_discriminator_has_closed_form(target, factor):
    d, images = linear_setup()
    penalty = losses.gradient_penalty(d(images), images, target=target, norm_factor=factor)
    norm = d.a.square().sum().sqrt().item() * factor
    assert penalty.item() == pytest.approx((norm - target) ** 2, rel=1e-13)


class Enlarging(nn.Module):
    """The discriminator as officially fed: images enlarged to the full size, read back small."""

    def __init__(self, network, factor):
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, images, labels=None, *, alpha=1.0):
        # Averages undo the enlargement, and spread the gradient evenly over its pixels.
        return self.network(F.avg_pool2d(images, self.factor), labels, alpha=alpha)


@pytest.mark.parametrize("alpha", [1.0, 0.6])
@pytest.mark.parametrize("resolution", [16, 8, 4])
def test_penalty_weights_give_the_penalties_of_enlarged_images(resolution, alpha):
    torch.manual_seed(1)
    config = build_config(
        {
            "discriminator_loss": "wgan_gp",
            "r1_gamma": 10.0,
            "r2_gamma": 3.0,
            "network": {"resolution": 16, "max_channels": 8},
        }
    )
    network = Discriminator(config.network).double()
    native = Stage(resolution, alpha, batch_size=4, g_lr=0.0, d_lr=0.0, tick_kimg=1)
    full = Stage(16, alpha, batch_size=4, g_lr=0.0, d_lr=0.0, tick_kimg=1)
    reals, fakes = torch.randn(2, 4, 3, resolution, resolution, dtype=torch.float64)
    mix = torch.rand(4, dtype=torch.float64)
    factor = 16 // resolution

    def enlarge(x):
        return x.repeat_interleave(factor, 2).repeat_interleave(factor, 3)

    def terms(network, reals, fakes, stage):
        weights = penalty_weights(config, 0, stage)
        for kind, images in discriminator_images(config, reals, fakes, mix).items():
            logits, leaf = discriminator_logits(
                config, network, images, None, stage, penalized=True
            )
            yield kind, discriminator_terms(config, kind, logits, leaf, stage, weights[kind])

    ours_of_all = dict(terms(network, reals, fakes, native))
    enlarged = enlarge(reals), enlarge(fakes)
    for kind, official in terms(Enlarging(network, factor), *enlarged, full):
        ours = ours_of_all[kind]
        for mine, theirs in zip(ours, official, strict=True):
            found, expected = mine.weight * mine.value, theirs.weight * theirs.value
            assert found.item() == pytest.approx(expected.item(), rel=1e-12), mine.name
        penalty = official[-1].value.item()
        native_size = penalty if kind == "between" else penalty * factor**2
        assert ours[-1].value.item() == pytest.approx(native_size, rel=1e-12)
