"""Loss terms: functions of logits and images, averaged over the batch, to be minimized.

None is weighted here. The official code enlarges images to the full size, which makes gradients
smaller: see `full_size_factor`.
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
    """Discriminator: -D(real), plus `drift` * D(real)^2, which keeps the logits near 0."""
    return -real_logits.mean() + drift * real_logits.square().mean()


def hinge_fake(fake_logits: Tensor) -> Tensor:
    """Discriminator: max(0, 1 + D(fake)). Lim and Ye 2017; Miyato et al. 2018."""
    return F.relu(1 + fake_logits).mean()


def hinge_real(real_logits: Tensor) -> Tensor:
    """Discriminator: max(0, 1 - D(real))."""
    return F.relu(1 - real_logits).mean()


def relativistic(judged_real: Tensor, judged_fake: Tensor) -> Tensor:
    """-log sigmoid(a - b), where a and b are the logits of image i of both arguments.

    The discriminator's loss takes (reals, fakes), the generator's (fakes, reals).
    Jolicoeur-Martineau 2019; Huang et al. 2024.
    """
    return F.softplus(judged_fake - judged_real).mean()


def squared_gradient_norms(logits: Tensor, images: Tensor) -> Tensor:
    """`|dD/dx|^2`, summed over pixels, at images x that require grad -> (N,)."""
    (grad,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
    return grad.square().sum(dim=(1, 2, 3))


def r1_penalty(real_logits: Tensor, reals: Tensor) -> Tensor:
    """Squared norm of dD/dx at real images: summed over pixels, averaged over the batch.

    `reals` must require grad and be what `real_logits` came from. Weight it by gamma / 2.
    Mescheder et al. 2018, equation 9.
    """
    return squared_gradient_norms(real_logits, reals).mean()


def r2_penalty(fake_logits: Tensor, fakes: Tensor) -> Tensor:
    """The same as `r1_penalty`, at generated images."""
    return squared_gradient_norms(fake_logits, fakes).mean()


def gradient_penalty(
    mixed_logits: Tensor, mixed: Tensor, *, target: float = 1.0, norm_factor: float = 1.0
) -> Tensor:
    """Mean of `(|dD/dx| * norm_factor - target)^2` at images x between real and fake.

    `mixed` must require grad. Weight it by 10 / target^2. Gulrajani et al. 2017, equation 3.
    """
    norms = squared_gradient_norms(mixed_logits, mixed).sqrt() * norm_factor
    return (norms - target).square().mean()


def full_size_factor(full_resolution: int, resolution: int) -> float:
    """Ratio of the gradient norm at enlarged images to that at native ones: 1 / 2^k.

    A pixel enlarged to 2^k x 2^k spreads its derivative evenly over 4^k pixels, so squared norms
    shrink by 4^k and norms by 2^k. The official code measures enlarged images.
    """
    return resolution / full_resolution


LogitsLoss = Callable[[Tensor], Tensor]  # logits (n,) -> their mean loss, a single number


@dataclass(frozen=True)
class DiscriminatorLoss:
    """Loss of the discriminator; R1 and R2 are added by their weights in the configuration."""

    real: Callable[..., Tensor]  # a LogitsLoss, with the keyword `drift` if that is set
    fake: LogitsLoss
    gradient_penalty: bool = False  # adds WGAN-GP's, weighted by `gp_weight`
    drift: bool = False  # pass the configuration's weight `drift` to `real`
    signed: bool = False  # 0 separates logits of reals and fakes, as adaptive augmentation needs


@dataclass(frozen=True)
class PairLoss:
    """A loss of pairs, real i and fake i, for either network.

    It must be a mean over pairs, since micro-batches and ranks are averaged.
    """

    of: Callable[..., Tensor]  # logits of reals (n,), of fakes (n,) -> their mean loss


# By their names in a configuration; a script may add its own losses here.
GENERATOR_LOSSES: dict[str, LogitsLoss | PairLoss] = {
    "nonsaturating": nonsaturating,
    "saturating": saturating,
    "wgan": wgan_generator,
    "relativistic": PairLoss(lambda real, fake: relativistic(fake, real)),
}
DISCRIMINATOR_LOSSES: dict[str, DiscriminatorLoss | PairLoss] = {
    "logistic": DiscriminatorLoss(logistic_real, logistic_fake, signed=True),
    "wgan": DiscriminatorLoss(wgan_real, wgan_fake, drift=True),
    "wgan_gp": DiscriminatorLoss(wgan_real, wgan_fake, gradient_penalty=True, drift=True),
    "hinge": DiscriminatorLoss(hinge_real, hinge_fake, signed=True),
    "hinge_gp": DiscriminatorLoss(hinge_real, hinge_fake, gradient_penalty=True, signed=True),
    "relativistic": PairLoss(relativistic),
}


def has_signs(discriminator_loss: str) -> bool:
    """Whether 0 separates reals from fakes by their logits or, of pairs, by their difference."""
    loss = DISCRIMINATOR_LOSSES.get(discriminator_loss)
    return loss.signed if isinstance(loss, DiscriminatorLoss) else loss is not None
