"""The formulas of StyleGAN as the papers write them: any device, any precision, any derivative.

The package computes some of them by functions of the same names beside it: see `ops/__init__.py`.
Images are (N, C, H, W). "Section" without a source is one of Karras, Laine, Aila 2019.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import at_least_float32

Activation = Literal["lrelu", "relu"]
Style = tuple[Tensor, Tensor]  # scale and bias (N, C)

LARGEST_PSI = torch.finfo(torch.float32).max


def dense(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """Equalized learning rate: `scale` is the He constant. Karras et al. 2018, section 4.1.

    x (N, in), weight (out, in), bias (out,) -> (N, out).
    """
    return F.linear(x, weight * scale, bias)


def conv2d(x: Tensor, weight: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    """Equalized convolution, zeros beyond the border; weight (K, C, k, k) -> (N, K, H, W)."""
    return F.conv2d(x, weight * scale, bias, padding=weight.shape[-1] // 2)


def upsample_conv2d(x: Tensor, weight: Tensor, scale: float) -> Tensor:
    """Convolution of the enlarged image; weight (C, K, 3, 3) -> (N, K, 2H, 2W)."""
    return conv2d(upsample(x), weight.transpose(0, 1), scale)


def conv2d_downsample(
    x: Tensor, weight: Tensor, scale: float, bias: Tensor | None = None, *, blur_first: bool = False
) -> Tensor:
    """Convolution, then averages; weight (K, C, 3, 3) -> (N, K, H/2, W/2)."""
    return downsample(conv2d(blur(x) if blur_first else x, weight, scale, bias))


def upsample(x: Tensor) -> Tensor:
    """Return twice the height and width, nearest neighbor."""
    return F.interpolate(x, scale_factor=2, mode="nearest")


def downsample(x: Tensor) -> Tensor:
    """Return half the height and width, 2x2 averages."""
    return F.avg_pool2d(x, 2)


def reduced(x: Tensor, resolution: int) -> Tensor:
    """Averages of squares of pixels, (N, C, resolution, resolution); both sizes powers of two."""
    return F.avg_pool2d(x, x.shape[-1] // resolution)


def blur(x: Tensor) -> Tensor:
    """Low-pass filter [1, 2, 1] x [1, 2, 1] / 16 with zeros beyond the border."""
    # 1, 2, 1 made where x is: a copy from the host would stall a GPU
    taps = 2 - torch.arange(-1, 2, device=x.device, dtype=x.dtype).abs()
    kernel = (taps[:, None] * taps / 16).expand(x.shape[1], 1, 3, 3)
    return F.conv2d(x, kernel, padding=1, groups=x.shape[1])


def fade(coarse: Tensor, fine: Tensor, alpha: float) -> Tensor:
    """Return `fine` with weight `alpha` against `coarse`: the growth of a new resolution."""
    return torch.lerp(coarse, fine, alpha)


def leaky_relu(x: Tensor, slope: float = 0.2) -> Tensor:
    """Return `max(x, slope * x)`, whose derivative at exactly 0 is 1; torch's own takes `slope`."""
    return torch.where(x >= 0, x, slope * x)


def activate(x: Tensor, activation: Activation) -> Tensor:
    """Return the nonlinearity of that name."""
    return leaky_relu(x) if activation == "lrelu" else F.relu(x)


def pixel_norm(x: Tensor, eps: float = 1e-8) -> Tensor:
    """Scale every feature vector (dim 1) to unit mean square. Karras et al. 2018, section 4.2."""
    wide = at_least_float32(x)
    return (wide * torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + eps)).to(x.dtype)


def instance_norm(x: Tensor, eps: float = 1e-8) -> Tensor:
    """Zero mean and unit mean square for every channel of every image."""
    wide = at_least_float32(x)
    wide = wide - wide.mean(dim=(2, 3), keepdim=True)
    return (wide * torch.rsqrt(wide.square().mean(dim=(2, 3), keepdim=True) + eps)).to(x.dtype)


def style_modulation(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Return `x * scale + bias` per channel; scale and bias (N, C)."""
    return torch.addcmul(bias[:, :, None, None], x, scale[:, :, None, None]).to(x.dtype)


def adain(x: Tensor, scale: Tensor, bias: Tensor, eps: float = 1e-8) -> Tensor:
    """Adaptive instance normalization, equation 1: every channel of every image gets the deviation
    `scale` (all of it: `layers.Style` has added the 1) and the mean `bias`, both (N, C)."""
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

    noise (1 or N, 1, H, W), strength and bias (C,). x is a layer's result and may be written over.
    """
    if noise is not None and strength is not None:
        x = x + noise * strength[:, None, None]
    x = activate(x + bias[:, None, None], activation)
    x = pixel_norm(x) if normalize_pixels else x
    x = instance_norm(x) if normalize_channels else x
    return x if style is None else style_modulation(x, *style)


def minibatch_deviation(x: Tensor, group_size: int, features: int = 1) -> Tensor:
    """Append to `x` how much the images of its group differ. Karras et al. 2018, section 3.

    x (N, C, H, W) -> (N, C + features, H, W). With M = N / group_size groups, image i belongs to
    group i mod M. Feature n averages the standard deviations over the n-th range of C / features
    channels and all pixels. Groups are never larger than the batch.
    """
    n, c, h, w = x.shape
    group_size = min(group_size, n)
    if n % group_size:
        raise ValueError(f"batch of {n} images does not split into groups of {group_size}")
    if c % features:
        raise ValueError(f"{c} channels do not split into {features} deviation features")
    groups = at_least_float32(x).reshape(group_size, n // group_size, features, -1)
    variance = (groups - groups.mean(dim=0)).square().mean(dim=0)  # `var` is slow over dim 0
    deviation = (variance + 1e-8).sqrt().mean(dim=2)  # (M, features)
    deviation = deviation.repeat(group_size, 1).to(x.dtype)[:, :, None, None]
    return torch.cat([x, deviation.expand(n, features, h, w)], dim=1)


def nearest(ws: Tensor, centers: Tensor) -> Tensor:
    """Return the nearest of centers (K, w_dim) for each row of ws (N, rows, w_dim)."""
    centers = centers.to(ws)
    # one after the other: in little memory, the same in any batch, and ONNX can say it
    distances = torch.stack([(ws - center).square().sum(dim=2) for center in centers])
    return centers[distances.argmin(dim=0)]


def truncate(ws: Tensor, w_avg: Tensor, psi: float | Tensor, cutoff: int | None) -> Tensor:
    """Pull the first `cutoff` rows of `ws` (N, rows, w_dim) toward the average: section B.

    `w_avg` is (w_dim,), or (N, rows, w_dim) with what each row is pulled toward.
    psi = 1 changes nothing, 0 gives the average image; as a tensor () it may be any number. None as
    cutoff means every row. ValueError for a psi that float32 cannot hold, and for a cutoff that is
    not a number of rows.
    """
    if not isinstance(psi, Tensor) and not abs(psi) <= LARGEST_PSI:
        raise ValueError(f"psi must be a finite number of float32, not {psi}")
    if cutoff is not None and not (hasattr(cutoff, "__index__") and cutoff >= 0):
        raise ValueError(f"cutoff must be None or a whole number of rows, got {cutoff!r}")
    if cutoff == 0 or (not isinstance(psi, Tensor) and psi == 1):
        return ws
    psi = psi if isinstance(psi, Tensor) else float(psi)  # torch takes no int beyond 2**63
    toward = w_avg if w_avg.ndim == 1 else w_avg[:, :cutoff]
    near = torch.lerp(toward.to(ws.dtype), ws[:, :cutoff], psi)
    return near if cutoff is None else torch.cat([near, ws[:, cutoff:]], dim=1)
