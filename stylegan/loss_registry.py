"""Losses by the names that a configuration gives them: those of `losses.py`, and a user's own."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from stylegan import losses

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


GENERATOR_LOSSES: dict[str, LogitsLoss] = {
    "nonsaturating": losses.nonsaturating,
    "saturating": losses.saturating,
    "wgan": losses.wgan_generator,
}
DISCRIMINATOR_LOSSES = {
    "logistic": DiscriminatorLoss(losses.logistic_real, losses.logistic_fake),
    "wgan": DiscriminatorLoss(losses.wgan_real, losses.wgan_fake),
    "wgan_gp": DiscriminatorLoss(losses.wgan_real, losses.wgan_fake, gradient_penalty=True),
    "hinge": DiscriminatorLoss(losses.hinge_real, losses.hinge_fake),
    "hinge_gp": DiscriminatorLoss(losses.hinge_real, losses.hinge_fake, gradient_penalty=True),
}
BUILT_IN = frozenset({*GENERATOR_LOSSES, *DISCRIMINATOR_LOSSES})


def register_generator_loss(name: str, loss: LogitsLoss) -> None:
    """Let `generator_loss` of a configuration be `name`, for this process.

    `loss` takes the logits (n,) of generated images and returns their mean loss: a tensor with a
    single number, to be minimised, through which gradients flow. The same name again replaces it.
    """
    check_own_name(name)
    GENERATOR_LOSSES[name] = loss


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
    check_own_name(name)
    DISCRIMINATOR_LOSSES[name] = DiscriminatorLoss(
        real, fake, real_penalty, fake_penalty, gradient_penalty
    )


def check_own_name(name: str) -> None:
    """ValueError for a name that the package uses, or that logs and TOML files cannot hold."""
    if name in BUILT_IN:
        raise ValueError(f"{name!r} is a loss of the package; choose another name for yours")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"a loss is called by small letters, digits and _, not {name!r}")


def check_losses(generator_loss: str, discriminator_loss: str) -> None:
    """ValueError unless both names are known in this process."""
    for option, name, table in (
        ("generator_loss", generator_loss, GENERATOR_LOSSES),
        ("discriminator_loss", discriminator_loss, DISCRIMINATOR_LOSSES),
    ):
        if name not in table:
            raise ValueError(
                f"{option} is {name!r}, not one of {', '.join(table)}; a loss of your own must be "
                f"registered (stylegan.loss_registry.register_{option}) by the Python script that "
                "trains with it or continues the run"
            )
