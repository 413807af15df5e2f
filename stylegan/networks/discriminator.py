"""Image -> logit: Progressive GAN's discriminator with blurred downscaling."""

from collections.abc import Iterator
from functools import partial

from torch import Tensor, nn

from stylegan.layers import EqualizedConv2d, EqualizedConvDown2d, EqualizedLinear, run_block
from stylegan.networks.config import (
    NetworkConfig,
    active_rgb_resolutions,
    check_alpha,
    check_labels,
)
from stylegan.ops import (
    activate,
    at_least_float32,
    downsample,
    fade,
    minibatch_stddev,
    without_autocast,
)
from stylegan.schedule import check_resolution, resolutions


class FromRGB(nn.Module):
    """Image -> features of its resolution: 1x1 convolution and activation."""

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        super().__init__()
        self.conv = EqualizedConv2d(
            config.image_channels, config.channels(resolution), 1, equalized=config.equalized
        )
        self.activation = config.activation

    def forward(self, images: Tensor) -> Tensor:
        return activate(self.conv(images), self.activation, in_place=True)


class DiscriminatorBlock(nn.Module):
    """Convolution; then blur, convolution and 2x2 averaging to half the resolution."""

    def __init__(self, config: NetworkConfig, resolution: int) -> None:
        super().__init__()
        channels = config.channels(resolution)
        after = config.channels(resolution // 2)
        self.conv0 = EqualizedConv2d(channels, channels, 3, equalized=config.equalized)
        self.conv1 = EqualizedConvDown2d(
            channels, after, blur=config.blur, equalized=config.equalized
        )
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        x = activate(self.conv0(x), self.activation, in_place=True)
        return activate(self.conv1(x), self.activation, in_place=True)  # (N, out, H/2, W/2)


class DiscriminatorHead(nn.Module):
    """4x4 features -> one logit per label (or one): deviation, convolution, two dense layers."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.group = config.deviation_group
        self.features = config.deviation_features
        channels = config.channels(4)
        hidden = config.channels(2)
        extra = self.features if self.group > 1 else 0
        equalized = config.equalized
        self.conv = EqualizedConv2d(channels + extra, channels, 3, equalized=equalized)
        self.dense = EqualizedLinear(channels * 16, hidden, equalized=equalized)
        self.out = EqualizedLinear(hidden, max(config.label_dim, 1), gain=1.0, equalized=equalized)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        if self.group > 1:
            x = minibatch_stddev(x, self.group, self.features)
        x = activate(self.conv(x), self.activation, in_place=True)
        x = activate(self.dense(x.flatten(1)), self.activation, in_place=True)
        with without_autocast(x):
            return self.out(at_least_float32(x))  # (N, labels), float32 also under autocast


class Discriminator(nn.Module):
    """Image -> logit, positive for real. Progressive GAN's with blurred downscaling."""

    checkpoint_activations: bool = False  # less memory for more time in training

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
        """Logits (N,) of images (N, image_channels, r, r) at any r from 4 to the full resolution.

        While r fades in, `alpha` in [0, 1] is its weight against r / 2. With labels (N, label_dim),
        the result is the sum of the classes' logits weighted by the labels.
        """
        n, channels, height, width = images.shape
        if not n:
            raise ValueError("images must not be empty")
        if height != width or channels != self.config.image_channels:
            expected = f"(N, {self.config.image_channels}, r, r)"
            raise ValueError(f"images must be {expected}, got {tuple(images.shape)}")
        resolution = check_resolution(height, self.config.resolution)
        fading = check_alpha(alpha)
        check_labels(labels, self.config.label_dim, n)
        run = partial(run_block, checkpointed=self.checkpoint_activations)
        x = run(self.from_rgb[str(resolution)], images)
        for r in reversed(resolutions(resolution)[1:]):
            x = run(self.blocks[str(r)], x)
            if r == resolution and fading:
                x = fade(run(self.from_rgb[str(r // 2)], downsample(images)), x, alpha)
        logits = run(self.head, x)
        return logits.squeeze(1) if labels is None else (logits * labels.to(logits.dtype)).sum(1)

    def active_parameters(self, resolution: int, alpha: float) -> Iterator[nn.Parameter]:
        """Parameters that the logit of an image of `resolution` depends on."""
        parts: list[nn.Module] = [
            self.from_rgb[str(r)] for r in active_rgb_resolutions(resolution, alpha)
        ]
        parts += [self.blocks[str(r)] for r in resolutions(resolution)[1:]]
        for part in (*parts, self.head):
            yield from part.parameters()
