"""`torch.compile` of the networks, without a break in the graph and equal to what it compiles."""

import dataclasses

import pytest
import torch
from helpers.tiny_generators import LABELED, loaded_of, random_generator
from torch.testing import assert_close

from stylegan import load_generator
from stylegan.networks import Discriminator

pytestmark = [
    pytest.mark.filterwarnings("ignore:Guards may run slower"),  # torch on Python 3.13.0
    pytest.mark.filterwarnings("ignore:`torch.jit"),  # inductor of torch 2.11
]
SMALL = dataclasses.replace(LABELED, resolution=8)
Z = torch.randn(4, SMALL.z_dim, generator=torch.Generator().manual_seed(0)).double()
LABELS = torch.eye(3).double()[[0, 1, 2, 0]]
SETTINGS = {"psi": 0.7, "cutoff": 2, "alpha": 0.3, "noise": "const"}  # all that is not the usual
ABLATIONS = {
    "label_dim": 0,
    "styles": False,
    "noise": False,
    "pixel_norm": True,
    "constant_input": False,
    "activation_before_blur": True,
}


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch.compiler.reset()


def compiled(network, backend="eager"):
    return torch.compile(network, backend=backend, fullgraph=True)


def outputs_and_gradients(run, network, *inputs, **options):
    network.zero_grad()
    outputs = run(*inputs, **options)
    outputs.square().mean().backward()
    return outputs.detach(), {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in network.named_parameters()
    }


def assert_same(network, *inputs, backend="eager", **options):
    expected = outputs_and_gradients(network, network, *inputs, **options)
    run = compiled(network, backend)
    assert_close(outputs_and_gradients(run, network, *inputs, **options), expected)


@pytest.mark.parametrize("options", [{}, ABLATIONS], ids=["usual", "ablations"])
def test_compile_keeps_images_and_gradients_of_the_generator(options):
    config = dataclasses.replace(SMALL, **options)
    generator = random_generator(config, biases=True).double().train()
    assert_same(generator, Z, LABELS if config.label_dim else None, **SETTINGS)


@pytest.mark.parametrize("recomputed", [False, True])
def test_compile_keeps_logits_and_gradients_of_the_discriminator(recomputed):
    discriminator = Discriminator(SMALL).double()
    discriminator.checkpoint_activations = recomputed
    assert_same(discriminator, torch.randn(4, 3, 8, 8).double(), LABELS, alpha=0.3)


def test_compile_keeps_second_derivatives_of_the_discriminator():
    discriminator = Discriminator(SMALL).double()
    reals = torch.randn(4, 3, 8, 8).double().requires_grad_()

    def r1(run):
        discriminator.zero_grad()
        (grad,) = torch.autograd.grad(run(reals, LABELS).sum(), reals, create_graph=True)
        grad.square().sum().backward()
        return [p.grad for p in discriminator.parameters() if p.ndim > 1]

    assert_close(r1(compiled(discriminator)), r1(discriminator))


def test_compile_covers_mapping_and_synthesis_in_inference_mode():
    generator = random_generator(SMALL, biases=True).double()
    with torch.inference_mode():
        w = generator.mapping(Z, LABELS)
        assert_close(compiled(generator.mapping)(Z, LABELS), w)
        ws = generator.broadcast(w)
        images = generator.synthesis(ws, noise="const")
        assert_close(compiled(generator.synthesis)(ws, noise="const"), images)


COMPILED = pytest.param("glyphs64", "inductor", marks=pytest.mark.slow)


def pretrained(name):
    if name == "glyphs64":
        return load_generator(name)
    has_labels = name != "without labels"
    config = SMALL if has_labels else dataclasses.replace(SMALL, label_dim=0)
    centers = torch.randn(3, SMALL.w_dim) if has_labels else None
    return loaded_of(random_generator(config, biases=True), centers=centers)


@pytest.mark.parametrize(
    ("name", "backend"),
    [("without labels", "eager"), ("labels and centers", "eager"), COMPILED],
)
def test_compile_keeps_images_of_a_pretrained_generator(name, backend):
    generator = pretrained(name)
    labels = torch.eye(generator.config.label_dim)[:2] if generator.config.label_dim else None
    z = torch.randn(2, generator.config.z_dim)
    with torch.no_grad():
        images = generator(z, labels, noise="const")
        run = compiled(generator, backend)
        assert_close(run(z, labels, noise="const"), images, atol=1e-4, rtol=0)
        assert (run.sample([0]) == generator.sample([0])).all()


@pytest.mark.slow
def test_compile_with_inductor_keeps_values_of_training_networks():
    reals = torch.randn(4, 3, 8, 8)
    assert_same(Discriminator(SMALL), reals, LABELS.float(), backend="inductor")
    generator = random_generator(SMALL, biases=True).train()
    assert_same(generator, Z.float(), LABELS.float(), backend="inductor", noise="const")
