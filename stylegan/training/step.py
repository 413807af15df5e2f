"""One training step: the discriminator, the average generator, then the generator."""

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import get_ema_multi_avg_fn

from stylegan import distributed, losses
from stylegan.config import TrainConfig
from stylegan.networks import Generator
from stylegan.ops import at_least_float32
from stylegan.schedule import Stage
from stylegan.training.draws import Draws, PassDraws
from stylegan.training.optimizer import guarded_update
from stylegan.training.state import TrainState

Metrics = dict[str, Tensor]  # names of loss terms and logits -> averages over this process's images


class Term(NamedTuple):
    """One named part of a loss."""

    name: str
    weight: float  # 0: only logged
    value: Tensor


TermGroup = Callable[["TrainConfig", nn.Module, "Batch", Stage], list[Term]]

GENERATOR_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "nonsaturating": losses.nonsaturating,
    "saturating": losses.saturating,
    "wgan": losses.wgan_generator,
}
REAL_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": losses.logistic_real,
    "hinge": losses.hinge_real,
}
FAKE_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": losses.logistic_fake,
    "wgan": losses.wgan_fake,
    "hinge": losses.hinge_fake,
}


def train_step(
    state: TrainState, reals: Tensor, labels: Tensor | None, stage: Stage, draws: Draws
) -> Metrics:
    """Update the discriminator, the average generator, then the generator.

    `reals` (n, C, r, r) are processed images of this process, r the stage's resolution; `labels`
    (n, label_dim) theirs, exactly when the networks have labels.
    """
    enter_stage(state, stage)
    config = state.config
    metrics = update_discriminator(state, reals, labels, stage, draws)
    half_life = config.ema_half_life_kimg * 1000
    average, generator = state.generator_ema, state.generator
    update_ema(average, generator, half_life, stage.batch_size, resting=state.resting)
    with frozen(state.discriminator):
        metrics |= update_generator(state, stage, draws.generator)
    state.position.advance(stage.batch_size)
    return metrics


def enter_stage(state: TrainState, stage: Stage) -> None:
    """Clears the optimizers and leaves blocks that are not in use out, if growth has moved on."""
    if state.growth != stage.growth:
        state.growth = stage.growth
        for optimizer in (state.g_optimizer, state.d_optimizer):
            optimizer.zero_grad(set_to_none=True)
            optimizer.clear()
    if state.parallel_growth != stage.growth:
        state.parallel_growth = stage.growth
        state.parallel.clear()
        for network in (state.generator, state.discriminator):
            network.requires_grad_(False)
            for parameter in network.active_parameters(stage.resolution, stage.alpha):
                parameter.requires_grad_(True)
        averages = dict(state.generator_ema.named_parameters())
        state.resting = {
            name
            for name, weight in state.generator.named_parameters()
            if not weight.requires_grad and torch.equal(weight, averages[name])
        }
        state.parallel["generator"] = parallel(GeneratorPass(state.generator))
        state.parallel["discriminator"] = parallel(state.discriminator)


def parallel(module: nn.Module) -> nn.Module:
    """`module` under DistributedDataParallel where there are several processes.

    Our buffers are kept equal by the training step, so DDP must leave them alone; the option that
    says so has another name in newer versions.
    """
    if distributed.world_size() == 1:
        return module
    names = inspect.signature(DistributedDataParallel).parameters
    option = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
    options: dict[str, Any] = {option: False}
    return DistributedDataParallel(module, gradient_as_bucket_view=True, **options)


def local_gradients(module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """No exchange of gradients in the backward passes inside, unless it is the update's last."""
    if isinstance(module, DistributedDataParallel) and not last:
        return module.no_sync()
    return nullcontext()


class GeneratorPass(nn.Module):
    """Mapping, style mixing and synthesis as training does them: the whole that DDP wraps."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(
        self, draws: PassDraws, labels: Tensor | None, stage: Stage
    ) -> tuple[Tensor, Tensor]:
        """Images (n, C, r, r), and the mean of w over them, detached."""
        generator = self.generator
        if draws.mixing_latents is None:
            w = generator.mapping(draws.latents, labels)
            ws = generator.broadcast(w)
        else:
            both = torch.cat([draws.latents, draws.mixing_latents])
            twice = None if labels is None else torch.cat([labels, labels])
            w, other = generator.mapping(both, twice).chunk(2)
            rows = torch.arange(generator.config.num_styles(), device=w.device)[:, None]
            ws = torch.where(rows < draws.mixing_cutoff, w[:, None], other[:, None])
        images = generator.synthesis(
            ws, resolution=stage.resolution, alpha=stage.alpha, noise=draws.noise
        )
        return images, at_least_float32(w.detach()).mean(dim=0)


def micro_batches(n: int, at_once: int) -> list[tuple[int, int]]:
    """Ranges of images that go through the networks at once."""
    size = min(at_once or n, n)
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def autocast(config: TrainConfig, device: torch.device) -> AbstractContextManager[Any]:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(config.precision)
    return torch.autocast(device.type, dtype) if dtype else nullcontext()


def update_discriminator(
    state: TrainState, reals: Tensor, labels: Tensor | None, stage: Stage, draws: Draws
) -> Metrics:
    """Terms are propagated one after the other, so that only one graph lives at a time."""
    config = with_lazy_r1(state.config, state.images_seen, stage)
    network = state.parallel["discriminator"]
    state.d_optimizer.zero_grad(set_to_none=True)
    metrics: Metrics = {}
    w_mean = torch.zeros_like(state.generator.w_avg)
    groups = discriminator_terms(config)
    for start, end in micro_batches(len(reals), config.batch_gpu):
        share = (end - start) / len(reals)
        part_labels = None if labels is None else labels[start:end]
        with torch.no_grad(), autocast(config, reals.device):
            generate = GeneratorPass(state.generator)
            fakes, w = generate(draws.discriminator.part(start, end), part_labels, stage)
        w_mean += w * share
        mix = None if draws.penalty_mix is None else draws.penalty_mix[start:end]
        batch = Batch(reals[start:end], fakes, part_labels, mix)
        for group in groups:
            last = end == len(reals) and group is groups[-1]
            with local_gradients(network, last=last):
                terms = group(config, network, batch, stage)
                backward(state.d_scaler, terms, share)
            record(metrics, terms, share)
    update_w_avg(state.generator, w_mean, config.w_avg_decay)
    updated = guarded_update(state.d_optimizer, state.d_scaler, stage.d_lr)
    state.skipped_d += not updated
    state.skipped_in_a_row_d = 0 if updated else state.skipped_in_a_row_d + 1
    return metrics


def with_lazy_r1(config: TrainConfig, images_seen: int, stage: Stage) -> TrainConfig:
    """What is in force at this step: R1 with a larger weight, or without it.

    "Lazy regularization" of Karras et al. 2020, section 3.1; not in the paper of StyleGAN.
    """
    if config.r1_interval == 1:
        return config
    due = images_seen // stage.batch_size % config.r1_interval == 0
    return dataclasses.replace(config, r1_gamma=config.r1_gamma * config.r1_interval * due)


def update_generator(state: TrainState, stage: Stage, draws: PassDraws) -> Metrics:
    """The discriminator must be frozen: gradients flow through it, not into it."""
    config, network = state.config, state.parallel["generator"]
    state.g_optimizer.zero_grad(set_to_none=True)
    metrics: Metrics = {}
    w_mean = torch.zeros_like(state.generator.w_avg)
    n = len(draws.latents)
    for start, end in micro_batches(n, config.batch_gpu):
        share = (end - start) / n
        part = draws.part(start, end)
        with local_gradients(network, last=end == n):
            with autocast(config, w_mean.device):
                fakes, w = network(part, part.labels, stage)
                logits = state.discriminator(fakes, part.labels, alpha=stage.alpha)
            name = config.generator_loss
            terms = [Term(f"g/{name}", 1.0, GENERATOR_LOSSES[name](logits))]
            backward(state.g_scaler, terms, share)
        w_mean += w * share
        record(metrics, terms, share)
    update_w_avg(state.generator, w_mean, config.w_avg_decay)
    updated = guarded_update(state.g_optimizer, state.g_scaler, stage.g_lr)
    state.skipped_g += not updated
    state.skipped_in_a_row_g = 0 if updated else state.skipped_in_a_row_g + 1
    return metrics


@dataclass(frozen=True)
class Batch:
    """The images of one discriminator update (or a part of it)."""

    reals: Tensor  # (n, C, r, r)
    fakes: Tensor  # (n, C, r, r), detached
    labels: Tensor | None  # of both
    mix: Tensor | None  # (n,) share of the fake in the gradient penalty's images


def discriminator_terms(config: TrainConfig) -> list[TermGroup]:
    """Groups of terms that share a forward pass; each is propagated before the next begins.

    DDP exchanges gradients in the last, which must therefore reach every weight: the gradient
    penalty does not reach the biases.
    """
    groups: list[TermGroup] = [fake_terms, real_terms]
    penalized = config.discriminator_loss.endswith("_gp") and config.gp_weight > 0
    return [mixed_terms, *groups] if penalized else groups


def fake_terms(config: TrainConfig, network: nn.Module, batch: Batch, stage: Stage) -> list[Term]:
    """The loss of generated images, and R2 where it is asked for."""
    name = config.discriminator_loss.removesuffix("_gp")
    logits, images = judge(config, network, batch.fakes, batch.labels, stage, config.r2_gamma > 0)
    terms = [Term("d/fake_logits", 0.0, logits.mean())]
    terms.append(Term(f"d/{name}_fake", 1.0, FAKE_LOSSES[name](logits)))
    if config.r2_gamma > 0:
        weight = config.r2_gamma / 2 * full_size_factor(config, stage) ** 2
        terms.append(Term("d/r2_penalty", weight, losses.r2_penalty(logits, images)))
    return terms


def real_terms(config: TrainConfig, network: nn.Module, batch: Batch, stage: Stage) -> list[Term]:
    """The loss of real images, and R1."""
    name = config.discriminator_loss.removesuffix("_gp")
    logits, images = judge(config, network, batch.reals, batch.labels, stage, config.r1_gamma > 0)
    terms = [Term("d/real_logits", 0.0, logits.mean())]
    if name == "wgan":
        terms.append(Term("d/wgan_real", 1.0, losses.wgan_real(logits, config.drift)))
    else:
        terms.append(Term(f"d/{name}_real", 1.0, REAL_LOSSES[name](logits)))
    if config.r1_gamma > 0:
        weight = config.r1_gamma / 2 * full_size_factor(config, stage) ** 2
        terms.append(Term("d/r1_penalty", weight, losses.r1_penalty(logits, images)))
    return terms


def mixed_terms(config: TrainConfig, network: nn.Module, batch: Batch, stage: Stage) -> list[Term]:
    """The gradient penalty of WGAN-GP, at images between real and fake."""
    assert batch.mix is not None
    mixed = torch.lerp(batch.reals, batch.fakes, batch.mix[:, None, None, None])
    logits, images = judge(config, network, mixed, batch.labels, stage, True)
    norm_factor = full_size_factor(config, stage)
    penalty = losses.gradient_penalty(
        logits, images, target=config.gp_target, norm_factor=norm_factor
    )
    name = f"d/{config.discriminator_loss}"
    return [Term(name, config.gp_weight / config.gp_target**2, penalty)]


def judge(
    config: TrainConfig,
    network: nn.Module,
    images: Tensor,
    labels: Tensor | None,
    stage: Stage,
    penalized: bool,
) -> tuple[Tensor, Tensor]:
    """Logits, and the images that they may be differentiated by.

    Gradients of gradients leave the range of float16: a penalized pass is done in float32 then.
    """
    images = images.detach().requires_grad_(penalized)
    exact = penalized and config.precision == "fp16"
    with nullcontext() if exact else autocast(config, images.device):
        return network(images, labels, alpha=stage.alpha), images


def full_size_factor(config: TrainConfig, stage: Stage) -> float:
    return losses.full_size_factor(config.network.resolution, stage.resolution)


def backward(scaler: torch.amp.GradScaler, terms: list[Term], share: float) -> None:
    """Add the gradients of the weighted terms, of a `share` of the batch, to those there are."""
    weighted = [term.value * term.weight for term in terms if term.weight]
    scaler.scale(torch.stack(weighted).sum() * share).backward()


def record(metrics: Metrics, terms: list[Term], share: float) -> None:
    for term in terms:
        metrics[term.name] = metrics.get(term.name, 0) + term.value.detach() * share


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
