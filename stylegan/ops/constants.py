"""Constant tensors, cached per device: making one takes more operations than using it."""

from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .precision import is_tracing


def constant(make: Callable[..., Tensor], like: Tensor) -> Callable[..., Tensor]:
    """`make` (an `lru_cache`), or the uncached function while torch traces.

    A fake tensor made during tracing must not enter the cache; `like` being a tensor subclass
    counts as tracing.
    """
    real = type(like) in (Tensor, nn.Parameter) and not is_tracing()
    return make if real else make.__wrapped__  # type: ignore


def blur_kernel(x: Tensor) -> Tensor:
    """The kernel (C, 1, 3, 3) of `formulas.blur`, for images x (N, C, H, W)."""
    return constant(make_blur_kernel, x)(x.shape[1], x.dtype, x.device)


@lru_cache
def make_blur_kernel(channels: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # autograd cannot save a tensor of inference mode
        taps = 2 - torch.arange(-1, 2, device="cpu").abs()
        kernel = (taps[:, None] * taps / 16).repeat(channels, 1, 1, 1)
        return kernel.to(device, dtype, copy=True)


def cached_blur(x: Tensor) -> Tensor:
    """`formulas.blur` with the cached kernel."""
    return F.conv2d(x, blur_kernel(x), padding=1, groups=x.shape[1])
