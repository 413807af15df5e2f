"""Every faster way equals its formula in values and derivatives, and is taken where it pays."""

import itertools
from functools import partial

import pytest
import torch
from helpers.tiny_generators import assert_same_weights
from helpers.tiny_training import reals_for, stage, tiny_config
from helpers.two_processes import float64_state
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from stylegan import ops
from stylegan.ops import cpu, formulas
from stylegan.ops.bilinear import Bilinear
from stylegan.ops.cpu import (
    Direct,
    Im2colConv,
    Im2colTapMajorConv,
    Winograd,
    choose_convolution,
    convolution,
    pointwise,
)
from stylegan.training import Share, draw, train_step

SCALE = 0.3
NAMES = {"same": "conv2d", "half": "conv2d_downsample", "double": "upsample_conv2d"}
SIZES = ((3, 5, 8, 6), (1, 1, 2, 2), (2, 3, 4, 4))
CASES = list(itertools.product((Direct, Winograd, Im2colConv, Im2colTapMajorConv), NAMES, SIZES))
OF_A_GPU = list(itertools.product(["gpu"], NAMES, SIZES))


def numbers(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def inputs(size, shape, out=7):
    channels = (shape[1], out) if size == "double" else (out, shape[1])
    return numbers(*shape), numbers(*channels, 3, 3)


def in_steps(x, weight, size):
    return getattr(formulas, NAMES[size])(x, weight, SCALE)


def derivatives(function, tensors, third):
    """The value, and its first, second and perhaps third derivatives by everything."""
    torch.manual_seed(1)
    y = function(*tensors)
    grad = numbers(*y.shape)
    by = partial(torch.autograd.grad, allow_unused=True, materialize_grads=True)
    firsts = by(y, tensors, grad, create_graph=True)
    found = [y, *firsts]
    for first in firsts:  # alone, so that others are not needed
        found += by(first.pow(3).sum(), (*tensors, grad), retain_graph=True)
    seconds = by(sum(f.square().sum() for f in firsts), (*tensors, grad), create_graph=True)
    thirds = by(sum(s.square().sum() for s in seconds), (*tensors, grad)) if third else ()
    return *found, *seconds, *thirds


def assert_equal(function, formula, tensors, *, third=True):
    found = [derivatives(each, tensors, third) for each in (function, formula)]
    for a, b in zip(*found, strict=True):
        assert_close(a, b, rtol=1e-10, atol=1e-10 * max(1, b.abs().max().item()))


@pytest.mark.parametrize("part_bytes", [1, 2**24], ids=["parts", "whole"])
@pytest.mark.parametrize(("way", "size", "shape"), [*CASES, *OF_A_GPU])
def test_conv2d_algorithms_equal_their_formula(monkeypatch, way, size, shape, part_bytes):
    monkeypatch.setattr(convolution, "PART_BYTES", part_bytes)
    if way == "gpu":
        monkeypatch.setattr(cpu, "uses_cpu_kernels", lambda x: False)
    else:
        monkeypatch.setattr(cpu, "choose_convolution", lambda *_: way)
    function, formula = (getattr(place, NAMES[size]) for place in (ops, formulas))
    x, weight = inputs(size, shape)
    assert_close(function(x, weight, SCALE), formula(x, weight, SCALE), rtol=0, atol=1e-13)
    assert_equal(lambda *t: function(*t, SCALE), lambda *t: formula(*t, SCALE), (x, weight))


def convolution_with(**options):
    return lambda place, x, w, b: place.conv2d_downsample(x, w, SCALE, b, **options)


@pytest.fixture
def gpu_path(monkeypatch):
    """What a GPU takes, computed on a CPU."""
    monkeypatch.setattr(cpu, "uses_cpu_kernels", lambda x: False)


def epilogue_with(**options):
    """Of a result, which may be written over."""
    return lambda place, x, *rest: place.epilogue(x * 1, *rest[:-2], rest[-2:], **options)


X, WEIGHT, C, NC = (2, 3, 4, 4), (5, 3, 3, 3), (3,), (2, 3)
FUNCTIONS = {
    "dense": (lambda place, x, w, b: place.dense(x, w, SCALE, b), [(3, 5), (4, 5), (4,)]),
    "1x1": (lambda place, x, w, b: place.conv2d(x, w, SCALE, b), [X, (5, 3, 1, 1), (5,)]),
    "bias": (lambda place, x, w, b: place.conv2d(x, w, SCALE, b), [X, WEIGHT, (5,)]),
    "half": (convolution_with(), [X, WEIGHT, (5,)]),
    "blur and half": (convolution_with(blur_first=True), [X, WEIGHT, (5,)]),
    "blur": (lambda place, x: place.blur(x), [X]),
    "lrelu": (lambda place, x: place.leaky_relu(x), [X]),
    "relu": (lambda place, x: place.activate(x, "relu"), [X]),
    "adain": (lambda place, *t: place.adain(*t), [X, NC, NC]),
    "adain of one": (lambda place, x, s: place.adain(x, s, s), [X, NC]),
    "epilogue": (epilogue_with(), [X, (2, 1, 4, 4), C, C, NC, NC]),
    "epilogue of one noise": (epilogue_with(), [X, (1, 1, 4, 4), C, C, NC, NC]),
    "relu epilogue": (
        epilogue_with(activation="relu", normalize_pixels=True, normalize_channels=False),
        [X, (2, 1, 4, 4), C, C, NC, NC],
    ),
    "plain epilogue": (lambda place, x, b: place.epilogue(x * 1, None, None, b, None), [X, C]),
}


@pytest.mark.parametrize("path", ["cpu", "large on a cpu", "gpu"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_ops_functions_equal_their_formulas_on_every_path(monkeypatch, name, path):
    thresholds = ((cpu, "LARGE_WEIGHT"), (pointwise, "LARGE_IMAGE"), (pointwise, "CACHED_NUMBERS"))
    for place, threshold in thresholds:
        monkeypatch.setattr(place, threshold, 1 if path == "large on a cpu" else 10**9)
    if path == "gpu":
        monkeypatch.setattr(cpu, "uses_cpu_kernels", lambda x: False)
    function, shapes = FUNCTIONS[name]
    tensors = [numbers(*shape) for shape in shapes]
    third = "adain" not in name and "epilogue" not in name  # batch_norm has none
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):  # as recomputation has
        assert_equal(partial(function, ops), partial(function, formulas), tensors, third=third)
    with torch.no_grad():
        tensors = [t.float() for t in tensors]
        if len(shapes[0]) == 4:
            tensors[0] = tensors[0].contiguous(memory_format=torch.channels_last)
        expected, before = function(formulas, *tensors), tensors[0].clone()
        assert_close(function(ops, *tensors), expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(tensors[0], before)


@pytest.mark.parametrize(("way", "size", "shape"), CASES)
@pytest.mark.parametrize("which", [0, 1], ids=["image", "weight"])
def test_bilinear_gradient_of_one_input_alone_is_correct(way, size, shape, which):
    tensors = inputs(size, shape)
    tensors[1 - which].requires_grad_(False)
    found, expected = Bilinear.apply(way(size, SCALE), *tensors), in_steps(*tensors, size)
    grad = torch.randn_like(expected)
    a, b = (torch.autograd.grad(y, tensors[which], grad)[0] for y in (found, expected))
    assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", NAMES)
def test_winograd_and_im2col_are_accurate_in_float32(size):
    x, weight = torch.randn(2, 128, 16, 16), torch.randn(128, 128, 3, 3)
    exact = in_steps(x.double(), weight.double(), size)
    errors = [
        (way(size, SCALE).output(x, weight).double() - exact).norm()
        for way in (Winograd, Im2colConv, Im2colTapMajorConv, Direct)
    ]
    assert max(errors[:3]) < 2 * errors[3]


def test_choose_convolution_depends_on_channels_and_pixels():
    many, some = torch.empty(256, 256, 3, 3), torch.empty(256, 128, 3, 3)
    assert choose_convolution(torch.empty(4, 256, 16, 16), many, "same") is Winograd
    assert choose_convolution(torch.empty(4, 256, 4, 4), many, "same") is Im2colConv
    assert choose_convolution(torch.empty(4, 256, 4, 4), many, "double") is Im2colConv
    assert choose_convolution(torch.empty(4, 256, 8, 8), many, "half") is Im2colConv
    assert choose_convolution(torch.empty(4, 256, 8, 8), many, "double") is Winograd
    assert choose_convolution(torch.empty(16, 256, 15, 16), many, "same") is Direct
    assert choose_convolution(torch.empty(4, 128, 16, 16), some, "half") is Direct


@pytest.mark.parametrize("amx", [False, True])
def test_choose_convolution_in_bf16_depends_on_the_processor(monkeypatch, amx):
    monkeypatch.setattr(cpu, "has_matrix_units", lambda: amx)
    many, some = torch.empty(256, 256, 3, 3), torch.empty(256, 128, 3, 3)
    half = partial(torch.empty, dtype=torch.bfloat16)
    assert choose_convolution(half(4, 256, 16, 16), many, "same") is Direct
    assert choose_convolution(half(4, 256, 8, 8), many, "same") is Im2colTapMajorConv
    assert choose_convolution(half(4, 256, 8, 8), some, "same") is Direct
    assert choose_convolution(half(4, 256, 16, 16), many, "half") is Im2colTapMajorConv
    assert choose_convolution(half(4, 256, 32, 32), many, "half") is (
        Direct if amx else Im2colTapMajorConv
    )
    assert choose_convolution(half(4, 256, 32, 32), some, "half") is Direct


def test_im2col_tap_major_conv_gives_the_same_result_in_chunks(monkeypatch):
    (x, weight), op = inputs("half", (5, 3, 8, 8)), Im2colTapMajorConv("half", SCALE)
    grad = numbers(5, 7, 4, 4).detach()
    with torch.no_grad():
        whole = op.output(x, weight), *op.gradients(x, weight, grad, (True, True), None)
        monkeypatch.setattr(convolution, "PART_BYTES", 2 * 8 * 9 * 3 * 16)
        assert len(op.chunks(x, grad)) == 3
        in_parts = op.output(x, weight), *op.gradients(x, weight, grad, (True, True), None)
    for a, b in zip(whole, in_parts, strict=True):
        assert_close(a, b, rtol=0, atol=1e-13)


class Calls(TorchDispatchMode):
    """The operators that run, and what they are given."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.made.append((func.name(), args))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("path", ["cpu", "gpu"])
@pytest.mark.parametrize("precision", ["float64", "bf16"])
def test_conv2d_image_gradient_skips_the_weight_gradient(monkeypatch, precision, path):
    monkeypatch.setattr(cpu, "uses_cpu_kernels", lambda x: path == "cpu")
    (x, weight), bias = inputs("same", (2, 3, 4, 4)), numbers(7)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        y = ops.conv2d(x, weight, SCALE, bias)
    with Calls() as calls:
        (grad_x,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    asked = [list(args[-1]) for name, args in calls.made if "convolution_backward" in name]
    assert asked == [[True, False, False]]  # image, weight, bias
    grad_x.square().sum().backward()
    z = formulas.conv2d(x, weight, SCALE, bias)
    (grad_x,) = torch.autograd.grad(z.square().sum(), x, create_graph=True)
    expected = torch.autograd.grad(grad_x.square().sum(), (weight, bias))
    for found, exact in zip((weight.grad, bias.grad), expected, strict=True):
        error = (found - exact).norm() / exact.norm()
        assert error < (1e-12 if precision == "float64" else 0.03)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("by", ["autocast", "conversion"])
@pytest.mark.parametrize("name", [*NAMES.values(), "one color to many", "dense"])
def test_emulate_slow_half_rounds_float32_products(monkeypatch, name, by, half):
    """PyTorch computes it all the same, in up to 60 times the time of float32."""
    monkeypatch.setattr(
        cpu, "has_fast_matmul", lambda dtype: not dtype.is_floating_point or dtype != half
    )
    (x, weight), function = inputs("same", (2, 4, 8, 8), 4), name
    if name == "one color to many":
        weight, function = numbers(4, 4, 1, 1), "conv2d"
    if name == "dense":
        x, weight = numbers(6, 4), numbers(4, 4)
    bias = () if name == "upsample_conv2d" else (numbers(4),)

    def results(place, kind, autocast):
        converted = [v.detach().to(kind).requires_grad_() for v in (x, weight, *bias)]
        with Calls() as calls:
            with torch.autocast("cpu", half, enabled=autocast):
                y = getattr(place, function)(*converted[:2], SCALE, *converted[2:])
            firsts = torch.autograd.grad(y.float().square().sum(), converted, create_graph=True)
            seconds = torch.autograd.grad(firsts[0].float().square().sum(), converted[:2])
        words = "convolution", "::mm", "addmm", "linear"
        products = [args for name, args in calls.made if any(word in name for word in words)]
        types = {a.dtype for args in products for a in args if isinstance(a, torch.Tensor)}
        return [y, *firsts, *seconds], types

    exact, _ = results(formulas, torch.float64, autocast=False)
    found, types = results(ops, half if by == "conversion" else torch.float32, by == "autocast")
    assert types == {torch.float32}
    assert found[0].dtype == half
    for a, b in zip(found, exact, strict=True):
        assert (a - b).norm() / b.norm() < (0.02 if half == torch.bfloat16 else 0.003)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_conv2d_gpu_path_gives_correct_partial_gradients(gpu_path, wanted):
    tensors, found = [*inputs("half", (2, 3, 4, 4)), numbers(7)], []
    for i, tensor in enumerate(tensors):
        tensor.requires_grad_(i in wanted)
    for place in (ops, formulas):
        y = place.conv2d_downsample(*tensors[:2], SCALE, tensors[2], blur_first=True)
        found.append(torch.autograd.grad(y.square().sum(), [tensors[i] for i in wanted]))
    assert_close(*found, rtol=0, atol=1e-12)


def test_conv2d_gpu_path_is_channels_last_in_bf16_only(gpu_path):
    for dtype, order in (
        (torch.bfloat16, torch.channels_last),
        (torch.float32, torch.contiguous_format),
    ):
        y = torch.randn(2, 3, 8, 8)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            y = ops.conv2d(y, torch.randn(5, 3, 3, 3), SCALE, torch.zeros(5))
            for function, weight in (
                (ops.upsample_conv2d, torch.randn(5, 6, 3, 3)),
                (ops.conv2d_downsample, torch.randn(4, 6, 3, 3)),
            ):
                y = ops.blur(ops.activate(function(y, weight, SCALE), "lrelu", in_place=True))
                assert y.dtype == dtype
                assert y.is_contiguous(memory_format=order)


@pytest.mark.parametrize("second", ["few multiplications", "one matrix product", "gpu"])
@pytest.mark.parametrize(("resolution", "alpha"), [(4, 1.0), (8, 0.3), (16, 1.0)])
def test_train_step_does_not_depend_on_the_convolution_algorithm(
    monkeypatch, resolution, alpha, second
):
    now, states = stage(resolution, alpha), []
    monkeypatch.setattr(cpu, "FEW_PIXELS", 128 if second == "one matrix product" else 0)
    for way in ("direct", second):
        monkeypatch.setattr(cpu, "MANY_CHANNELS", 10**9 if way == "direct" else 1)
        monkeypatch.setattr(cpu, "uses_cpu_kernels", lambda x, way=way: way != "gpu")
        torch.manual_seed(0)
        state = float64_state(tiny_config(r2_gamma=1.0))
        for _ in range(2):
            draws = draw(state.config, state.images_seen, now, None, Share(dtype=torch.float64))
            train_step(state, reals_for(now, torch.float64), None, now, draws)
        states.append(state)
    for network in ("generator", "discriminator", "generator_ema"):
        assert_same_weights(*(getattr(state, network) for state in states), atol=1e-9)
