"""What a step asks of the host and of a GPU, counted without one.

It runs on the `meta` device, which computes nothing. A model, not a measurement: kernels that
overlap, fuse, find their input in the cache or bring it into another order are not in it.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import torch
from contest import number
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

KERNEL_SECONDS = 2.5e-6
OPERATION_SECONDS = 6e-6
CALLBACK_SECONDS = 35e-6
TENSORS_AT_ONCE = 60  # of one kernel that works on a list of tensors

PRODUCTS = torch.backends.cuda.matmul  # switches of PyTorch
CONVOLUTIONS = torch.backends.cudnn.conv  # type: ignore[attr-defined]
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

    def host_milliseconds(self) -> float:
        return (self.operations * OPERATION_SECONDS + self.callbacks * CALLBACK_SECONDS) * 1e3

    def device_milliseconds(self, gpu: Gpu) -> float:
        def seconds(kernel: Kernel) -> float:
            products = kernel.flops / gpu.flops[kernel.precision]
            return max(kernel.bytes / gpu.bandwidth, products, kernel.launches * KERNEL_SECONDS)

        return sum(seconds(kernel) for kernel in self.kernels) * 1e3

    @property
    def launches(self) -> int:
        return sum(kernel.launches for kernel in self.kernels)

    @property
    def bytes(self) -> int:
        return sum(kernel.bytes for kernel in self.kernels)

    @property
    def flops(self) -> float:
        return sum(kernel.flops for kernel in self.kernels)

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
    """Adds every operation inside to a count; `read` is what the host finds where it reads."""

    def __init__(self, device: str = "meta", read: float = 1.0) -> None:
        super().__init__()
        self.device = device
        self.read = read
        self.count = Count()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket
        self.count.operations += 1
        inputs = tensors_of([args, kwargs])
        if packet in READS and self.has(inputs):
            self.count.waits.append(str(func))
            return True if packet is ATEN.equal or inputs[0].dtype == torch.bool else self.read
        if packet in COPIES and self.leaves(packet, args, kwargs):
            self.count.waits.append(str(func))
            dtype = kwargs.get("dtype") or inputs[-1].dtype
            return torch.full(inputs[-1].shape, self.read, dtype=dtype)
        result = func(*args, **kwargs)
        outputs = tensors_of(result)
        returns = func._schema.returns
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
    name = packet.__name__
    launches = 1
    if packet is ATEN.convolution_backward:
        return convolution_gradients(name, args, outputs)
    if name.startswith(("_foreach", "_fused")):
        launches += len(inputs) // TENSORS_AT_ONCE
    read = inputs[1:] if packet in WRITES else inputs
    read = [*read, inputs[0]] if packet in READ_TWICE else read
    moved = sum(map(size, [*read, *outputs]))
    if packet is ATEN.convolution:
        x = args[0]
        weight = args[1]
        transposed = args[6]
        groups = args[8]
        flops = convolution_flops(outputs[0], x, weight, transposed=transposed)
        return [Kernel(name, launches, moved, flops, convolution_precision(x, groups))]
    flops_of = flop_registry.get(packet)
    if flops_of is None:
        return [Kernel(name, launches, moved, 0, "fp32")]
    flops = flops_of(*args, **kwargs, out_val=outputs[0])
    return [Kernel(name, launches, moved, flops, product_precision(inputs[0]))]


def convolution_gradients(name: str, args: Any, outputs: list[Tensor]) -> list[Kernel]:
    grad, x, weight = args[:3]
    transposed = args[7]
    groups = args[9]
    mask = args[10]
    flops = convolution_flops(grad, x, weight, transposed=transposed)
    precision = convolution_precision(x, groups)
    kernels = list[Kernel]()
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
    return "fp32" if groups > 1 else precision_of(x, CONVOLUTIONS)


def product_precision(x: Tensor) -> str:
    return precision_of(x, PRODUCTS)


def precision_of(x: Tensor, switch: Any) -> str:
    if x.dtype in (torch.float16, torch.bfloat16):
        return "half"
    return "tf32" if switch.fp32_precision == "tf32" and x.dtype == torch.float32 else "fp32"


@contextlib.contextmanager
def counting_callbacks(count: Count) -> Iterator[None]:
    """Counts the calls of autograd functions written in Python."""
    forwards = torch.autograd.Function
    backwards = torch.autograd.function.BackwardCFunction
    apply = inspect.getattr_static(forwards, "apply")
    apply_backward = backwards.apply

    def forward(cls: Any, *args: Any, **kwargs: Any) -> Any:
        count.callbacks += 1
        return apply.__get__(None, cls)(*args, **kwargs)

    def backward(self: Any, *args: Any) -> Any:
        count.callbacks += 1
        return apply_backward(self, *args)

    with (
        mock.patch.object(forwards, "apply", classmethod(forward)),
        mock.patch.object(backwards, "apply", backward),
    ):
        yield


class Autocast(TorchFunctionMode, contextlib.ContextDecorator):
    """Stands in for `torch.autocast`, which does not know the meta device: casts what goes into
    the functions that it casts on CUDA. It keeps no converted weights."""

    HALF: ClassVar = {"conv2d", "conv_transpose2d", "linear", "mm", "matmul", "bmm", "addmm"}
    FLOAT32: ClassVar = {"interpolate", "pow", "rsqrt", "softplus", "norm", "exp", "log"}
    INTO_FLOAT32: ClassVar = {"sum", "prod"}  # by the same kernel
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
        self.outside = Autocast.dtype
        Autocast.dtype = self.inside
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        Autocast.dtype = self.outside
        super().__exit__(*error)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__.strip("_")
        dtype = Autocast.dtype
        if dtype and name in self.HALF | self.FLOAT32:
            wanted = dtype if name in self.HALF else torch.float32
            args, kwargs = tree_map(lambda x: converted(x, wanted), (args, kwargs))
        if dtype and name in self.INTO_FLOAT32 and args[0].dtype == dtype:
            kwargs = {"dtype": torch.float32, **kwargs}
        return func(*args, **kwargs)

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


def counted(
    once: Callable[[], object], *, autocast: torch.dtype | None = None, read: float = 1.0
) -> Count:
    """The count of the second step: the first makes what is kept, as the moments of Adam."""
    with lists_of_tensors():
        for _ in range(2):
            counter = Counter(read=read)

            @contextlib.contextmanager
            def around(turns: object = None, counter: Counter = counter) -> Iterator[None]:
                with Autocast("meta", autocast), counter:
                    yield

            with (
                counting_callbacks(counter.count),
                mock.patch("others.Turns.around", around),  # a program with a thread of its own
                around(),
            ):
                once()
    return counter.count
