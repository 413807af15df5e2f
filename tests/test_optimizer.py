"""The official Adam: its formula, its epsilon, and what it does with bad gradients."""

import math

import numpy as np
import pytest
import torch
from helpers.tiny_training import counts, skips, stage, step, tiny_config
from torch import nn

from stylegan.training import TrainState
from stylegan.training.optimizer import Adam, guarded_update

OFF = torch.amp.GradScaler("cpu", enabled=False)


def official_adam(start, gradients, *, lr, beta1, beta2, eps):
    """The formula of tests/reference/README.md in NumPy, float64."""
    x, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for t, g in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        x = x - lr * math.sqrt(1 - beta2**t) / (1 - beta1**t) * m / (np.sqrt(v) + eps)
    return x


def run(gradients, *, betas=(0.0, 0.99), eps=1e-8, lr=0.001):
    """Our optimizer on one parameter that starts at 0."""
    parameter = nn.Parameter(torch.zeros(gradients[0].shape, dtype=torch.float64))
    optimizer = Adam([parameter], betas=betas, eps=eps)
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient)
        optimizer.update(lr)
    return parameter.detach().numpy()


@pytest.mark.parametrize("beta1", [0.0, 0.9])
@pytest.mark.parametrize("size", [1.0, 1e-4, 1e-8, 1e-12])
def test_adam_equals_the_official_formula(size, beta1):
    gradients = size * np.random.default_rng(0).standard_normal((10, 50))
    expected = official_adam(np.zeros(50), gradients, lr=0.001, beta1=beta1, beta2=0.99, eps=1e-8)
    assert np.abs(run(gradients, betas=(beta1, 0.99)) - expected).max() < 1e-15


def weights(n=3):
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(4, dtype=torch.float64)) for _ in range(n)]


def adam(parameters, beta1=0.0):
    return Adam(parameters, betas=(beta1, 0.99), eps=1e-8)


def give(parameters, seed):
    rng = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=rng, dtype=torch.float64)


def test_adam_after_clear_steps_like_a_new_optimizer():
    ours, fresh = weights(), weights()
    optimizer = adam(ours)
    give(ours, 0)
    optimizer.update(0.0)  # fills the moments, moves nothing
    optimizer.clear()
    assert optimizer.param_groups[0]["updates"] == 0
    new = adam(fresh)
    for seed in (1, 2):
        for parameters, o in ((ours, optimizer), (fresh, new)):
            give(parameters, seed)
            o.update(0.01)
    for a, b in zip(ours, fresh, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_guarded_update_skips_nonfinite_gradients_and_does_not_count(bad):
    ours, spared = weights(), weights()
    optimizer, other = adam(ours), adam(spared)
    for seed in (0, 1, 2):
        give(ours, seed)
        if seed == 1:
            ours[2].grad[3] = bad
        assert guarded_update(optimizer, OFF, 0.01) == (seed != 1)
        if seed != 1:
            give(spared, seed)
            assert guarded_update(other, OFF, 0.01)
    assert optimizer.param_groups[0]["updates"] == 2
    for a, b in zip(ours, spared, strict=True):
        assert torch.equal(a, b)


def test_guarded_update_skips_gradients_that_overflow_when_squared():
    parameter = nn.Parameter(torch.zeros(2))
    for size, finite in ((1e18, True), (1e25, False)):  # times itself: 1e36, and beyond float32
        optimizer = adam([parameter])
        parameter.grad = torch.full((2,), size)
        assert guarded_update(optimizer, OFF, 0.01) == finite
        assert optimizer.param_groups[0]["updates"] == finite


@pytest.mark.parametrize("network", ["generator", "discriminator"])
def test_train_step_counts_a_skipped_update_and_changes_no_weight(network):
    state, now = TrainState.create(tiny_config()), stage(4, 1.0, lr=0.01)
    step(state, now)
    trained = getattr(state, network)
    before = [p.clone() for p in trained.parameters()]
    handle = next(trained.parameters()).register_hook(lambda grad: grad * math.nan)
    step(state, now)
    handle.remove()
    for old, new in zip(before, trained.parameters(), strict=True):
        assert torch.equal(old, new)
    expected = {"generator": [1, 0], "discriminator": [0, 1]}[network]
    assert skips(state) == expected
    step(state, now)
    assert skips(state) == expected
    assert counts(state) == [3 - expected[0], 3 - expected[1]]


def test_adam_ignores_a_stored_first_moment_on_resume():
    found = []
    for with_first in (False, True):
        ours = weights(1)
        before, after = adam(ours), adam(ours)
        for seed in range(2):
            give(ours, seed)
            before.update(0.1)
        saved = before.state_dict()
        if with_first:
            saved["state"][0]["exp_avg"] = ours[0].grad.clone()
        after.load_state_dict(saved)
        for seed in range(2, 4):
            give(ours, seed)
            after.update(0.1)
        assert after.state_dict()["state"][0].keys() == {"step", "exp_avg_sq"}  # g is the first
        found.append(ours[0].detach())
    assert torch.equal(*found)
