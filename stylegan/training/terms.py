"""The terms of both losses, as functions of logits and of the images that they came from."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from stylegan import augment, losses, ops
from stylegan.augment import Transform
from stylegan.config import TrainConfig
from stylegan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES, DiscriminatorLoss, PairLoss
from stylegan.schedule import Stage

Kind = Literal["real", "fake", "between"]  # of images; between: interpolated, for WGAN-GP
PENALTIES = {"real": ("r1_penalty", losses.r1_penalty), "fake": ("r2_penalty", losses.r2_penalty)}


class Term(NamedTuple):
    """One named part of a loss."""

    name: str
    weight: float  # 0: only logged
    value: Tensor  # a single number


def loss_term(name: str, value: Tensor) -> Term:
    """Make a term of the value of a loss, perhaps a user's. Raises ValueError if it is unusable."""
    if isinstance(value, Tensor) and value.shape == () and value.requires_grad:
        return Term(name, 1.0, value)
    returned = f"a {type(value).__name__}"
    if isinstance(value, Tensor):
        returned += f" of shape {tuple(value.shape)} and type {value.dtype}"
        returned += ", with a gradient" if value.requires_grad else ", without a gradient"
    raise ValueError(
        f"the loss {name} must return its mean over the batch, a tensor of shape () that "
        f"requires grad, got {returned}"
    )


def generator_terms(
    config: TrainConfig, fake_logits: Tensor, real_logits: Tensor | None = None
) -> list[Term]:
    """Loss of the generator; a loss of pairs needs `real_logits`."""
    name = config.generator_loss
    loss = GENERATOR_LOSSES[name]
    if isinstance(loss, PairLoss):
        return [loss_term(f"g/{name}", loss.of(real_logits, fake_logits))]
    return [loss_term(f"g/{name}", loss(fake_logits))]


def discriminator_images(
    config: TrainConfig, reals: Tensor, fakes: Tensor, penalty_mix: Tensor | None
) -> dict[Kind, Tensor]:
    """Images of the discriminator's update by kind, in the order of their passes.

    `penalty_mix` (n,) is the weight of the fakes in the interpolated images of WGAN-GP.
    DDP exchanges gradients in the last pass, that of the reals, which must therefore reach every
    weight. The gradient penalty does not reach the biases, so it comes first.
    """
    images: dict[Kind, Tensor] = {}
    if penalizes_between(config):
        assert penalty_mix is not None
        images["between"] = torch.lerp(reals, fakes, penalty_mix[:, None, None, None])
    images["fake"] = fakes
    images["real"] = reals
    return images


def penalty_weights(config: TrainConfig, images_seen: int, stage: Stage) -> dict[Kind, float]:
    """Weight of the gradient penalty in this step, by kind of image; 0: none.

    R1 is lazy: `r1_interval` times as large in every such step, 0 in between. Karras et al. 2020,
    section 3.1; not in the StyleGAN paper.
    """
    due = images_seen // stage.batch_size % config.r1_interval == 0
    r1_gamma = config.r1_gamma_at(stage.resolution) * config.r1_interval * due
    return {"between": config.gp_weight, "fake": config.r2_gamma, "real": r1_gamma}


def penalizes_between(config: TrainConfig) -> bool:
    """Whether the gradient is penalized at interpolated images: wgan_gp, hinge_gp."""
    loss = DISCRIMINATOR_LOSSES[config.discriminator_loss]
    return isinstance(loss, DiscriminatorLoss) and loss.gradient_penalty and config.gp_weight > 0


def has_penalty(config: TrainConfig) -> bool:
    gamma = config.r1_gamma
    has_r1 = max(gamma.values()) > 0 if isinstance(gamma, Mapping) else gamma > 0
    return has_r1 or config.r2_gamma > 0 or penalizes_between(config)


def discriminator_logits(
    config: TrainConfig,
    network: nn.Module,
    images: Tensor,
    labels: Tensor | None,
    stage: Stage,
    transform: Transform | None = None,
    *,
    penalized: bool = False,
) -> tuple[Tensor, Tensor]:
    """Logits of the augmented images, and the images before augmentation, for a penalty's gradient.

    Second derivatives overflow float16, so with fp16 a penalized pass runs in float32, or TF32 if
    the GPU has it.
    """
    images = images.detach().requires_grad_(penalized)
    exact = penalized and config.precision == "fp16"
    with nullcontext() if exact else autocast(config, images.device):
        return network(augment.apply(images, transform), labels, alpha=stage.alpha), images


def discriminator_terms(
    config: TrainConfig,
    kind: Kind,
    logits: Tensor,
    images: Tensor,
    stage: Stage,
    penalty_weight: float,
    others: Tensor | None = None,
) -> list[Term]:
    """Loss of one kind of images, and the gradient penalty at them if its weight is not 0.

    The penalty is R1 at reals, R2 at fakes and WGAN-GP's at interpolated images, which have no
    other term. A loss of pairs needs the detached logits of the `others`: both passes compute the
    whole loss, and each adds the gradient through its own logits. Its r_t is the mean sign of real
    minus fake logits.
    """
    norm_factor = losses.full_size_factor(config.network.resolution, stage.resolution)
    if kind == "between":
        penalty = losses.gradient_penalty(
            logits, images, target=config.gp_target, norm_factor=norm_factor
        )
        weight = penalty_weight / config.gp_target**2
        return [Term(f"d/{config.discriminator_loss}", weight, penalty)]
    loss = DISCRIMINATOR_LOSSES[config.discriminator_loss]
    if isinstance(loss, PairLoss):
        value = loss.of(logits, others) if kind == "real" else loss.of(others, logits)
    elif kind == "fake":
        value = loss.fake(logits)
    else:
        value = loss.real(logits, drift=config.drift) if loss.drift else loss.real(logits)
    terms = [Term(f"d/{kind}_logits", 0.0, logits.mean())]
    if kind == "real":
        margins = logits if others is None else logits - others
        terms.append(Term("d/real_signs", 0.0, margins.sign().mean()))
    terms.append(loss_term(f"d/{config.discriminator_loss.removesuffix('_gp')}_{kind}", value))
    if penalty_weight > 0:
        name, penalty_of = PENALTIES[kind]
        weight = penalty_weight / 2 * norm_factor**2
        terms.append(Term(f"d/{name}", weight, penalty_of(logits, images)))
    return terms


def autocast(config: TrainConfig, device: torch.device) -> AbstractContextManager[object]:
    dtype = ops.HALF.get(config.precision)
    return ops.autocast(device.type, dtype) if dtype else nullcontext()
