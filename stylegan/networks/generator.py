"""z -> w -> image: mapping and synthesis network. Sections 2 and 3 of the paper."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from stylegan.layers import (
    HE_GAIN,
    EqualizedConv2d,
    EqualizedConvTranspose2d,
    EqualizedLinear,
    NoiseInput,
    Style,
    run_block,
)
from stylegan.networks.config import (
    NetworkConfig,
    active_rgb_resolutions,
    check_alpha,
    check_labels,
)
from stylegan.ops import (
    activate,
    at_least_float32,
    blur,
    epilogue,
    fade,
    pixel_norm,
    truncate,
    upsample,
    without_autocast,
    without_tf32,
)
from stylegan.schedule import check_resolution, resolutions

Noise = Literal["const", "random", "none"] | Sequence[Tensor]


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
        """Map z (N, z_dim), labels (N, label_dim) -> w (N, w_dim), always in full float32."""
        config = self.config
        if z.ndim != 2 or z.shape[1] != config.z_dim:
            raise ValueError(f"z must be (N, {config.z_dim}), got {tuple(z.shape)}")
        check_labels(labels, config.label_dim, z.shape[0])  # torch.export makes `len` constant
        with without_autocast(z), without_tf32():  # cheap, and errors here change the whole image
            w = at_least_float32(z)
            if labels is not None and self.label_embedding is not None:
                w = torch.cat([w, labels.to(w.dtype) @ self.label_embedding.to(w.dtype)], dim=1)
            w = pixel_norm(w) if config.normalize_latents else w
            for layer in self.layers:
                w = activate(layer(w), config.mapping_activation, in_place=True)
            return w


class Epilogue(nn.Module):
    """Operations after each convolution: noise, bias, activation, normalization, style.

    Figure 1b of the paper. Ablations leave some of them out.
    """

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        super().__init__()
        channels = config.channels(resolution)
        self.config = config
        self.noise = NoiseInput(channels, resolution) if config.noise else None
        self.bias = nn.Parameter(torch.zeros(channels))
        self.style = None
        if config.styles:
            self.style = Style(config.w_dim, channels, equalized=config.equalized)

    def forward(self, x: Tensor, w: Tensor, noise: Tensor | None) -> Tensor:
        """Apply all to x (N, C, H, W), which may be overwritten."""
        return epilogue(
            x,
            noise,
            None if self.noise is None else self.noise.strength,
            self.bias,
            None if self.style is None else self.style(w),
            activation=self.config.activation,
            normalize_pixels=self.config.pixel_norm,
            normalize_channels=self.config.instance_norm,
        )


class InputBlock(nn.Module):
    """The 4x4 block: a learned constant (or a dense layer of w) and one convolution."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        channels = config.channels(4)
        equalized = config.equalized
        if config.constant_input:
            self.const = nn.Parameter(torch.ones(1, channels, 4, 4))
        else:  # sqrt(2) / 4: the variance of Progressive GAN's input layer
            self.dense = EqualizedLinear(
                config.w_dim, channels * 16, bias=False, gain=HE_GAIN / 4, equalized=equalized
            )
        self.constant_input = config.constant_input
        self.epilogue0 = Epilogue(config, 4)
        self.conv = EqualizedConv2d(channels, channels, 3, bias=False, equalized=equalized)
        self.epilogue1 = Epilogue(config, 4)

    def forward(self, ws: Tensor, *noise: Tensor | None) -> Tensor:
        if self.constant_input:
            x = self.const.repeat(ws.shape[0], 1, 1, 1)  # a copy, as the epilogue overwrites it
        else:
            x = self.dense(ws[:, 0]).unflatten(1, (-1, 4, 4))
        x = self.epilogue0(x, ws[:, 0], noise[0])
        # -1: the second row, or the only one without styles
        return self.epilogue1(self.conv(x), ws[:, -1], noise[1])


class SynthesisBlock(nn.Module):
    """Upsampling, convolution, blur, epilogue; then convolution, epilogue."""

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        super().__init__()
        before = config.channels(resolution // 2)
        channels = config.channels(resolution)
        self.conv0 = EqualizedConvTranspose2d(before, channels, equalized=config.equalized)
        self.blur = config.blur
        self.activation_before_blur = config.blur and config.activation_before_blur
        self.bias_before_blur = self.activation_before_blur or (
            config.blur and config.bias_before_blur
        )
        self.epilogue0 = Epilogue(config, resolution)
        self.conv1 = EqualizedConv2d(channels, channels, 3, bias=False, equalized=config.equalized)
        self.epilogue1 = Epilogue(config, resolution)

    def forward(self, x: Tensor, ws: Tensor, *noise: Tensor | None) -> Tensor:
        x = self.conv0(x)  # (N, out, 2H, 2W)
        if self.bias_before_blur:  # the epilogue adds the bias again
            bias = self.epilogue0.bias.to(x.dtype)[:, None, None]
            x = x + bias
            if self.activation_before_blur:
                x = activate(x, self.epilogue0.config.activation)
            x = blur(x) - bias
        elif self.blur:
            x = blur(x)
        x = self.epilogue0(x, ws[:, 0], noise[0])
        return self.epilogue1(self.conv1(x), ws[:, -1], noise[1])


class ToRGB(EqualizedConv2d):
    """1x1 convolution to an image, in float32 also under autocast."""

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        channels = config.channels(resolution)
        super().__init__(channels, config.image_channels, 1, gain=1.0, equalized=config.equalized)

    def forward(self, x: Tensor) -> Tensor:
        with without_autocast(x):
            return super().forward(at_least_float32(x))


class SynthesisNetwork(nn.Module):
    """w -> image, grown block by block. Figure 1b of the paper."""

    checkpoint_activations: bool = False  # less memory for more time in training

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
        """Map ws (N, num_ws, w_dim) -> images (N, image_channels, resolution, resolution).

        While `resolution` fades in, `alpha` in [0, 1] is its weight against the one below it; it
        has no effect at 4x4. Rows of `ws` that the resolution does not need are ignored.
        """
        config = self.config
        full = config.resolution
        resolution = check_resolution(full if resolution is None else resolution, full)
        fading = check_alpha(alpha) and resolution > 4
        if ws.ndim != 3 or ws.shape[1:] != (config.num_ws(), config.w_dim):
            expected = f"(N, {config.num_ws()}, {config.w_dim})"
            raise ValueError(f"ws must be {expected}, got {tuple(ws.shape)}")
        if config.styles:
            rows = [ws[:, i : i + 2] for i in range(0, config.num_layers(resolution), 2)]
        else:
            rows = [ws] * len(resolutions(resolution))
        maps = self.noise_maps(ws.shape[0], resolution, noise)
        run = partial(run_block, checkpointed=self.checkpoint_activations)
        coarse = x = run(self.input, rows[0], *maps[:2])
        for i, r in enumerate(resolutions(resolution)[1:], start=1):
            coarse = x
            x = run(self.blocks[str(r)], x, rows[i], *maps[2 * i : 2 * i + 2])
        images: Tensor = run(self.to_rgb[str(resolution)], x)
        if fading:
            images = fade(upsample(run(self.to_rgb[str(resolution // 2)], coarse)), images, alpha)
        return images

    def epilogues(self, resolution: int) -> list[Epilogue]:
        """Layers with noise up to `resolution`, in order."""
        # found by type, as a user's own block may wrap one of these blocks
        blocks = (self.input, *(self.blocks[str(r)] for r in resolutions(resolution)[1:]))
        return [part for block in blocks for part in block.modules() if isinstance(part, Epilogue)]

    def noise_maps(self, n: int, resolution: int, noise: Noise) -> Sequence[Tensor | None]:
        """Noise map of each layer: stored, drawn or passed; None without noise.

        In a network with noise, a layer without noise gets a map of 0, which it ignores.
        """
        layers = self.epilogues(resolution)
        # not a parameter: replicas of DataParallel have none
        like = next((layer.noise.const for layer in layers if layer.noise is not None), None)
        if like is None or noise == "none":
            return [None] * len(layers)
        stored = [
            like.new_zeros(1, 1, 4 << i // 2, 4 << i // 2) if part is None else part.const
            for i, part in enumerate(layer.noise for layer in layers)
        ]
        if noise == "const":
            return stored
        if noise == "random":
            return [
                m
                if layer.noise is None
                else torch.randn(n, *m.shape[1:], device=m.device, dtype=m.dtype)
                for layer, m in zip(layers, stored, strict=True)
            ]
        if isinstance(noise, str):
            raise ValueError(f"noise must be 'const', 'random', 'none' or a list, got {noise!r}")
        if len(noise) < len(layers):
            raise ValueError(f"noise must have {len(layers)} maps, got {len(noise)}")
        for noise_map, m in zip(noise, stored, strict=False):
            if noise_map.shape[0] not in (1, n) or noise_map.shape[1:] != m.shape[1:]:
                expected = f"({n} or 1, 1, {m.shape[2]}, {m.shape[3]})"
                raise ValueError(f"a noise map must be {expected}, got {tuple(noise_map.shape)}")
        return noise


class Generator(nn.Module):
    """z -> w -> image, with the average of w for truncation."""

    w_avg: Tensor  # (w_dim,) moving average of w, only updated by the training step

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
        """Generate images (N, image_channels, resolution, resolution), nominally in [-1, 1].

        z (N, z_dim), labels (N, label_dim).
        psi, cutoff: truncation toward w_avg in the first `cutoff` layers, None for all; psi may be
            any number, 1 is none.
        resolution, alpha: see `SynthesisNetwork`.
        noise: "const" (stored maps), "random" (torch's global RNG), "none", or one map per layer.
        """
        if not len(z):
            raise ValueError("z must not be empty")
        ws = truncate(self.broadcast(self.mapping(z, labels)), self.w_avg, psi, cutoff)
        return self.synthesis(ws, resolution=resolution, alpha=alpha, noise=noise)

    def broadcast(self, w: Tensor) -> Tensor:
        """Expand w (N, w_dim) to ws (N, num_ws, w_dim), a view.

        `clone()` it to edit single layers. Training mixes styles in `training/step.py` instead.
        """
        return w[:, None].expand(-1, self.config.num_ws(), -1)

    def active_parameters(self, resolution: int, alpha: float) -> Iterator[nn.Parameter]:
        """Parameters that an image of `resolution` and `alpha` depends on."""
        parts: list[nn.Module] = [self.synthesis.input]
        parts += [self.synthesis.blocks[str(r)] for r in resolutions(resolution)[1:]]
        parts += [self.synthesis.to_rgb[str(r)] for r in active_rgb_resolutions(resolution, alpha)]
        if self.config.styles or not self.config.constant_input:
            parts.append(self.mapping)
        for part in parts:
            yield from part.parameters()
