"""Constant tensors, made once for each device: to make one takes more operations than to use it."""

from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .precision import traced


def constant(make: Callable[..., Tensor], like: Tensor) -> Callable[..., Tensor]:
    """Return `make` itself, which is an `lru_cache`, or uncached while torch traces: while it
    records operations instead of computing, of which the type of `like` tells, too."""
    real = type(like) in (Tensor, nn.Parameter) and not traced()
    return make if real else make.__wrapped__  # type: ignore


def blur_kernel(x: Tensor) -> Tensor:
    """Return the kernel (C, 1, 3, 3) of `formulas.blur`."""
    return constant(make_blur_kernel, x)(x.shape[1], x.dtype, x.device)


@lru_cache
def make_blur_kernel(channels: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # autograd could not save what is made inside
        taps = 2 - torch.arange(-1, 2, device="cpu").abs()
        kernel = (taps[:, None] * taps / 16).repeat(channels, 1, 1, 1)
        return kernel.to(device, dtype, copy=True)


def filtered(x: Tensor) -> Tensor:
    """Return `formulas.blur` with that kernel."""
    return F.conv2d(x, blur_kernel(x), padding=1, groups=x.shape[1])
