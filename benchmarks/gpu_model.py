"""What a training step asks of a GPU, counted without one, and a roofline made of the counts.

The step runs on the `meta` device, which computes nothing. A model, not a measurement: kernels that
overlap, fuse, find their input in the cache or bring it into another order are not in it. It ranks
designs by operations, bytes and multiplications.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import click
import iteration
import torch
from contest import conditions, environment_for, markdown, number, options, save
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from stylegan.cli.common import Command
from stylegan.training.run import backend_flags

SIZES = ("8x128", "64x4", "64x32", "256x8", "1024x4")  # pixels x images
PRECISIONS = ("fp32", "tf32", "bf16")
KERNEL_SECONDS, OPERATION_SECONDS, CALLBACK_SECONDS = 2.5e-6, 6e-6, 35e-6
TENSORS_AT_ONCE = 60  # of one kernel that works on a list of tensors

ATEN = torch.ops.aten
READS = {ATEN._local_scalar_dense, ATEN.equal, ATEN.nonzero, ATEN.masked_select}
COPIES = {ATEN._to_copy, ATEN.copy_}
WRITES = {ATEN.copy_, ATEN.fill_, ATEN.zero_}  # without reading what was there
READ_TWICE = {ATEN.native_batch_norm, ATEN.native_batch_norm_backward}  # first for statistics
NO_KERNEL = {
    ATEN.detach,
    ATEN.empty,
    ATEN.empty_like,
    ATEN.empty_strided,
    ATEN.lift_fresh,
    ATEN.new_empty,
    ATEN.new_empty_strided,
}


@dataclass(frozen=True)
class Gpu:
    """What it reaches in a second: published peaks, times the part that kernels usually reach."""

    bandwidth: float  # bytes
    flops: dict[str, float]  # of products, by precision


GPUS = {  # the V100 has no tf32, and fp16 in the place of bf16
    "V100": Gpu(0.75e12, {"fp32": 11.0e12, "tf32": 11.0e12, "half": 50e12}),
    "A100": Gpu(1.3e12, {"fp32": 13.7e12, "tf32": 93.6e12, "half": 156e12}),
    "H100": Gpu(2.6e12, {"fp32": 46.9e12, "tf32": 247.5e12, "half": 445.5e12}),
}


class Kernel(NamedTuple):
    """What an operation has a GPU do."""

    name: str
    launches: int
    bytes: int
    flops: float  # of products alone
    precision: str  # of the product: fp32, tf32, half


@dataclass
class Count:
    """What a step asks of the host and of a GPU."""

    operations: int = 0
    callbacks: int = 0  # calls of autograd functions written in Python
    waits: list[str] = field(default_factory=list)  # operations whose result the host reads
    kernels: list[Kernel] = field(default_factory=list)

    @property
    def host_seconds(self) -> float:
        return self.operations * OPERATION_SECONDS + self.callbacks * CALLBACK_SECONDS

    def device_seconds(self, gpu: Gpu) -> float:
        def seconds(kernel: Kernel) -> float:
            products = kernel.flops / gpu.flops[kernel.precision]
            return max(kernel.bytes / gpu.bandwidth, products, kernel.launches * KERNEL_SECONDS)

        return sum(seconds(kernel) for kernel in self.kernels)

    def cells(self) -> dict[str, str]:
        launches = sum(kernel.launches for kernel in self.kernels)
        cells = {"operations": self.operations, "kernels": launches, "callbacks": self.callbacks}
        cells |= {"waits": len(self.waits)}
        row = {name: f"{value:,}" for name, value in cells.items()}
        row["GB"] = number(sum(kernel.bytes for kernel in self.kernels) / 1e9)
        row["TFLOP"] = number(sum(kernel.flops for kernel in self.kernels) / 1e12)
        row["host ms"] = number(self.host_seconds * 1e3)
        return row | {
            f"{name} ms": number(self.device_seconds(g) * 1e3) for name, g in GPUS.items()
        }

    def by_name(self) -> list[dict[str, str]]:
        """The operations that move the most bytes."""
        rows: dict[str, list[float]] = {}
        for kernel in self.kernels:
            row = rows.setdefault(kernel.name, [0, 0.0, 0.0])
            for i, value in enumerate((kernel.launches, kernel.bytes / 1e9, kernel.flops / 1e12)):
                row[i] += value
        largest = sorted(rows.items(), key=lambda row: -row[1][1])[:20]
        names = ("kernels", "GB", "TFLOP")
        return [
            {"operation": name, **dict(zip(names, map(number, row), strict=True))}
            for name, row in largest
        ]


class Counter(TorchDispatchMode):
    """Adds every operation inside to a count. A number of the device that is read is 1."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.count = device, Count()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, packet = kwargs or {}, func.overloadpacket
        self.count.operations += 1
        inputs = tensors_of([args, kwargs])
        if packet in READS and self.has(inputs):
            self.count.waits.append(str(func))
            return True if packet is ATEN.equal or inputs[0].dtype == torch.bool else 1.0
        if packet in COPIES and self.leaves(packet, args, kwargs):
            self.count.waits.append(str(func))
            return torch.ones(inputs[-1].shape, dtype=kwargs.get("dtype") or inputs[-1].dtype)
        result = func(*args, **kwargs)
        outputs, returns = tensors_of(result), func._schema.returns
        view = returns and returns[0].alias_info and not returns[0].alias_info.is_write
        if not view and packet not in NO_KERNEL and self.has(inputs + outputs):
            self.count.kernels += kernels_of(packet, args, kwargs, inputs, outputs)
        return result

    def has(self, tensors: list[Tensor]) -> bool:
        return any(x.device.type == self.device and x.numel() for x in tensors)

    def leaves(self, packet: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether a copy goes from the device to the host."""
        source = args[1] if packet is ATEN.copy_ else args[0]
        target = args[0].device if packet is ATEN.copy_ else kwargs.get("device", source.device)
        return self.has([source]) and torch.device(target or source.device).type != self.device


def tensors_of(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def kernels_of(
    packet: Any, args: Any, kwargs: dict[str, Any], inputs: list[Tensor], outputs: list[Tensor]
) -> list[Kernel]:
    """What an operation launches: one kernel, but one for each gradient of a convolution."""
    name, launches = packet.__name__, 1
    if packet is ATEN.convolution_backward:
        return convolution_gradients(name, args, outputs)
    if name.startswith(("_foreach", "_fused")):
        launches += len(inputs) // TENSORS_AT_ONCE
    read = inputs[1:] if packet in WRITES else inputs
    read = [*read, inputs[0]] if packet in READ_TWICE else read
    moved = sum(map(size, [*read, *outputs]))
    if packet is ATEN.convolution:
        x, weight, transposed, groups = args[0], args[1], args[6], args[8]
        flops = convolution_flops(outputs[0], x, weight, transposed=transposed)
        return [Kernel(name, launches, moved, flops, convolution_precision(x, groups))]
    flops_of = flop_registry.get(packet)
    if flops_of is None:
        return [Kernel(name, launches, moved, 0, "fp32")]
    flops = flops_of(*args, **kwargs, out_val=outputs[0])
    return [Kernel(name, launches, moved, flops, product_precision(inputs[0]))]


def convolution_gradients(name: str, args: Any, outputs: list[Tensor]) -> list[Kernel]:
    grad, x, weight = args[:3]
    transposed, groups, mask = args[7], args[9], args[10]
    flops = convolution_flops(grad, x, weight, transposed=transposed)
    precision, kernels = convolution_precision(x, groups), list[Kernel]()
    made = iter(outputs)
    if mask[0]:
        moved = size(grad) + size(weight) + size(next(made))
        kernels.append(Kernel(name, 1, moved, flops, precision))
    if mask[1]:
        moved = size(grad) + size(x) + size(next(made))
        kernels.append(Kernel(name, 1, moved, flops, precision))
    if mask[2]:
        kernels.append(Kernel(name, 1, size(grad), 0, "fp32"))
    return kernels


def size(x: Tensor) -> int:
    """Bytes to be read or written; what is expanded is in memory once."""
    return min(x.numel() * x.element_size(), x.untyped_storage().nbytes())


def convolution_flops(y: Tensor, x: Tensor, weight: Tensor, *, transposed: bool) -> float:
    """Of a convolution, and of each of its two gradients."""
    return 2 * (x if transposed else y).numel() * weight[0].numel()


def convolution_precision(x: Tensor, groups: int) -> str:
    """Tensor cores are not for kernels of one channel."""
    return "fp32" if groups > 1 else precision_of(x, tf32=torch.backends.cudnn.allow_tf32)


def product_precision(x: Tensor) -> str:
    return precision_of(x, tf32=torch.backends.cuda.matmul.allow_tf32)


def precision_of(x: Tensor, *, tf32: bool) -> str:
    if x.dtype in (torch.float16, torch.bfloat16):
        return "half"
    return "tf32" if tf32 and x.dtype == torch.float32 else "fp32"


@contextlib.contextmanager
def counting(counter: Counter) -> Iterator[Count]:
    """Counts all operations, and the calls of autograd functions written in Python."""
    count = counter.count
    forwards, backwards = torch.autograd.Function, torch.autograd.function.BackwardCFunction
    apply, apply_backward = inspect.getattr_static(forwards, "apply"), backwards.apply

    def forward(cls: Any, *args: Any, **kwargs: Any) -> Any:
        count.callbacks += 1
        return apply.__get__(None, cls)(*args, **kwargs)

    def backward(self: Any, *args: Any) -> Any:
        count.callbacks += 1
        return apply_backward(self, *args)

    with (
        mock.patch.object(forwards, "apply", classmethod(forward)),
        mock.patch.object(backwards, "apply", backward),
        counter,
    ):
        yield count


class Autocast(TorchFunctionMode):
    """Stands in for `torch.autocast`, which does not know the meta device: casts what goes into
    the functions that it casts on CUDA. It keeps no converted weights."""

    HALF: ClassVar = {"conv2d", "conv_transpose2d", "linear", "mm", "matmul", "bmm", "addmm"}
    FLOAT32: ClassVar = {"interpolate", "pow", "rsqrt", "softplus", "sum", "norm", "exp", "log"}
    dtype: ClassVar[torch.dtype | None] = None  # None: off

    def __init__(
        self,
        kind: str,
        dtype: torch.dtype | None = None,
        *,
        enabled: bool = True,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__()
        self.inside = dtype if enabled else None

    def __enter__(self) -> "Autocast":
        self.outside, Autocast.dtype = Autocast.dtype, self.inside
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        Autocast.dtype = self.outside
        super().__exit__(*error)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, dtype = func.__name__.strip("_"), Autocast.dtype
        if dtype and name in self.HALF | self.FLOAT32:
            wanted = dtype if name in self.HALF else torch.float32
            args, kwargs = tree_map(lambda x: converted(x, wanted), (args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    @classmethod
    @contextlib.contextmanager
    def everywhere(cls) -> Iterator[None]:
        """In the place of PyTorch's own, inside."""
        with (
            mock.patch("torch.autocast", cls),
            mock.patch("torch.amp.is_autocast_available", lambda kind: True),
            mock.patch("torch.is_autocast_enabled", lambda kind: cls.dtype is not None),
            mock.patch("torch.get_autocast_dtype", lambda kind: cls.dtype),
        ):
            yield


def converted(x: Any, dtype: torch.dtype) -> Any:
    wrong = (
        isinstance(x, Tensor) and x.is_floating_point() and x.dtype not in (dtype, torch.float64)
    )
    return x.to(dtype) if wrong else x


@contextlib.contextmanager
def lists_of_tensors() -> Iterator[None]:
    """Optimizers and norms take one operation for many tensors, as they do on CUDA."""
    name = "_get_foreach_kernels_supported_devices"
    devices = ["cuda", "cpu", "meta"]
    with (
        mock.patch(f"torch.utils._foreach_utils.{name}", lambda: devices),
        mock.patch(f"torch.optim.optimizer.{name}", lambda: devices),
    ):
        yield


def ours(settings: dict[str, Any]) -> Count:
    """Draws and the step."""
    state, stage, reals, share = iteration.prepare(settings)

    def once() -> None:
        draws = iteration.draw(state.config, state.images_seen, stage, None, share)
        iteration.train_step(state, reals, None, stage, draws)

    with backend_flags(state.config):
        return second(once)


def second(once: Callable[[], object], device: str = "meta") -> Count:
    """The count of the second step: the first makes the optimizers' moments, and constants."""
    with Autocast.everywhere(), lists_of_tensors():
        with Counter(device):
            once()
        with counting(Counter(device)) as count:
            once()
    return count


PROGRAMS = {"ours": ours}


@click.command(cls=Command)
@click.argument("sizes", nargs=-1, metavar="[PIXELSxIMAGES]...")
@click.option("--precision", type=click.Choice(PRECISIONS), multiple=True, default=PRECISIONS)
@click.option("-o", "own", multiple=True, metavar="KEY=VALUE", help="Option of ours.")
@click.option("--by-name", is_flag=True, help="Also show the operations that move the most bytes.")
@options("out")
def main(
    sizes: Sequence[str], precision: Sequence[str], own: Sequence[str], by_name: bool, out: Path
) -> None:
    """Count steps at the official widths, of sizes such as 64x32: a batch of 32 at 64 px.

    \b
    python benchmarks/gpu_model.py 8x128 64x32
    """
    rows = []
    for each in sizes or SIZES:
        resolution, batch = map(int, each.split("x"))
        for name in precision:
            for program, count_of in PROGRAMS.items():
                overrides = [f"network.resolution={resolution}", f'precision="{name}"']
                overrides += [f"schedule.batch_size={{4={batch}}}", "style_mixing=1.0"]
                overrides += [*iteration.TEXTBOOK, *own]
                place = {"resolution": resolution, "batch": batch, "alpha": 1.0, "config": None}
                count = count_of({**place, "device": "meta", "overrides": overrides})
                head = {"px": str(resolution), "batch": str(batch), "program": program}
                rows.append({**head, "precision": name, **count.cells()})
                click.echo(markdown(rows[-1:]), err=True)
                if by_name:
                    click.echo(markdown(count.by_name()), err=True)
    record = {"conditions": conditions(environment_for(1, "default"), "meta"), "rows": rows}
    click.echo(save(out, "gpu_model", "What a step asks of a GPU (a model)", record, rows))


if __name__ == "__main__":
    main()
