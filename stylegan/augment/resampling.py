"""Images seen through matrices, without aliasing: enlarged, sampled, reduced.

Karras et al. 2020 (limited data), appendix B.1. Every step is linear in the images, so that its
derivative is its transpose, and the derivative of that the step itself: R1 differentiates twice.
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
# pixels of the images that go together: enlarged, they fit into a CPU's cache, a GPU's memory
AT_ONCE = {"cpu": 2**14, "cuda": 2**20}
Margins = tuple[int, int, int, int]  # pixels beyond the border: left, right, top, bottom


def warp(images: Tensor, matrices: Tensor, margins: Margins) -> Tensor:
    """Sample images (N, C, H, W) so that the pixel at p comes from `matrices @ p` (N, 3, 3); p is
    (x, y, 1) in pixels from the center. Beyond the border they are reflected as far as the
    `margins`, which are `margins_of` the batch, and 0 from there on."""
    height, width = images.shape[2:]
    size = max(AT_ONCE["cuda" if images.is_cuda else "cpu"] // (height * width), 1)
    parts = zip(images.split(size), matrices.to(images).split(size), strict=True)
    return torch.cat([seen_through(x, of_x, margins) for x, of_x in parts])


def seen_through(images: Tensor, matrices: Tensor, margins: Margins) -> Tensor:
    """Apply `warp` to images all at once."""
    height, width = images.shape[2:]
    left, right, top, bottom = margins
    x = images.index_select(2, reflected(height, top, bottom, images.device))
    x = x.index_select(3, reflected(width, left, right, images.device))
    x = 4 * doubled(doubled(x).mT).mT  # by zeros between the pixels: a quarter of the brightness
    x = sampled(x, sampling_grid(matrices, height, width, margins))
    return halved(halved(x).mT).mT


def margins_of(matrices: Tensor, height: int, width: int) -> Margins:
    """Return the margins of the image that needs the largest, at most an image's size."""
    half = torch.tensor([(width - 1) / 2, (height - 1) / 2]).to(matrices)
    center = matrices[:, :2, 2]
    reach = matrices[:, :2, :2].abs() @ half  # of the corners from there
    needed = torch.stack([reach - center, reach + center], dim=2).amax(dim=0) - half[:, None]
    margins = (needed + 2 * REACH).clamp(min=0).minimum(2 * half[:, None]).ceil()
    left, right, top, bottom = margins.flatten().int().tolist()
    return left, right, top, bottom


def reflected(n: int, before: int, after: int, device: torch.device) -> Tensor:
    """Return indices of n pixels, from `before` the first to `after` the last, reflected."""
    places = torch.arange(-before, n + after, device=device) % (2 * n - 2)
    return torch.minimum(places, 2 * n - 2 - places)


def doubled(x: Tensor) -> Tensor:
    """Double columns (..., n, W) by zeros between their pixels, filtered: (..., 2 n, W); pixel i
    becomes 2 i, between the taps 5 and 6."""
    y: Tensor = LinearMap.apply(x, spread_by_taps, summed_by_taps)
    return y[..., 5:-5, :]


def halved(x: Tensor) -> Tensor:
    """Filter columns (..., 2 n + 12, W) the other way around, and take every second of their pixels
    without the filter's reach: (..., n, W)."""
    y: Tensor = LinearMap.apply(x[..., 1:-1, :], summed_by_taps, spread_by_taps)
    return y


def summed_by_taps(x: Tensor) -> Tensor:
    """Sum (..., 2 n + 10, W) to (..., n, W): pixel i is of the twelve from 2 i on."""
    pairs = x.contiguous().unflatten(-2, (-1, 2))
    n = pairs.shape[-3] - len(TAPS) // 2 + 1
    y = pairs.new_zeros(*x.shape[:-2], n, x.shape[-1])
    for k, tap in enumerate(TAPS):
        y.add_(pairs[..., k // 2 : k // 2 + n, k % 2, :], alpha=tap)
    return y


def spread_by_taps(x: Tensor) -> Tensor:
    """Spread (..., n, W) to (..., 2 n + 10, W): pixel i goes to the twelve from 2 i on."""
    x = x.contiguous()
    n = x.shape[-2]
    pairs = x.new_zeros(*x.shape[:-2], n + len(TAPS) // 2 - 1, 2, x.shape[-1])
    for k, tap in enumerate(TAPS):
        pairs[..., k // 2 : k // 2 + n, k % 2, :].add_(x, alpha=tap)
    return pairs.flatten(-3, -2)


def sampling_grid(matrices: Tensor, height: int, width: int, margins: Margins) -> Tensor:
    """Return the places of the result's pixels, doubled and with the filter's reach, in the images,
    doubled and with margins: (N, 2 H + 12, 2 W + 12, 2), from -1 to 1."""
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
    """Return two numbers (2,), made where `like` is: a copy from the host would stall a GPU."""
    return torch.stack([like.new_full((), x), like.new_full((), y)])


def sampled(images: Tensor, grid: Tensor) -> Tensor:
    """Sample the images bilinearly at the places of a grid; 0 beyond the border."""
    sample = partial(F.grid_sample, grid=grid, align_corners=True)
    transposed = partial(spread, grid=grid, size=images.shape[2:])
    samples: Tensor = LinearMap.apply(images, sample, transposed)
    return samples


def spread(samples: Tensor, grid: Tensor, size: torch.Size) -> Tensor:
    """Apply the transpose of bilinear sampling: add samples to the pixels that they came from."""
    if samples.is_cuda and torch.are_deterministic_algorithms_enabled():
        return spread_in_order(samples, grid, size)
    images = samples.new_zeros(1).expand(*samples.shape[:2], *size)  # only its shape is read
    backward = torch.ops.aten.grid_sampler_2d_backward
    return backward(samples, images, grid, 0, 0, True, [True, False])[0]


def spread_in_order(samples: Tensor, grid: Tensor, size: torch.Size) -> Tensor:
    """Do as `spread`, with the same bits every time on a GPU too."""
    n, channels = samples.shape[:2]
    height, width = size
    last = pair(grid, width - 1, height - 1)
    sides = torch.arange(2, device=grid.device, dtype=grid.dtype)
    # (0, 0), (1, 0), (0, 1), (1, 1) by x and y
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
