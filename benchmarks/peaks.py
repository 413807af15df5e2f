"""What the machine can do: its best 3x3 convolution and copy, in one precision."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from contest import Contender, Trial, contest, on_gpu

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
LAYOUTS = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}


class Peaks(NamedTuple):
    """The best rates per second."""

    convolution_flops: float
    copy_bytes: float  # read and written


def set_precision(precision: str) -> None:
    """As the trainer: full float32 unless tf32 is asked for; cuDNN chooses by trial."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True


def convolution(settings: dict[str, Any]) -> Trial:
    (n, c, r), device = settings["shape"], settings["device"]
    set_precision(settings["precision"])
    dtype = DTYPES[settings["precision"]]
    x, w = torch.randn(n, c, r, r), torch.randn(c, c, 3, 3)
    x, w = (t.to(device, dtype, memory_format=LAYOUTS[settings["layout"]]) for t in (x, w))
    return Trial(lambda: F.conv2d(x, w, padding=1), device)


def copy(settings: dict[str, Any]) -> Trial:
    source = torch.zeros(settings["bytes"] // 4, device=settings["device"])
    target = torch.zeros_like(source)
    return Trial(lambda: target.copy_(source), settings["device"])


def measure(device: str, precision: str, environment: Mapping[str, str]) -> Peaks:
    """The best rates seen by processes that have the contenders' environment."""
    gpu = on_gpu(device)
    shapes = [(64, 512, 32), (16, 128, 128)] if gpu else [(4, 512, 32), (4, 256, 64)]
    settings = {"device": device, "precision": precision, "bytes": 2 ** (31 if gpu else 28)}
    work, contenders = [2.0 * settings["bytes"]], [Contender("copy", "peaks:copy", settings)]
    for n, c, r in shapes:
        for layout in LAYOUTS:
            work.append(18.0 * n * r * r * c * c)
            own = settings | {"shape": (n, c, r), "layout": layout}
            contenders.append(Contender(f"{n}x{c}x{r} {layout}", "peaks:convolution", own))
    results = contest(contenders, environment, seconds=4)
    copied, *convolved = (w / min(r.seconds) for w, r in zip(work, results, strict=True))
    return Peaks(max(convolved), copied)
