"""Losses by the names that a configuration gives them: those of `losses.py`, and a user's own."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from stylegan import losses
from stylegan.registry import Registry

LogitsLoss = Callable[[Tensor], Tensor]  # logits (n,) -> their mean loss, a single number
Penalty = Callable[[Tensor, Tensor], Tensor]  # logits (n,), images (n, C, r, r) -> a single number


@dataclass(frozen=True)
class DiscriminatorLoss:
    """What the discriminator minimises; R1 and R2 are added by the weights of a configuration."""

    real: LogitsLoss
    fake: LogitsLoss
    real_penalty: Penalty | None = None  # of real images, by which it may differentiate the logits
    fake_penalty: Penalty | None = None
    gradient_penalty: bool = False  # with WGAN-GP's, weighted by `gp_weight`


GENERATOR_LOSSES = Registry[LogitsLoss](
    "generator_loss",
    "stylegan.loss_registry.register_generator_loss",
    {
        "nonsaturating": losses.nonsaturating,
        "saturating": losses.saturating,
        "wgan": losses.wgan_generator,
    },
)
DISCRIMINATOR_LOSSES = Registry(
    "discriminator_loss",
    "stylegan.loss_registry.register_discriminator_loss",
    {
        "logistic": DiscriminatorLoss(losses.logistic_real, losses.logistic_fake),
        "wgan": DiscriminatorLoss(losses.wgan_real, losses.wgan_fake),
        "wgan_gp": DiscriminatorLoss(losses.wgan_real, losses.wgan_fake, gradient_penalty=True),
        "hinge": DiscriminatorLoss(losses.hinge_real, losses.hinge_fake),
        "hinge_gp": DiscriminatorLoss(losses.hinge_real, losses.hinge_fake, gradient_penalty=True),
    },
)


def register_generator_loss(name: str, loss: LogitsLoss) -> None:
    """Let `generator_loss` of a configuration be `name`, for this process.

    `loss` takes the logits (n,) of generated images and returns their mean loss: a tensor with a
    single number, to be minimised, through which gradients flow. The same name again replaces it.
    """
    GENERATOR_LOSSES.add(name, loss)


def register_discriminator_loss(
    name: str,
    real: LogitsLoss,
    fake: LogitsLoss,
    *,
    real_penalty: Penalty | None = None,
    fake_penalty: Penalty | None = None,
    gradient_penalty: bool = False,
) -> None:
    """Let `discriminator_loss` of a configuration be `name`, for this process.

    `real` and `fake` take logits (n,) of real and of generated images, `real_penalty` and
    `fake_penalty` also the images (n, C, r, r), which then require grad. Each returns its mean over
    the batch, weighted, as a tensor with a single number. `gradient_penalty` adds WGAN-GP's. R1 and
    R2 are added by `r1_gamma` and `r2_gamma`, as with every loss.
    """
    loss = DiscriminatorLoss(real, fake, real_penalty, fake_penalty, gradient_penalty)
    DISCRIMINATOR_LOSSES.add(name, loss)
