"""The mathematics of the networks against closed forms and plain loops, in float64."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from stylegan.ops import (
    adain,
    blur,
    downsample,
    epilogue,
    formulas,
    leaky_relu,
    minibatch_stddev,
    pixel_norm,
    truncate,
    upsample,
)
from stylegan.ops.cpu import pointwise


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("function", [leaky_relu, formulas.leaky_relu])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_leaky_relu_has_slope_one_at_zero_and_a_fifth_below(dtype, function):
    x = torch.tensor([-3.0, -1e-4, 0.0, 2.0], dtype=dtype, requires_grad=True)
    y = function(x)
    assert_close(y.detach(), torch.tensor([-0.6, -2e-5, 0.0, 2.0], dtype=dtype))
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert_close(grad, torch.tensor([0.2, 0.2, 1.0, 1.0], dtype=dtype), rtol=0, atol=0)


@pytest.mark.parametrize("images", [1, 3])
def test_epilogue_adds_noise_and_bias_in_full_precision(images):
    relu = partial(epilogue, style=None, activation="relu", normalize_channels=False)
    x, strength, bias = normal(3, 4, 4, 4), normal(4, seed=1), normal(4, seed=2)
    noise = normal(images, 1, 4, 4, seed=3).float()
    expected = x + noise * strength[:, None, None] + bias[:, None, None]
    found = relu(x.clone(), noise, strength, bias)
    assert_close(found, expected.relu(), rtol=0, atol=1e-14)
    x, strength, bias = x.float().requires_grad_(), strength.float(), bias.float()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = relu(x.bfloat16(), noise, strength, bias)
    assert rounded.dtype == torch.bfloat16
    assert_close(rounded.double(), expected.relu(), rtol=0, atol=0.05)


def test_pixel_norm_gives_every_feature_vector_unit_mean_square():
    x = 5 * normal(2, 6, 3, 3)
    assert_close(
        pixel_norm(x).square().mean(dim=1), torch.ones(2, 3, 3).double(), rtol=0, atol=1e-7
    )
    assert_close(pixel_norm(3 * x), pixel_norm(x), rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("large", [0, 10**9])
@pytest.mark.parametrize("n", [1, 2])
def test_adain_gradients_do_not_depend_on_memory_format(monkeypatch, n, large, dtype):
    monkeypatch.setattr(pointwise, "LARGE_IMAGE", large)
    x, grad = normal(n, 3, 4, 4).to(dtype), normal(n, 3, 4, 4, seed=1).to(dtype)
    scale, bias, found = torch.ones(n, 3, dtype=dtype), torch.zeros(n, 3, dtype=dtype), []
    orders = (torch.contiguous_format, torch.channels_last)
    for of_x, of_grad in itertools.product(orders, orders):
        leaf = x.clone(memory_format=of_x).requires_grad_()
        y = adain(leaf, scale, bias)
        found += torch.autograd.grad(y, leaf, grad.clone(memory_format=of_grad))
    leaf = x.clone().requires_grad_()
    mean = leaf.mean(dim=(2, 3), keepdim=True)
    y = (leaf - mean) * torch.rsqrt((leaf - mean).square().mean(dim=(2, 3), keepdim=True) + 1e-8)
    (expected,) = torch.autograd.grad(y, leaf, grad)
    for each in found:
        assert_close(each, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wanted", [False, True], ids=["values", "derivatives"])
@pytest.mark.parametrize("large", [0, 10**9], ids=["image by image", "at once"])
@pytest.mark.parametrize("n", [1, 3])
def test_epilogue_in_bfloat16_rounds_the_float64_result(monkeypatch, n, large, wanted):
    monkeypatch.setattr(pointwise, "LARGE_IMAGE", large)
    x = normal(n, 5, 8, 8).to(memory_format=torch.channels_last)
    noise, strength, bias = normal(n, 1, 8, 8, seed=1), normal(5, seed=2), normal(5, seed=3)
    style = normal(n, 5, seed=4) + 1, normal(n, 5, seed=5)
    parameters = [strength.requires_grad_(wanted), bias.requires_grad_(wanted)]
    exact = formulas.epilogue(x.clone(), noise, *parameters, style)
    half = [v.detach().float().requires_grad_(wanted) for v in parameters]
    with torch.set_grad_enabled(wanted), torch.autocast("cpu", torch.bfloat16):
        y = epilogue(x.bfloat16(), noise.float(), *half, (style[0].float(), style[1].float()))
    assert y.dtype == torch.bfloat16
    assert relative_error(y, exact) < 0.006
    if wanted:
        grad = normal(*y.shape, seed=6)
        for found, expected in zip(
            torch.autograd.grad(y, half, grad.bfloat16()),
            torch.autograd.grad(exact, parameters, grad),
            strict=True,
        ):
            assert relative_error(found, expected) < 0.02


def relative_error(found, expected):
    return (found.detach().double() - expected.detach()).norm() / expected.detach().norm()


def test_statistics_stay_exact_over_a_million_pixels():
    x = (3 * torch.randn(1, 2, 1024, 1024) + 1.7).to(memory_format=torch.channels_last)
    mean, variance = pointwise.statistics(x)
    exact = x.double()
    assert_close(mean.double(), exact.mean(dim=(0, 2, 3)), rtol=0, atol=1e-5)
    assert_close(variance.double(), exact.var(dim=(0, 2, 3), correction=0), rtol=2e-5, atol=0)


def test_pixel_norm_of_float16_does_not_overflow():
    x = torch.full((1, 4, 2, 2), 3e4, dtype=torch.float16)
    assert_close(pixel_norm(x), torch.ones_like(x))


def test_upsample_repeats_and_downsample_averages():
    x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert upsample(x)[0, 0].tolist() == [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]
    assert downsample(x).item() == 2.5
    assert_close(downsample(upsample(x)), x, rtol=0, atol=0)


def test_blur_matches_hand_computation():
    impulse = torch.zeros(1, 1, 3, 3)
    impulse[..., 1, 1] = 16
    assert blur(impulse)[0, 0].tolist() == [[1, 2, 1], [2, 4, 2], [1, 2, 1]]
    # zeros beyond the border: 4 + 2 + 2 + 1 sixteenths reach each corner
    assert blur(torch.full((2, 3, 2, 2), 16.0)).unique().tolist() == [9]


def test_adain_matches_hand_computation():
    x = torch.tensor([[[[1.0, 3], [1, 3]], [[0, 0], [0, 8]]]], dtype=torch.float64)
    # mean 2, deviation 1; mean 2, deviation sqrt(12)
    y = adain(x, torch.tensor([[10.0, 12**0.5]]).double(), torch.tensor([[5.0, 0]]).double())
    expected = torch.tensor([[[[-5.0, 15], [-5, 15]], [[-2, -2], [-2, 6]]]], dtype=torch.float64)
    assert_close(y, expected, rtol=0, atol=1e-6)


def deviation_by_hand(x, group_size, features):
    """A loop over features, groups and pixels."""
    n, c, h, w = x.shape
    group_size = min(group_size, n)
    groups, per_feature = n // group_size, c // features
    out = np.zeros((n, features, h, w))
    for i in range(n):
        members = [j for j in range(n) if j % groups == i % groups]
        assert len(members) == group_size
        for f in range(features):
            values = x[members, f * per_feature : (f + 1) * per_feature]
            out[i, f] = np.sqrt(values.var(axis=0) + 1e-8).mean()
    return np.concatenate([x, out], axis=1)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 12])
@pytest.mark.parametrize("features", [1, 2, 6])
def test_minibatch_stddev_equals_a_loop(n, features):
    x = normal(n, 6, 4, 4)
    expected = torch.from_numpy(deviation_by_hand(x.numpy(), 4, features))
    assert_close(minibatch_stddev(x, 4, features), expected, rtol=0, atol=1e-12)


def test_minibatch_stddev_refuses_indivisible_batches_and_channels():
    with pytest.raises(ValueError, match=r"batch of 6 images .* groups of 4"):
        minibatch_stddev(normal(6, 4, 4, 4), 4)
    with pytest.raises(ValueError, match=r"4 channels .* 3 deviation features"):
        minibatch_stddev(normal(4, 4, 4, 4), 4, 3)


def test_minibatch_stddev_of_equal_images_has_a_finite_gradient():
    x = torch.ones(4, 2, 4, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(minibatch_stddev(x, 4)[:, 2:].sum(), x)
    assert_close(grad, torch.zeros_like(x))


@pytest.mark.parametrize("psi", [-0.8, 0.0, 0.5, 1.3])
@pytest.mark.parametrize("cutoff", [None, 1, 3, 6, 9])
def test_truncate_scales_the_distance_to_w_avg_by_psi(psi, cutoff):
    ws, w_avg = normal(2, 6, 5), normal(5, seed=1)
    reached = torch.arange(6) < (6 if cutoff is None else cutoff)
    expected = torch.where(reached[:, None], w_avg + psi * (ws - w_avg), ws)
    assert_close(truncate(ws, w_avg, psi, cutoff), expected, rtol=0, atol=1e-14)


def test_truncate_accepts_an_integer_psi():
    ws, w_avg = torch.randn(2, 6, 4), torch.randn(4)
    for psi in (2, 10**29):
        assert torch.equal(truncate(ws, w_avg, psi, 3), truncate(ws, w_avg, float(psi), 3))


def test_truncate_with_psi_one_or_no_layers_changes_no_bit():
    ws, w_avg = normal(2, 6, 5), normal(5, seed=1)
    for psi, cutoff in ((1.0, None), (1, 3), (0.5, 0)):
        assert torch.equal(truncate(ws, w_avg, psi, cutoff), ws)
