"""One training step: the discriminator, the average generator, then the generator."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from stylegan import augment
from stylegan.config import TrainConfig
from stylegan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES, PairLoss
from stylegan.networks import Generator
from stylegan.ops import at_least_float32
from stylegan.schedule import Stage
from stylegan.training.draws import Draws, PassDraws
from stylegan.training.optimizer import guarded_update
from stylegan.training.parallel import StageNetworks, no_sync_unless, wrapped
from stylegan.training.state import TrainState
from stylegan.training.terms import (
    Term,
    autocast,
    discriminator_images,
    discriminator_logits,
    discriminator_terms,
    generator_terms,
    penalty_weights,
)
from stylegan.utils import distributed

Metrics = dict[str, Tensor]  # loss terms and logits by name, averaged over the images of this rank


def train_step(
    state: TrainState, reals: Tensor, labels: Tensor | None, stage: Stage, draws: Draws
) -> Metrics:
    """Update the discriminator, the average generator, then the generator.

    During `d_only_kimg` only the discriminator is updated. An adaptive augmentation needs
    `state.strength.adapt()` after every step.

    reals: processed images of this rank, (n, C, r, r) at the resolution of `stage`.
    labels: theirs, (n, label_dim); None if the networks have no labels.
    """
    networks = enter_stage(state, stage)
    metrics = update_discriminator(state, networks, reals, labels, stage, draws)
    if state.images_seen >= state.config.d_only_kimg * 1000:
        # As in the official code, the average moves before this step's update of the generator.
        decay = 0.5 ** (stage.batch_size / (state.config.ema_half_life_kimg * 1000))
        update_ema(state, networks, decay)
        with frozen(networks.d_weights):
            metrics |= update_generator(state, networks, reals, labels, stage, draws)
    state.position.advance(stage.batch_size)
    return metrics


def enter_stage(state: TrainState, stage: Stage) -> StageNetworks:
    """Prepare the networks for this stage; clear the optimizers when growth moves on."""
    if state.growth != stage.growth:
        state.growth = stage.growth
        state.stage_networks = None  # frees them before new ones are made
        for optimizer in (state.g_optimizer, state.d_optimizer):
            optimizer.zero_grad(set_to_none=True)
            optimizer.clear()
        torch.cuda.empty_cache()  # cached blocks have the sizes of the previous stage
    if state.stage_networks is None:
        state.stage_networks = freeze_and_wrap(state, stage)
    return state.stage_networks


def freeze_and_wrap(state: TrainState, stage: Stage) -> StageNetworks:
    """Freeze parameters that this stage does not use, and wrap the networks in DDP.

    `freeze_d_from` also freezes D's blocks from this resolution up (Mo et al. 2020). Unlike there,
    from_rgb stays trainable, since a transfer may have refitted it.
    """
    generator = state.generator
    discriminator = state.discriminator
    for network in (generator, discriminator):
        network.requires_grad_(False)
        for parameter in network.active_parameters(stage.resolution, stage.alpha):
            parameter.requires_grad_(True)
    for resolution, block in discriminator.blocks.items():
        if 0 < state.config.freeze_d_from <= int(resolution):
            block.requires_grad_(False)
    # A frozen weight that equals its average stays equal, so it can be left out.
    pairs = zip(state.generator_ema.parameters(), generator.parameters(), strict=True)
    moving = [(a, w) for a, w in pairs if w.requires_grad or not torch.equal(a, w)]
    return StageNetworks(
        generator_pass=wrapped(GeneratorPass(generator)),
        discriminator=wrapped(discriminator),
        g_weights=[weight for weight in generator.parameters() if weight.requires_grad],
        d_weights=[weight for weight in discriminator.parameters() if weight.requires_grad],
        averages=[average for average, _ in moving],
        followed=[weight for _, weight in moving],
    )


def training_images(generator: Generator, draws: PassDraws, stage: Stage) -> tuple[Tensor, Tensor]:
    """Images (n, C, r, r) with mixed styles (section 3.1), and the mean of their unmixed w."""
    labels = draws.labels
    if draws.mixing_latents is None:
        w = generator.mapping(draws.latents, labels)
        ws = generator.broadcast(w)
    else:
        both = torch.cat([draws.latents, draws.mixing_latents])
        twice = None if labels is None else torch.cat([labels, labels])
        w, other = generator.mapping(both, twice).chunk(2)
        layers = torch.arange(generator.config.num_ws(), device=w.device)[:, None]
        ws = torch.where(layers < draws.mixing_cutoff, w[:, None], other[:, None])
    images = generator.synthesis(
        ws, resolution=stage.resolution, alpha=stage.alpha, noise=draws.noise
    )
    return images, at_least_float32(w.detach()).mean(dim=0)


class GeneratorPass(nn.Module):
    """`training_images` as a module, which DDP wraps."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, draws: PassDraws, stage: Stage) -> tuple[Tensor, Tensor]:
        return training_images(self.generator, draws, stage)


def update_discriminator(
    state: TrainState,
    networks: StageNetworks,
    reals: Tensor,
    labels: Tensor | None,
    stage: Stage,
    draws: Draws,
) -> Metrics:
    """Train the discriminator on reals and fakes, and observe r_t for an adaptive augmentation.

    Each pass is propagated before the next one starts, so only one graph exists at a time, and a
    minibatch deviation is over one kind of image. Only the network being trained is called through
    its DDP wrapper, which exchanges gradients.
    """
    config = state.config
    generator = state.generator
    loss = DISCRIMINATOR_LOSSES[config.discriminator_loss]
    weights = penalty_weights(config, state.images_seen, stage)
    metrics: Metrics = {}
    w_mean = torch.zeros_like(generator.w_avg)
    # The fakes take the labels of the reals.
    fake_draws = dataclasses.replace(draws.discriminator, labels=labels)
    state.d_optimizer.zero_grad(set_to_none=True)
    for rows in micro_batches(config, len(reals)):
        fraction = (rows.stop - rows.start) / len(reals)
        part = fake_draws.part(rows)
        with torch.no_grad(), autocast(config, reals.device):
            fakes, part_mean = training_images(generator, part, stage)
        w_mean += part_mean * fraction
        penalty_mix = None if draws.penalty_mix is None else draws.penalty_mix[rows]
        real_transform = augment.select_rows(draws.real_transform, rows)
        others = compared(loss, state, reals, part.labels, stage, draws, rows)
        for kind, images in discriminator_images(config, reals[rows], fakes, penalty_mix).items():
            last = rows.stop == len(reals) and kind == "real"
            with no_sync_unless(networks.discriminator, last=last):
                logits, leaf = discriminator_logits(
                    config,
                    networks.discriminator,
                    images,
                    part.labels,
                    stage,
                    part.transform if kind == "fake" else real_transform,
                    penalized=weights[kind] > 0,
                )
                terms = discriminator_terms(
                    config, kind, logits, leaf, stage, weights[kind], others
                )
                backward(state.d_scaler, terms, fraction, networks.d_weights)
            if others is not None:
                others = logits.detach()  # of the fakes, for the pass of the reals, which is next
            add_to(metrics, terms, fraction)
    if config.augment.adaptive:
        state.strength.observe(
            distributed.mean_over_ranks(metrics["d/real_signs"]), stage.batch_size
        )
    update_w_avg(generator, w_mean, config.w_avg_decay)  # also if the update is skipped
    made = guarded_update(state.d_optimizer, state.d_scaler, stage.d_lr)
    state.count_update("d", made)
    return metrics


@torch.no_grad()
def compared(
    loss: object,
    state: TrainState,
    reals: Tensor,
    labels: Tensor | None,
    stage: Stage,
    draws: Draws,
    rows: slice,
) -> Tensor | None:
    """Logits of `reals[rows]`, which have these `labels`, for a loss of pairs; else None."""
    if not isinstance(loss, PairLoss):
        return None
    conditions = labels, stage, augment.select_rows(draws.real_transform, rows)
    return discriminator_logits(state.config, state.discriminator, reals[rows], *conditions)[0]


def update_generator(
    state: TrainState,
    networks: StageNetworks,
    reals: Tensor,
    labels: Tensor | None,
    stage: Stage,
    draws: Draws,
) -> Metrics:
    """Train the generator. The discriminator must be frozen and is called without its wrapper.

    Only a loss of pairs uses the reals, and gives the fakes their labels.
    """
    config = state.config
    n = len(reals)
    loss = GENERATOR_LOSSES[config.generator_loss]
    of_fakes = draws.generator
    if isinstance(loss, PairLoss):
        of_fakes = dataclasses.replace(of_fakes, labels=labels)
    metrics: Metrics = {}
    w_mean = torch.zeros_like(state.generator.w_avg)
    state.g_optimizer.zero_grad(set_to_none=True)
    for rows in micro_batches(config, n):
        fraction = (rows.stop - rows.start) / n
        part = of_fakes.part(rows)
        others = compared(loss, state, reals, part.labels, stage, draws, rows)
        with no_sync_unless(networks.generator_pass, last=rows.stop == n):
            with autocast(config, state.device):
                fakes, part_mean = networks.generator_pass(part, stage)
                transformed = augment.apply(fakes, part.transform)
                logits = state.discriminator(transformed, part.labels, alpha=stage.alpha)
            terms = generator_terms(config, logits, others)
            backward(state.g_scaler, terms, fraction, networks.g_weights)
        w_mean += part_mean * fraction
        add_to(metrics, terms, fraction)
    update_w_avg(state.generator, w_mean, config.w_avg_decay)
    made = guarded_update(state.g_optimizer, state.g_scaler, stage.g_lr)
    state.count_update("g", made)
    return metrics


def micro_batches(config: TrainConfig, n: int) -> list[slice]:
    """Rows of the `n` images of a rank that go through the networks at a time."""
    size = config.micro_batch_size(n)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def backward(
    scaler: torch.amp.GradScaler, terms: list[Term], fraction: float, trained: list[Tensor]
) -> None:
    """Accumulate the gradients of a micro-batch, `fraction` of the batch, into `.grad`.

    Only `trained` weights get gradients; the images that R1 differentiates with respect to need
    none.
    """
    weighted = [term.value * term.weight for term in terms if term.weight]
    scaler.scale(torch.stack(weighted).sum() * fraction).backward(inputs=trained)


def add_to(metrics: Metrics, terms: list[Term], fraction: float) -> None:
    """Add the terms of a micro-batch, `fraction` of the batch, to the averages."""
    values = torch._foreach_mul([term.value.detach() for term in terms], fraction)
    for term, value in zip(terms, values, strict=True):
        metrics[term.name] = metrics[term.name] + value if term.name in metrics else value


def update_w_avg(generator: Generator, w_mean: Tensor, decay: float) -> None:
    """Move the average of w toward the mean over the whole batch, in place, in both updates.

    As in the official code, all labels share one average, so truncation pulls each class toward it.
    """
    w_avg = generator.w_avg
    mean = distributed.mean_over_ranks(w_mean)
    # An overflow in float16 skips an update of the weights; here it would stay in the average.
    w_avg.lerp_(torch.where(mean.isfinite(), mean, w_avg), 1 - decay)


@torch.no_grad()
def update_ema(state: TrainState, networks: StageNetworks, decay: float) -> None:
    """Move the average weights toward the current ones; copy the buffers. Karras et al. 2018."""
    torch._foreach_lerp_(networks.averages, networks.followed, 1 - decay)
    buffers = list(state.generator_ema.buffers())
    torch._foreach_copy_(buffers, list(state.generator.buffers()))


@contextmanager
def frozen(weights: list[Tensor]) -> Iterator[None]:
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)
