"""Layers with an equalized learning rate, noise and style. Each owns weights and one idea."""

import math

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stylegan.ops import at_least_float32, conv2d, conv2d_downsample, dense, upsample_conv2d

HE_GAIN = math.sqrt(2)


def run_block(block: nn.Module, *inputs: Tensor | None, checkpointed: bool) -> Tensor:
    """Run `block`, with activation checkpointing if `checkpointed`.

    The block must return one tensor and use no random numbers.
    """
    if checkpointed:
        return checkpoint(block, *inputs, use_reentrant=False, preserve_rng_state=False)
    return block(*inputs)


class Equalized(nn.Module):
    """A weight whose He constant is applied at run time (equalized learning rate).

    Weights are stored at unit variance (over `lr_multiplier`), so Adam, which normalizes gradient
    scale away, moves every layer at the same relative speed. Karras et al. 2018, section 4.1.
    With `equalized=False` the constant goes into the initial weights instead.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        fan_in: int,
        num_biases: int,
        *,
        gain: float = HE_GAIN,
        lr_multiplier: float = 1.0,
        equalized: bool = True,
    ) -> None:
        super().__init__()
        he_constant = gain / math.sqrt(fan_in)
        self.lr_multiplier = lr_multiplier
        self.weight_scale = (he_constant if equalized else 1.0) * lr_multiplier
        initial_std = (1.0 if equalized else he_constant) / lr_multiplier
        self.weight = nn.Parameter(torch.randn(shape).mul_(initial_std))
        self.bias = nn.Parameter(torch.zeros(num_biases)) if num_biases else None

    def extra_repr(self) -> str:
        return f"weight {tuple(self.weight.shape)}, bias={self.bias is not None}"


class EqualizedLinear(Equalized):
    """Linear layer with an equalized learning rate; weight (out, in)."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        gain: float = HE_GAIN,
        lr_multiplier: float = 1.0,
        equalized: bool = True,
    ) -> None:
        super().__init__(
            (out_features, in_features),
            in_features,
            out_features if bias else 0,
            gain=gain,
            lr_multiplier=lr_multiplier,
            equalized=equalized,
        )

    def forward(self, x: Tensor) -> Tensor:
        bias: Tensor | None = self.bias
        if bias is not None and self.lr_multiplier != 1:
            bias = bias * self.lr_multiplier
        return dense(x, self.weight, self.weight_scale, bias)


class EqualizedConv2d(Equalized):
    """Convolution that keeps the size; weight (out, in, k, k)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        bias: bool = True,
        gain: float = HE_GAIN,
        equalized: bool = True,
    ) -> None:
        super().__init__(
            (out_channels, in_channels, kernel_size, kernel_size),
            in_channels * kernel_size**2,
            out_channels if bias else 0,
            gain=gain,
            equalized=equalized,
        )

    def forward(self, x: Tensor) -> Tensor:
        return conv2d(x, self.weight, self.weight_scale, self.bias)


class EqualizedConvTranspose2d(Equalized):
    """Nearest-neighbor upsampling and 3x3 convolution in one.

    Weight (in, out, 3, 3), in the orientation of a convolution after the upsampling.
    """

    def __init__(self, in_channels: int, out_channels: int, *, equalized: bool = True) -> None:
        super().__init__((in_channels, out_channels, 3, 3), in_channels * 9, 0, equalized=equalized)

    def forward(self, x: Tensor) -> Tensor:
        return upsample_conv2d(x, self.weight, self.weight_scale)


class EqualizedConvDown2d(Equalized):
    """Optional blur, 3x3 convolution and 2x2 averaging in one; weight (out, in, 3, 3)."""

    def __init__(
        self, in_channels: int, out_channels: int, *, blur: bool = False, equalized: bool = True
    ) -> None:
        super().__init__(
            (out_channels, in_channels, 3, 3), in_channels * 9, out_channels, equalized=equalized
        )
        self.blur = blur

    def forward(self, x: Tensor) -> Tensor:
        return conv2d_downsample(x, self.weight, self.weight_scale, self.bias, blur_first=self.blur)


class NoiseInput(nn.Module):
    """Per-pixel noise, one map for all channels, scaled by a learned strength per channel.

    It gives the network stochastic detail that it need not invent; section 2 of the paper. `const`
    is the stored map for images without random detail. `ops.epilogue` adds the noise.
    """

    const: Tensor  # (1, 1, resolution, resolution)

    def __init__(self, channels: int, resolution: int) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.zeros(channels))
        self.register_buffer("const", torch.randn(1, 1, resolution, resolution))


class Style(nn.Module):
    """Learned affine map "A" of figure 1: w -> a scale (about 1) and a bias per channel."""

    def __init__(self, w_dim: int, channels: int, *, equalized: bool = True) -> None:
        super().__init__()
        self.affine = EqualizedLinear(w_dim, 2 * channels, gain=1.0, equalized=equalized)

    def forward(self, w: Tensor) -> tuple[Tensor, Tensor]:
        scale, bias = at_least_float32(self.affine(w)).chunk(2, dim=1)
        return scale + 1, bias
