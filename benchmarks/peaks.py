"""What the machine can do: its best convolution, matrix product and copy, in one precision."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from contest import Contender, Trial, contest, on_gpu, seconds_per_call

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
CONVOLUTIONS = {  # batch, channels, resolution of 3x3 convolutions
    "cpu": [(4, 512, 32), (16, 512, 16), (4, 256, 64)],
    "cuda": [(64, 512, 32), (32, 256, 64), (16, 128, 128)],
}
PRODUCTS = {"cpu": [2048, 4096], "cuda": [4096, 8192]}
COPIED_BYTES = {"cpu": 2**28, "cuda": 2**31}


@dataclass(frozen=True)
class Peaks:
    """Rates per second."""

    convolution_flops: float
    convolution: str  # which was the best
    product_flops: float
    product: str
    copy_bytes: float  # read and written


def set_precision(precision: str) -> None:
    """As the trainer: full float32 unless tf32 is asked for; cuDNN chooses by trial."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True


def probes(device: str, precision: str) -> dict[str, tuple[float, Trial]]:
    """Name -> operations (or bytes) and the call that does them."""
    kind, dtype = torch.device(device).type, DTYPES[precision]
    layouts = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}
    found: dict[str, tuple[float, Trial]] = {}
    for n, c, r in CONVOLUTIONS[kind]:
        for layout, memory_format in layouts.items():
            x = torch.randn(n, c, r, r, device=device, dtype=dtype)
            w = torch.randn(c, c, 3, 3, device=device, dtype=dtype)
            x, w = (t.to(memory_format=memory_format) for t in (x, w))
            trial = Trial(lambda x=x, w=w: F.conv2d(x, w, padding=1), device)  # type: ignore[misc]
            found[f"convolution {n}x{c}x{r}x{r} {layout}"] = 18.0 * n * r * r * c * c, trial
    for size in PRODUCTS[kind]:
        a = torch.randn(size, size, device=device, dtype=dtype)
        trial = Trial(lambda a=a: a @ a, device)  # type: ignore[misc]
        found[f"product {size}"] = 2.0 * size**3, trial
    source = torch.zeros(COPIED_BYTES[kind] // 4, device=device)
    target = torch.zeros_like(source)
    found["copy"] = 2.0 * COPIED_BYTES[kind], Trial(lambda: target.copy_(source), device)
    return found


def all_probes(settings: dict[str, Any]) -> Trial:
    """Every probe in turn; `facts` keeps the best rate of each."""
    device = settings["device"]
    set_precision(settings["precision"])
    todo = probes(device, settings["precision"])
    rates = dict.fromkeys(todo, 0.0)
    calls = 10 if on_gpu(device) else 1

    @torch.inference_mode()
    def once() -> None:
        for name, (amount, trial) in todo.items():
            rates[name] = max(rates[name], amount / seconds_per_call(trial, calls))

    return Trial(once, device, rates)


def best(rates: Mapping[str, float], kind: str) -> tuple[float, str]:
    return max((rate, name) for name, rate in rates.items() if name.startswith(kind))


def measure(
    device: str, precisions: Sequence[str], environment: Mapping[str, str], seconds: float = 4.0
) -> dict[str, Peaks]:
    """By precision, the best rates seen by processes that have the contenders' environment."""
    contenders = [
        Contender(name, "peaks:all_probes", {"device": device, "precision": name})
        for name in precisions
    ]
    found = {}
    for result in contest(contenders, environment, seconds=seconds):
        if result.error:
            raise ValueError(f"peaks in {result.name} could not be measured: {result.error}")
        rates = result.facts
        found[result.name] = Peaks(
            *best(rates, "convolution"), *best(rates, "product"), rates["copy"]
        )
    return found
