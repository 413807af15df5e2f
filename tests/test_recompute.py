"""Recomputed blocks: the same numbers to second order, for less memory."""

import copy

import pytest
import torch
from helpers.saved_tensors import Saved
from helpers.tiny_generators import assert_same_weights
from helpers.tiny_training import KINDS, reals_for, stage, step, tiny_config
from helpers.two_processes import float64_state

from stylegan import losses
from stylegan.networks import Discriminator, Generator
from stylegan.training import TrainState
from stylegan.training.step import enter_stage, frozen
from stylegan.training.terms import discriminator_logits, discriminator_terms

CONFIG = tiny_config(network={"label_dim": 3})
N = 4


def pair(kind):
    """A network with random biases in float64, and a copy of it that recomputes its blocks."""
    torch.manual_seed(0)
    plain = kind(CONFIG.network).double()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    again = copy.deepcopy(plain)
    (again.synthesis if kind is Generator else again).checkpoint_activations = True
    return plain, again


def images(r=16, dtype=torch.float64):
    return torch.randn(N, 3, r, r, generator=torch.Generator().manual_seed(1)).to(dtype)


def labels(dtype=torch.float64):
    return torch.eye(3, dtype=dtype)[torch.arange(N) % 3]


def latents(dtype=torch.float64):
    rng = torch.Generator().manual_seed(2)
    return torch.randn(N, CONFIG.network.z_dim, generator=rng).to(dtype)


def largest_difference(a, b):
    """Between the gradients of two networks, which must have the same ones."""
    largest = 0.0
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            largest = max(largest, (p.grad - q.grad).abs().max().item())
    return largest


@pytest.mark.parametrize("noise", ["const", "none", "list"])
@pytest.mark.parametrize(("resolution", "alpha"), [(4, 1.0), (8, 0.5), (16, 1.0)])
def test_checkpoint_activations_keeps_images_and_gradients(resolution, alpha, noise):
    networks = pair(Generator)
    if noise == "list":
        rng = torch.Generator().manual_seed(3)
        sizes = [r for r in (4, 8, 16) for _ in range(2)]
        noise = [torch.randn(N, 1, r, r, generator=rng).double() for r in sizes]
    options = {"resolution": resolution, "alpha": alpha, "noise": noise}
    outputs = [network(latents(), labels(), **options) for network in networks]
    assert torch.equal(*outputs)
    for output in outputs:
        (output * images(resolution)).sum().backward()
    assert largest_difference(*networks) < 1e-12


@pytest.mark.parametrize(("resolution", "alpha"), [(4, 1.0), (8, 0.5), (16, 1.0)])
def test_checkpoint_activations_keeps_logits_and_r1_gradients(resolution, alpha):
    networks, seen = pair(Discriminator), []
    for network in networks:
        reals = images(resolution).requires_grad_()
        logits = network(reals, labels(), alpha=alpha)
        penalty = losses.r1_penalty(logits, reals)
        (losses.logistic_real(logits) + 5 * penalty).backward()
        seen.append((logits, penalty, reals.grad))
    for a, b in zip(*seen, strict=True):
        assert (a - b).abs().max() < 1e-12
    assert torch.equal(seen[0][0], seen[1][0])
    assert largest_difference(*networks) < 1e-12


def test_checkpoint_activations_is_exact_at_zero():
    """`leaky_relu` moves 0 where gradients are recorded: recomputation must record them too."""
    networks = [Discriminator(CONFIG.network) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    networks[1].checkpoint_activations = True
    zeros = torch.zeros(N, 3, 16, 16)
    logits = [network(zeros, labels(torch.float32)) for network in networks]
    assert torch.equal(*logits)
    for each in logits:
        each.sum().backward()
    assert largest_difference(*networks) == 0


@pytest.mark.parametrize("name", ["plain", "micro-batches", "r2", "wgan_gp"])
def test_checkpoint_activations_trains_the_same_weights(name):
    states = []
    for on in (False, True):
        state = float64_state(tiny_config(**KINDS[name] | {"checkpoint_activations": on}))
        for resolution, alpha in ((8, 0.5), (8, 1.0), (16, 0.3)):
            step(state, stage(resolution, alpha, 8))
        states.append(state)
    for network in ("generator", "discriminator", "generator_ema"):
        assert_same_weights(*(getattr(state, network) for state in states))


def test_checkpoint_activations_gives_frozen_weights_no_gradient():
    generators, (_, discriminator) = pair(Generator), pair(Discriminator)
    for generator in generators:
        for parameter in generator.synthesis.blocks["8"].parameters():
            parameter.requires_grad_(False)
        with frozen(list(discriminator.parameters())):
            logits = discriminator(generator(latents(), labels(), noise="const"), labels())
            losses.nonsaturating(logits).backward()
    assert largest_difference(*generators) < 1e-12
    assert all(p.grad is None for p in generators[1].synthesis.blocks["8"].parameters())
    assert all(p.grad is None for p in discriminator.parameters())
    assert generators[1].synthesis.blocks["16"].conv0.weight.grad.abs().max() > 0


def test_checkpoint_activations_saves_memory():
    now = stage(32, 1.0, batch_size=8)
    peaks, graphs = [], []
    for on in (False, True):
        options = {"network": {"max_channels": 32, "resolution": 32}}
        state = TrainState.create(tiny_config(**options, checkpoint_activations=on))
        enter_stage(state, now)
        config, network, reals = state.config, state.discriminator, reals_for(now)
        with Saved(state) as saved:
            logits, leaf = discriminator_logits(config, network, reals, None, now, penalized=True)
            graphs.append(saved.bytes)
            terms = discriminator_terms(config, "real", logits, leaf, now, config.r1_gamma)
            sum(term.weight * term.value for term in terms).backward()
        peaks.append(saved.peak)
    assert graphs[1] < 0.3 * graphs[0]
    assert peaks[1] < 0.75 * peaks[0]
