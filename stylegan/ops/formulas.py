"""The formulas of StyleGAN as the papers write them: any device, any precision, any derivative.

Some have faster twins of the same names, which the package calls: see `ops/__init__.py`.
Images are (N, C, H, W). "Section" without a source refers to Karras, Laine, Aila 2019.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import at_least_float32

Activation = Literal["lrelu", "relu"]
Style = tuple[Tensor, Tensor]  # scale and bias (N, C)

MAX_PSI = torch.finfo(torch.float32).max


def dense(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """Equalized learning rate: `scale` is the He constant. Karras et al. 2018, section 4.1.

    x (N, in), weight (out, in), bias (out,) -> (N, out).
    """
    return F.linear(x, weight * scale, bias)


def conv2d(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    """Equalized convolution with zero padding: weight (K, C, k, k) -> (N, K, H, W)."""
    return F.conv2d(x, weight * scale, bias, padding=weight.shape[-1] // 2)


def upsample_conv2d(x: Tensor, weight: Tensor, scale: float) -> Tensor:
    """Convolve the upsampled image: weight (C, K, 3, 3) -> (N, K, 2H, 2W)."""
    return conv2d(upsample(x), weight.transpose(0, 1), scale)


def conv2d_downsample(
    x: Tensor, weight: Tensor, scale: float, bias: Tensor | None = None, *, blur_first: bool = False
) -> Tensor:
    """Convolve, then average 2x2 pixels: weight (K, C, 3, 3) -> (N, K, H/2, W/2)."""
    return downsample(conv2d(blur(x) if blur_first else x, weight, scale, bias))


def upsample(x: Tensor) -> Tensor:
    """Double height and width, nearest neighbor."""
    return F.interpolate(x, scale_factor=2, mode="nearest")


def downsample(x: Tensor) -> Tensor:
    """Halve height and width, 2x2 averages."""
    return F.avg_pool2d(x, 2)


def downsample_to(x: Tensor, resolution: int) -> Tensor:
    """Box-average to (N, C, resolution, resolution); both sizes are powers of two."""
    return F.avg_pool2d(x, x.shape[-1] // resolution)


def blur(x: Tensor) -> Tensor:
    """Low-pass filter [1, 2, 1] x [1, 2, 1] / 16 with zero padding."""
    # 1, 2, 1, made on the device of x: a copy from the host would stall a GPU
    taps = 2 - torch.arange(-1, 2, device=x.device, dtype=x.dtype).abs()
    kernel = (taps[:, None] * taps / 16).expand(x.shape[1], 1, 3, 3)
    return F.conv2d(x, kernel, padding=1, groups=x.shape[1])


def fade(coarse: Tensor, fine: Tensor, alpha: float) -> Tensor:
    """Blend a resolution in: `coarse` at alpha 0, `fine` at alpha 1."""
    return torch.lerp(coarse, fine, alpha)


def leaky_relu(x: Tensor, slope: float = 0.2) -> Tensor:
    """`max(x, slope * x)`, with derivative 1 at exactly 0, where torch's own has `slope`."""
    return torch.where(x >= 0, x, slope * x)


def activate(x: Tensor, activation: Activation) -> Tensor:
    return leaky_relu(x) if activation == "lrelu" else F.relu(x)


def pixel_norm(x: Tensor, eps: float = 1e-8) -> Tensor:
    """Scale every feature vector (dim 1) to unit mean square. Karras et al. 2018, section 4.2."""
    wide = at_least_float32(x)
    return (wide * torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + eps)).to(x.dtype)


def instance_norm(x: Tensor, eps: float = 1e-8) -> Tensor:
    """Shift and scale every channel of every image to zero mean and unit mean square."""
    wide = at_least_float32(x)
    wide = wide - wide.mean(dim=(2, 3), keepdim=True)
    return (wide * torch.rsqrt(wide.square().mean(dim=(2, 3), keepdim=True) + eps)).to(x.dtype)


def style_modulation(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """`x * scale + bias` per channel; scale and bias (N, C)."""
    return torch.addcmul(bias[:, :, None, None], x, scale[:, :, None, None]).to(x.dtype)


def adain(x: Tensor, scale: Tensor, bias: Tensor, eps: float = 1e-8) -> Tensor:
    """Adaptive instance normalization, equation 1.

    Channels get mean `bias` and standard deviation `scale`, both (N, C). `layers.Style` has
    already added 1 to the scale.
    """
    return style_modulation(instance_norm(x, eps), scale, bias)


def epilogue(
    x: Tensor,
    noise: Tensor | None,
    strength: Tensor | None,
    bias: Tensor,
    style: Style | None,
    *,
    activation: Activation = "lrelu",
    normalize_pixels: bool = False,
    normalize_channels: bool = True,
) -> Tensor:
    """Noise, bias, activation, normalization, style: figure 1b.

    noise (1 or N, 1, H, W), strength and bias (C,). The faster version may overwrite x.
    """
    if noise is not None and strength is not None:
        x = x + noise * strength[:, None, None]
    x = activate(x + bias[:, None, None], activation)
    x = pixel_norm(x) if normalize_pixels else x
    x = instance_norm(x) if normalize_channels else x
    return x if style is None else style_modulation(x, *style)


def minibatch_stddev(x: Tensor, group_size: int, features: int = 1) -> Tensor:
    """Append standard deviations within groups of the batch. Karras et al. 2018, section 3.

    x (N, C, H, W) -> (N, C + features, H, W). With M = N / group_size groups, image i belongs to
    group i mod M. Feature n averages the standard deviations over the n-th range of C / features
    channels and all pixels. A `group_size` above N counts as N.
    """
    n, c, h, w = x.shape
    group_size = min(group_size, n)
    if n % group_size:
        raise ValueError(f"batch of {n} images is not divisible into groups of {group_size}")
    if c % features:
        raise ValueError(f"{c} channels are not divisible by {features} deviation features")
    groups = at_least_float32(x).reshape(group_size, n // group_size, features, -1)
    variance = (groups - groups.mean(dim=0)).square().mean(dim=0)  # `var` is slow over dim 0
    deviation = (variance + 1e-8).sqrt().mean(dim=2)  # (M, features)
    deviation = deviation.repeat(group_size, 1).to(x.dtype)[:, :, None, None]
    return torch.cat([x, deviation.expand(n, features, h, w)], dim=1)


def nearest(ws: Tensor, centers: Tensor) -> Tensor:
    """The nearest of `centers` (K, w_dim) to each row of ws (N, rows, w_dim)."""
    centers = centers.to(ws)
    # One at a time: little memory, the same bits in any batch, and ONNX can express it.
    distances = torch.stack([(ws - center).square().sum(dim=2) for center in centers])
    return centers[distances.argmin(dim=0)]


def truncate(ws: Tensor, w_avg: Tensor, psi: float | Tensor, cutoff: int | None) -> Tensor:
    """Pull the first `cutoff` rows of `ws` (N, rows, w_dim) toward the average: section B.

    w_avg: (w_dim,), or (N, rows, w_dim) with a target for each row.
    psi: 1 changes nothing, 0 gives the average image; a tensor () is not checked.
    cutoff: number of rows, None = all.

    Raises ValueError if psi exceeds the range of float32, or cutoff is not a number of rows.
    """
    if not isinstance(psi, Tensor) and not abs(psi) <= MAX_PSI:
        raise ValueError(f"psi must be a finite float32 number, got {psi}")
    if cutoff is not None and not (hasattr(cutoff, "__index__") and cutoff >= 0):
        raise ValueError(f"cutoff must be None or a whole number from 0, got {cutoff!r}")
    if cutoff == 0 or (not isinstance(psi, Tensor) and psi == 1):
        return ws
    psi = psi if isinstance(psi, Tensor) else float(psi)  # torch rejects ints from 2**63 on
    toward = w_avg if w_avg.ndim == 1 else w_avg[:, :cutoff]
    near = torch.lerp(toward.to(ws.dtype), ws[:, :cutoff], psi)
    return near if cutoff is None else torch.cat([near, ws[:, cutoff:]], dim=1)
