"""Every way to compute a convolution gives the same numbers, and the same first and second
derivatives, as the operations that it is made of."""

import pytest
import torch
import torch.nn.functional as F
from tiny_training import reals_for, stage, tiny_config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close
from two_processes import float64_state

from stylegan import losses
from stylegan.ops import blur, convolution, dense, linear
from stylegan.ops.bilinear import Product
from stylegan.ops.convolution import Direct, Unfolded, Winograd, box_spread, choose
from stylegan.ops.linear import Dense
from stylegan.ops.winograd import kernel_matrix
from stylegan.training import Share, draw, train_step

SCALE = 0.3
CASES = [
    (way, size, shape)
    for way in (Direct, Winograd, Unfolded)
    for size in ("same", "half", "double")
    for shape in ((3, 5, 8, 6), (1, 1, 2, 2), (2, 3, 4, 4))
    if way is not Unfolded or size == "same"
]


def in_steps(x, weight, size):
    """Enlarge, convolve, average: as the paper says it."""
    if size == "double":
        enlarged = F.interpolate(x, scale_factor=2, mode="nearest")
        return F.conv2d(enlarged, (weight * SCALE).transpose(0, 1), padding=1)
    y = F.conv2d(x, weight * SCALE, padding=1)
    return F.avg_pool2d(y, 2) if size == "half" else y


def numbers(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def inputs(size, shape, out=7):
    torch.manual_seed(0)
    x = numbers(*shape)
    channels = (shape[1], out) if size == "double" else (out, shape[1])
    return x, numbers(*channels, 3, 3)


def derivatives(y, x, weight, grad):
    """By x and weight, and of these, weighted, by everything."""
    first = torch.autograd.grad(y, (x, weight), grad, create_graph=True)
    of_x = torch.autograd.grad(first[0].pow(3).sum(), (weight, grad), retain_graph=True)
    of_weight = torch.autograd.grad(first[1].pow(3).sum(), (x, grad), retain_graph=True)
    both = first[0].square().sum() + first[1].square().sum()
    return *first, *of_x, *of_weight, *torch.autograd.grad(both, (x, weight, grad))


@pytest.mark.parametrize("part_bytes", [1, 2**24], ids=["parts", "whole"])
@pytest.mark.parametrize(("way", "size", "shape"), CASES)
def test_numbers_and_two_derivatives_are_those_of_the_single_steps(
    monkeypatch, way, size, shape, part_bytes
):
    monkeypatch.setattr(convolution, "PART_BYTES", part_bytes)
    x, weight = inputs(size, shape)
    expected = in_steps(x, weight, size)
    found = Product.apply(way(size, SCALE), x, weight)
    assert_close(found, expected, rtol=0, atol=1e-13)
    grad = numbers(*expected.shape)
    for a, b in zip(
        derivatives(found, x, weight, grad), derivatives(expected, x, weight, grad), strict=True
    ):
        assert_close(a, b, rtol=1e-12, atol=1e-12)


def dense_pair(x, weight):
    return Product.apply(Dense(SCALE), x, weight), F.linear(x, weight * SCALE)


def blurred_pair(x, weight):
    found = convolution.conv2d(x, weight, SCALE, size="half", blur_first=True)
    kernel = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]], dtype=x.dtype) / 16
    kernel = kernel.expand(x.shape[1], 1, 3, 3)
    return found, in_steps(F.conv2d(x, kernel, padding=1, groups=x.shape[1]), weight, "half")


@pytest.mark.parametrize(
    ("pair", "shapes"),
    [(dense_pair, ((3, 5), (4, 5))), (blurred_pair, ((3, 5, 8, 6), (7, 5, 3, 3)))],
)
def test_dense_layers_and_blurred_images_are_differentiated_the_same_way(pair, shapes):
    torch.manual_seed(0)
    x, weight = (numbers(*shape) for shape in shapes)
    found, expected = pair(x, weight)
    assert_close(found, expected, rtol=0, atol=1e-13)
    grad = numbers(*expected.shape)
    for a, b in zip(
        derivatives(found, x, weight, grad), derivatives(expected, x, weight, grad), strict=True
    ):
        assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_the_blurred_image_is_not_kept():
    x, weight = inputs("half", (2, 3, 8, 8))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        convolution.conv2d(x, weight, SCALE, size="half", blur_first=True)
    assert [t.shape for t in kept] == [x.shape, weight.shape]
    assert_close(kept[0], x, rtol=0, atol=0)


def test_large_dense_layers_make_gradients_in_the_order_of_the_weight(monkeypatch):
    monkeypatch.setattr(linear, "LARGE_WEIGHT", 1)
    x, weight, bias, grad = numbers(3, 5), numbers(4, 5), numbers(4), numbers(3, 4)
    y = dense(x, weight, SCALE, bias)
    assert_close(y, F.linear(x, weight * SCALE, bias), rtol=0, atol=1e-13)
    assert type(y.grad_fn.next_functions[0][0]).__name__ == "ProductBackward"
    assert Dense(SCALE).gradients(x, weight, grad, (False, True))[1].is_contiguous()
    y.sum().backward()
    assert_close(bias.grad, torch.full((4,), 3.0, dtype=torch.float64))


@pytest.mark.parametrize("size", ["same", "half", "double"])
@pytest.mark.parametrize("way", [Direct, Winograd])
def test_third_derivatives_are_those_of_the_single_steps(way, size):
    x, weight = inputs(size, (2, 2, 4, 4), out=3)
    found = []
    for y in (Product.apply(way(size, SCALE), x, weight), in_steps(x, weight, size)):
        (first,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(second.square().sum(), (x, weight)))
    for a, b in zip(*found, strict=True):
        assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_odd_sizes_are_not_halved():
    with pytest.raises(ValueError, match=r"must be even to be halved, not \(5, 6\)"):
        convolution.conv2d(torch.ones(1, 2, 5, 6), torch.ones(2, 2, 3, 3), SCALE, size="half")


@pytest.mark.parametrize(("way", "size", "shape"), CASES)
@pytest.mark.parametrize("which", [0, 1], ids=["image", "weight"])
def test_one_gradient_alone_is_the_same(way, size, shape, which):
    tensors = inputs(size, shape)
    tensors[1 - which].requires_grad_(False)
    found = Product.apply(way(size, SCALE), *tensors)
    expected = in_steps(*tensors, size)
    grad = torch.randn_like(expected)
    for a, b in zip(
        torch.autograd.grad(found, tensors[which], grad),
        torch.autograd.grad(expected, tensors[which], grad),
        strict=True,
    ):
        assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", ["same", "half", "double"])
def test_few_multiplications_are_as_exact_in_float32_as_a_convolution(size):
    torch.manual_seed(0)
    x, weight = torch.randn(2, 128, 16, 16), torch.randn(128, 128, 3, 3)
    exact = in_steps(x.double(), weight.double(), size)
    errors = [
        (way(size, SCALE).output(x, weight).double() - exact).norm() for way in (Winograd, Direct)
    ]
    assert errors[0] < 2 * errors[1]


def test_the_way_is_chosen_by_device_precision_channels_and_pixels():
    many, some = torch.empty(256, 256, 3, 3), torch.empty(256, 128, 3, 3)
    assert choose(torch.empty(4, 256, 16, 16), many, "same") is Winograd
    assert choose(torch.empty(4, 256, 4, 4), many, "same") is Unfolded
    assert choose(torch.empty(4, 256, 4, 4), many, "double") is Winograd
    assert choose(torch.empty(16, 256, 15, 16), many, "same") is Direct
    assert choose(torch.empty(4, 128, 16, 16), some, "half") is Direct
    assert choose(torch.empty(4, 256, 16, 16, dtype=torch.bfloat16), many, "same") is Direct
    assert choose(torch.empty(4, 256, 16, 16, device="meta"), many, "same") is Direct


@pytest.mark.parametrize("precision", ["float64", "bf16"])
def test_a_gradient_by_images_alone_leaves_out_that_by_weights(monkeypatch, precision):
    asked, gradients = [], Direct.gradients
    monkeypatch.setattr(Direct, "gradients", lambda *a: asked.append(a[-1]) or gradients(*a))
    x, weight = inputs("same", (2, 3, 4, 4))
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        y = convolution.conv2d(x, weight, SCALE)
    (by_x,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    assert asked == [(True, False)]
    by_x.square().sum().backward()
    expected_x, expected_weight = inputs("same", (2, 3, 4, 4))
    z = in_steps(expected_x, expected_weight, "same")
    (expected,) = torch.autograd.grad(z.square().sum(), expected_x, create_graph=True)
    expected.square().sum().backward()
    tolerance = 1e-12 if precision == "float64" else 0.03
    error = (weight.grad - expected_weight.grad).norm() / expected_weight.grad.norm()
    assert error < tolerance


@pytest.mark.parametrize("way", [Direct, Winograd])
def test_constants_of_a_tracer_are_not_kept(way):
    x, weight = torch.randn(1, 3, 4, 4), torch.randn(2, 3, 3, 3)
    box_spread.cache_clear(), kernel_matrix.cache_clear()
    with FakeTensorMode() as mode:
        fake = way("half", SCALE).output(mode.from_tensor(x), mode.from_tensor(weight))
    assert fake.shape == (1, 2, 2, 2)
    found = way("half", SCALE).output(x, weight)
    assert_close(found, in_steps(x, weight, "half"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("few_pixels", [0, 128])
@pytest.mark.parametrize(("resolution", "alpha"), [(4, 1.0), (8, 0.3), (16, 1.0)])
def test_steps_of_training_are_the_same_whichever_way_is_taken(
    monkeypatch, resolution, alpha, few_pixels
):
    now, states = stage(resolution, alpha), []
    monkeypatch.setattr(convolution, "FEW_PIXELS", few_pixels)
    for many in (10**9, 1):
        monkeypatch.setattr(convolution, "MANY_CHANNELS", many)
        torch.manual_seed(0)
        state = float64_state(tiny_config(r2_gamma=1.0))
        for _ in range(2):
            draws = draw(state.config, state.images_seen, now, None, Share(dtype=torch.float64))
            train_step(state, reals_for(now, torch.float64), None, now, draws)
        states.append(state)
    for network in ("generator", "discriminator", "generator_ema"):
        a, b = (getattr(state, network).state_dict() for state in states)
        for name, value in a.items():
            assert_close(b[name], value, rtol=0, atol=1e-9, msg=f"{network} {name}")


@pytest.mark.parametrize(("kept_pixels", "times"), [(32, 1), (31, 4)])
def test_planes_of_a_weight_are_made_once_for_its_derivatives(monkeypatch, kept_pixels, times):
    made, transform = [], Winograd.transform
    monkeypatch.setattr(Winograd, "transform", lambda way, w: made.append(w) or transform(way, w))
    monkeypatch.setattr(convolution, "KEPT_PIXELS", kept_pixels)
    x, weight = torch.randn(2, 3, 4, 4, requires_grad=True), torch.randn(2, 3, 3, 3)
    for parameter in (torch.nn.Parameter(weight), weight.clone().requires_grad_() * 1):
        y = Product.apply(Winograd("same", SCALE), x, parameter)
        losses.r1_penalty(y.square(), x).backward()
        assert sum(w is parameter for w in made) == times
    with torch.no_grad():
        before = Winograd("same", SCALE).output(x, parameter)
        parameter.data.mul_(2)
        assert_close(Winograd("same", SCALE).output(x, parameter), 2 * before)


def test_the_filter_is_its_own_transpose_and_differentiable_twice():
    x = numbers(1, 2, 5, 4)
    assert torch.autograd.gradcheck(blur, x)
    assert torch.autograd.gradgradcheck(lambda v: blur(v).pow(3), x)
