"""Precisions by device, and contexts for autocast and TF32."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

Precision = Literal["auto", "fp32", "tf32", "bf16", "fp16"]
Products = Literal["ieee", "tf32"]  # float32 products: exact, or of factors rounded to 10 bits
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}  # autocast dtype of a precision
Capability = tuple[int, int]  # NVIDIA's "compute capability" of a GPU
TF32_CAPABILITY: Capability = (8, 0)  # Ampere: the first GPUs that compute TF32


def resolve_precision(
    precision: Precision, device: torch.device, capability: Capability | None = None
) -> Precision:
    """`precision`, with "auto" replaced: tf32 on CUDA GPUs from compute capability 8.0, else fp32.

    Raises ValueError if the device cannot train in this precision.
    """
    if device.type == "mps" and precision in ("bf16", "fp16"):
        raise ValueError(
            f"precision must be fp32 on mps, got {precision}; choose another --device, or "
            "--precision fp32 for a new run"
        )
    usual: Precision = "tf32" if has_tf32(device, capability) else "fp32"
    return usual if precision == "auto" else precision


def has_tf32(device: torch.device, capability: Capability | None) -> bool:
    """Whether the device computes TF32; others use float32 where TF32 is allowed."""
    return device.type == "cuda" and capability is not None and capability >= TF32_CAPABILITY


def at_least_float32(x: Tensor) -> Tensor:
    """Convert half precision to float32, whose range statistics need; keep other dtypes."""
    return x.float() if x.dtype in HALF.values() else x


def autocast(kind: str, dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    """Context in which products on devices of type `kind` are `dtype`; None: as their inputs."""
    if dtype is None and autocast_dtype(kind) is None:
        return nullcontext()  # torch's context would take 30 us
    return torch.autocast(kind, dtype, enabled=dtype is not None)


def autocast_dtype(kind: str) -> torch.dtype | None:
    """Active autocast dtype on devices of type `kind`, or None."""
    # Asking for "meta" is an error; torch 2.11 cannot compile `is_autocast_available`.
    on = kind != "meta" and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def matmul_dtype(x: Tensor) -> torch.dtype:
    """Dtype in which products of `x` are computed now: its own, or autocast's."""
    return x.dtype if x.dtype == torch.float64 else autocast_dtype(x.device.type) or x.dtype


@lru_cache
def capabilities() -> Mapping[str, Any]:
    """CPU features that PyTorch reports, such as `amx_bf16`; empty if it reports none."""
    return getattr(torch.cpu, "get_capabilities", dict[str, Any])()


@lru_cache
def has_fast_matmul(dtype: torch.dtype) -> bool:
    """Whether the CPU multiplies matrices of this dtype at least as fast as those of float32.

    Without instructions for half precision, PyTorch's products take up to 60 times as long as those
    of float32; with AVX-512 on Intel CPUs twice as long, where only AMX is fast.
    """
    if dtype not in HALF.values() or not torch.backends.mkldnn.is_available():
        return True
    name = "bf16" if dtype == torch.bfloat16 else "fp16"
    has_instructions: bool = getattr(torch.ops.mkldnn, f"_is_mkldnn_{name}_supported")()
    is_intel = str(capabilities().get("cpu_name", "")).startswith("Intel")
    return has_instructions and (not is_intel or bool(capabilities().get(f"amx_{name}", False)))


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Context in which products of `x` are computed in its own dtype, even inside autocast."""
    return autocast(x.device.type, None)


@contextmanager
def override_fp32_precision(products: Products) -> Iterator[None]:
    """Context in which float32 matrix products and convolutions on CUDA GPUs are exact ("ieee") or
    TF32 ("tf32", on GPUs that have it). While torch traces or compiles, nothing changes.

    Afterwards both switches are set as they were read, and follow a more general one no longer.
    """
    backends: Any = torch.backends
    switches = (backends.cuda.matmul, backends.cudnn.conv)
    if is_tracing() or all(switch.fp32_precision == products for switch in switches):
        yield
        return
    before = [switch.fp32_precision for switch in switches]
    for switch in switches:
        switch.fp32_precision = products
    try:
        yield
    finally:
        for switch, setting in zip(switches, before, strict=True):
            switch.fp32_precision = setting


def without_tf32() -> AbstractContextManager[None]:
    """Context without TF32, which cuDNN uses by default and a training run may have set."""
    return override_fp32_precision("ieee")


def is_tracing() -> bool:
    """Whether torch records operations now, to run them on any machine with any batch size."""
    scripted = torch.onnx.is_in_onnx_export() or torch.jit.is_tracing()
    return scripted or torch.compiler.is_compiling()


def needs_custom_grad(*inputs: Tensor) -> bool:
    """Whether a gradient is needed from one of our autograd functions.

    False while tracing, which cannot record them: plain torch operations run instead.
    """
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return wanted and not is_tracing()


def is_full_precision(x: Tensor) -> bool:
    """Whether arithmetic on `x` is done in float32 or wider now."""
    return x.dtype not in HALF.values() and autocast_dtype(x.device.type) is None
