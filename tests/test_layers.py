"""Equalized layers and fused resampling."""

import math

import pytest
import torch
from torch.testing import assert_close

from stylegan.layers import (
    EqualizedConv2d,
    EqualizedConvDown2d,
    EqualizedConvTranspose2d,
    EqualizedLinear,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def std(x):
    return x.std().item()


LAYERS = {
    "linear": lambda **options: EqualizedLinear(30, 200, **options),
    "conv": lambda **options: EqualizedConv2d(30, 40, 3, **options),
    "up": lambda **options: EqualizedConvTranspose2d(30, 40, **options),
    "down": lambda **options: EqualizedConvDown2d(30, 40, **options),
}
FAN_IN = {"linear": 30, "conv": 270, "up": 270, "down": 270}


@pytest.mark.parametrize("kind", LAYERS)
def test_equalized_layers_start_with_normal_weights_and_zero_bias(kind):
    layer = LAYERS[kind]()
    he_constant = math.sqrt(2 / FAN_IN[kind])
    assert std(layer.weight) == pytest.approx(1, abs=0.04)
    assert layer.weight_scale == pytest.approx(he_constant)
    assert layer.bias is None or not layer.bias.any()
    plain = LAYERS[kind](equalized=False)
    assert std(plain.weight) == pytest.approx(he_constant, rel=0.04)
    assert plain.weight_scale == 1


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


def counted(layer, scale, *biases):
    """The layer with weights 0, 1, 2, ... in their order, after a check of its He constant."""
    assert layer.weight_scale == pytest.approx(scale)
    layer.weight_scale = scale  # without its round-off
    with torch.no_grad():
        layer.weight.copy_(torch.arange(layer.weight.numel()).view(layer.weight.shape))
        if biases:
            layer.bias.copy_(torch.tensor(biases))
    return layer


@torch.no_grad()
def test_equalized_linear_matches_hand_computation():
    # weights 0 1 2 3 / 4 5 6 7 times gain / sqrt(4) * multiplier = 1/4, biases times 1/2
    layer = counted(EqualizedLinear(4, 2, gain=1, lr_multiplier=0.5), 0.25, 2.0, 4.0)
    # (0 + 1 + 2 + 12) / 4 + 1 and (4 + 5 + 6 + 28) / 4 + 2
    assert layer(torch.tensor([[1.0, 1, 1, 4]])).tolist() == [[4.75, 12.75]]


@torch.no_grad()
def test_equalized_conv2d_matches_hand_computation():
    # weights 0 1 2 / 3 4 5 / 6 7 8, gain 3 over sqrt(9): 1
    layer = counted(EqualizedConv2d(1, 1, 3, gain=3), 1, 100.0)
    # of ones: the sum of the weights that lie inside the image, 4 + 5 + 7 + 8 in the first corner
    sums = [[124, 133, 120], [127, 136, 121], [112, 115, 108]]
    assert layer(torch.ones(1, 1, 3, 3))[0, 0].tolist() == sums
    # of one pixel in the middle: the weights, turned around
    x = torch.zeros(1, 1, 3, 3)
    x[0, 0, 1, 1] = 1
    assert layer(x)[0, 0].tolist() == [[108, 107, 106], [105, 104, 103], [102, 101, 100]]
    # 1x1, two channels to one: 0 * 5 + 1 * 7, gain 2 over sqrt(2) times sqrt(2)
    layer = counted(EqualizedConv2d(2, 1, 1, gain=2 * 2**0.5), 2, 1.0)
    assert layer(torch.tensor([5.0, 7]).view(1, 2, 1, 1)).item() == 2 * 7 + 1


@torch.no_grad()
def test_equalized_up_and_down_convolutions_match_hand_computation():
    he = 2**0.5 / 3
    # one pixel becomes 2x2 equal ones, each of which meets the weights that lie inside
    up = counted(EqualizedConvTranspose2d(1, 1).double(), he)
    expected = torch.tensor([[24.0, 20], [12, 8]]).double()
    assert_close(up(torch.ones(1, 1, 1, 1).double())[0, 0], he * expected)
    # of 2x2 ones the same four numbers, averaged to 16; blurred ones are 9/16
    down = counted(EqualizedConvDown2d(1, 1).double(), he, 5.0)
    blurred = counted(EqualizedConvDown2d(1, 1, blur=True).double(), he, 5.0)
    ones = torch.ones(1, 1, 2, 2).double()
    assert down(ones).item() == pytest.approx(16 * he + 5)
    assert blurred(ones).item() == pytest.approx(9 * he + 5)
