"""Where arithmetic must not be done in half precision."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in float32 if it is half precision, else unchanged: statistics need the range."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def autocast(
    kind: str, dtype: torch.dtype | None, *, cache: bool = True
) -> AbstractContextManager[Any]:
    """Products in that type on devices of that kind, in their own without one. The `cache` keeps
    converted weights."""
    if dtype is None and autocast_dtype(kind) is None:
        return nullcontext()
    return torch.autocast(kind, dtype, enabled=dtype is not None, cache_enabled=cache)


def autocast_dtype(kind: str) -> torch.dtype | None:
    """What autocast converts to on devices of that kind now; None: it is off."""
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Arithmetic on `x` in its own precision, also inside autocast."""
    kind = x.device.type
    if autocast_dtype(kind) is None:  # the context would take 30 us
        return nullcontext()
    return autocast(kind, None)


@contextmanager
def in_float32() -> Iterator[None]:
    """Without tf32, which is the default of cuDNN and may be that of a training run."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, False
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield
    finally:
        matmul.allow_tf32 = before


def traced() -> bool:
    """Whether the operations are recorded for other machines: plain ones, for any batch."""
    scripted = torch.onnx.is_in_onnx_export() or torch.jit.is_tracing()
    return scripted or torch.compiler.is_compiling()


def differentiated(*inputs: Tensor) -> bool:
    """Whether derivatives by the inputs are wanted that a function of ours computes itself.

    `torch.jit.trace` cannot record such a function, and gets operations of torch.
    """
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return wanted and not torch.jit.is_tracing()


def full_precision(x: Tensor) -> bool:
    """Whether arithmetic on `x` is done in float32 or wider now."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    return not half and autocast_dtype(x.device.type) is None
