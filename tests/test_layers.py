"""Equalized layers, fused resampling, noise and style."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from stylegan.layers import (
    Epilogue,
    EqualizedConv2d,
    EqualizedConvDown2d,
    EqualizedConvTranspose2d,
    EqualizedLinear,
    NoiseInput,
    Style,
)
from stylegan.ops import downsample, epilogue, upsample


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def std(x):
    return x.std().item()


@torch.no_grad()
def test_equalized_layers_keep_unit_variance():
    # gain 1: without the loss that the activation causes and that HE_GAIN makes up for
    assert std(EqualizedLinear(256, 256, gain=1)(torch.randn(64, 256))) == pytest.approx(
        1, abs=0.03
    )
    x = torch.randn(4, 64, 16, 16)
    inside = EqualizedConv2d(64, 64, 3, gain=1)(x)[..., 1:-1, 1:-1]
    assert std(inside) == pytest.approx(1, abs=0.03)


@torch.no_grad()
def test_the_he_gain_keeps_the_mean_square_through_a_relu():
    x = F.relu(EqualizedLinear(256, 1024)(torch.randn(64, 256)))
    assert x.square().mean().item() == pytest.approx(1, abs=0.03)


LAYERS = {
    "linear": lambda **options: EqualizedLinear(30, 200, **options),
    "conv": lambda **options: EqualizedConv2d(30, 40, 3, **options),
    "up": lambda **options: EqualizedConvTranspose2d(30, 40, **options),
    "down": lambda **options: EqualizedConvDown2d(30, 40, **options),
}
FAN_IN = {"linear": 30, "conv": 270, "up": 270, "down": 270}


@pytest.mark.parametrize("kind", LAYERS)
def test_initial_weights_are_normal_and_biases_zero(kind):
    layer = LAYERS[kind]()
    he_constant = math.sqrt(2 / FAN_IN[kind])
    assert std(layer.weight) == pytest.approx(1, abs=0.04)
    assert layer.weight_scale == pytest.approx(he_constant)
    assert layer.bias is None or not layer.bias.any()
    plain = LAYERS[kind](equalized=False)
    assert std(plain.weight) == pytest.approx(he_constant, rel=0.04)
    assert plain.weight_scale == 1


@pytest.mark.parametrize("equalized", [True, False])
def test_initial_weights_are_divided_by_the_lr_multiplier(equalized):
    layer = EqualizedLinear(30, 200, lr_multiplier=0.01, gain=0.5, equalized=equalized)
    he_constant = 0.5 / math.sqrt(30)
    assert std(layer.weight) == pytest.approx(100 * (1 if equalized else he_constant), rel=0.04)
    assert layer.weight_scale == pytest.approx(0.01 * (he_constant if equalized else 1))


def test_lr_multiplier_scales_the_gradient_but_not_the_output():
    plain, slow = EqualizedLinear(5, 4).double(), EqualizedLinear(5, 4, lr_multiplier=0.01).double()
    with torch.no_grad():
        plain.bias.normal_()
        slow.weight.copy_(plain.weight / 0.01)
        slow.bias.copy_(plain.bias / 0.01)
    x = torch.randn(3, 5, dtype=torch.float64)
    assert_close(slow(x), plain(x))
    for layer in (plain, slow):
        layer(x).square().sum().backward()
    assert_close(slow.weight.grad, 0.01 * plain.weight.grad)
    assert_close(slow.bias.grad, 0.01 * plain.bias.grad)


def test_fused_upscaling_equals_enlargement_then_convolution():
    layer = EqualizedConvTranspose2d(5, 4).double()
    x = torch.randn(2, 5, 6, 6, dtype=torch.float64)
    kernel = layer.weight.transpose(0, 1) * layer.weight_scale
    separate = F.conv2d(upsample(x), kernel, padding=1)
    assert_close(layer(x), separate, rtol=0, atol=1e-12)


def test_fused_downscaling_equals_convolution_then_averaging():
    layer = EqualizedConvDown2d(5, 4).double()
    with torch.no_grad():
        layer.bias.normal_()
    x = torch.randn(2, 5, 6, 6, dtype=torch.float64)
    separate = downsample(F.conv2d(x, layer.weight * layer.weight_scale, layer.bias, padding=1))
    assert_close(layer(x), separate, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_can_be_differentiated_twice(kind):
    shape = (1, 30) if kind == "linear" else (1, 30, 4, 4)
    layer = LAYERS[kind]().double()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), layer.weight)
    assert second.isfinite().all()
    assert second.abs().max() > 0


def test_noise_starts_without_effect_and_is_one_map_for_all_channels():
    noise = NoiseInput(3, 64).double()
    assert std(noise.const) == pytest.approx(1, abs=0.05)
    x = torch.rand(2, 3, 64, 64).double() + 20  # beyond the reach of the activation
    drawn, bias = torch.randn(2, 1, 64, 64).double(), torch.zeros(3).double()

    def noisy() -> torch.Tensor:
        return epilogue(x, drawn, noise.strength, bias, None, normalize_channels=False)

    assert torch.equal(noisy(), x)
    with torch.no_grad():
        noise.strength.copy_(torch.tensor([0.0, 1.0, -2.0]))
    added = noisy() - x
    assert_close(added, torch.cat([0 * drawn, drawn, -2 * drawn], dim=1), rtol=0, atol=1e-12)


def test_a_new_style_scales_by_about_one_around_its_first_half():
    style = Style(6, 4).double()
    w = torch.randn(5, 6, dtype=torch.float64)
    scale, bias = style(w)
    assert_close(torch.cat([scale - 1, bias], dim=1), style.affine(w))
    assert_close(style(0 * w), (torch.ones_like(scale), torch.zeros_like(bias)))
    assert style.affine.weight_scale == pytest.approx(1 / math.sqrt(6))  # gain 1


def test_epilogue_is_noise_bias_activation_normalization_style_in_this_order():
    epilogue = Epilogue(3, 4, 5).double()
    with torch.no_grad():
        for parameter in epilogue.parameters():
            parameter.normal_()
    x, w = torch.randn(2, 3, 4, 4).double(), torch.randn(2, 5).double()
    noise = torch.randn(2, 1, 4, 4).double()
    y = x + noise * epilogue.noise.strength[:, None, None] + epilogue.bias[:, None, None]
    y = F.leaky_relu(y, 0.2)
    y = F.instance_norm(y, eps=1e-8)
    scale, bias = epilogue.style(w)
    expected = y * scale[:, :, None, None] + bias[:, :, None, None]
    assert_close(epilogue(x, w, noise), expected, rtol=0, atol=1e-12)


def test_large_gradients_of_the_mapping_layers_stay_in_the_range_of_float16():
    torch.manual_seed(0)
    layer = EqualizedLinear(512, 512, lr_multiplier=0.01)
    x = torch.randn(8, 512, requires_grad=True)
    with torch.autocast("cpu", torch.float16):
        y = layer(x)
    y.backward(40 * torch.randn_like(y))
    assert x.grad is not None
    assert x.grad.isfinite().all()
