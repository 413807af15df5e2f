"""What a precision means on a device, and where arithmetic must be done in full float32."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

Precision = Literal["auto", "fp32", "tf32", "bf16", "fp16"]
Products = Literal["ieee", "tf32"]  # of float32: exact, or of factors rounded to 10 bits
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}  # what autocast converts to, by precision
Capability = tuple[int, int]  # NVIDIA's "compute capability" of a GPU
TF32_CAPABILITY: Capability = (8, 0)  # Ampere: the first GPUs that compute TF32


def resolved_precision(
    precision: Precision, device: torch.device, capability: Capability | None = None
) -> Precision:
    """Return `precision` on this device: auto is tf32 on CUDA GPUs of compute capability 8 and
    above, and fp32 elsewhere. Raise ValueError if the device cannot train in it."""
    if device.type == "mps" and precision in ("bf16", "fp16"):
        raise ValueError(
            f"precision {precision} is for CUDA GPUs and CPUs, and training on mps is in fp32; "
            "choose another --device, or --precision fp32 for a new run"
        )
    usual: Precision = "tf32" if has_tf32(device, capability) else "fp32"
    return usual if precision == "auto" else precision


def has_tf32(device: torch.device, capability: Capability | None) -> bool:
    """Return True if the device can compute TF32; others compute in float32 where it is allowed."""
    return device.type == "cuda" and capability is not None and capability >= TF32_CAPABILITY


def at_least_float32(x: Tensor) -> Tensor:
    """Return `x` in float32 if it is half precision, else unchanged: statistics need the range."""
    return x.float() if x.dtype in HALF.values() else x


def autocast(kind: str, dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    """Products in that type on devices of that kind, in their own without one."""
    if dtype is None and autocast_dtype(kind) is None:
        return nullcontext()  # torch's context would take 30 us
    return torch.autocast(kind, dtype, enabled=dtype is not None)


def autocast_dtype(kind: str) -> torch.dtype | None:
    """Return autocast's type on devices of that kind now; None: it is off."""
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def product_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which products of `x` are computed now: its own, or autocast's."""
    return x.dtype if x.dtype == torch.float64 else autocast_dtype(x.device.type) or x.dtype


@lru_cache
def capabilities() -> Mapping[str, Any]:
    """Return PyTorch's knowledge of the processor, such as `amx_bf16` and `cpu_name`; nothing where
    it does not say."""
    return getattr(torch.cpu, "get_capabilities", dict[str, Any])()


@lru_cache
def has_fast_matmul(dtype: torch.dtype) -> bool:
    """Return True if the processor has fast products of this type. PyTorch's of half precision take
    up to 60 times as long as those of float32 where there are no instructions for them, and twice
    as long with the vectors of Intel's processors (AVX-512), whose matrix units (AMX) are fast."""
    if dtype not in HALF.values() or not torch.backends.mkldnn.is_available():
        return True
    name = "bf16" if dtype == torch.bfloat16 else "fp16"
    has_instructions: bool = getattr(torch.ops.mkldnn, f"_is_mkldnn_{name}_supported")()
    is_intel = str(capabilities().get("cpu_name", "")).startswith("Intel")
    return has_instructions and (not is_intel or bool(capabilities().get(f"amx_{name}", False)))


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Compute on `x` in its own precision, also inside autocast."""
    return autocast(x.device.type, None)


@contextmanager
def float32_products(products: Products) -> Iterator[None]:
    """Inside, float32 products on CUDA GPUs are exact ("ieee") or, where the GPU has it, TF32
    ("tf32"): matrix products and convolutions.

    torch has a setting `fp32_precision` on three levels: of all devices (`torch.backends`), of CUDA
    GPUs (`torch.backends.cudnn`, despite its name) and of an operation there (`cuda.matmul`,
    `cudnn.conv`); "none" follows the level above. The last two are set here, and afterwards what
    they were. While torch traces or compiles, nothing changes.

    All follow the older `allow_tf32`, but not the other way round: where the two contradict each
    other inside, torch refuses to read the older.
    """
    backends: Any = torch.backends
    cuda = backends.cudnn  # the level of CUDA GPUs
    switches = (backends.cuda.matmul, cuda.conv)
    if traced() or all(switch.fp32_precision == products for switch in switches):
        yield
        return
    general = cuda.fp32_precision
    if general == backends.fp32_precision:
        general = "none"  # read as the value that it follows
    cuda.fp32_precision = products
    # A switch that follows reads as `products` now, and is left alone.
    before = [(switch, switch.fp32_precision) for switch in switches]
    for switch, setting in before:
        if setting != products:
            switch.fp32_precision = products
    try:
        yield
    finally:
        for switch, setting in before:
            if setting != products:
                switch.fp32_precision = setting
        cuda.fp32_precision = general


def in_float32() -> AbstractContextManager[None]:
    """Compute without TF32, which is the default of cuDNN and may be that of a training run."""
    return float32_products("ieee")


def traced() -> bool:
    """Return True if the operations are recorded for other machines: plain ones, for any batch."""
    scripted = torch.onnx.is_in_onnx_export() or torch.jit.is_tracing()
    return scripted or torch.compiler.is_compiling()


def differentiated(*inputs: Tensor) -> bool:
    """Return True if derivatives are wanted that a function of ours computes itself.

    What traces cannot record such a function, or look into it, and gets operations of torch.
    """
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return wanted and not traced()


def full_precision(x: Tensor) -> bool:
    """Return True if arithmetic on `x` is done in float32 or wider now."""
    return x.dtype not in HALF.values() and autocast_dtype(x.device.type) is None
