"""The networks of a run as a stage trains them: images of mixed styles, weights, processes."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stylegan import distributed
from stylegan.networks import Discriminator, Generator
from stylegan.ops import at_least_float32
from stylegan.schedule import Stage
from stylegan.training.draws import PassDraws


def training_images(generator: Generator, draws: PassDraws, stage: Stage) -> tuple[Tensor, Tensor]:
    """Images (n, C, r, r) with mixed styles (section 3.1), and the mean of their unmixed w."""
    labels = draws.labels
    if draws.mixing_latents is None:
        w = generator.mapping(draws.latents, labels)
        ws = generator.broadcast(w)
    else:
        both = torch.cat([draws.latents, draws.mixing_latents])
        twice = None if labels is None else torch.cat([labels, labels])
        w, other = generator.mapping(both, twice).chunk(2)
        layers = torch.arange(generator.config.num_styles(), device=w.device)[:, None]
        ws = torch.where(layers < draws.mixing_cutoff, w[:, None], other[:, None])
    images = generator.synthesis(
        ws, resolution=stage.resolution, alpha=stage.alpha, noise=draws.noise
    )
    return images, at_least_float32(w.detach()).mean(dim=0)


class GeneratorPass(nn.Module):
    """`training_images` as a module, which DDP wraps."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, draws: PassDraws, stage: Stage) -> tuple[Tensor, Tensor]:
        return training_images(self.generator, draws, stage)


@dataclass(frozen=True)
class StageNetworks:
    """What one stage makes of the networks of a state. Nothing of it is saved."""

    generator: nn.Module  # a GeneratorPass
    discriminator: nn.Module
    g_trained: list[Tensor]  # weights that the stage trains
    d_trained: list[Tensor]
    ema_weights: list[Tensor]  # weights of the average generator that move
    followed: list[Tensor]  # those of the trained generator that they follow
    ema_buffers: list[Tensor]  # of the average generator
    buffers: list[Tensor]  # of the trained one, copied there


def stage_networks(
    generator: Generator,
    discriminator: Discriminator,
    generator_ema: Generator,
    stage: Stage,
    freeze_d: int,
) -> StageNetworks:
    """The networks wrapped for processes, and what this stage does not use of them frozen;
    `freeze_d`: blocks of the discriminator from this resolution up are, too (Mo et al. 2020)."""
    for network in (generator, discriminator):
        network.requires_grad_(False)
        for parameter in network.active_parameters(stage.resolution, stage.alpha):
            parameter.requires_grad_(True)
    for blocks in (discriminator.from_rgb, discriminator.blocks) if freeze_d else ():
        for resolution, block in blocks.items():
            if int(resolution) >= freeze_d:
                block.requires_grad_(False)
    # A frozen weight that equals its average stays equal: leaving it out changes nothing.
    pairs = zip(generator_ema.parameters(), generator.parameters(), strict=True)
    moving = [(a, w) for a, w in pairs if w.requires_grad or not torch.equal(a, w)]
    return StageNetworks(
        wrapped(GeneratorPass(generator)),
        wrapped(discriminator),
        [p for p in generator.parameters() if p.requires_grad],
        [p for p in discriminator.parameters() if p.requires_grad],
        [average for average, _ in moving],
        [weight for _, weight in moving],
        list(generator_ema.buffers()),
        list(generator.buffers()),
    )


def wrapped(module: nn.Module) -> nn.Module:
    """`module` under DistributedDataParallel where there are several processes."""
    if distributed.world_size() == 1:
        return module
    # The training step keeps our buffers equal, so DDP must leave them alone.
    known, new = signature(DistributedDataParallel).parameters, "forward_sync_buffers"
    options: dict[str, Any] = {new if new in known else "broadcast_buffers": False}
    return DistributedDataParallel(module, gradient_as_bucket_view=True, **options)


def local_gradients(module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Exchange gradients only in the last backward pass of an update."""
    if isinstance(module, DistributedDataParallel) and not last:
        return module.no_sync()
    return nullcontext()
