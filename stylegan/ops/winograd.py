"""Convolutions with few multiplications: the linear maps around their matrix products.

Along one axis, a kernel (a, b, c) meets the pairs (e, o) of even and odd pixels of an image, with
o- before and e+ behind a pair. Four planes are made of the image, four numbers of the kernel:

    o- - o,   e + o,       e+ - e,   o - e
    a,        (a+b+c)/2,   c,        (a-b+c)/2

With the products p, q, r, s of the two, the convolution is p + q + s at e and q + r - s at o
(Lavin and Gray 2015, F(2, 3)), and the mean of both is p/2 + q + r/2: three products. In two
dimensions there are 4 x 4 or 3 x 3 planes. Images are (N, H, W, C) in here, contiguous.
"""

from functools import lru_cache

import torch
from torch import Tensor

KERNEL_NUMBERS = {  # of the planes, from (a, b, c)
    "same": [[1.0, 0, 0], [0.5, 0.5, 0.5], [0, 0, 1.0], [0.5, -0.5, 0.5]],
    "half": [[0.5, 0, 0], [0.5, 0.5, 0.5], [0, 0, 0.5]],
    "double": [[0, 0, 1.0], [1.0, 1.0, 1.0], [1.0, 0, 0]],  # of a kernel turned around, twice
}


@lru_cache
def kernel_matrix(size: str, dtype: torch.dtype) -> Tensor:
    """The (planes, 9) matrix that makes the numbers of all planes of a 3x3 kernel."""
    with torch.inference_mode(False):
        along = torch.tensor(KERNEL_NUMBERS[size], dtype=dtype, device="cpu")
        return torch.einsum("px,qy->pqyx", along, along).reshape(len(along) ** 2, 9)


def pairs(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Even and odd positions along an axis, as views."""
    split = x.unflatten(dim, (-1, 2))
    return split.select(dim + 1, 0), split.select(dim + 1, 1)


def but_first(x: Tensor, dim: int) -> Tensor:
    return x.narrow(dim, 1, x.shape[dim] - 1)


def but_last(x: Tensor, dim: int) -> Tensor:
    return x.narrow(dim, 0, x.shape[dim] - 1)


def differences(x: Tensor, dim: int, planes: int) -> Tensor:
    """The planes of an image along one axis: (..., 2h, ...) -> (planes, ..., h, ...)."""
    e, o = pairs(x, dim)
    out = x.new_empty(planes, *e.shape)
    torch.sub(but_last(o, dim), but_first(o, dim), out=but_first(out[0], dim))
    torch.neg(o.narrow(dim, 0, 1), out=out[0].narrow(dim, 0, 1))
    torch.add(e, o, out=out[1])
    torch.sub(but_first(e, dim), but_last(e, dim), out=but_last(out[2], dim))
    torch.neg(e.narrow(dim, -1, 1), out=out[2].narrow(dim, -1, 1))
    if planes == 4:
        torch.sub(o, e, out=out[3])
    return out


def differences_transposed(planes: Tensor, dim: int, out: Tensor) -> Tensor:
    e, o = pairs(out, dim)
    torch.sub(planes[1], planes[2], out=e)
    torch.sub(planes[1], planes[0], out=o)
    but_first(e, dim).add_(but_last(planes[2], dim))
    but_last(o, dim).add_(but_first(planes[0], dim))
    if len(planes) == 4:
        e.sub_(planes[3])
        o.add_(planes[3])
    return out


def sums(planes: Tensor, dim: int, out: Tensor) -> Tensor:
    """From the products of four planes to the convolution: (4, ..., h, ...) -> (..., 2h, ...)."""
    e, o = pairs(out, dim)
    torch.add(planes[0], planes[1], out=e)
    e.add_(planes[3])
    torch.add(planes[1], planes[2], out=o)
    o.sub_(planes[3])
    return out


def sums_transposed(y: Tensor, dim: int) -> Tensor:
    e, o = pairs(y, dim)
    out = y.new_empty(4, *e.shape)
    out[0].copy_(e)
    torch.add(e, o, out=out[1])
    out[2].copy_(o)
    torch.sub(e, o, out=out[3])
    return out


def large_planes(x: Tensor, planes: int) -> Tensor:
    """x (N, 2h, 2w, C) -> (planes^2, N h w, C)."""
    found = differences(differences(x, 1, planes), 3, planes)
    return found.reshape(planes**2, -1, x.shape[-1])


def from_large_planes(found: Tensor, out: Tensor) -> None:
    """Transpose of `large_planes`, into an image (N, 2h, 2w, C)."""
    n, h, w, c = out.shape
    planes = 3 if len(found) == 9 else 4
    found = found.view(planes, planes, n, h // 2, w // 2, c)
    rows = differences_transposed(found, 3, out.new_empty(planes, n, h // 2, w, c))
    differences_transposed(rows, 1, out)


def small_planes(y: Tensor, planes: int) -> Tensor:
    """Transpose of `from_small_planes`: y (N, h, w, K) -> (planes^2, N h w / 4 or N h w, K)."""
    if planes == 3:
        return y.reshape(1, -1, y.shape[-1]).expand(9, -1, -1)
    return sums_transposed(sums_transposed(y, 1), 3).reshape(16, -1, y.shape[-1])


def from_small_planes(found: Tensor, out: Tensor) -> None:
    """From the products of the planes to the result, an image out (N, h, w, K)."""
    if len(found) == 9:
        torch.sum(found, 0, out=out.view(found.shape[1:]))
        return
    n, h, w, k = out.shape
    found = found.view(4, 4, n, h // 2, w // 2, k)
    sums(sums(found, 3, out.new_empty(4, n, h // 2, w, k)), 1, out)
