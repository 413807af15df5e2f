"""Images seen through matrices, without aliasing: enlarged, sampled, reduced.

Karras et al. 2020 (limited data), appendix B.1. Linear in the images; both directions of the
sampling have the other as their derivative, so that R1 may differentiate through it again.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Low-pass filter of the orthogonal wavelet sym6 (Daubechies 1992), of sum 1
SYM6 = torch.tensor(
    (
        (0.015404109327027373, 0.0034907120842174702, -0.11799011114819057, -0.048311742585633),
        (0.4910559419267466, 0.787641141030194, 0.3379294217276218, -0.07263752278646252),
        (-0.021060292512300564, 0.04472490177066578, 0.0017677118642428036, -0.007800708325034148),
    ),
    dtype=torch.float64,
).flatten()
SYM6 = SYM6 / SYM6.sum()
REACH = 3  # pixels that the filter needs on every side


Margins = tuple[int, int, int, int]  # pixels beyond the border: left, right, top, bottom


def warp(images: Tensor, matrices: Tensor, margins: Margins) -> Tensor:
    """Images (N, C, H, W) whose pixel at p comes from `matrices @ p` (N, 3, 3); p is (x, y, 1) in
    pixels from the centre. Beyond the border they are reflected, as far as `margins`."""
    height, width = images.shape[2:]
    left, right, top, bottom = margins
    # as products with matrices: on a CPU several times as fast as convolutions of so few channels
    fine = enlarging(height, top, bottom, images) @ images
    fine = fine @ enlarging(width, left, right, images).mT
    grid = sampling_grid(matrices.to(images), height, width)
    origin = torch.tensor([left, top]).to(images)
    last = torch.tensor([fine.shape[3] - 1, fine.shape[2] - 1]).to(images)
    seen = Sampled.apply(fine, 4 * (grid + origin) / last - 1)  # [-1, 1] is the enlarged image
    return reducing(height, images) @ seen @ reducing(width, images).mT


def margins_for(matrices: Tensor, height: int, width: int) -> Margins:
    """What the image that needs most of them needs, at most an image's size."""
    x, y = (width - 1) / 2, (height - 1) / 2
    corners = torch.tensor([[-x, x, x, -x], [-y, -y, y, y], [1, 1, 1, 1]]).to(matrices)
    seen = (matrices @ corners)[:, :2]  # (N, 2, 4)
    needed = torch.cat([-seen, seen]).amax(dim=2)  # (2 N, 2)
    low, high = needed.unflatten(0, (2, -1)).amax(dim=1).tolist()
    half, most = (x, y), (width - 1, height - 1)
    left, right, top, bottom = (
        math.ceil(min(max(side[axis] - half[axis] + 2 * REACH, 0), most[axis]))
        for axis in (0, 1)
        for side in (low, high)
    )
    return left, right, top, bottom


def sampling_grid(matrices: Tensor, height: int, width: int) -> Tensor:
    """Where the samples of the enlarged result lie in the images: (N, 2 H', 2 W', 2), in pixels
    from the first; H' and W' are larger by the filter's reach."""
    sizes = torch.tensor([width, height])
    center = (sizes - 1).to(matrices) / 2
    x, y = (
        torch.arange(2 * (n + 2 * REACH)).to(matrices) / 2 - REACH - (n - 1) / 2
        for n in (width, height)
    )
    linear, offset = matrices[:, :2, :2], matrices[:, :2, 2]
    by_x = x[:, None] * linear[:, None, None, :, 0]  # (N, 1, W, 2)
    by_y = y[:, None, None] * linear[:, None, None, :, 1]  # (N, H, 1, 2)
    return by_x + by_y + (offset + center)[:, None, None]


def enlarging(n: int, before: int, after: int, like: Tensor) -> Tensor:
    """Reflects n pixels at their ends and doubles them by the wavelet's filter, so that pixel i of
    `n + before + after` becomes 2 i: a matrix (2 (n + before + after), n)."""
    columns = reflected(n, before, after, like.device)[:, None]
    size = 2 * len(columns)
    rows = torch.arange(0, size, 2, device=like.device)[:, None]
    rows = rows + torch.arange(len(SYM6), device=like.device)
    matrix = like.new_zeros(size + len(SYM6) - 2, n)
    taps = (2 * SYM6).to(like).expand(rows.shape)
    matrix.index_put_((rows, columns.expand_as(rows)), taps, accumulate=True)
    return matrix[5 : 5 + size]


def reflected(n: int, before: int, after: int, device: torch.device) -> Tensor:
    """Which of n pixels are seen from `before` the first to `after` the last, between mirrors."""
    places = torch.arange(-before, n + after, device=device) % (2 * n - 2)
    return torch.minimum(places, 2 * n - 2 - places)


def reducing(n: int, like: Tensor) -> Tensor:
    """Halves by the filter turned around, without the filter's reach: (n, 2 (n + 2 reach))."""
    rows = torch.arange(n, device=like.device)[:, None].expand(n, len(SYM6))
    columns = 1 + 2 * rows + torch.arange(len(SYM6), device=like.device)
    matrix = like.new_zeros(n, 2 * (n + 2 * REACH))
    return matrix.index_put_((rows, columns), SYM6.to(like).expand(rows.shape))


class Sampled(torch.autograd.Function):
    """Bilinear samples of images at a grid; zeros beyond them."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, grid: Tensor) -> Tensor:
        ctx.save_for_backward(grid)
        ctx.size = images.shape[2:]
        return sample(images, grid)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (grid,) = ctx.saved_tensors
        return Spread.apply(grad, grid, ctx.size), None


class Spread(torch.autograd.Function):
    """The transpose of `Sampled`: samples added to the pixels that they came from."""

    @staticmethod
    def forward(ctx: Any, samples: Tensor, grid: Tensor, size: torch.Size) -> Tensor:
        ctx.save_for_backward(grid)
        images = samples.new_zeros(*samples.shape[:2], *size, requires_grad=True)
        with torch.enable_grad():
            (spread,) = torch.autograd.grad(sample(images, grid), images, samples)
        return spread

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (grid,) = ctx.saved_tensors
        return Sampled.apply(grad, grid), None, None


def sample(images: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=True)
