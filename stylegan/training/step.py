"""One training step: the discriminator, the average generator, then the generator."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from stylegan import augment, distributed
from stylegan.config import TrainConfig
from stylegan.networks import Generator
from stylegan.schedule import Stage
from stylegan.training.draws import Draws, PassDraws
from stylegan.training.graphs import Found, StepInputs, gradients
from stylegan.training.optimizer import guarded_update
from stylegan.training.parallel import (
    GeneratorPass,
    StageNetworks,
    local_gradients,
    stage_networks,
)
from stylegan.training.state import TrainState
from stylegan.training.terms import (
    Batch,
    Term,
    autocast,
    discriminator_terms,
    generator_terms,
    with_lazy_r1,
)

Metrics = dict[str, Tensor]  # names of loss terms and logits -> averages over this process's images


def train_step(
    state: TrainState, reals: Tensor, labels: Tensor | None, stage: Stage, draws: Draws
) -> Metrics:
    """Update the discriminator, the average generator, then the generator.

    `reals` (n, C, r, r) are processed images of this process, r the stage's resolution; `labels`
    (n, label_dim) theirs, exactly when the networks have labels.
    """
    networks = enter_stage(state, stage)
    metrics = update_discriminator(state, networks, reals, labels, stage, draws)
    half_life = state.config.ema_half_life_kimg * 1000
    average, generator = state.generator_ema, state.generator
    update_ema(average, generator, half_life, stage.batch_size, resting=networks.resting)
    with frozen(state.discriminator):
        metrics |= update_generator(state, networks, stage, draws.generator)
    state.position.advance(stage.batch_size)
    return metrics


def enter_stage(state: TrainState, stage: Stage) -> StageNetworks:
    """The networks for this stage; the optimizers are cleared if growth has moved on."""
    if state.growth != stage.growth:
        state.read()
        state.growth = stage.growth
        for optimizer in (state.g_optimizer, state.d_optimizer):
            optimizer.zero_grad(set_to_none=True)
            optimizer.clear()
    return stage_networks(state, stage)


def update_discriminator(
    state: TrainState,
    networks: StageNetworks,
    reals: Tensor,
    labels: Tensor | None,
    stage: Stage,
    draws: Draws,
) -> Metrics:
    """The discriminator learns from reals and fakes; the strength of augmentation follows."""
    config = with_lazy_r1(state.config, state.images_seen, stage)
    inputs = StepInputs(
        stage,
        draws.discriminator,
        reals,
        labels,
        state.logit_averages,
        draws.penalty_mix,
        draws.real_transform,
    )
    compute = partial(discriminator_gradients, state, networks, config)
    metrics, w_mean = gradients(
        state, networks.graphs, state.d_optimizer, compute, inputs, config.r1_gamma
    )
    if config.augment.adaptive:
        observe = partial(
            state.strength.observe, batch_size=stage.batch_size, config=config.augment
        )
        state.count(distributed.mean(metrics["d/real_signs"]), observe)
    state.read()  # but for the signs, of the step before: the device has long been there
    update_w_avg(state.generator, w_mean, config.w_avg_decay)
    updated = guarded_update(state.d_optimizer, state.d_scaler, stage.d_lr)
    if config.lecam_weight:
        move_logit_averages(state, metrics, updated)
    state.count(updated, partial(state.count_update, "d"))
    return metrics


def discriminator_gradients(
    state: TrainState, networks: StageNetworks, config: TrainConfig, inputs: StepInputs
) -> Found:
    """Terms are propagated one group after the other, so that only one graph lives at a time."""
    stage, draws, reals, labels = inputs.stage, inputs.draws, inputs.reals, inputs.labels
    assert reals is not None
    groups = discriminator_terms(config)
    metrics: Metrics = {}
    w_mean = torch.zeros_like(state.generator.w_avg)
    for micro in micro_batches(len(reals), config.batch_gpu):
        part_labels = None if labels is None else labels[micro.rows]
        own = draws.part(micro.rows)
        with torch.no_grad(), autocast(config, reals.device):
            generate = GeneratorPass(state.generator)  # without DDP: there are no gradients
            fakes, w = generate(own, part_labels, stage)
        w_mean += w * micro.weight
        mix = None if inputs.penalty_mix is None else inputs.penalty_mix[micro.rows]
        of_reals = augment.part(inputs.real_transform, micro.rows)
        averages = inputs.averages
        batch = Batch(reals[micro.rows], fakes, part_labels, mix, averages, of_reals, own.transform)
        for group in groups:
            last = micro.last and group is groups[-1]
            with local_gradients(networks.discriminator, last=last):
                terms = group(config, networks.discriminator, batch, stage)
                backward(state.d_scaler, terms, micro.weight, state.discriminator)
            add_to(metrics, terms, micro.weight)
    return Found(metrics, w_mean)


def update_generator(
    state: TrainState, networks: StageNetworks, stage: Stage, draws: PassDraws
) -> Metrics:
    """The discriminator must be frozen: gradients flow through it, not into it."""
    compute = partial(generator_gradients, state, networks)
    inputs = StepInputs(stage, draws)
    metrics, w_mean = gradients(state, networks.graphs, state.g_optimizer, compute, inputs)
    update_w_avg(state.generator, w_mean, state.config.w_avg_decay)
    updated = guarded_update(state.g_optimizer, state.g_scaler, stage.g_lr)
    state.count(updated, partial(state.count_update, "g"))
    return metrics


def generator_gradients(state: TrainState, networks: StageNetworks, inputs: StepInputs) -> Found:
    """Those of the loss of generated images."""
    config, stage, draws = state.config, inputs.stage, inputs.draws
    metrics: Metrics = {}
    w_mean = torch.zeros_like(state.generator.w_avg)
    for micro in micro_batches(len(draws.latents), config.batch_gpu):
        own = draws.part(micro.rows)
        with local_gradients(networks.generator, last=micro.last):
            with autocast(config, w_mean.device):
                fakes, w = networks.generator(own, own.labels, stage)
                seen = augment.apply(fakes, own.transform)
                logits = state.discriminator(seen, own.labels, alpha=stage.alpha)
            terms = generator_terms(config, logits)
            backward(state.g_scaler, terms, micro.weight, state.generator)
        w_mean += w * micro.weight
        add_to(metrics, terms, micro.weight)
    return Found(metrics, w_mean)


class MicroBatch(NamedTuple):
    """Images that go through the networks at once."""

    rows: slice
    weight: float  # their fraction of the process's batch
    last: bool


def micro_batches(n: int, at_once: int) -> list[MicroBatch]:
    """The parts of `n` images; 0 `at_once`: the whole."""
    size = min(at_once or n, n)
    ends = [(start, min(start + size, n)) for start in range(0, n, size)]
    return [MicroBatch(slice(start, end), (end - start) / n, end == n) for start, end in ends]


def backward(
    scaler: torch.amp.GradScaler, terms: list[Term], weight: float, network: nn.Module
) -> None:
    """Add the gradients of the terms, of a micro-batch of that weight, to those there are.

    Only those of the network's weights: images, by which R1 differentiates, need none of the sum.
    """
    weighted = [term.value * term.weight for term in terms if term.weight]
    trained = [p for p in network.parameters() if p.requires_grad]
    scaler.scale(torch.stack(weighted).sum() * weight).backward(inputs=trained)


def add_to(metrics: Metrics, terms: list[Term], weight: float) -> None:
    for term in terms:
        metrics[term.name] = metrics.get(term.name, 0) + term.value.detach() * weight


def move_logit_averages(state: TrainState, metrics: Metrics, updated: Tensor) -> None:
    """Move the averages that LeCam uses toward this batch's; the first batch sets them. Not if the
    update was skipped: a logit that is not finite would stay in them."""
    means = distributed.mean(torch.stack([metrics["d/real_logits"], metrics["d/fake_logits"]]))
    averages = state.logit_averages
    if averages is not None:
        moved = averages.lerp(means, 1 - state.config.lecam_decay)
        state.logit_averages = torch.where(updated, moved, averages)
    elif updated:  # waits for the device, once in a run
        state.logit_averages = means


def update_w_avg(generator: Generator, w_mean: Tensor, decay: float) -> None:
    """Move the average of w toward the mean over the whole batch, in place."""
    generator.w_avg.lerp_(distributed.mean(w_mean), 1 - decay)


@torch.no_grad()
def update_ema(
    average: Generator,
    generator: Generator,
    half_life_images: float,
    batch_size: int,
    *,
    resting: Collection[str] = (),
) -> None:
    """Weights that forget half in `half_life_images`; buffers are copied. Karras et al. 2018.

    Those named in `resting` equal the generator's and are left alone.
    """
    decay = 0.5 ** (batch_size / half_life_images)
    weights = dict(generator.named_parameters())
    moving = [name for name in weights if name not in resting]
    averages = dict(average.named_parameters())
    move = get_ema_multi_avg_fn(decay)
    move([averages[name] for name in moving], [weights[name] for name in moving], 0)
    for mine, theirs in zip(average.buffers(), generator.buffers(), strict=True):
        mine.copy_(theirs)


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """No gradients into the weights of `network` inside."""
    active = [p for p in network.parameters() if p.requires_grad]
    for parameter in active:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in active:
            parameter.requires_grad_(True)
