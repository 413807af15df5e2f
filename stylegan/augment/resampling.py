"""Geometric transforms without aliasing: upsample, sample through matrices, downsample.

Karras et al. 2020 (limited data), appendix B.1. Every step is linear in the images, so its backward
pass is its transpose, whose backward pass is the step itself: R1 differentiates twice.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan.ops.bilinear import LinearMap

# Low-pass filter of the orthogonal wavelet sym6 (Daubechies 1992)
SYM6 = (
    *(0.015404109327027373, 0.0034907120842174702, -0.11799011114819057, -0.048311742585633),
    *(0.4910559419267466, 0.787641141030194, 0.3379294217276218, -0.07263752278646252),
    *(-0.021060292512300564, 0.04472490177066578, 0.0017677118642428036, -0.007800708325034148),
)
TAPS = [tap / sum(SYM6) for tap in SYM6]
REACH = 3  # pixels that the filter needs on every side
# Pixels of the images processed at a time: upsampled, they fit into a CPU's cache, a GPU's memory.
CHUNK_SIZE = {"cpu": 2**14, "cuda": 2**20}
Margins = tuple[int, int, int, int]  # pixels beyond the border: left, right, top, bottom


def warp(images: Tensor, matrices: Tensor, margins: Margins) -> Tensor:
    """Sample images (N, C, H, W) so that the pixel at p comes from `matrices` @ p.

    matrices: (N, 3, 3); p is (x, y, 1), in pixels from the center.
    margins: `margins_of` the batch. Images are reflected up to these, and 0 beyond.
    """
    height, width = images.shape[2:]
    size = max(CHUNK_SIZE["cuda" if images.is_cuda else "cpu"] // (height * width), 1)
    parts = zip(images.split(size), matrices.to(images).split(size), strict=True)
    return torch.cat([warp_chunk(x, of_x, margins) for x, of_x in parts])


def warp_chunk(images: Tensor, matrices: Tensor, margins: Margins) -> Tensor:
    """`warp` for all images at a time."""
    height, width = images.shape[2:]
    left, right, top, bottom = margins
    x = images.index_select(2, reflection_indices(height, top, bottom, images.device))
    x = x.index_select(3, reflection_indices(width, left, right, images.device))
    # The inserted zeros leave a quarter of the brightness.
    x = 4 * upsample_rows(upsample_rows(x).mT).mT
    x = bilinear_sample(x, sampling_grid(matrices, height, width, margins))
    return downsample_rows(downsample_rows(x).mT).mT


def margins_of(matrices: Tensor, height: int, width: int) -> Margins:
    """The largest margins that an image of the batch needs, at most the size of an image."""
    half = torch.tensor([(width - 1) / 2, (height - 1) / 2]).to(matrices)
    center = matrices[:, :2, 2]
    reach = matrices[:, :2, :2].abs() @ half  # of the corners from the center
    needed = torch.stack([reach - center, reach + center], dim=2).amax(dim=0) - half[:, None]
    margins = (needed + 2 * REACH).clamp(min=0).minimum(2 * half[:, None]).ceil()
    left, right, top, bottom = margins.flatten().int().tolist()
    return left, right, top, bottom


def reflection_indices(n: int, before: int, after: int, device: torch.device) -> Tensor:
    """Indices of n pixels with `before` and `after` reflected ones -> (before + n + after,)."""
    places = torch.arange(-before, n + after, device=device) % (2 * n - 2)
    return torch.minimum(places, 2 * n - 2 - places)


def upsample_rows(x: Tensor) -> Tensor:
    """Upsample rows: insert zeros and low-pass filter, (..., n, W) -> (..., 2 n, W).

    Input row i lands on output row 2 i, between taps 5 and 6.
    """
    return LinearMap.apply(x, spread_by_taps, summed_by_taps)[..., 5:-5, :]


def downsample_rows(x: Tensor) -> Tensor:
    """Downsample rows: low-pass filter, keep every second, (..., 2 n + 12, W) -> (..., n, W)."""
    return LinearMap.apply(x[..., 1:-1, :], summed_by_taps, spread_by_taps)


def summed_by_taps(x: Tensor) -> Tensor:
    """Weighted sums of rows, (..., 2 n + 10, W) -> (..., n, W): row i of the 12 from row 2 i on."""
    pairs = x.contiguous().unflatten(-2, (-1, 2))
    n = pairs.shape[-3] - len(TAPS) // 2 + 1
    y = pairs.new_zeros(*x.shape[:-2], n, x.shape[-1])
    for k, tap in enumerate(TAPS):
        y.add_(pairs[..., k // 2 : k // 2 + n, k % 2, :], alpha=tap)
    return y


def spread_by_taps(x: Tensor) -> Tensor:
    """Transpose of `summed_by_taps`, (..., n, W) -> (..., 2 n + 10, W)."""
    x = x.contiguous()
    n = x.shape[-2]
    pairs = x.new_zeros(*x.shape[:-2], n + len(TAPS) // 2 - 1, 2, x.shape[-1])
    for k, tap in enumerate(TAPS):
        pairs[..., k // 2 : k // 2 + n, k % 2, :].add_(x, alpha=tap)
    return pairs.flatten(-3, -2)


def sampling_grid(matrices: Tensor, height: int, width: int, margins: Margins) -> Tensor:
    """Where the pixels of the upsampled output lie in the upsampled input, from -1 to 1.

    The output has the filter's reach on every side, the input the margins. Matrices (N, 3, 3) ->
    (N, 2 H + 12, 2 W + 12, 2).
    """
    left, right, top, bottom = margins
    x, y = (
        torch.arange(2 * (n + 2 * REACH), dtype=matrices.dtype, device=matrices.device) / 2
        - (REACH + (n - 1) / 2)  # from the center
        for n in (width, height)
    )
    by_x, by_y, offset = matrices[:, None, None, :2].unbind(-1)  # (N, 1, 1, 2)
    places = by_x * x[:, None] + by_y * y[:, None, None] + offset
    first = pair(matrices, left + (width - 1) / 2, top + (height - 1) / 2)
    last = pair(matrices, 2 * (left + width + right) - 1, 2 * (top + height + bottom) - 1)
    return (places + first) * (4 / last) - 1


def pair(like: Tensor, x: float, y: float) -> Tensor:
    """(x, y) as a tensor (2,), made on the device of `like`: a copy would stall a GPU."""
    return torch.stack([like.new_full((), x), like.new_full((), y)])


def bilinear_sample(images: Tensor, grid: Tensor) -> Tensor:
    """Sample images bilinearly at `grid` (N, H', W', 2), with zeros beyond the border."""
    sample = partial(F.grid_sample, grid=grid, align_corners=True)
    transposed = partial(bilinear_sample_transposed, grid=grid, size=images.shape[2:])
    return LinearMap.apply(images, sample, transposed)


def bilinear_sample_transposed(samples: Tensor, grid: Tensor, size: torch.Size) -> Tensor:
    """Transpose of bilinear sampling: add samples (N, C, H', W') to the pixels they came from."""
    if samples.is_cuda and torch.are_deterministic_algorithms_enabled():
        return spread_deterministic(samples, grid, size)
    images = samples.new_zeros(1).expand(*samples.shape[:2], *size)  # only its shape is read
    backward = torch.ops.aten.grid_sampler_2d_backward
    return backward(samples, images, grid, 0, 0, True, [True, False])[0]


def spread_deterministic(samples: Tensor, grid: Tensor, size: torch.Size) -> Tensor:
    """`bilinear_sample_transposed` with reproducible bits on a GPU."""
    n, channels = samples.shape[:2]
    height, width = size
    last = pair(grid, width - 1, height - 1)
    sides = torch.arange(2, device=grid.device, dtype=grid.dtype)
    # (x, y): (0, 0), (1, 0), (0, 1), (1, 1)
    corners = torch.cartesian_prod(sides, sides).flip(1)
    places = ((grid + 1) / 2 * last)[..., None, :]  # (N, H', W', 1, 2)
    pixels = places.floor() + corners  # (N, H', W', 4, 2)
    weights = (1 - (places - pixels).abs()).prod(dim=-1)
    weights = weights * ((pixels >= 0) & (pixels <= last)).all(dim=-1)
    x, y = pixels.clamp(min=0).minimum(last).long().unbind(dim=-1)
    image = torch.arange(n, device=grid.device)[:, None, None, None]
    index = (image * height + y) * width + x
    values = samples.permute(0, 2, 3, 1)[..., None, :] * weights[..., None]
    images = samples.new_zeros(n * height * width, channels)
    images.index_put_((index.flatten(),), values.flatten(0, 3), accumulate=True)
    return images.view(n, height, width, channels).permute(0, 3, 1, 2)
