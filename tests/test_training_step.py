"""One training step: averages, stages, draws, micro-batches, every loss and precision."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from helpers.saved_tensors import Saved
from helpers.tiny_generators import assert_same_weights
from helpers.tiny_training import (
    RELATIVISTIC,
    WGAN_GP,
    counts,
    differing,
    reals_for,
    stage,
    step,
    tiny_config,
)
from helpers.two_processes import float64_state

from stylegan.training import Share, TrainState, draw
from stylegan.training.draws import mirror_flags
from stylegan.training.step import (
    enter_stage,
    freeze_and_wrap,
    frozen,
    training_images,
    update_discriminator,
    update_ema,
    update_generator,
    update_w_avg,
)


def weights_of(network):
    return copy.deepcopy(network.state_dict())


def test_update_ema_forgets_half_in_one_half_life():
    state = TrainState.create(tiny_config())
    average, generator = state.generator_ema.double(), copy.deepcopy(state.generator).double()
    start = weights_of(average)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter.add_(torch.randn_like(parameter))
        for buffer in generator.buffers():
            buffer.add_(1)
    state.generator = generator
    networks = freeze_and_wrap(state, stage(16, 0.5))
    for batch_size in (100, 300, 100, 500):  # together, one half-life of 1000
        update_ema(state, networks, 0.5 ** (batch_size / 1000))
    parameters = {name for name, _ in average.named_parameters()}
    for name, value in average.state_dict().items():
        target = generator.state_dict()[name]
        expected = (start[name] + target) / 2 if name in parameters else target
        assert torch.allclose(value, expected, rtol=1e-14, atol=1e-14), name


def test_update_w_avg_drops_an_overflow():
    generator = TrainState.create(tiny_config()).generator
    overflown = torch.ones_like(generator.w_avg)
    overflown[0], overflown[1] = torch.inf, torch.nan
    update_w_avg(generator, overflown, 0.75)
    assert generator.w_avg.tolist() == [0, 0, *[0.25] * (len(overflown) - 2)]


@pytest.mark.parametrize(
    ("options", "passes"),
    [({"r2_gamma": 2.0}, 3), (RELATIVISTIC, 3), (WGAN_GP, 4), ({"batch_gpu": 2}, 6)],
    ids=str,
)
def test_train_step_goes_backward_once_per_pass_and_frees_graphs(monkeypatch, options, passes):
    """None is retained: a second way back through it fails, and its memory is free for the next."""
    state = TrainState.create(tiny_config(**options, network={"deviation_group": 2}))
    held = []
    left = []

    def backward(loss, **arguments):
        held.append(saved.bytes)
        plain(loss, **arguments)
        left.append(saved.bytes)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            plain(loss, **arguments)

    plain = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", backward)
    with Saved(state) as saved:
        step(state, stage())
    assert len(held) == passes
    assert max(left) < 0.1 * max(held)


def test_train_step_leaves_inactive_weights_without_gradient():
    state = TrainState.create(tiny_config())
    used = set()
    for now in (stage(4, 1.0), stage(8, 0.5), stage(8, 1.0)):
        networks = (state.generator, state.discriminator)
        before = [weights_of(network) for network in networks]
        step(state, now)
        for network, old in zip(networks, before, strict=True):
            active = {id(p) for p in network.active_parameters(now.resolution, now.alpha)}
            for name, parameter in network.named_parameters():
                in_use = id(parameter) in active
                used |= {name} if in_use else set()
                assert (parameter.grad is not None) == in_use, name
                assert in_use or torch.equal(parameter, old[name]), name
    assert "to_rgb.4.weight" in {name.removeprefix("synthesis.") for name in used}
    assert not any(".16." in name for name in used)  # 16x16 never came
    assert state.generator.synthesis.to_rgb["4"].weight.grad is None  # retired since


def test_enter_stage_clears_optimizers_only_when_growth_advances(monkeypatch):
    freed = []

    def empty_cache():
        moments = len(state.g_optimizer.state) + len(state.d_optimizer.state)
        freed.append((counts(state), moments, state.stage_networks))

    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    state = TrainState.create(tiny_config())
    changes = [(4, 1.0, 1), (4, 1.0, 2), (8, 0.2, 1), (8, 0.6, 2), (8, 1.0, 1), (16, 0.1, 1)]
    for resolution, alpha, updates in changes:
        step(state, stage(resolution, alpha, batch_size=4 if alpha < 1 else 8))
        assert counts(state) == [updates, updates]
    assert freed == [([0, 0], 0, None)] * 4


def test_draw_picks_one_mixing_cutoff_per_pass_evenly():
    config, now = tiny_config(), stage(8, 0.5)
    passes = [
        one
        for images in range(0, 4000, 4)
        for draws in [draw(config, images, now, None, Share())]
        for one in (draws.discriminator, draws.generator)
    ]
    cutoffs = [one.mixing_cutoff for one in passes if one.mixing_latents is not None]
    assert len(cutoffs) / len(passes) == pytest.approx(0.9, abs=0.03)  # 4 standard deviations
    frequencies = [cutoffs.count(c) / len(cutoffs) for c in (1, 2, 3)]  # 8x8 has 4 layers
    assert frequencies == pytest.approx([1 / 3] * 3, abs=0.05)
    assert sum(map(cutoffs.count, (1, 2, 3))) == len(cutoffs)


def everything(config, images, now, share, pool=None):
    draws = draw(config, images, now, pool, share)
    tensors = [draws.penalty_mix, mirror_flags(config.seed, images, now.batch_size, share)]
    for one in (draws.discriminator, draws.generator):
        tensors += [one.latents, one.mixing_latents, one.labels]
    return [t for t in tensors if t is not None]


def test_draw_is_a_function_of_seed_and_position():
    config, now = tiny_config(style_mixing=1.0), stage(batch_size=8)
    first, again = (everything(config, 40, now, Share()) for _ in range(2))
    other_seed = everything(dataclasses.replace(config, seed=1), 40, now, Share())
    for a, b, c, d in zip(
        first, again, other_seed, everything(config, 48, now, Share()), strict=True
    ):
        assert torch.equal(a, b)
        if a.is_floating_point():
            assert not torch.equal(a, c)
            assert not torch.equal(a, d)
    draws = draw(config, 40, now, None, Share())
    assert not torch.equal(draws.discriminator.latents, draws.generator.latents)


def test_draw_of_classes_equals_one_hot_labels():
    config, now = tiny_config(network={"label_dim": 5}), stage(batch_size=8)
    classes = torch.tensor([4, 0, 2, 2, 1, 3, 0])
    pools = classes, torch.eye(5)[classes]
    labels = [draw(config, 40, now, pool, Share()).generator.labels for pool in pools]
    assert torch.equal(*labels) and len(labels[0].unique(dim=0)) > 1


def test_train_state_create_depends_on_its_seed_alone(monkeypatch):
    def reseed(seed):
        raise AssertionError("GPUs are given a new seed")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", reseed)
    expected, before = TrainState.create(tiny_config()).to_payload(), torch.get_rng_state()
    torch.rand(1)
    with torch.device("meta"):  # where a script wants its own tensors
        state = TrainState.create(tiny_config())
    torch.set_rng_state(before)
    assert differing(state.to_payload(), expected) == []
    TrainState.create(tiny_config(seed=1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("processes", [2, 4])
def test_draw_on_all_ranks_together_equals_draw_on_one(processes):
    config, now, pool = tiny_config(style_mixing=1.0), stage(batch_size=8), torch.eye(5)
    alone = everything(config, 40, now, Share(), pool)
    parts = [everything(config, 40, now, Share(r, processes), pool) for r in range(processes)]
    for whole, *slices in zip(alone, *parts, strict=True):
        assert len(slices[0]) == 8 // processes
        assert torch.equal(torch.cat(slices), whole)
    cutoffs = {
        draw(config, 40, now, None, Share(r, processes)).generator.mixing_cutoff
        for r in range(processes)
    }
    assert len(cutoffs) == 1
    maps = [draw(config, 40, now, None, Share(r, processes)).generator.noise for r in (0, 1)]
    assert not torch.equal(maps[0][-1], maps[1][-1])  # each process has noise of its own


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("loss", ["logistic", "wgan_gp", "hinge", "relativistic"])
def test_batch_gpu_without_deviation_groups_equals_the_full_batch(loss, at_once):
    options = {"discriminator_loss": loss, "r2_gamma": 1.0, "network": {"deviation_group": 0}}
    options |= RELATIVISTIC if loss == "relativistic" else {}
    states = [float64_state(tiny_config(**options, batch_gpu=size)) for size in (0, at_once)]
    for now in (stage(8, 0.5), stage(8, 1.0)):
        metrics = [step(state, now) for state in states]
        for name, value in metrics[0].items():
            assert metrics[1][name].item() == pytest.approx(value.item(), abs=1e-10), name
    for name in ("generator", "discriminator", "generator_ema"):
        assert_same_weights(*(getattr(state, name) for state in states), atol=1e-9)


@pytest.mark.parametrize("batch_gpu", [0, 2])
def test_relativistic_gradients_equal_a_joint_graph_of_pairs(batch_gpu):
    network = {"deviation_group": 2, "label_dim": 3}
    config = tiny_config(**RELATIVISTIC, r1_gamma=0.0, batch_gpu=batch_gpu, network=network)
    state, now = float64_state(config), stage(8, 0.5, lr=0.0)
    pool = torch.eye(3)[:1]  # so that the labels drawn for the generator are no others' labels
    labels = torch.eye(3, dtype=torch.float64)[[1, 2, 2, 1]]
    draws = draw(config, 0, now, pool, Share(dtype=torch.float64))
    given = state, enter_stage(state, now), reals_for(now, torch.float64), labels, now, draws

    def joint(draws, reals, *, grad):
        """D(fake) - D(real), with deviations of each micro-batch."""
        with torch.set_grad_enabled(grad):
            fakes, _ = training_images(state.generator, draws, now)

        def logits(images):
            pairs = zip(images.split(batch_gpu or 4), labels.split(batch_gpu or 4), strict=True)
            return torch.cat([state.discriminator(x, y, alpha=0.5) for x, y in pairs])

        return logits(fakes) - logits(reals)

    networks, reals = given[1], given[2]
    of_fakes = [
        dataclasses.replace(d, labels=labels) for d in (draws.discriminator, draws.generator)
    ]
    loss = F.softplus(joint(of_fakes[0], reals, grad=False)).mean()
    expected = torch.autograd.grad(loss, networks.d_weights)
    metrics = update_discriminator(*given)
    for weight, grad in zip(networks.d_weights, expected, strict=True):
        assert torch.allclose(weight.grad, grad, rtol=1e-10, atol=1e-14)
    assert metrics["d/relativistic_real"].item() == pytest.approx(loss.item(), abs=1e-13)
    assert metrics["d/relativistic_fake"].item() == pytest.approx(loss.item(), abs=1e-13)

    loss = F.softplus(-joint(of_fakes[1], reals, grad=True)).mean()
    expected = torch.autograd.grad(loss, networks.g_weights)
    with frozen(networks.d_weights):
        metrics = update_generator(*given)
    for weight, grad in zip(networks.g_weights, expected, strict=True):
        assert torch.allclose(weight.grad, grad, rtol=1e-10, atol=1e-14)
    assert metrics["g/relativistic"].item() == pytest.approx(loss.item(), abs=1e-13)


def test_train_step_uses_labels_in_both_networks_and_updates():
    config, now = tiny_config(network={"label_dim": 3}), stage(8, 1.0)
    pool, labels = torch.eye(3)[:2], torch.eye(3)[[1, 1, 0, 0]]  # class 2 never occurs

    def trained(labels, pool):
        state = TrainState.create(config)
        metrics = step(state, now, labels=labels, pool=pool)
        embedding = state.generator.mapping.label_embedding
        return state, metrics, embedding.grad, state.discriminator.head.out.weight.grad

    state, metrics, g_grad, d_grad = trained(labels, pool)
    assert all(value.isfinite() for value in metrics.values())
    for grad in (g_grad, d_grad):
        assert grad[:2].abs().sum() > 0
        assert grad[2].abs().max() == 0
    turned = labels[:, [1, 0, 2]]
    assert not torch.equal(trained(turned, pool)[3], d_grad)  # the reals' labels
    own = trained(labels, torch.eye(3)[1:2])[2]  # the generator's own, from the data set
    assert own[0].abs().max() == 0 < own[1].abs().max()
    assert state.generator.w_avg.isfinite().all()


def test_r1_gamma_can_depend_on_the_resolution():
    table = tiny_config(r1_gamma={4: 3.0, 8: 0.0})
    for resolution, gamma in ((4, 3.0), (8, 0.0)):
        now = stage(resolution)
        by_table, plain = (
            TrainState.create(config) for config in (table, tiny_config(r1_gamma=gamma))
        )
        metrics = [step(state, now) for state in (by_table, plain)]
        assert ("d/r1_penalty" in metrics[0]) == (gamma > 0)
        assert metrics[0] == metrics[1]
        assert not differing(by_table.discriminator.state_dict(), plain.discriminator.state_dict())


def test_r1_interval_applies_r1_every_kth_step_times_k():
    now = stage()
    lazy = TrainState.create(tiny_config(r1_gamma=10.0, r1_interval=3))
    for number in range(4):
        plain = copy.deepcopy(lazy)
        gamma = 30.0 if number % 3 == 0 else 0.0
        plain.config = tiny_config(r1_gamma=gamma)
        metrics = [step(state, now) for state in (lazy, plain)]
        assert ("d/r1_penalty" in metrics[0]) == (number % 3 == 0)
        assert metrics[0] == metrics[1]
        assert not differing(lazy.discriminator.state_dict(), plain.discriminator.state_dict())
