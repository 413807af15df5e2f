"""The networks of a run, as a stage trains them in one process or several."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stylegan.utils import distributed


@dataclass(frozen=True)
class StageNetworks:
    """The networks of a state, prepared for one stage. Not saved."""

    generator_pass: nn.Module  # both modules are wrapped in DDP if there are several processes
    discriminator: nn.Module
    g_weights: list[Tensor]  # that the stage trains
    d_weights: list[Tensor]
    averages: list[Tensor]  # weights of the average generator that move
    followed: list[Tensor]  # the weights of the generator that they follow


def wrapped(module: nn.Module) -> nn.Module:
    """Wrap `module` in DDP, which must leave buffers alone, if there are several processes."""
    if distributed.world_size() == 1:
        return module
    try:
        return DistributedDataParallel(
            module, gradient_as_bucket_view=True, forward_sync_buffers=False
        )
    except TypeError:  # torch before `forward_sync_buffers`
        return DistributedDataParallel(
            module, gradient_as_bucket_view=True, broadcast_buffers=False
        )


def no_sync_unless(module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Keep DDP from exchanging gradients, except in the last backward pass of an update."""
    if isinstance(module, DistributedDataParallel) and not last:
        return module.no_sync()
    return nullcontext()
