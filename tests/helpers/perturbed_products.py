"""Products that round as another processor's do: the tests' switch PERTURB_PRODUCTS."""

import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

# What convolutions, linear layers and products of matrices and vectors come down to, and their
# derivatives, too. Each is replaced below autograd: in every thread, forward and backward.
PRODUCTS = [
    *("_convolution", "convolution_backward", "mm", "mm.out", "bmm", "bmm.out", "dot"),
    *("addmm", "addmm_", "addmm.out", "baddbmm", "baddbmm_", "baddbmm.out"),
    *("addmv", "addmv_", "addmv.out", "addbmm", "addbmm_", "addbmm.out"),
]
ROUNDINGS = 8  # of the largest noise: 1e-6 in float32, 2e-15 in float64
RARE = 1.02  # of 100 numbers in half precision, two are rounded to the next one
ODD = 0x9E3779B97F4A7C15 - 2**64  # multiplied by it, numbers that differ little differ much


@contextmanager
def perturbed_products(seed: int) -> Iterator[None]:
    """Products on CPUs differ by a few roundings from what they were: the same for the same inputs,
    but not for another shape, order in memory or `seed`."""
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():  # torch 2.11 warns of replaced kernels
            warnings.filterwarnings("ignore", "Warning only once", UserWarning)
            for name in PRODUCTS:
                packet, _, overload = name.partition(".")
                op = getattr(getattr(torch.ops.aten, packet), overload or "default")
                library.impl(name, perturbed(op, seed), "CPU", with_keyset=True)
        yield
    finally:
        library._destroy()


def perturbed(op: torch._ops.OpOverload, seed: int) -> Callable[..., Any]:
    """`op` with noise on its results."""
    kernel = torch.library.get_kernel(op, "CPU")

    def compute(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        inputs = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        call = str((seed, op, [(x.shape, strides(x)) for x in inputs]))
        results = kernel.call_boxed(keys, *args, **kwargs)
        for result in results if isinstance(results, tuple) else [results]:
            if result is not None:
                add_noise_(result, seed=zlib.crc32(call.encode()))
        return results

    return compute


def strides(x: Tensor) -> list[int]:
    """Of the dimensions along which `x` extends."""
    return [step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def add_noise_(y: Tensor, seed: int) -> None:
    """Move each number by up to `ROUNDINGS` units of its rounding, or in half precision few numbers
    and by one unit: there sums are of float32, too, and are rounded once."""
    half = y.element_size() == 2
    bits = y.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[y.element_size()])
    place = torch.arange(y.numel()).view(y.shape)
    hashed = (bits + (place + seed) * ODD) * ODD
    noise = (hashed >> 40).to(torch.float32 if half else y.dtype) / 2**23  # from -1 to 1
    units = (noise * RARE).trunc() if half else noise * ROUNDINGS
    units = units.where(bits % 256 != 0, 0)  # numbers that end in zeros were not rounded
    y.addcmul_(y, units.to(y.dtype), value=torch.finfo(y.dtype).eps)
