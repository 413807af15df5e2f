"""The networks of a run as a stage trains them, in one process or several."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stylegan import distributed


@dataclass(frozen=True)
class Trained:
    """A network, perhaps wrapped, and its weights that the stage trains."""

    network: nn.Module
    weights: list[Tensor]

    @classmethod
    def of(cls, network: nn.Module) -> "Trained":
        return cls(wrapped(network), [p for p in network.parameters() if p.requires_grad])


@dataclass(frozen=True)
class Followed:
    """Tensors of the average generator, and those of the trained one that they follow."""

    averages: list[Tensor]
    followed: list[Tensor]


@dataclass(frozen=True)
class StageNetworks:
    """What one stage makes of the networks of a state. Nothing of it is saved."""

    generator: Trained
    discriminator: Trained
    weights: Followed  # those that move
    buffers: Followed


def wrapped(module: nn.Module) -> nn.Module:
    """`module` under DistributedDataParallel where there are several processes. The training step
    keeps our buffers equal, so DDP must leave them alone."""
    if distributed.world_size() == 1:
        return module
    try:
        return DistributedDataParallel(
            module, gradient_as_bucket_view=True, forward_sync_buffers=False
        )
    except TypeError:  # its name in older versions of torch
        return DistributedDataParallel(
            module, gradient_as_bucket_view=True, broadcast_buffers=False
        )


def local_gradients(module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Exchange gradients only in the last backward pass of an update."""
    if isinstance(module, DistributedDataParallel) and not last:
        return module.no_sync()
    return nullcontext()
