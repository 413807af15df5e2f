"""StyleGAN in one file: read it from top to bottom, then run it.

    python examples/one_file.py

trains at 32x32 on the faces of datasets/faces-64.zip and saves a grid of samples, in 12 minutes on
one CPU core; it needs only torch, numpy and pillow. The paper is Karras, Laine, Aila 2019, "A
Style-Based Generator Architecture for Generative Adversarial Networks" (arXiv 1812.04948).
In order: options, formulas, layers, generator, discriminator, schedule, images, losses,
training step, training.

Every formula appears once, written the plain way. The package `stylegan` computes the same numbers
(tests/test_one_file.py) in less time, and has what this file leaves out: labels, the paper's
ablations, other losses, resuming, several GPUs, reduced precision, metrics, foreign files.
The benchmarks compare the package with this file, so do not make it faster.
"""

import argparse
import copy
import io
import itertools
import math
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

DATA = Path(__file__).parents[1] / "datasets" / "faces-64.zip"
EPSILON = 1e-8  # keeps roots and quotients away from zero
HE_GAIN = math.sqrt(2)  # compensates for the variance that a leaky ReLU removes
Noise = str | Sequence[Tensor]  # "random", "const", or a map (1 or N, 1, r, r) for each layer


@dataclass(frozen=True)
class Config:
    """Sizes and rates for small images. The comments give the paper's, for 1024x1024."""

    resolution: int = 32  # 1024
    image_channels: int = 3
    z_dim: int = 128  # 512
    w_dim: int = 128  # 512
    mapping_layers: int = 4  # 8
    mapping_width: int = 128  # 512
    mapping_lr_multiplier: float = 0.01
    channel_base: int = 256  # 8192
    max_channels: int = 128  # 512
    deviation_group: int = 4  # images per group of the minibatch deviation; 1 = off
    batch_size: int = 16  # 128 to 4, smaller at higher resolutions
    # learning rates; both 0.001 to 0.003, larger at higher resolutions. In trainings of minutes,
    # twice the discriminator's rate for the generator mattered more than anything else tried.
    g_lr: float = 0.008
    d_lr: float = 0.004
    adam_beta1: float = 0.0
    adam_beta2: float = 0.99
    adam_eps: float = 1e-8
    r1_gamma: float = 1.0  # 10
    # 0.9, the probability that a batch mixes two styles: takes longer to learn than this run lasts
    style_mixing: float = 0.0
    mirror: float = 0.0  # 0.5, the probability that an image is flipped
    w_avg_decay: float = 0.995
    ema_half_life_kimg: float = 2.0  # 10
    initial_resolution: int = 8
    stable_kimg: float = 4  # 600, thousands of images at each resolution
    fade_kimg: float = 4  # 600, while the next one grows in
    total_kimg: float = 48  # 25,000
    seed: int = 0

    def channels(self, resolution: int) -> int:
        """Feature maps at `resolution`; 2 stands for the discriminator's last hidden layer."""
        return min(2 * self.channel_base // resolution, self.max_channels)


def resolutions(largest: int) -> list[int]:
    """4, 8, ... `largest`."""
    return [2**k for k in range(2, largest.bit_length())]


def leaky_relu(x: Tensor) -> Tensor:
    return F.leaky_relu(x, 0.2)


def pixel_norm(x: Tensor) -> Tensor:
    """Scale every vector (dim 1) to unit mean square."""
    return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + EPSILON)


def upsample(x: Tensor) -> Tensor:
    """Repeat every pixel 2x2 times."""
    return F.interpolate(x, scale_factor=2)


def downsample(x: Tensor) -> Tensor:
    """Average every 2x2 pixels."""
    return F.avg_pool2d(x, 2)


def fade(before: Tensor, x: Tensor, alpha: float) -> Tensor:
    """Blend: `x`, which grows in, has the weight `alpha`, and what was there before 1 - `alpha`."""
    return torch.lerp(before, x, alpha)


def adain(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Adaptive instance norm: give every feature map a new deviation and mean. Equation 1."""
    # "+ 1" is not in the equation: the layer that makes `scale` starts near 0, and so learns how
    # far the scale is from 1, as in the official program.
    return F.instance_norm(x, eps=EPSILON) * (scale + 1) + bias


def truncate(w: Tensor, w_avg: Tensor, psi: float) -> Tensor:
    """Pull w toward the average: less variety, better images. Appendix B.

    All layers are truncated here; for 1024x1024 the paper truncates only the eight coarsest.
    """
    return torch.lerp(w_avg, w, psi)


def minibatch_stddev(x: Tensor, group: int) -> Tensor:
    """How much the images of a group differ: (N, C, H, W) -> (N, 1, H, W). Karras et al. 2018.

    It lets the discriminator detect a generator that makes only one image.
    """
    group = min(group, len(x))
    groups = x.unflatten(0, (group, -1))  # (group, M, C, H, W): image i is in group i mod M
    variance = (groups - groups.mean(dim=0)).square().mean(dim=0)
    deviation = (variance + EPSILON).sqrt().mean(dim=(1, 2, 3))
    return deviation.repeat(group)[:, None, None, None].expand(-1, 1, *x.shape[2:])


class Linear(nn.Module):
    """Linear layer whose He constant is applied at run time (equalized learning rate).

    Weights are stored at unit variance, so Adam, which normalizes the size of gradients away,
    moves every layer at the same relative speed. Karras et al. 2018, section 4.1.
    """

    def __init__(
        self, inputs: int, outputs: int, *, gain: float = HE_GAIN, lr_multiplier: float = 1.0
    ) -> None:
        super().__init__()
        # A multiplier below 1 slows a layer down: larger weights and a smaller scale give the same
        # output, and Adam's steps, which do not depend on the size of weights, move it less.
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / lr_multiplier)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.weight_scale = gain / math.sqrt(inputs) * lr_multiplier
        self.lr_multiplier = lr_multiplier

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.weight_scale, self.bias * self.lr_multiplier)


class Conv2d(nn.Module):
    """Convolution that keeps the size of images, with an equalized learning rate."""

    def __init__(
        self, inputs: int, outputs: int, size: int, *, gain: float = HE_GAIN, bias: bool = True
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, size, size))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.weight_scale = gain / math.sqrt(inputs * size**2)
        self.padding = size // 2

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight * self.weight_scale, self.bias, padding=self.padding)


class Blur(nn.Module):
    """Low-pass filter [1, 2, 1] x [1, 2, 1] / 16 of every feature map, against aliasing."""

    kernel: Tensor  # (channels, 1, 3, 3)

    def __init__(self, channels: int) -> None:
        super().__init__()
        taps = torch.tensor([1.0, 2.0, 1.0])
        kernel = (taps[:, None] * taps / 16).repeat(channels, 1, 1, 1)
        self.register_buffer("kernel", kernel, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.kernel, padding=1, groups=len(self.kernel))


class Mapping(nn.Module):
    """z (N, z_dim) -> w (N, w_dim), where factors of variation may be straight lines. Section 4."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        widths = [config.z_dim, *[config.mapping_width] * (config.mapping_layers - 1), config.w_dim]
        self.layers = nn.ModuleList(
            Linear(a, b, lr_multiplier=config.mapping_lr_multiplier)
            for a, b in itertools.pairwise(widths)
        )

    def forward(self, z: Tensor) -> Tensor:
        x = pixel_norm(z)
        for layer in self.layers:
            x = leaky_relu(layer(x))
        return x


class Epilogue(nn.Module):
    """Noise, bias, activation, style: what follows every convolution in figure 1b."""

    const: Tensor  # (1, 1, resolution, resolution): noise for images that should stay the same

    def __init__(self, config: Config, resolution: int) -> None:
        super().__init__()
        channels = config.channels(resolution)
        self.strength = nn.Parameter(torch.zeros(channels))  # "B" in the figure
        self.register_buffer("const", torch.randn(1, 1, resolution, resolution))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.affine = Linear(config.w_dim, 2 * channels, gain=1.0)  # "A" in the figure

    def forward(self, x: Tensor, w: Tensor, noise: Tensor) -> Tensor:
        x = x + self.strength[:, None, None] * noise  # one noise image for all feature maps
        x = leaky_relu(x + self.bias[:, None, None])
        scale, bias = self.affine(w)[:, :, None, None].chunk(2, dim=1)
        return adain(x, scale, bias)


class SynthesisBlock(nn.Module):
    """Two layers of one resolution. At 4x4 the input is a learned constant, not a smaller image."""

    def __init__(self, config: Config, resolution: int) -> None:
        super().__init__()
        channels = config.channels(resolution)
        self.grows = resolution > 4
        if self.grows:
            self.conv0 = Conv2d(config.channels(resolution // 2), channels, 3, bias=False)
            self.blur = Blur(channels)
        self.epilogue0 = Epilogue(config, resolution)
        self.conv1 = Conv2d(channels, channels, 3, bias=False)
        self.epilogue1 = Epilogue(config, resolution)

    def forward(self, x: Tensor, ws: Sequence[Tensor], noise: Sequence[Tensor]) -> Tensor:
        if self.grows:
            # Enlarged pixels are squares with hard edges, which the blur softens. conv1 does not
            # change the resolution and needs no blur.
            x = self.blur(self.conv0(upsample(x)))
        x = self.epilogue0(x, ws[0], noise[0])
        return self.epilogue1(self.conv1(x), ws[1], noise[1])


class Generator(nn.Module):
    """z -> w -> images, with the average of w."""

    w_avg: Tensor  # (w_dim,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        sizes, colors = resolutions(config.resolution), config.image_channels
        self.mapping = Mapping(config)
        self.const = nn.Parameter(torch.ones(1, config.channels(4), 4, 4))
        self.blocks = nn.ModuleDict({str(r): SynthesisBlock(config, r) for r in sizes})
        self.to_rgb = nn.ModuleDict(
            {str(r): Conv2d(config.channels(r), colors, 1, gain=1.0) for r in sizes}
        )
        self.register_buffer("w_avg", torch.zeros(config.w_dim))

    def forward(
        self,
        z: Tensor,
        *,
        psi: float = 1.0,
        resolution: int | None = None,
        alpha: float = 1.0,
        noise: Noise = "random",
    ) -> Tensor:
        """z (N, z_dim) -> images (N, image_channels, r, r), nominally in [-1, 1]."""
        resolution = resolution or self.config.resolution
        w = truncate(self.mapping(z), self.w_avg, psi)
        return self.synthesize([w] * num_layers(resolution), resolution, alpha, noise)

    def synthesize(
        self, ws: Sequence[Tensor], resolution: int, alpha: float, noise: Noise
    ) -> Tensor:
        """One w (N, w_dim) for each layer -> images."""
        maps = self.noise_maps(len(ws[0]), resolution, noise)
        coarse = x = self.const.expand(len(ws[0]), -1, -1, -1)
        for i, r in enumerate(resolutions(resolution)):
            layers = slice(2 * i, 2 * i + 2)
            coarse, x = x, self.blocks[str(r)](x, ws[layers], maps[layers])
        images: Tensor = self.to_rgb[str(resolution)](x)
        if alpha < 1 and resolution > 4:
            images = fade(upsample(self.to_rgb[str(resolution // 2)](coarse)), images, alpha)
        return images

    def noise_maps(self, n: int, resolution: int, noise: Noise) -> Sequence[Tensor]:
        """Noise for every layer: "const" is stored, "random" is new for every image."""
        if not isinstance(noise, str):
            return noise
        layers = [m for m in self.modules() if isinstance(m, Epilogue)]
        maps = [m.const for m in layers if m.const.shape[-1] <= resolution]
        return maps if noise == "const" else [torch.randn_like(m.repeat(n, 1, 1, 1)) for m in maps]


def num_layers(resolution: int) -> int:
    return 2 * len(resolutions(resolution))


class DiscriminatorBlock(nn.Module):
    """Two layers, then half the resolution."""

    def __init__(self, config: Config, resolution: int) -> None:
        super().__init__()
        channels = config.channels(resolution)
        self.conv0 = Conv2d(channels, channels, 3)
        self.blur = Blur(channels)
        self.conv1 = Conv2d(channels, config.channels(resolution // 2), 3)

    def forward(self, x: Tensor) -> Tensor:
        x = leaky_relu(self.conv0(x))
        return leaky_relu(downsample(self.conv1(self.blur(x))))


class Discriminator(nn.Module):
    """Images of any resolution up to the full one -> logits, positive for real."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.group = config.deviation_group
        sizes, colors = resolutions(config.resolution), config.image_channels
        self.from_rgb = nn.ModuleDict(
            {str(r): Conv2d(colors, config.channels(r), 1) for r in sizes}
        )
        self.blocks = nn.ModuleDict({str(r): DiscriminatorBlock(config, r) for r in sizes[1:]})
        channels = config.channels(4)
        self.conv = Conv2d(channels + (self.group > 1), channels, 3)
        self.dense = Linear(channels * 16, config.channels(2))
        self.out = Linear(config.channels(2), 1, gain=1.0)

    def forward(self, images: Tensor, alpha: float = 1.0) -> Tensor:
        """images (N, image_channels, r, r) -> (N,)."""
        resolution = images.shape[-1]
        x = leaky_relu(self.from_rgb[str(resolution)](images))
        for r in reversed(resolutions(resolution)[1:]):
            x = self.blocks[str(r)](x)
            if r == resolution and alpha < 1:
                before = leaky_relu(self.from_rgb[str(r // 2)](downsample(images)))
                x = fade(before, x, alpha)
        if self.group > 1:
            x = torch.cat([x, minibatch_stddev(x, self.group)], dim=1)
        x = leaky_relu(self.conv(x))
        return self.out(leaky_relu(self.dense(x.flatten(1)))).squeeze(1)


@dataclass(frozen=True)
class Stage:
    """The settings at one moment of training."""

    resolution: int  # that of the layers that are growing in, if any
    alpha: float  # weight of `resolution` against the one below it; 1 = fully grown
    batch_size: int
    g_lr: float  # learning rates of the generator and the discriminator
    d_lr: float


def stage_at(images_seen: int, config: Config) -> Stage:
    """Progressive growing: train at one resolution, then fade in the next. Karras et al. 2018."""
    kimg = images_seen / 1000
    doublings, into_phase = divmod(kimg, config.stable_kimg + config.fade_kimg)
    resolution, alpha = config.initial_resolution * 2 ** int(doublings), 1.0
    if into_phase > config.stable_kimg:
        resolution, alpha = 2 * resolution, (into_phase - config.stable_kimg) / config.fade_kimg
    if resolution > config.resolution:
        resolution, alpha = config.resolution, 1.0
    return Stage(resolution, alpha, config.batch_size, config.g_lr, config.d_lr)


def read_images(path: Path) -> Tensor:
    """The images of a zip, all of one size: uint8 (N, 3, r, r)."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(n for n in archive.namelist() if n.endswith((".png", ".jpg", ".webp")))
        files = [io.BytesIO(archive.read(name)) for name in names]
    pixels = [np.asarray(Image.open(file).convert("RGB")) for file in files]
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()


def pyramid(images: Tensor) -> dict[int, Tensor]:
    """uint8 (N, C, r, r) at r, r / 2, ... 4, averaged 2x2 and rounded."""
    averages, levels = images.float(), {}
    while (resolution := averages.shape[-1]) >= 4:
        levels[resolution] = averages.round().to(torch.uint8)
        averages = downsample(averages)
    return levels


def process_reals(images: Tensor, mirror: Tensor, alpha: float) -> Tensor:
    """uint8 -> [-1, 1], flipped where `mirror` (N,), and faded as the generator's images are."""
    reals = images.float() / 127.5 - 1
    reals = torch.where(mirror[:, None, None, None], reals.flip(3), reals)
    return fade(upsample(downsample(reals)), reals, alpha) if alpha < 1 else reals


def shuffled(n: int) -> Iterator[int]:
    """Endless indices, each once per epoch."""
    while True:
        yield from torch.randperm(n).tolist()


def save_grid(path: Path, images: Tensor, columns: int) -> None:
    """Save images (N, C, r, r) as one PNG with this many columns."""
    pixels = (images * 127.5 + 128).floor().clamp(0, 255).to(torch.uint8).cpu()
    rows = [torch.cat(list(row), dim=2) for row in pixels.split(columns)]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(torch.cat(rows, dim=1).permute(1, 2, 0).numpy()).save(path)


def real_loss(logits: Tensor) -> Tensor:
    """-log sigmoid(D(x)): of real images for the discriminator, of fakes for the generator."""
    return F.softplus(-logits).mean()


def fake_loss(logits: Tensor) -> Tensor:
    """-log(1 - sigmoid(D(x))): of fakes for the discriminator. Goodfellow et al. 2014."""
    return F.softplus(logits).mean()


def r1_penalty(real_logits: Tensor, reals: Tensor) -> Tensor:
    """|dD/dx|^2 at real images, summed over pixels, averaged over images. Mescheder et al. 2018."""
    (slopes,) = torch.autograd.grad(real_logits.sum(), reals, create_graph=True)
    return slopes.square().sum(dim=(1, 2, 3)).mean()


@dataclass(frozen=True)
class Draws:
    """The random inputs of one pass through the generator."""

    latents: Tensor  # (N, z_dim)
    mixing_latents: Tensor | None  # (N, z_dim), of a second style
    mixing_cutoff: int  # the first layer that has it
    noise: Noise = "random"


class State:
    """Networks, optimizers, and the position of training."""

    g_optimizer: torch.optim.Adam
    d_optimizer: torch.optim.Adam

    def __init__(self, config: Config, generator: Generator, discriminator: Discriminator) -> None:
        self.config = config
        self.generator = generator
        self.discriminator = discriminator
        self.generator_ema = copy.deepcopy(generator).requires_grad_(False)
        self.images_seen = 0
        self.growth: tuple[int, bool] | None = None  # resolution, and whether it is growing in

    def enter(self, stage: Stage) -> None:
        """Reset the optimizers when growth moves on, as in the official code: their averages are
        of gradients of another network."""
        growth = stage.resolution, stage.alpha < 1
        if self.growth != growth:
            self.growth, self.updates = growth, 0
            betas = self.config.adam_beta1, self.config.adam_beta2
            self.g_optimizer = torch.optim.Adam(self.generator.parameters(), betas=betas)
            self.d_optimizer = torch.optim.Adam(self.discriminator.parameters(), betas=betas)
        self.updates += 1

    def minimize(self, optimizer: torch.optim.Adam, loss: Tensor, learning_rate: float) -> None:
        """One step of TensorFlow's Adam, which adds epsilon before the bias correction."""
        (group,) = optimizer.param_groups
        # PyTorch divides by sqrt(v) / sqrt(correction) + eps, TensorFlow by (sqrt(v) + eps) /
        # sqrt(correction): equal if PyTorch's eps is the larger one.
        correction = 1 - self.config.adam_beta2**self.updates
        group["lr"], group["eps"] = learning_rate, self.config.adam_eps / math.sqrt(correction)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()  # to None, which Adam skips: weights that are not in use stay


def training_images(generator: Generator, draws: Draws, stage: Stage, w_avg_decay: float) -> Tensor:
    """Images with mixed styles (section 3.1). The average of w is updated in the passes of both
    networks, as in the official code."""
    w = generator.mapping(draws.latents)
    ws = [w] * num_layers(stage.resolution)
    if draws.mixing_latents is not None:
        other = generator.mapping(draws.mixing_latents)
        ws = [w if i < draws.mixing_cutoff else other for i in range(len(ws))]
    images = generator.synthesize(ws, stage.resolution, stage.alpha, draws.noise)
    generator.w_avg.lerp_(w.detach().mean(dim=0), 1 - w_avg_decay)
    return images


@torch.no_grad()
def update_ema(average: Generator, generator: Generator, decay: float) -> None:
    """Average the latest weights, which generate better images than the weights themselves."""
    for mine, theirs in zip(average.parameters(), generator.parameters(), strict=True):
        mine.lerp_(theirs, 1 - decay)
    average.w_avg.copy_(generator.w_avg)


def train_step(
    state: State, reals: Tensor, stage: Stage, d_draws: Draws, g_draws: Draws
) -> dict[str, Tensor]:
    """Update the discriminator, the average generator, then the generator; the losses by name."""
    config, generator, discriminator = state.config, state.generator, state.discriminator
    state.enter(stage)

    with torch.no_grad():
        fakes = training_images(generator, d_draws, stage, config.w_avg_decay)
    reals = reals.detach().requires_grad_()
    real_logits, fake_logits = discriminator(reals, stage.alpha), discriminator(fakes, stage.alpha)
    r1 = r1_penalty(real_logits, reals)
    fake, real = fake_loss(fake_logits), real_loss(real_logits)
    # The official program enlarges every image to the full size, and computes R1 of those pixels.
    # If the full size is k times ours, k * k of them show one of our pixels. D averages them, so
    # each has the gradient g / k**2 where ours has g, and their squares sum to
    # k**2 * (g / k**2)**2 = g**2 / k**2.
    k = config.resolution / stage.resolution
    d_loss = fake + real + r1 * (config.r1_gamma / 2 / k**2)
    state.minimize(state.d_optimizer, d_loss, stage.d_lr)

    # The official program updates the average here, before the generator: with the weights of the
    # previous step.
    decay = 0.5 ** (stage.batch_size / (config.ema_half_life_kimg * 1000))
    update_ema(state.generator_ema, generator, decay)

    discriminator.requires_grad_(False)
    fakes = training_images(generator, g_draws, stage, config.w_avg_decay)
    g_loss = real_loss(discriminator(fakes, stage.alpha))
    state.minimize(state.g_optimizer, g_loss, stage.g_lr)
    discriminator.requires_grad_(True)

    state.images_seen += stage.batch_size
    losses = {"d/logistic_fake": fake, "d/logistic_real": real, "d/r1_penalty": r1}
    return {name: loss.detach() for name, loss in (losses | {"g/nonsaturating": g_loss}).items()}


def draw(config: Config, stage: Stage, device: torch.device) -> Draws:
    """Latents for every image and, with some probability, of a second style from some layer on."""
    latents, others = torch.randn(2, stage.batch_size, config.z_dim, device=device)
    mixes = torch.rand(()).item() < config.style_mixing
    cutoff = int(torch.randint(1, num_layers(stage.resolution), ()))
    return Draws(latents, others if mixes else None, cutoff)


def train(config: Config, pictures: Tensor, grid: Path, device: torch.device) -> State:
    """Train on uint8 images (N, 3, r, r); every 1,000 images, log and save the grid again."""
    torch.manual_seed(config.seed)
    state = State(config, Generator(config).to(device), Discriminator(config).to(device))
    levels, order = pyramid(pictures), shuffled(len(pictures))
    latents = torch.randn(64, config.z_dim, device=device)
    start, report_at = time.perf_counter(), 1000
    while state.images_seen < config.total_kimg * 1000:
        stage = stage_at(state.images_seen, config)
        batch = levels[stage.resolution][list(itertools.islice(order, stage.batch_size))]
        mirror = torch.rand(stage.batch_size) < config.mirror
        reals = process_reals(batch, mirror, stage.alpha).to(device)
        draws = [draw(config, stage, device) for _ in range(2)]
        losses = train_step(state, reals, stage, *draws)
        if state.images_seen >= min(report_at, config.total_kimg * 1000):
            report_at += 1000
            place = f"{state.images_seen / 1000:.1f} kimg, {stage.resolution} px"
            found = ", ".join(f"{name} {loss.item():.3f}" for name, loss in losses.items())
            print(f"{time.perf_counter() - start:.0f} s: {place}, {found}", flush=True)
            growth = {"resolution": stage.resolution, "alpha": stage.alpha}
            with torch.no_grad():
                images = state.generator_ema(latents, psi=0.7, noise="const", **growth)
            save_grid(grid, images, columns=8)
    print(f"the samples are in {grid}")
    return state


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small StyleGAN on the bundled images.")
    parser.add_argument("--kimg", type=float, default=Config.total_kimg, help="thousands of images")
    parser.add_argument("--style-mixing", type=float, default=0.0, help="probability; paper: 0.9")
    parser.add_argument("--data", type=Path, default=DATA, help="zip of square images")
    parser.add_argument("--out", type=Path, default=Path("out/one_file.png"), help="the grid")
    parser.add_argument("--device", type=torch.device, default="cpu", help="cpu, cuda, cuda:1")
    options = parser.parse_args()
    if not options.kimg > 0:
        parser.error(f"--kimg must be above 0, not {options.kimg:g}")
    config = Config(total_kimg=options.kimg, style_mixing=options.style_mixing)
    pictures = read_images(options.data)
    if (size := pictures.shape[-1]) < config.resolution or size & (size - 1):
        parser.error(
            f"images must be {config.resolution}, {2 * config.resolution}, ... wide, not {size}"
        )
    torch.set_num_threads(1)  # two would wait for each other where other programs use the cores
    print(f"{config.total_kimg:g} kimg on one thread; a line for each of them", flush=True)
    train(config, pictures, options.out, options.device)


if __name__ == "__main__":
    main()
