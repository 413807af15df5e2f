"""The tests' own switch: products that round as another processor's do."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from helpers.perturbed_products import ROUNDINGS, perturbed_products
from torch.testing import assert_close

SEED = 99  # not that of the whole run, if there is one
EXACT = {"rtol": 0, "atol": 0}
PRODUCTS = {  # of x (32, 8, 8, 8)
    "convolution": lambda x: F.conv2d(x, x[:8], padding=1),
    "transposed convolution": lambda x: F.conv_transpose2d(x, x[:8], stride=2),
    "weights' gradient": lambda x: gradient_of(F.conv2d, x, x[:8]),
    "linear layer": lambda x: F.linear(x.flatten(1), x.flatten(1), x[0, 0].flatten()[:32]),
    "matrices": lambda x: torch.einsum("ncij,mcjk->nmik", x, x),
    "matrices with a sum": lambda x: torch.baddbmm(x[0], x[1], x[2]),
    "a matrix in place": lambda x: torch.mm(x[0, 0], x[0, 1], out=torch.empty_like(x[0, 0])),
    "a matrix and a vector": lambda x: x.flatten(1) @ x[0].flatten(),
    "vectors": lambda x: torch.stack([v.flatten() @ x[0].flatten() for v in x]),
}


def gradient_of(layer, x, weight):
    """Of the weight, which the rounding of the layer itself does not reach."""
    weight = weight.clone().requires_grad_()
    y = layer(x, weight)
    (gradient,) = torch.autograd.grad(y, weight, y.detach().sign() / 3)
    return gradient


def draws(dtype=torch.float32):
    return torch.randn(32, 8, 8, 8, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_perturbed_products_differ_by_round_off_and_repeat_in_every_thread(name, dtype):
    product, x = PRODUCTS[name], draws(dtype)
    before = product(x)
    with perturbed_products(SEED), ThreadPoolExecutor(1) as pool:
        first, again = product(x), pool.submit(product, x).result()
    assert_close(first, again, **EXACT)
    assert_close(product(x), before, **EXACT)
    roundings = (first - before) / before / torch.finfo(dtype).eps
    assert 0.7 * ROUNDINGS < roundings.abs().max() <= ROUNDINGS + 1
    assert roundings.mean().abs() < 0.3 * ROUNDINGS


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_perturbed_products_sometimes_change_half_precision(dtype):
    x = draws(dtype)
    before = F.conv2d(x, x[:8], padding=1)
    with perturbed_products(SEED):
        first = F.conv2d(x, x[:8], padding=1)
    other = first != before
    assert 0.01 < other.double().mean() < 0.03
    roundings = (first - before)[other] / before[other] / torch.finfo(dtype).eps
    assert roundings.abs().min() >= 0.5 and roundings.abs().max() <= 2


def test_perturbed_products_depend_on_shape_and_memory_format():
    x = draws()
    with perturbed_products(SEED):
        whole, part = (F.conv2d(images, x[:8]) for images in (x, x[:4]))
        last = F.conv2d(x.to(memory_format=torch.channels_last), x[:8])
    for other in (part, last[:4]):
        assert_close(other, whole[:4], rtol=5e-6, atol=1e-5)
        assert not torch.equal(other, whole[:4])


def test_perturbed_products_keep_integers_exact():
    x = torch.arange(24.0).view(4, 6)
    with perturbed_products(SEED):
        assert_close(x @ x.t(), (x.double() @ x.double().t()).float(), **EXACT)
