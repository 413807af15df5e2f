"""StyleGAN as a textbook would write it: the opponent that our speed is measured against.

Every step of the paper is an operation of its own, in one precision and contiguous layout: enlarge,
convolve, blur with a depthwise filter; noise, bias, activation, normalization, style. Its numbers
are those of `stylegan`, and nothing is made slow on purpose. The file is frozen: ratios quoted
against it lose their meaning if it changes. Nobody should train with it: `stylegan` is for that.

Only the paper's network (configuration F, logistic loss, R1) on one process. It does not look for
non-finite gradients, and takes PyTorch's derivative of the leaky ReLU at exactly 0.
"""

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stylegan.config import TrainConfig
from stylegan.networks import NetworkConfig, Noise
from stylegan.schedule import Stage, resolutions
from stylegan.training import Draws, PassDraws

HE_GAIN = math.sqrt(2)
EPSILON = 1e-8
LOSSES = ("generator_loss", "discriminator_loss", "r2_gamma", "precision", "batch_gpu")
PARTS = ("styles", "constant_input", "pixel_norm", "instance_norm", "blur", "equalized")
INPUTS = ("label_dim", "activation", "mapping_activation", "normalize_latents")
RENAMED = (  # parts of our names of weights and the textbook's, in the order of replacement
    ("mapping.layers.", "mapping."),
    ("synthesis.input.const", "const"),
    ("synthesis.input.conv.", "blocks.4.conv1."),
    ("synthesis.input.", "blocks.4."),
    ("synthesis.", ""),
    (".noise.", "."),
    (".style.", "."),
    ("head.", ""),
    (".conv.", "."),
)


def check_paper(config: TrainConfig | NetworkConfig) -> None:
    changed = {f.name for f in fields(config) if getattr(config, f.name) != f.default}
    if refused := changed & {*LOSSES, *PARTS, *INPUTS, "deviation_features"}:
        names = ", ".join(sorted(refused))
        raise ValueError(f"the textbook has only the paper's network and losses; leave out {names}")


def textbook_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The `state_dict` of our generator or discriminator under the textbook's names.

    Our enlarging convolutions keep their kernels as (in, out, 3, 3), the textbook's as (out, in).
    """
    renamed = {}
    for name, weight in weights.items():
        if name.startswith("synthesis.blocks.") and name.endswith(".conv0.weight"):
            weight = weight.transpose(0, 1).contiguous()
        for ours, theirs in RENAMED:
            name = name.replace(ours, theirs)
        renamed[name] = weight
    return renamed


def leaky_relu(x: Tensor) -> Tensor:
    return F.leaky_relu(x, 0.2)


class Linear(nn.Module):
    """Linear layer with an equalized learning rate; weight (out, in)."""

    def __init__(
        self, inputs: int, outputs: int, *, gain: float = HE_GAIN, lr_multiplier: float = 1.0
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / lr_multiplier)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.weight_scale = gain / math.sqrt(inputs) * lr_multiplier
        self.lr_multiplier = lr_multiplier

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.weight_scale, self.bias * self.lr_multiplier)


class Conv2d(nn.Module):
    """Convolution that keeps the size, with an equalized learning rate; weight (out, in, k, k)."""

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
    """Depthwise low-pass filter [1, 2, 1] x [1, 2, 1] / 16."""

    kernel: Tensor  # (channels, 1, 3, 3)

    def __init__(self, channels: int) -> None:
        super().__init__()
        taps = torch.tensor([1.0, 2.0, 1.0])
        kernel = (taps[:, None] * taps / 16).repeat(channels, 1, 1, 1)
        self.register_buffer("kernel", kernel, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.kernel, padding=1, groups=len(self.kernel))


class Epilogue(nn.Module):
    """Noise, bias, activation, normalization, style: figure 1b of the paper."""

    const: Tensor  # (1, 1, resolution, resolution), the stored noise

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        super().__init__()
        channels = config.channels(resolution)
        self.strength = nn.Parameter(torch.zeros(channels))
        self.register_buffer("const", torch.randn(1, 1, resolution, resolution))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.affine = Linear(config.w_dim, 2 * channels, gain=1.0)

    def forward(self, x: Tensor, w: Tensor, noise: Tensor) -> Tensor:
        x = x + self.strength[:, None, None] * noise
        x = leaky_relu(x + self.bias[:, None, None])
        x = F.instance_norm(x, eps=EPSILON)
        scale, bias = self.affine(w)[:, :, None, None].chunk(2, dim=1)
        return x * (scale + 1) + bias


class SynthesisBlock(nn.Module):
    """Enlarge, convolve, blur, epilogue; convolve, epilogue. At 4x4 nothing before an epilogue."""

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
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
            x = self.blur(self.conv0(F.interpolate(x, scale_factor=2)))
        x = self.epilogue0(x, ws[0], noise[0])
        return self.epilogue1(self.conv1(x), ws[1], noise[1])


class TextbookGenerator(nn.Module):
    """z -> w -> image, with the average of w."""

    w_avg: Tensor  # (w_dim,)

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        check_paper(config)
        self.config = config
        widths = [config.z_dim, *[config.mapping_width] * (config.mapping_layers - 1), config.w_dim]
        self.mapping = nn.ModuleList(
            Linear(a, b, lr_multiplier=config.mapping_lr_multiplier)
            for a, b in itertools.pairwise(widths)
        )
        sizes, colours = resolutions(config.resolution), config.image_channels
        self.const = nn.Parameter(torch.ones(1, config.channels(4), 4, 4))
        self.blocks = nn.ModuleDict({str(r): SynthesisBlock(config, r) for r in sizes})
        self.to_rgb = nn.ModuleDict(
            {str(r): Conv2d(config.channels(r), colours, 1, gain=1.0) for r in sizes}
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
        """z (N, z_dim) -> images (N, image_channels, resolution, resolution); psi truncates."""
        resolution = resolution or self.config.resolution
        w = torch.lerp(self.w_avg, self.map_latents(z), psi)
        return self.synthesize([w] * self.config.num_layers(resolution), resolution, alpha, noise)

    def map_latents(self, z: Tensor) -> Tensor:
        w = z * torch.rsqrt(z.square().mean(dim=1, keepdim=True) + EPSILON)
        for layer in self.mapping:
            w = leaky_relu(layer(w))
        return w

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
            before = self.to_rgb[str(resolution // 2)](coarse)
            images = torch.lerp(F.interpolate(before, scale_factor=2), images, alpha)
        return images

    def noise_maps(self, n: int, resolution: int, noise: Noise) -> Sequence[Tensor]:
        if not isinstance(noise, str):
            return noise
        layers = [m for m in self.modules() if isinstance(m, Epilogue)]
        maps = [m.const for m in layers if m.const.shape[-1] <= resolution]
        return maps if noise == "const" else [torch.randn_like(m.repeat(n, 1, 1, 1)) for m in maps]

    def training_pass(self, draws: PassDraws, stage: Stage) -> tuple[Tensor, Tensor]:
        """Images with mixed styles, and the mean of w over them, detached."""
        w = self.map_latents(draws.latents)
        ws = [w] * self.config.num_layers(stage.resolution)
        if draws.mixing_latents is not None:
            other = self.map_latents(draws.mixing_latents)
            ws = [w if i < draws.mixing_cutoff else other for i in range(len(ws))]
        images = self.synthesize(ws, stage.resolution, stage.alpha, draws.noise)
        return images, w.detach().mean(dim=0)


class DiscriminatorBlock(nn.Module):
    """Convolve; blur, convolve, average."""

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        super().__init__()
        channels = config.channels(resolution)
        self.conv0 = Conv2d(channels, channels, 3)
        self.blur = Blur(channels)
        self.conv1 = Conv2d(channels, config.channels(resolution // 2), 3)

    def forward(self, x: Tensor) -> Tensor:
        x = leaky_relu(self.conv0(x))
        return leaky_relu(F.avg_pool2d(self.conv1(self.blur(x)), 2))


class TextbookDiscriminator(nn.Module):
    """Image -> logit, positive for real."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        check_paper(config)
        self.group = config.deviation_group
        sizes, colours = resolutions(config.resolution), config.image_channels
        self.from_rgb = nn.ModuleDict(
            {str(r): Conv2d(colours, config.channels(r), 1) for r in sizes}
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
                before = self.from_rgb[str(r // 2)](F.avg_pool2d(images, 2))
                x = torch.lerp(leaky_relu(before), x, alpha)
        if self.group > 1:
            x = torch.cat([x, self.deviation(x)], dim=1)
        x = leaky_relu(self.conv(x))
        return self.out(leaky_relu(self.dense(x.flatten(1)))).squeeze(1)

    def deviation(self, x: Tensor) -> Tensor:
        """(N, 1, 4, 4): how much the images of a group differ; image i is in group i mod M."""
        group = min(self.group, len(x))
        groups = x.unflatten(0, (group, -1))
        variance = (groups - groups.mean(dim=0)).square().mean(dim=0)
        deviation = (variance + EPSILON).sqrt().mean(dim=(1, 2, 3))
        return deviation.repeat(group)[:, None, None, None].expand(-1, 1, 4, 4)


@dataclass
class TextbookState:
    """Networks, optimizers, and how often these have stepped since growth changed."""

    config: TrainConfig
    generator: TextbookGenerator
    discriminator: TextbookDiscriminator
    generator_ema: TextbookGenerator
    g_optimizer: torch.optim.Adam = field(init=False)
    d_optimizer: torch.optim.Adam = field(init=False)
    growth: tuple[int, bool] | None = None
    updates: int = 0

    @classmethod
    def create(
        cls,
        config: TrainConfig,
        generator: Mapping[str, Tensor],
        discriminator: Mapping[str, Tensor],
    ) -> "TextbookState":
        """The state before the first step from weights of our networks, in their type."""
        check_paper(config)
        g, d = TextbookGenerator(config.network), TextbookDiscriminator(config.network)
        for network, weights in ((g, generator), (d, discriminator)):
            network.to(next(iter(weights.values())))
            network.load_state_dict(textbook_weights(weights))
        return cls(config, g, d, copy.deepcopy(g).requires_grad_(False))

    def adam(self, network: nn.Module) -> torch.optim.Adam:
        """It leaves alone what has no gradient: all that is not active."""
        betas = (self.config.adam_beta1, self.config.adam_beta2)
        return torch.optim.Adam(network.parameters(), betas=betas)

    def minimize(self, optimizer: torch.optim.Adam, loss: Tensor, lr: float) -> None:
        """One step of the official Adam, whose epsilon is added before the bias correction."""
        correction = 1 - self.config.adam_beta2**self.updates
        (group,) = optimizer.param_groups
        group["lr"], group["eps"] = lr, self.config.adam_eps / math.sqrt(correction)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def textbook_step(
    state: TextbookState, reals: Tensor, stage: Stage, draws: Draws
) -> dict[str, Tensor]:
    """`train_step` of ours: the discriminator, the average, the generator; returns the losses."""
    config, alpha = state.config, stage.alpha
    generator, discriminator, average = state.generator, state.discriminator, state.generator_ema
    if state.growth != stage.growth:
        state.growth, state.updates = stage.growth, 0
        state.g_optimizer, state.d_optimizer = state.adam(generator), state.adam(discriminator)
    state.updates += 1

    with torch.no_grad():
        fakes, w_mean = generator.training_pass(draws.discriminator, stage)
    generator.w_avg.lerp_(w_mean, 1 - config.w_avg_decay)
    reals = reals.detach().requires_grad_()
    real_logits, fake_logits = discriminator(reals, alpha), discriminator(fakes, alpha)
    (slopes,) = torch.autograd.grad(real_logits.sum(), reals, create_graph=True)
    r1 = slopes.square().sum(dim=(1, 2, 3)).mean()
    fake, real = F.softplus(fake_logits).mean(), F.softplus(-real_logits).mean()
    full_size = stage.resolution / config.network.resolution  # R1 is that of enlarged images
    d_loss = fake + real + r1 * (config.r1_gamma / 2 * full_size**2)
    state.minimize(state.d_optimizer, d_loss, stage.d_lr)

    decay = 0.5 ** (stage.batch_size / (config.ema_half_life_kimg * 1000))
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), generator.parameters(), strict=True):
            mine.lerp_(theirs, 1 - decay)
    average.w_avg.copy_(generator.w_avg)

    discriminator.requires_grad_(False)
    fakes, w_mean = generator.training_pass(draws.generator, stage)
    generator.w_avg.lerp_(w_mean, 1 - config.w_avg_decay)
    g_loss = F.softplus(-discriminator(fakes, alpha)).mean()
    state.minimize(state.g_optimizer, g_loss, stage.g_lr)
    discriminator.requires_grad_(True)
    losses = {"d/logistic_fake": fake, "d/logistic_real": real, "d/r1_penalty": r1}
    return {name: loss.detach() for name, loss in (losses | {"g/nonsaturating": g_loss}).items()}
