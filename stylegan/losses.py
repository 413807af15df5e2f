"""Loss terms: functions of logits and images, averaged over the batch, to be minimized.

None is weighted here. With the official program's images, which are enlarged to the full size,
gradients are smaller: see `full_size_factor`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


def nonsaturating(fake_logits: Tensor) -> Tensor:
    """Generator: -log sigmoid(D(fake)). Goodfellow et al. 2014, section 3."""
    return F.softplus(-fake_logits).mean()


def saturating(fake_logits: Tensor) -> Tensor:
    """Generator: log(1 - sigmoid(D(fake))), the minimax game itself; negative."""
    return -F.softplus(fake_logits).mean()


def wgan_generator(fake_logits: Tensor) -> Tensor:
    """Generator: -D(fake). Arjovsky et al. 2017; also the partner of the hinge loss."""
    return -fake_logits.mean()


def logistic_fake(fake_logits: Tensor) -> Tensor:
    """Discriminator: -log(1 - sigmoid(D(fake))). Goodfellow et al. 2014."""
    return F.softplus(fake_logits).mean()


def logistic_real(real_logits: Tensor) -> Tensor:
    """Discriminator: -log sigmoid(D(real))."""
    return F.softplus(-real_logits).mean()


def wgan_fake(fake_logits: Tensor) -> Tensor:
    """Discriminator: D(fake), the Wasserstein critic. Karras et al. 2018, section A.1."""
    return fake_logits.mean()


def wgan_real(real_logits: Tensor, drift: float = 0.001) -> Tensor:
    """Discriminator: -D(real), and `drift` * D(real)^2 that keeps the logits near 0."""
    return -real_logits.mean() + drift * real_logits.square().mean()


def hinge_fake(fake_logits: Tensor) -> Tensor:
    """Discriminator: max(0, 1 + D(fake)). Lim and Ye 2017; Miyato et al. 2018."""
    return F.relu(1 + fake_logits).mean()


def hinge_real(real_logits: Tensor) -> Tensor:
    """Discriminator: max(0, 1 - D(real))."""
    return F.relu(1 - real_logits).mean()


def relativistic(judged_real: Tensor, judged_fake: Tensor) -> Tensor:
    """-log sigmoid(a - b), a and b the logits of image i of both: the discriminator's loss for
    (reals, fakes), the generator's for (fakes, reals). Jolicoeur-Martineau 2019, Huang et al. 2024.
    """
    return F.softplus(judged_fake - judged_real).mean()


def squared_gradient_norms(logits: Tensor, images: Tensor) -> Tensor:
    """Return `|dD/dx|^2`, summed over pixels, of images that require grad: (N,)."""
    (grad,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
    return grad.square().sum(dim=(1, 2, 3))


def r1_penalty(real_logits: Tensor, reals: Tensor) -> Tensor:
    """Return the squared norm of dD/dx at real images: summed over pixels, averaged over the batch.

    `reals` must require grad and be what `real_logits` came from. Weight it by gamma / 2.
    Mescheder et al. 2018, equation 9.
    """
    return squared_gradient_norms(real_logits, reals).mean()


def r2_penalty(fake_logits: Tensor, fakes: Tensor) -> Tensor:
    """Return `r1_penalty` at generated images."""
    return squared_gradient_norms(fake_logits, fakes).mean()


def gradient_penalty(
    mixed_logits: Tensor, mixed: Tensor, *, target: float = 1.0, norm_factor: float = 1.0
) -> Tensor:
    """Return `(|dD/dx| * norm_factor - target)^2`, averaged; x is between real and fake.

    `mixed` must require grad. Weight it by 10 / target^2. Gulrajani et al. 2017, equation 3.
    """
    norms = squared_gradient_norms(mixed_logits, mixed).sqrt() * norm_factor
    return (norms - target).square().mean()


def full_size_factor(full_resolution: int, resolution: int) -> float:
    """Return the ratio of a gradient norm of enlarged images to the native one: 1 / 2^k.

    A pixel enlarged to 2^k x 2^k spreads its derivative evenly over 4^k pixels, so that squared
    norms shrink by 4^k and norms by 2^k. The official program measures enlarged images.
    """
    return resolution / full_resolution


LogitsLoss = Callable[[Tensor], Tensor]  # logits (n,) -> their mean loss, a single number


@dataclass(frozen=True)
class DiscriminatorLoss:
    """The loss of the discriminator; a configuration's weights add R1 and R2."""

    real: Callable[..., Tensor]  # a LogitsLoss, with the keyword `drift` if that is set
    fake: LogitsLoss
    gradient_penalty: bool = False  # with WGAN-GP's, weighted by `gp_weight`
    drift: bool = False  # `real` takes the weight `drift` of a configuration


@dataclass(frozen=True)
class PairLoss:
    """A loss of real and fake images i, of either network. Micro-batches and processes average it
    over their pairs, so it must be a mean over pairs."""

    of: Callable[..., Tensor]  # logits of reals (n,), of fakes (n,) -> their mean loss


# The names that a configuration may give; a script adds its own losses here
GENERATOR_LOSSES: dict[str, LogitsLoss | PairLoss] = {
    "nonsaturating": nonsaturating,
    "saturating": saturating,
    "wgan": wgan_generator,
    "relativistic": PairLoss(lambda real, fake: relativistic(fake, real)),
}
DISCRIMINATOR_LOSSES: dict[str, DiscriminatorLoss | PairLoss] = {
    "logistic": DiscriminatorLoss(logistic_real, logistic_fake),
    "wgan": DiscriminatorLoss(wgan_real, wgan_fake, drift=True),
    "wgan_gp": DiscriminatorLoss(wgan_real, wgan_fake, gradient_penalty=True, drift=True),
    "hinge": DiscriminatorLoss(hinge_real, hinge_fake),
    "hinge_gp": DiscriminatorLoss(hinge_real, hinge_fake, gradient_penalty=True),
    "relativistic": PairLoss(relativistic),
}
