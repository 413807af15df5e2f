"""The losses of a training step by name: groups of weighted terms."""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stylegan import augment, losses, ops
from stylegan.augment import Transform
from stylegan.config import TrainConfig
from stylegan.loss_registry import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from stylegan.schedule import Stage


class Term(NamedTuple):
    """One named part of a loss."""

    name: str
    weight: float  # 0: only logged
    value: Tensor  # a single number


def term(name: str, weight: float, value: Tensor) -> Term:
    """A term that may come from a function of the user; ValueError says what is wrong with it."""
    if not isinstance(value, Tensor):
        found = f"a {type(value).__name__}"
    elif value.shape != ():
        found = f"a tensor of shape {tuple(value.shape)}"
    elif not value.is_floating_point():
        found = f"a tensor of type {value.dtype}"
    elif not value.requires_grad:
        found = "a tensor without a gradient (by detach, item, numpy or no_grad?)"
    else:
        return Term(name, weight, value)
    raise ValueError(
        f"the loss {name} returned {found}; a loss returns its mean over the batch: a tensor with "
        "a single number (shape ()), through which gradients flow to the logits"
    )


@dataclass(frozen=True)
class Batch:
    """The images of one discriminator update (or a part of it)."""

    reals: Tensor  # (n, C, r, r)
    fakes: Tensor  # (n, C, r, r), detached
    labels: Tensor | None  # of both
    mix: Tensor | None = None  # (n,) weight of the fake in the gradient penalty's images
    averages: Tensor | None = None  # (2,) of the logits of reals and of fakes, for LeCam
    real_transform: Transform | None = None
    fake_transform: Transform | None = None


TermGroup = Callable[[TrainConfig, nn.Module, Batch, Stage], list[Term]]


def generator_terms(config: TrainConfig, fake_logits: Tensor) -> list[Term]:
    """The loss of the generator."""
    name = config.generator_loss
    return [term(f"g/{name}", 1.0, GENERATOR_LOSSES[name](fake_logits))]


def discriminator_terms(config: TrainConfig) -> list[TermGroup]:
    """Groups of terms that share a forward pass; each is propagated before the next begins.

    DDP exchanges gradients in the last, which must therefore reach every weight: the gradient
    penalty does not reach the biases.
    """
    groups: list[TermGroup] = [fake_terms, real_terms]
    penalized = (
        DISCRIMINATOR_LOSSES[config.discriminator_loss].gradient_penalty and config.gp_weight > 0
    )
    return [mixed_terms, *groups] if penalized else groups


def fake_terms(config: TrainConfig, network: nn.Module, batch: Batch, stage: Stage) -> list[Term]:
    """The loss of generated images, and R2 if its weight is not 0."""
    loss = DISCRIMINATOR_LOSSES[config.discriminator_loss]
    name = config.discriminator_loss.removesuffix("_gp")
    penalized = config.r2_gamma > 0 or loss.fake_penalty is not None
    transform = batch.fake_transform
    logits, images = forward(
        config, network, batch.fakes, batch.labels, stage, penalized, transform
    )
    terms = [Term("d/fake_logits", 0.0, logits.mean())]
    terms.append(term(f"d/{name}_fake", 1.0, loss.fake(logits)))
    if loss.fake_penalty is not None:
        terms.append(term(f"d/{name}_fake_penalty", 1.0, loss.fake_penalty(logits, images)))
    if batch.averages is not None:
        value = losses.lecam(logits, batch.averages[0])
        terms.append(Term("d/lecam_fake", config.lecam_weight, value))
    if config.r2_gamma > 0:
        weight = config.r2_gamma / 2 * full_size_factor(config, stage) ** 2
        terms.append(Term("d/r2_penalty", weight, losses.r2_penalty(logits, images)))
    return terms


def real_terms(config: TrainConfig, network: nn.Module, batch: Batch, stage: Stage) -> list[Term]:
    """The loss of real images, and R1 if its weight is not 0."""
    loss = DISCRIMINATOR_LOSSES[config.discriminator_loss]
    name = config.discriminator_loss.removesuffix("_gp")
    penalized = config.r1_gamma > 0 or loss.real_penalty is not None
    transform = batch.real_transform
    logits, images = forward(
        config, network, batch.reals, batch.labels, stage, penalized, transform
    )
    terms = [Term("d/real_logits", 0.0, logits.mean())]
    terms.append(Term("d/real_signs", 0.0, logits.sign().mean()))
    wgan = loss.real is losses.wgan_real
    value = losses.wgan_real(logits, config.drift) if wgan else loss.real(logits)
    terms.append(term(f"d/{name}_real", 1.0, value))
    if loss.real_penalty is not None:
        terms.append(term(f"d/{name}_real_penalty", 1.0, loss.real_penalty(logits, images)))
    if batch.averages is not None:
        value = losses.lecam(logits, batch.averages[1])
        terms.append(Term("d/lecam_real", config.lecam_weight, value))
    if config.r1_gamma > 0:
        weight = config.r1_gamma / 2 * full_size_factor(config, stage) ** 2
        terms.append(Term("d/r1_penalty", weight, losses.r1_penalty(logits, images)))
    return terms


def mixed_terms(config: TrainConfig, network: nn.Module, batch: Batch, stage: Stage) -> list[Term]:
    """The gradient penalty of WGAN-GP, at images between real and fake."""
    assert batch.mix is not None
    mixed = torch.lerp(batch.reals, batch.fakes, batch.mix[:, None, None, None])
    logits, images = forward(
        config, network, mixed, batch.labels, stage, True, batch.real_transform
    )
    norm_factor = full_size_factor(config, stage)
    penalty = losses.gradient_penalty(
        logits, images, target=config.gp_target, norm_factor=norm_factor
    )
    name = f"d/{config.discriminator_loss}"
    return [Term(name, config.gp_weight / config.gp_target**2, penalty)]


def forward(
    config: TrainConfig,
    network: nn.Module,
    images: Tensor,
    labels: Tensor | None,
    stage: Stage,
    penalized: bool,
    transform: Transform | None = None,
) -> tuple[Tensor, Tensor]:
    """Logits of the transformed images, and the images before it, by which a penalty may
    differentiate them.

    Gradients of gradients leave the range of float16: a penalized pass is done in float32 then.
    """
    images = images.detach().requires_grad_(penalized)
    exact = penalized and config.precision == "fp16"
    with nullcontext() if exact else autocast(config, images.device):
        return network(augment.apply(images, transform), labels, alpha=stage.alpha), images


def autocast(config: TrainConfig, device: torch.device) -> AbstractContextManager[Any]:
    """Half precision where the configuration asks for it."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(config.precision)
    return ops.autocast(device.type, dtype) if dtype else nullcontext()


def full_size_factor(config: TrainConfig, stage: Stage) -> float:
    return losses.full_size_factor(config.network.resolution, stage.resolution)


def with_lazy_r1(config: TrainConfig, images_seen: int, stage: Stage) -> TrainConfig:
    """What is in force at this step: R1 with a larger weight, or without it.

    "Lazy regularization" of Karras et al. 2020, section 3.1; not in the paper of StyleGAN.
    """
    if config.r1_interval == 1:
        return config
    due = images_seen // stage.batch_size % config.r1_interval == 0
    return dataclasses.replace(config, r1_gamma=config.r1_gamma * config.r1_interval * due)
