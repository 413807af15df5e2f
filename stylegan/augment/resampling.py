"""Images seen through matrices, without aliasing: enlarged, sampled, reduced.

Karras et al. 2020 (limited data), appendix B.1. Linear in the images: each direction has the other
as its derivative, so that R1 may differentiate through it again.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan.ops import in_float32

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
WHOLE = 256  # rows of a matrix that is multiplied as it is, with its zeros
BLOCK = {"cpu": 64, "cuda": 256}  # rows of a product that leaves them out
AT_ONCE = {"cpu": 2**11, "cuda": 2**20}  # pixels of the images that are transformed together
Margins = tuple[int, int, int, int]  # pixels beyond the border: left, right, top, bottom
# left, right, top, bottom in the enlarged image; None: the image is not changed
Window = tuple[int, int, int, int] | None


def warp(images: Tensor, matrices: Tensor, margins: Margins, windows: Sequence[Window]) -> Tensor:
    """Images (N, C, H, W) whose pixel at p comes from `matrices @ p` (N, 3, 3); p is (x, y, 1) in
    pixels from the center. Beyond the border they are reflected, as far as `margins`; only the
    `windows` are enlarged. Both are those of `reach_of`."""
    return Warp.apply(images, matrices.to(images), margins, windows, False)


class Warp(torch.autograd.Function):
    """Images seen through matrices, or the transpose of that."""

    @staticmethod
    def forward(
        ctx: Any,
        images: Tensor,
        matrices: Tensor,
        margins: Margins,
        windows: Sequence[Window],
        transposed: bool,
    ) -> Tensor:
        ctx.save_for_backward(matrices)
        ctx.arguments = margins, windows, not transposed
        result = torch.empty_like(images, memory_format=torch.contiguous_format)
        rests = (matrices == torch.eye(3, out=torch.empty_like(matrices[0]))).flatten(1).all(dim=1)
        with in_float32():  # backward calls this too
            for rows, window in parts(images, windows):
                if window is None:
                    result[rows] = images[rows]
                    continue
                seen = through(images[rows], matrices[rows], margins, window, transposed)
                result[rows] = torch.where(rests[rows, None, None, None], images[rows], seen)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return Warp.apply(grad, *ctx.saved_tensors, *ctx.arguments), None, None, None, None


def parts(images: Tensor, windows: Sequence[Window]) -> Iterator[tuple[slice, Window]]:
    """Rows of images that are transformed together, and the window that covers all of theirs: few,
    so that a CPU's cache holds the enlarged images, but one for each thread."""
    at_once = AT_ONCE["cuda" if images.is_cuda else "cpu"] // (images.shape[2] * images.shape[3])
    size = max(at_once, 1 if images.is_cuda else torch.get_num_threads())
    for start in range(0, len(images), size):
        rows = slice(start, start + size)
        seen = [window for window in windows[rows] if window is not None]
        left, right, top, bottom = zip(*seen, strict=True) if seen else [()] * 4
        yield rows, (min(left), max(right), min(top), max(bottom)) if seen else None


def through(
    images: Tensor, matrices: Tensor, margins: Margins, window: Window, transposed: bool
) -> Tensor:
    """Some images (N, C, H, W) enlarged, sampled and reduced: a linear map, or its transpose."""
    assert window is not None
    height, width = images.shape[2:]
    before_x, after_x, before_y, after_y = margins
    left, right, top, bottom = window
    kind = images.dtype, images.device
    larger_x = enlarging(width, before_x, after_x, (left, right), kind)
    larger_y = enlarging(height, before_y, after_y, (top, bottom), kind)
    smaller_x = reducing(width, *kind)
    smaller_y = reducing(height, *kind)
    origin = (2 * before_x - left, 2 * before_y - top)
    size = (right - left, bottom - top)
    grid = sampling_grid(matrices, height, width, origin, size)
    if transposed:
        samples = smaller_x.mT.of_rows(smaller_y.mT.of_columns(images))
        # enlarged gradients are large: no name keeps them
        return larger_x.mT.of_rows(larger_y.mT.of_columns(spread(samples, grid, size[::-1])))
    fine = larger_x.of_rows(larger_y.of_columns(images))
    samples = F.grid_sample(fine, grid, align_corners=True)  # bilinear, 0 beyond
    return smaller_x.of_rows(smaller_y.of_columns(samples))


def reach_of(matrices: Tensor, height: int, width: int) -> tuple[Margins, list[Window]]:
    """The margins of the image that needs most of them, at most an image's size, and what each
    image needs of the enlarged and reflected one."""
    half = torch.tensor([(width - 1) / 2, (height - 1) / 2]).to(matrices)
    limit = torch.tensor([width - 1, height - 1]).to(matrices)
    low, high = bounds(matrices, -half, half)
    before = (-low.amin(dim=0) - half + 2 * REACH).clamp(min=0).minimum(limit).ceil()
    after = (high.amax(dim=0) - half + 2 * REACH).clamp(min=0).minimum(limit).ceil()
    low, high = bounds(matrices, -half - REACH, half + REACH + 0.5)  # of the samples
    origin = half + before
    size = 2 * (2 * half + 1 + before + after)
    first = (2 * (low + origin)).floor().clamp(min=0).minimum(size - 2)
    end = ((2 * (high + origin)).floor() + 2).clamp(min=2).minimum(size)
    same = (matrices == torch.eye(3).to(matrices)).all(dim=2).all(dim=1).tolist()
    edges = torch.stack([first, end], dim=2).flatten(1).int().tolist()
    windows: list[Window] = [None if s else tuple(e) for s, e in zip(same, edges, strict=True)]
    left, right, top, bottom = torch.stack([before, after], dim=1).flatten().int().tolist()
    return (left, right, top, bottom), windows


def bounds(matrices: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """The least and largest x and y (N, 2) to which the matrices map a rectangle."""
    middle = (first + last) / 2
    half = (last - first) / 2
    center = matrices[:, :2, :2] @ middle + matrices[:, :2, 2]
    reach = matrices[:, :2, :2].abs() @ half
    return center - reach, center + reach


def sampling_grid(
    matrices: Tensor, height: int, width: int, origin: tuple[int, int], size: tuple[int, int]
) -> Tensor:
    """Where the samples of the enlarged result lie in the enlarged images: (N, 2 H', 2 W', 2) from
    -1, the first pixel, to 1, the last; H' and W' are larger by the filter's reach. `origin` (x, y)
    is the enlarged first pixel of the images themselves, `size` the enlarged size."""
    x, y = (
        torch.arange(2 * (n + 2 * REACH), dtype=matrices.dtype, device=matrices.device) / 2
        - (REACH + (n - 1) / 2)
        for n in (width, height)
    )
    scales = [4 / (n - 1) for n in size]
    middles = [(n - 1 + first) / 2 for n, first in zip((width, height), origin, strict=True)]
    scale, middle = (pair(matrices, *numbers)[:, None, None] for numbers in (scales, middles))
    by_x, by_y, offset = matrices[:, :2, :, None, None].unbind(2)  # (N, 2, 1, 1)
    x = by_x * scale * x + (offset + middle) * scale - 1  # (N, 2, 1, W)
    return (x + by_y * scale * y[:, None]).permute(0, 2, 3, 1)


def pair(like: Tensor, x: float, y: float) -> Tensor:
    """Two numbers (2,), made where `like` is: a copy from the host would stall a GPU."""
    return torch.stack([like.new_full((), x), like.new_full((), y)])


class Band(NamedTuple):
    """A matrix (M, N) whose entries are near its diagonal, as blocks that leave out its zeros."""

    size: tuple[int, int]
    blocks: list[tuple[slice, slice, Tensor]]  # rows, columns, entries

    @property
    def mT(self) -> "Band":
        turned = [(columns, rows, block.mT) for rows, columns, block in self.blocks]
        return Band(self.size[::-1], turned)

    def of_columns(self, x: Tensor) -> Tensor:
        """The product with every column of x (..., N, W): (..., M, W)."""
        if len(self.blocks) == 1:
            return self.blocks[0][2] @ x
        result = x.new_zeros(*x.shape[:-2], self.size[0], x.shape[-1])
        for rows, columns, block in self.blocks:
            result[..., rows, :] += block @ x[..., columns, :]
        return result

    def of_rows(self, x: Tensor) -> Tensor:
        """The product with every row of x (..., H, N): (..., H, M)."""
        if len(self.blocks) == 1:
            return x @ self.blocks[0][2].mT
        result = x.new_zeros(*x.shape[:-1], self.size[0])
        for rows, columns, block in self.blocks:
            result[..., rows] += x[..., columns] @ block.mT
        return result


def enlarging(
    n: int, before: int, after: int, window: tuple[int, int], like: tuple[torch.dtype, torch.device]
) -> Band:
    """Reflects n pixels at their ends and doubles them by the wavelet's filter, so that pixel i of
    `n + before + after` becomes 2 i; of these doubled pixels only the window (first, end)."""
    matrix = doubling(n, before, after, *like)[slice(*window)]

    def columns_of(rows: slice) -> slice:
        """Pixel i contributes to 2 i - 5 and the next eleven."""
        first = max((window[0] + rows.start - 5) // 2, 0) - before
        last = min((window[0] + rows.stop + 4) // 2, n + before + after - 1) - before
        # Columns that taps touch after reflection.
        ends = [min(abs(i), 2 * n - 2 - abs(i)) for i in (first, last)]
        ends += [i for i in (0, n - 1) if first <= i <= last]
        return slice(min(ends), max(ends) + 1)

    return band(matrix, columns_of)


def band(matrix: Tensor, columns_of: Callable[[slice], slice]) -> Band:
    """A matrix in blocks of rows, if there are many; they reach over some columns."""
    m, n = matrix.shape
    if m <= WHOLE:
        return Band((m, n), [(slice(m), slice(n), matrix)])
    size = BLOCK["cuda" if matrix.is_cuda else "cpu"]
    parts = [slice(start, min(start + size, m)) for start in range(0, m, size)]
    places = [(rows, columns_of(rows)) for rows in parts]
    return Band((m, n), [(*place, matrix[place]) for place in places])


@functools.cache
def low_pass(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The filter's coefficients, copied there once."""
    return SYM6.to(device, dtype)


@functools.lru_cache(maxsize=4)  # both axes of a step and of the one before
def doubling(n: int, before: int, after: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """All of `enlarging`: (2 (n + before + after), n)."""
    columns = reflected(n, before, after, device)[:, None]
    size = 2 * len(columns)
    rows = torch.arange(0, size, 2, device=device)[:, None]
    rows = rows + torch.arange(len(SYM6), device=device)
    matrix = torch.zeros(size + len(SYM6) - 2, n, dtype=dtype, device=device)
    taps = (2 * low_pass(dtype, device)).expand(rows.shape)
    matrix.index_put_((rows, columns.expand_as(rows)), taps, accumulate=True)
    return matrix[5 : 5 + size]


def reflected(n: int, before: int, after: int, device: torch.device) -> Tensor:
    """Indices of n pixels from `before` the first to `after` the last, reflected at both ends."""
    places = torch.arange(-before, n + after, device=device) % (2 * n - 2)
    return torch.minimum(places, 2 * n - 2 - places)


@functools.lru_cache(maxsize=4)
def reducing(n: int, dtype: torch.dtype, device: torch.device) -> Band:
    """Halves by the filter turned around, without the filter's reach: (n, 2 (n + 2 reach))."""
    rows = torch.arange(n, device=device)[:, None].expand(n, len(SYM6))
    columns = 1 + 2 * rows + torch.arange(len(SYM6), device=device)
    matrix = torch.zeros(n, 2 * (n + 2 * REACH), dtype=dtype, device=device)
    matrix.index_put_((rows, columns), low_pass(dtype, device).expand(rows.shape))
    return band(matrix, lambda rows: slice(2 * rows.start + 1, 2 * rows.stop + len(SYM6) - 1))


def spread(samples: Tensor, grid: Tensor, size: tuple[int, int]) -> Tensor:
    """The transpose of bilinear sampling: adds samples to the pixels that they came from."""
    if samples.is_cuda and torch.are_deterministic_algorithms_enabled():
        return spread_in_order(samples, grid, size)
    images = samples.new_zeros(1).expand(*samples.shape[:2], *size)  # only its shape is read
    backward = torch.ops.aten.grid_sampler_2d_backward
    return backward(samples, images, grid, 0, 0, True, [True, False])[0]


def spread_in_order(samples: Tensor, grid: Tensor, size: tuple[int, int]) -> Tensor:
    """As `spread`, with the same bits every time on a GPU too."""
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
