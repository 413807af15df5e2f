"""The networks of StyleGAN (Karras, Laine, Aila 2019, arXiv 1812.04948), version 1."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from stylegan.layers import (
    HE_GAIN,
    Epilogue,
    EqualizedConv2d,
    EqualizedConvDown2d,
    EqualizedConvTranspose2d,
    EqualizedLinear,
)
from stylegan.ops import (
    ACTIVATIONS,
    Activation,
    at_least_float32,
    blur,
    downsample,
    fade,
    minibatch_deviation,
    pixel_norm,
    truncate,
    upsample,
    without_autocast,
)

Noise = Literal["const", "random", "none"] | Sequence[Tensor]
MAX_RESOLUTION = 1024


def check_resolution(resolution: int, largest: int = MAX_RESOLUTION) -> int:
    """`resolution` if it is a power of two from 4 to `largest`, else a ValueError."""
    if resolution & (resolution - 1) or not 4 <= resolution <= largest:
        raise ValueError(f"resolution {resolution} is not a power of two from 4 to {largest}")
    return resolution


def doublings(resolution: int) -> int:
    """How often 1 is doubled to reach `resolution`."""
    return resolution.bit_length() - 1


def resolutions(largest: int) -> list[int]:
    """4, 8, ... `largest`."""
    return [2**k for k in range(2, doublings(largest) + 1)]


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes and ablations of a generator and its discriminator; the defaults are the paper's."""

    resolution: int = 1024
    image_channels: int = 3
    label_dim: int = 0  # classes; 0 = unconditional
    z_dim: int = 512
    w_dim: int = 512
    mapping_layers: int = 8
    mapping_width: int = 512
    mapping_lr_multiplier: float = 0.01
    mapping_activation: Activation = "lrelu"
    normalize_latents: bool = True
    channel_base: int = 8192  # channels at resolution r: 2 * channel_base / r, capped
    channel_decay: float = 1.0
    max_channels: int = 512
    activation: Activation = "lrelu"
    styles: bool = True
    constant_input: bool = True  # else a dense layer makes the 4x4 input from w
    noise: bool = True
    pixel_norm: bool = False
    instance_norm: bool = True
    blur: bool = True
    equalized: bool = True
    deviation_group: int = 4  # images per group of the minibatch deviation; 0 or 1 = off
    deviation_features: int = 1

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        for name in ("image_channels", "z_dim", "w_dim", "mapping_width", "max_channels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("label_dim", "mapping_layers", "deviation_group"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        for name in ("channel_base", "mapping_lr_multiplier"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("mapping_activation", "activation"):
            if getattr(self, name) not in ACTIVATIONS:
                choices = " or ".join(ACTIVATIONS)
                raise ValueError(f"{name} must be {choices}, not {getattr(self, name)!r}")
        if self.mapping_layers == 0 and self.w_dim != self.mapping_inputs():
            raise ValueError(
                f"without mapping layers w is the latent itself: w_dim must be "
                f"{self.mapping_inputs()}, not {self.w_dim}"
            )
        if self.deviation_features < 1 or self.channels(4) % self.deviation_features:
            raise ValueError(
                f"{self.channels(4)} channels at 4x4 do not split into "
                f"{self.deviation_features} deviation features"
            )

    def channels(self, resolution: int) -> int:
        """Feature maps at `resolution` (2 = the last hidden layer of the discriminator)."""
        stage = doublings(resolution) - 1
        wanted = int(self.channel_base / 2 ** (stage * self.channel_decay))
        return max(1, min(wanted, self.max_channels))

    def mapping_inputs(self) -> int:
        """Length of the vector that enters the mapping: the latent and the embedded label."""
        return 2 * self.z_dim if self.label_dim else self.z_dim

    def num_layers(self, resolution: int | None = None) -> int:
        """Synthesis layers up to `resolution`: two each."""
        return 2 * doublings(resolution or self.resolution) - 2

    def num_styles(self) -> int:
        """Rows of `ws`: one per synthesis layer, or a single one without styles."""
        return self.num_layers() if self.styles else 1


def check_labels(labels: Tensor | None, label_dim: int, n: int) -> None:
    if label_dim == 0 and labels is not None:
        raise ValueError("labels were given to a network without labels (label_dim is 0)")
    if label_dim and (labels is None or labels.shape != (n, label_dim)):
        found = "none were given" if labels is None else f"found {tuple(labels.shape)}"
        raise ValueError(f"labels of shape ({n}, {label_dim}) are needed; {found}")


class MappingNetwork(nn.Module):
    """z -> w: a multilayer perceptron that unwarps the latent distribution. Section 2."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.label_embedding = (
            nn.Parameter(torch.randn(config.label_dim, config.z_dim)) if config.label_dim else None
        )
        widths = [config.mapping_inputs()] + [config.mapping_width] * config.mapping_layers
        if config.mapping_layers:
            widths[-1] = config.w_dim
        self.layers = nn.ModuleList(
            EqualizedLinear(
                width,
                next_width,
                lr_multiplier=config.mapping_lr_multiplier,
                equalized=config.equalized,
            )
            for width, next_width in itertools.pairwise(widths)
        )

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """z (N, z_dim), labels (N, label_dim) exactly when the network has labels -> (N, w_dim)."""
        config = self.config
        if z.ndim != 2 or z.shape[1] != config.z_dim:
            raise ValueError(f"latents must be (N, {config.z_dim}), not {tuple(z.shape)}")
        check_labels(labels, config.label_dim, len(z))
        if labels is not None and self.label_embedding is not None:
            z = torch.cat([z, labels.to(z.dtype) @ self.label_embedding.to(z.dtype)], dim=1)
        w = pixel_norm(z) if config.normalize_latents else z
        for layer in self.layers:
            w = ACTIVATIONS[config.mapping_activation](layer(w))
        return w


def epilogue(config: NetworkConfig, resolution: int) -> Epilogue:
    return Epilogue(
        config.channels(resolution),
        resolution,
        config.w_dim,
        activation=config.activation,
        noise=config.noise,
        pixel_norm=config.pixel_norm,
        instance_norm=config.instance_norm,
        style=config.styles,
        equalized=config.equalized,
    )


class InputBlock(nn.Module):
    """The 4x4 block: a learned constant (or a dense layer of w) and one convolution."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        channels = config.channels(4)
        if config.constant_input:
            self.const = nn.Parameter(torch.ones(1, channels, 4, 4))
        else:  # sqrt(2) / 4 keeps the variance that Progressive GAN's own input layer has
            self.dense = EqualizedLinear(
                config.w_dim,
                channels * 16,
                bias=False,
                gain=HE_GAIN / 4,
                equalized=config.equalized,
            )
        self.constant_input = config.constant_input
        self.epilogue0 = epilogue(config, 4)
        self.conv = EqualizedConv2d(channels, channels, 3, bias=False, equalized=config.equalized)
        self.epilogue1 = epilogue(config, 4)

    def forward(self, ws: Tensor, noise: Sequence[Tensor | None]) -> Tensor:
        if self.constant_input:
            x = self.const.expand(len(ws), -1, -1, -1)
        else:
            x = self.dense(ws[:, 0]).unflatten(1, (-1, 4, 4))
        x = self.epilogue0(x, ws[:, 0], noise[0])
        return self.epilogue1(self.conv(x), ws[:, -1 if ws.shape[1] == 1 else 1], noise[1])


class SynthesisBlock(nn.Module):
    """Doubles the resolution: enlarge, convolve, blur, epilogue; convolve, epilogue."""

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        super().__init__()
        before, channels = config.channels(resolution // 2), config.channels(resolution)
        self.conv0 = EqualizedConvTranspose2d(before, channels, equalized=config.equalized)
        self.blur = config.blur
        self.epilogue0 = epilogue(config, resolution)
        self.conv1 = EqualizedConv2d(channels, channels, 3, bias=False, equalized=config.equalized)
        self.epilogue1 = epilogue(config, resolution)

    def forward(self, x: Tensor, ws: Tensor, noise: Sequence[Tensor | None]) -> Tensor:
        x = self.conv0(x)  # (N, out, 2H, 2W)
        x = self.epilogue0(blur(x) if self.blur else x, ws[:, 0], noise[0])
        return self.epilogue1(self.conv1(x), ws[:, -1], noise[1])


class ToRGB(EqualizedConv2d):
    """1x1 convolution to an image, in float32 also under autocast."""

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        super().__init__(
            config.channels(resolution),
            config.image_channels,
            1,
            gain=1.0,
            equalized=config.equalized,
        )

    def forward(self, x: Tensor) -> Tensor:
        with without_autocast(x):
            return super().forward(at_least_float32(x))


class SynthesisNetwork(nn.Module):
    """w -> image, grown block by block. Figure 1b of the paper."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.input = InputBlock(config)
        sizes = resolutions(config.resolution)
        self.blocks = nn.ModuleDict({str(r): SynthesisBlock(config, r) for r in sizes[1:]})
        self.to_rgb = nn.ModuleDict({str(r): ToRGB(config, r) for r in sizes})

    def forward(
        self,
        ws: Tensor,
        *,
        resolution: int | None = None,
        alpha: float = 1.0,
        noise: Noise = "random",
    ) -> Tensor:
        """ws (N, num_styles, w_dim) -> images (N, image_channels, resolution, resolution).

        While `resolution` grows in, `alpha` in [0, 1] is its weight against the one below it; at
        4x4 there is none below and alpha has no effect. Rows of `ws` that the resolution does
        not need are ignored.
        """
        config = self.config
        resolution = check_resolution(resolution or config.resolution, config.resolution)
        check_alpha(alpha)
        if ws.ndim != 3 or ws.shape[1:] != (config.num_styles(), config.w_dim):
            expected = f"(N, {config.num_styles()}, {config.w_dim})"
            raise ValueError(f"ws must be {expected}, not {tuple(ws.shape)}")
        if config.styles:
            rows = [ws[:, i : i + 2] for i in range(0, config.num_layers(resolution), 2)]
        else:
            rows = [ws] * len(resolutions(resolution))
        maps = self.noise_maps(len(ws), resolution, noise)
        coarse = x = self.input(rows[0], maps[:2])
        for i, r in enumerate(resolutions(resolution)[1:], start=1):
            coarse, x = x, self.blocks[str(r)](x, rows[i], maps[2 * i : 2 * i + 2])
        images: Tensor = self.to_rgb[str(resolution)](x)
        if alpha < 1 and resolution > 4:
            images = fade(upsample(self.to_rgb[str(resolution // 2)](coarse)), images, alpha)
        return images

    def noise_layers(self, resolution: int) -> list[Epilogue]:
        """The layers that noise enters up to `resolution`, in order."""
        layers: list[Epilogue] = []
        for block in (self.input, *(self.blocks[str(r)] for r in resolutions(resolution)[1:])):
            layers += [block.epilogue0, block.epilogue1]  # type: ignore[list-item]
        return layers

    def noise_maps(self, n: int, resolution: int, noise: Noise) -> Sequence[Tensor | None]:
        """The map that enters each layer up to `resolution`: stored, drawn, given or none."""
        layers = self.noise_layers(resolution)
        if not self.config.noise or noise == "none":
            return [None] * len(layers)
        stored = [layer.noise.const for layer in layers if layer.noise is not None]
        if noise == "const":
            return stored
        if noise == "random":
            return [torch.randn(n, *m.shape[1:], device=m.device, dtype=m.dtype) for m in stored]
        if isinstance(noise, str):
            raise ValueError(f"noise is 'const', 'random', 'none' or a list, not {noise!r}")
        if len(noise) < len(layers):
            raise ValueError(f"{len(layers)} noise maps are needed, found {len(noise)}")
        for given, m in zip(noise, stored, strict=False):
            if given.shape[0] not in (1, n) or given.shape[1:] != m.shape[1:]:
                expected = f"({n} or 1, 1, {m.shape[2]}, {m.shape[3]})"
                raise ValueError(f"a noise map must be {expected}, not {tuple(given.shape)}")
        return noise


def check_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be from 0 to 1, not {alpha}")


class Generator(nn.Module):
    """z -> w -> image, with the average of w that truncation needs."""

    w_avg: Tensor  # (w_dim,) moving average of w, updated by the training step alone

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.mapping = MappingNetwork(config)
        self.synthesis = SynthesisNetwork(config)
        self.register_buffer("w_avg", torch.zeros(config.w_dim))

    def forward(
        self,
        z: Tensor,
        labels: Tensor | None = None,
        *,
        psi: float = 1.0,
        cutoff: int | None = None,
        resolution: int | None = None,
        alpha: float = 1.0,
        noise: Noise = "random",
    ) -> Tensor:
        """z (N, z_dim) -> images (N, image_channels, resolution, resolution), nominally [-1, 1].

        psi: truncation, 1 = none, 0 = the average image, any real number. cutoff: layers that
        truncation reaches, None = all. resolution, alpha: see `SynthesisNetwork`. noise: "const"
        uses the stored maps, "random" draws, "none" leaves noise out; or one map per layer.
        """
        ws = self.broadcast(self.mapping(z, labels))
        ws = truncate(ws, self.w_avg, psi, cutoff)
        return self.synthesis(ws, resolution=resolution, alpha=alpha, noise=noise)

    def broadcast(self, w: Tensor) -> Tensor:
        """w (N, w_dim) -> ws (N, num_styles, w_dim), the same for every layer."""
        return w[:, None].expand(-1, self.config.num_styles(), -1)

    def active_parameters(self, resolution: int, alpha: float) -> Iterator[nn.Parameter]:
        """What an image of `resolution` and `alpha` depends on, given a new latent and noise."""
        parts: list[nn.Module] = [self.synthesis.input]
        parts += [self.synthesis.blocks[str(r)] for r in resolutions(resolution)[1:]]
        parts += [self.synthesis.to_rgb[str(r)] for r in rgb_sizes(resolution, alpha)]
        if self.config.styles or not self.config.constant_input:
            parts.append(self.mapping)
        for part in parts:
            yield from part.parameters()


def rgb_sizes(resolution: int, alpha: float) -> list[int]:
    """Resolutions whose RGB layers are in use: a second one while `resolution` grows in."""
    return [resolution, resolution // 2] if alpha < 1 and resolution > 4 else [resolution]


class FromRGB(nn.Module):
    """Image -> features of its resolution: 1x1 convolution and activation."""

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        super().__init__()
        self.conv = EqualizedConv2d(
            config.image_channels, config.channels(resolution), 1, equalized=config.equalized
        )
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, images: Tensor) -> Tensor:
        return self.activation(self.conv(images))


class DiscriminatorBlock(nn.Module):
    """Halves the resolution: convolve; blur, convolve and average."""

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        super().__init__()
        channels, after = config.channels(resolution), config.channels(resolution // 2)
        self.conv0 = EqualizedConv2d(channels, channels, 3, equalized=config.equalized)
        self.conv1 = EqualizedConvDown2d(channels, after, equalized=config.equalized)
        self.blur = config.blur
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.conv0(x))
        return self.activation(self.conv1(blur(x) if self.blur else x))  # (N, out, H/2, W/2)


class DiscriminatorHead(nn.Module):
    """4x4 features -> one logit per label (or one): deviation, convolution, two dense layers."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.group = config.deviation_group
        self.features = config.deviation_features
        channels, hidden = config.channels(4), config.channels(2)
        extra = self.features if self.group > 1 else 0
        equalized = config.equalized
        self.conv = EqualizedConv2d(channels + extra, channels, 3, equalized=equalized)
        self.dense = EqualizedLinear(channels * 16, hidden, equalized=equalized)
        self.out = EqualizedLinear(hidden, max(config.label_dim, 1), gain=1.0, equalized=equalized)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        if self.group > 1:
            x = minibatch_deviation(x, self.group, self.features)
        x = self.activation(self.conv(x))
        x = self.activation(self.dense(x.flatten(1)))
        with without_autocast(x):
            return self.out(at_least_float32(x))  # (N, labels), float32 also under autocast


class Discriminator(nn.Module):
    """Image -> logit, positive for real. Progressive GAN's with blurred downscaling."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        sizes = resolutions(config.resolution)
        self.from_rgb = nn.ModuleDict({str(r): FromRGB(config, r) for r in sizes})
        self.blocks = nn.ModuleDict({str(r): DiscriminatorBlock(config, r) for r in sizes[1:]})
        self.head = DiscriminatorHead(config)

    def forward(
        self, images: Tensor, labels: Tensor | None = None, *, alpha: float = 1.0
    ) -> Tensor:
        """images (N, image_channels, r, r) at any r from 4 to the full resolution -> (N,).

        While r grows in, `alpha` in [0, 1] is its weight against the resolution below it. With
        labels, the logits of the classes are summed with the labels as weights.
        """
        n, channels, height, width = images.shape
        if height != width or channels != self.config.image_channels:
            expected = f"(N, {self.config.image_channels}, r, r)"
            raise ValueError(f"images must be {expected}, not {tuple(images.shape)}")
        resolution = check_resolution(height, self.config.resolution)
        check_alpha(alpha)
        check_labels(labels, self.config.label_dim, n)
        x = self.from_rgb[str(resolution)](images)
        for r in reversed(resolutions(resolution)[1:]):
            x = self.blocks[str(r)](x)
            if r == resolution and alpha < 1:
                x = fade(self.from_rgb[str(r // 2)](downsample(images)), x, alpha)
        logits = self.head(x)
        return logits.squeeze(1) if labels is None else (logits * labels.to(logits.dtype)).sum(1)

    def active_parameters(self, resolution: int, alpha: float) -> Iterator[nn.Parameter]:
        """What the logit of an image of `resolution` depends on."""
        parts: list[nn.Module] = [self.from_rgb[str(r)] for r in rgb_sizes(resolution, alpha)]
        parts += [self.blocks[str(r)] for r in resolutions(resolution)[1:]]
        for part in (*parts, self.head):
            yield from part.parameters()
