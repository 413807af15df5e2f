"""The networks of a run as one stage trains them: what is frozen, and wrapped for processes."""

import inspect
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stylegan import distributed
from stylegan.networks import Generator
from stylegan.ops import at_least_float32
from stylegan.schedule import Stage
from stylegan.training.draws import PassDraws
from stylegan.training.graphs import StageGraphs, stage_graphs

if TYPE_CHECKING:
    from stylegan.training.state import TrainState


class GeneratorPass(nn.Module):
    """Mapping, style mixing and synthesis as training does them: the whole that DDP wraps."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(
        self, draws: PassDraws, labels: Tensor | None, stage: Stage
    ) -> tuple[Tensor, Tensor]:
        """Images (n, C, r, r), and the mean of w over them, detached."""
        generator = self.generator
        if draws.mixing_latents is None:
            w = generator.mapping(draws.latents, labels)
            ws = generator.broadcast(w)
        else:
            both = torch.cat([draws.latents, draws.mixing_latents])
            twice = None if labels is None else torch.cat([labels, labels])
            w, other = generator.mapping(both, twice).chunk(2)
            rows = torch.arange(generator.config.num_styles(), device=w.device)[:, None]
            ws = torch.where(rows < draws.mixing_cutoff, w[:, None], other[:, None])
        images = generator.synthesis(
            ws, resolution=stage.resolution, alpha=stage.alpha, noise=draws.noise
        )
        return images, at_least_float32(w.detach()).mean(dim=0)


@dataclass(frozen=True)
class StageNetworks:
    """What one stage makes of the networks of a state. Nothing of it is saved."""

    growth: tuple[int, bool]  # of the stage
    generator: nn.Module  # a GeneratorPass
    discriminator: nn.Module
    resting: frozenset[str]  # weights of the generator that equal their average and stay so
    graphs: StageGraphs | None = None  # where its steps are recorded


# beside the states, which hold exactly what survives a restart
CURRENT: "WeakKeyDictionary[TrainState, StageNetworks]" = WeakKeyDictionary()


def stage_networks(state: "TrainState", stage: Stage) -> StageNetworks:
    """The networks of `state` with what is not in use frozen; made anew when growth moves on."""
    networks = CURRENT.get(state)
    if networks is None or networks.growth != stage.growth:
        forget(state)
        networks = CURRENT[state] = prepare(state, stage)
    return networks


def forget(state: "TrainState") -> None:
    """After its weights have been replaced; and the old wrappers go before there are new ones."""
    CURRENT.pop(state, None)


def prepare(state: "TrainState", stage: Stage) -> StageNetworks:
    """The networks wrapped, and what this stage does not use of them frozen."""
    for network in (state.generator, state.discriminator):
        network.requires_grad_(False)
        for parameter in network.active_parameters(stage.resolution, stage.alpha):
            parameter.requires_grad_(True)
    for part in frozen_parts(state):
        part.requires_grad_(False)
    averages = dict(state.generator_ema.named_parameters())
    resting = frozenset(
        name
        for name, weight in state.generator.named_parameters()
        if not weight.requires_grad and torch.equal(weight, averages[name])
    )
    generator = wrapped(GeneratorPass(state.generator))
    discriminator = wrapped(state.discriminator)
    return StageNetworks(stage.growth, generator, discriminator, resting, stage_graphs(state))


def frozen_parts(state: "TrainState") -> list[nn.Module]:
    """What is never trained: see `freeze_d` (Mo et al. 2020) and `freeze_mapping`."""
    config, network = state.config, state.discriminator
    parts: list[nn.Module] = [state.generator.mapping] if config.freeze_mapping else []
    for blocks in (network.from_rgb, network.blocks) if config.freeze_d else ():
        parts += [block for r, block in blocks.items() if int(r) >= config.freeze_d]
    return parts


def wrapped(module: nn.Module) -> nn.Module:
    """`module` under DistributedDataParallel where there are several processes.

    The training step keeps our buffers equal, so DDP must leave them alone; the option for that
    has another name in newer versions.
    """
    if distributed.world_size() == 1:
        return module
    names = inspect.signature(DistributedDataParallel).parameters
    option = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
    options: dict[str, Any] = {option: False}
    return DistributedDataParallel(module, gradient_as_bucket_view=True, **options)


def local_gradients(module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """No exchange of gradients in the backward passes inside, unless it is the update's last."""
    if isinstance(module, DistributedDataParallel) and not last:
        return module.no_sync()
    return nullcontext()
