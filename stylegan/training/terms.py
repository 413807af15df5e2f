"""The terms of both losses: functions of logits, and of the images that they came from."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stylegan import augment, losses, ops
from stylegan.augment import Transform
from stylegan.config import TrainConfig
from stylegan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from stylegan.schedule import Stage


class Term(NamedTuple):
    """One named part of a loss."""

    name: str
    weight: float  # 0: only logged
    value: Tensor  # a single number


def loss_term(name: str, value: Tensor) -> Term:
    """The value of a loss, perhaps a user's own; ValueError says what is wrong with it."""
    if not isinstance(value, Tensor):
        what = f"a {type(value).__name__}"
    elif value.shape != ():
        what = f"a tensor of shape {tuple(value.shape)}"
    elif not value.is_floating_point():
        what = f"a tensor of type {value.dtype}"
    elif not value.requires_grad:
        what = "a tensor without a gradient (by detach, item, numpy or no_grad?)"
    else:
        return Term(name, 1.0, value)
    raise ValueError(
        f"the loss {name} returned {what}; a loss returns its mean over the batch: a tensor with "
        "a single number (shape ()), through which gradients flow to the logits"
    )


def generator_terms(config: TrainConfig, fake_logits: Tensor) -> list[Term]:
    """The loss of the generator."""
    name = config.generator_loss
    return [loss_term(f"g/{name}", GENERATOR_LOSSES[name](fake_logits))]


class Pass(NamedTuple):
    """Images on their way through the discriminator."""

    terms_of: Callable[[TrainConfig, Tensor, Tensor, Stage, float], list[Term]]  # as `real_terms`
    images: Tensor
    transform: Transform | None  # of the images
    penalty_weight: float  # of the gradient penalty; 0: none


def discriminator_passes(
    config: TrainConfig,
    reals: Tensor,
    fakes: Tensor,
    mix: Tensor | None,
    transforms: tuple[Transform | None, Transform | None],
    r1_gamma: float,
) -> list[Pass]:
    """What goes through the discriminator in its update; `mix` (n,) weighs the fakes in the images
    of the gradient penalty, `transforms` are of reals and fakes; mixed images may have either.

    DDP exchanges gradients in the last pass, so that pass must reach every weight. The gradient
    penalty does not reach the biases and comes first; the order of the others is free.
    """
    of_reals, of_fakes = transforms
    passes = [
        Pass(fake_terms, fakes, of_fakes, config.r2_gamma),
        Pass(real_terms, reals, of_reals, r1_gamma),
    ]
    if mixes(config):
        assert mix is not None
        mixed = torch.lerp(reals, fakes, mix[:, None, None, None])
        passes.insert(0, Pass(mixed_terms, mixed, of_reals, config.gp_weight))
    return passes


def mixes(config: TrainConfig) -> bool:
    """Whether the gradient is penalized at images between real and fake."""
    loss = DISCRIMINATOR_LOSSES[config.discriminator_loss]
    return loss.gradient_penalty and config.gp_weight > 0


def has_penalty(config: TrainConfig) -> bool:
    """Whether a pass of some step has a gradient penalty."""
    return config.r1_gamma > 0 or config.r2_gamma > 0 or mixes(config)


def discriminator_logits(
    config: TrainConfig,
    network: nn.Module,
    images: Tensor,
    labels: Tensor | None,
    stage: Stage,
    transform: Transform | None = None,
    penalized: bool = False,
) -> tuple[Tensor, Tensor]:
    """Logits of the transformed images, and the untransformed images, by which a penalty
    differentiates the logits.

    Second derivatives overflow float16, so with fp16 a penalized pass runs in float32, with TF32
    where the GPU has it.
    """
    images = images.detach().requires_grad_(penalized)
    exact = penalized and config.precision == "fp16"
    with nullcontext() if exact else autocast(config, images.device):
        return network(augment.apply(images, transform), labels, alpha=stage.alpha), images


def fake_terms(
    config: TrainConfig, logits: Tensor, fakes: Tensor, stage: Stage, r2_gamma: float
) -> list[Term]:
    """The loss of generated images, and R2 if its weight is not 0."""
    name = config.discriminator_loss.removesuffix("_gp")
    loss = DISCRIMINATOR_LOSSES[config.discriminator_loss]
    terms = [Term("d/fake_logits", 0.0, logits.mean())]
    terms.append(loss_term(f"d/{name}_fake", loss.fake(logits)))
    if r2_gamma > 0:
        weight = r2_gamma / 2 * full_size_factor(config, stage) ** 2
        terms.append(Term("d/r2_penalty", weight, losses.r2_penalty(logits, fakes)))
    return terms


def real_terms(
    config: TrainConfig, logits: Tensor, reals: Tensor, stage: Stage, r1_gamma: float
) -> list[Term]:
    """The loss of real images, and R1 if its weight is not 0."""
    name = config.discriminator_loss.removesuffix("_gp")
    loss = DISCRIMINATOR_LOSSES[config.discriminator_loss]
    terms = [Term("d/real_logits", 0.0, logits.mean())]
    terms.append(Term("d/real_signs", 0.0, logits.sign().mean()))
    wgan = loss.real is losses.wgan_real
    value = losses.wgan_real(logits, config.drift) if wgan else loss.real(logits)
    terms.append(loss_term(f"d/{name}_real", value))
    if r1_gamma > 0:
        weight = r1_gamma / 2 * full_size_factor(config, stage) ** 2
        terms.append(Term("d/r1_penalty", weight, losses.r1_penalty(logits, reals)))
    return terms


def mixed_terms(
    config: TrainConfig, logits: Tensor, mixed: Tensor, stage: Stage, gp_weight: float
) -> list[Term]:
    """The gradient penalty of WGAN-GP, at images between real and fake."""
    norm_factor = full_size_factor(config, stage)
    penalty = losses.gradient_penalty(
        logits, mixed, target=config.gp_target, norm_factor=norm_factor
    )
    return [Term(f"d/{config.discriminator_loss}", gp_weight / config.gp_target**2, penalty)]


def autocast(config: TrainConfig, device: torch.device) -> AbstractContextManager[Any]:
    """Half precision where the configuration asks for it."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(config.precision)
    return ops.autocast(device.type, dtype) if dtype else nullcontext()


def full_size_factor(config: TrainConfig, stage: Stage) -> float:
    return losses.full_size_factor(config.network.resolution, stage.resolution)


def lazy_r1_gamma(config: TrainConfig, images_seen: int, stage: Stage) -> float:
    """The weight of R1 in this step: a larger one every `r1_interval` steps, 0 between.

    "Lazy regularization" of Karras et al. 2020, section 3.1; not in the paper of StyleGAN.
    """
    due = images_seen // stage.batch_size % config.r1_interval == 0
    return config.r1_gamma * config.r1_interval * due
