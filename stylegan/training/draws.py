"""All random numbers of a step, a function of (seed, images_seen).

They are drawn for the whole batch and sliced by rank; noise maps are drawn per rank.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan import augment, streams
from stylegan.augment import Transform
from stylegan.config import TrainConfig
from stylegan.networks import Noise
from stylegan.schedule import Stage, resolutions
from stylegan.utils import distributed


@dataclass(frozen=True)
class PassDraws:
    """Random draws of one pass through the generator, for the images of one rank."""

    latents: Tensor  # (n, z_dim)
    labels: Tensor | None = None  # (n, label_dim); drawn only for the generator's update
    mixing_latents: Tensor | None = None  # (n, z_dim); None: no mixing
    mixing_cutoff: int = 0  # first layer that `mixing_latents` style
    noise: Noise = "const"
    transform: Transform | None = None  # augmentation of the fakes

    def part(self, rows: slice) -> "PassDraws":
        labels, mixing = (x if x is None else x[rows] for x in (self.labels, self.mixing_latents))
        noise = self.noise
        transform = augment.select_rows(self.transform, rows)
        if not isinstance(noise, str):
            noise = [m if len(m) == 1 else m[rows] for m in noise]
        return PassDraws(self.latents[rows], labels, mixing, self.mixing_cutoff, noise, transform)


@dataclass(frozen=True)
class Draws:
    """All random numbers of one training step, so that it can be replayed."""

    discriminator: PassDraws
    generator: PassDraws
    penalty_mix: Tensor | None = None  # (n,) in [0, 1], between reals and fakes for WGAN-GP
    real_transform: Transform | None = None  # augmentation of the reals


@dataclass(frozen=True)
class Share:
    """The slice of a batch that one rank works on, and its device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32

    @classmethod
    def of_process(cls, device: torch.device, dtype: torch.dtype = torch.float32) -> "Share":
        return cls(distributed.rank(), distributed.world_size(), device, dtype)

    def slice_of(self, n: int) -> slice:
        """The slice of this rank in a batch of n rows."""
        size = n // self.world_size
        return slice(self.rank * size, (self.rank + 1) * size)

    def rows(self, x: Tensor) -> Tensor:
        return x[self.slice_of(len(x))]

    def floats(self, x: Tensor) -> Tensor:
        """`rows` as `dtype` on the device, copied asynchronously."""
        return distributed.to_device(self.rows(x).to(self.dtype), torch.device(self.device))


def draw(
    config: TrainConfig,
    images_seen: int,
    stage: Stage,
    label_pool: Tensor | None,
    share: Share,
    probability: float = 0.0,
) -> Draws:
    """Draw all random numbers of the step at `images_seen`, for the rows in `share`.

    label_pool: labels of the data set, from which those of fakes are drawn: classes, int64
        (images,), or vectors (images, label_dim).
    probability: of each augmentation.
    """
    if stage.batch_size % share.world_size:
        raise ValueError(
            f"batch_size {stage.batch_size} is not divisible by world_size {share.world_size}"
        )
    # The order of the draws is part of what a seed means: never change it.
    rng = streams.step_rng(config.seed, images_seen)
    noise_rng = streams.noise_rng(config.seed, images_seen, share.rank, share.device)
    # One call draws the augmentations of the reals, of the fakes in D's update, and of those in
    # G's, because launching the operations costs more than the numbers.
    n = stage.batch_size
    shape = (3 * n, config.network.image_channels, stage.resolution, stage.resolution)
    augment_rng = streams.augment_rng(config.seed, images_seen)
    drawn = augment.draw(shape, config.augment, probability, augment_rng)
    own = share.slice_of(n)
    parts = [slice(start + own.start, start + own.stop) for start in (0, n, 2 * n)]
    device = torch.device(share.device)
    of_reals, of_fakes, of_generated = (
        augment.to_device(augment.select_rows(drawn, rows), device, share.dtype) for rows in parts
    )
    return Draws(
        discriminator=draw_pass(config, stage, None, share, rng, noise_rng, of_fakes),
        generator=draw_pass(config, stage, label_pool, share, rng, noise_rng, of_generated),
        penalty_mix=share.floats(torch.rand(stage.batch_size, generator=rng)),
        real_transform=of_reals,
    )


def draw_pass(
    config: TrainConfig,
    stage: Stage,
    label_pool: Tensor | None,
    share: Share,
    rng: torch.Generator,
    noise_rng: torch.Generator,
    transform: Transform | None = None,
) -> PassDraws:
    network = config.network
    n = stage.batch_size
    latents, mixing = torch.randn(2, n, network.z_dim, generator=rng)
    layers = network.num_layers(stage.resolution)
    mixes = torch.rand((), generator=rng).item() < config.style_mixing and network.styles
    cutoff = int(torch.randint(1, layers, (), generator=rng))
    labels = None
    if label_pool is not None:
        drawn = label_pool[torch.randint(len(label_pool), (n,), generator=rng)]
        labels = share.floats(F.one_hot(drawn, network.label_dim) if drawn.ndim == 1 else drawn)
    noise: Noise = "const"
    if config.noise_mode == "random" and network.noise:
        own_images = n // share.world_size
        device = share.device
        dtype = share.dtype
        noise = [
            torch.randn(own_images, 1, r, r, generator=noise_rng, device=device, dtype=dtype)
            for r in resolutions(stage.resolution)
            for _ in range(2)  # layers
        ]
    others = share.floats(mixing) if mixes else None
    return PassDraws(share.floats(latents), labels, others, cutoff, noise, transform)


def mirror_flags(seed: int, images_seen: int, batch_size: int, share: Share) -> Tensor:
    """Draw which images of this rank are mirrored: bool (n,)."""
    rng = streams.mirror_rng(seed, images_seen)
    flags = share.rows(torch.rand(batch_size, generator=rng) < 0.5)
    return distributed.to_device(flags, torch.device(share.device))
