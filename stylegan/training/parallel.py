"""The networks of a run as a stage trains them, in one process or several."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stylegan.machine import distributed


@dataclass(frozen=True)
class StageNetworks:
    """The networks of a state, prepared for one stage. Nothing of it is saved."""

    generator_pass: nn.Module  # wrapped, as the next, where there are several processes
    discriminator: nn.Module
    g_weights: list[Tensor]  # those that the stage trains
    d_weights: list[Tensor]
    averages: list[Tensor]  # of the average generator: weights that move
    followed: list[Tensor]  # and the weights to which they move


def wrapped(module: nn.Module) -> nn.Module:
    """Return `module` under DistributedDataParallel where there are several processes. The training
    step keeps our buffers equal, so DDP must leave them alone."""
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
