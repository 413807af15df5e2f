"""What a training step asks of a GPU, counted without one, and a roofline made of the counts.

The step runs on the `meta` device, which computes nothing. A model, not a measurement: kernels that
overlap, fuse, find their input in the cache or bring it into another order are not in it. It ranks
designs by operations, bytes and multiplications.
"""

import contextlib
import inspect
import itertools
import json
import multiprocessing
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import click
import iteration
import numpy as np
import others
import torch
from contest import Settings, Trial, conditions, environment_for, markdown, number, options, save
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from stylegan.cli.common import Command
from stylegan.training import draw, train_step
from stylegan.training.run import backend_flags

SIZES = ("8x128", "64x4", "64x32", "256x8", "1024x4")  # pixels x images
PRECISIONS = ("fp32", "tf32", "bf16")
OTHERS = Path(__file__).with_name("gpu_model_others.json")  # rows of the other programs
MARKS = ("<!-- gpu_model.py writes this -->", "<!-- until here -->")
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


def ours(settings: Settings) -> Count:
    overrides = [*settings["overrides"], f'precision="{settings["precision"]}"']
    state, stage, reals, share = iteration.prepare({**settings, "overrides": overrides})

    def once() -> None:
        draws = draw(state.config, state.images_seen, stage, None, share)
        train_step(state, reals, None, stage, draws)

    with backend_flags(state.config):
        return counted(once)


def textbook(settings: Settings) -> Count:
    """The step of examples/one_file.py, with our draws."""
    return in_precision(iteration.textbook(settings), settings["precision"], autocast=None)


def other(settings: Settings) -> Count:
    """The step of another program. What it reads, as its level of detail, is 0."""
    random.seed(0)  # with these seeds the second step mixes styles
    np.random.seed(0)
    trial = others.PROGRAMS[settings["program"]](settings)
    autocast = torch.bfloat16 if settings["precision"] == "bf16" else None
    return in_precision(trial, settings["precision"], autocast=autocast, read=0.0)


def in_precision(
    trial: Trial, precision: str, *, autocast: torch.dtype | None, read: float = 1.0
) -> Count:
    """The count of a program that does not choose the precision of float32 products: that is the
    default of PyTorch, TF32 in convolutions, but for fp32."""
    before = PRODUCTS.fp32_precision, CONVOLUTIONS.fp32_precision
    PRODUCTS.fp32_precision = "ieee"
    CONVOLUTIONS.fp32_precision = "ieee" if precision == "fp32" else "tf32"
    try:
        return counted(trial.once, autocast=autocast, read=read)
    finally:
        PRODUCTS.fp32_precision, CONVOLUTIONS.fp32_precision = before


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


PROGRAMS = {"ours": ours, "textbook": textbook, **dict.fromkeys(others.PROGRAMS, other)}


def count_of(settings: Settings) -> Count:
    with Autocast.everywhere():
        return PROGRAMS[settings["program"]](settings)


def settings_of(size: str, program: str, precision: str) -> Settings:
    """The settings of a size such as 64x32, at the official widths."""
    resolution, batch = map(int, size.split("x"))
    overrides = [f"network.resolution={resolution}", f"schedule.batch_size={{4={batch}}}"]
    return {
        "program": program,
        "precision": precision,
        "resolution": resolution,
        "batch": batch,
        "alpha": 1.0,
        "config": None,
        "device": "meta",
        "overrides": [*overrides, "style_mixing=1.0", *iteration.TEXTBOOK],
    }


def row_of(size: str, program: str, counts: dict[str, Count]) -> dict[str, str]:
    """A row of the table, from the counts in each precision."""
    first = next(iter(counts.values()))
    resolution, batch = size.split("x")
    row = {"px": resolution, "batch": batch, "program": program}
    row |= {"operations": f"{first.operations:,}", "kernels": f"{first.launches:,}"}
    row |= {"callbacks": str(first.callbacks), "waits": str(len(first.waits))}

    def cell(value_of: Callable[[Count], float]) -> str:
        return " / ".join(number(value_of(count)) for count in counts.values())

    row |= {"GB": cell(lambda count: count.bytes / 1e9), "TFLOP": number(first.flops / 1e12)}
    row["host ms"] = cell(Count.host_milliseconds)
    for name, gpu in GPUS.items():
        row[f"{name} ms"] = cell(partial(Count.device_milliseconds, gpu=gpu))
    return row


def revision_of(clone: Path) -> str:
    command = ["git", "-C", str(clone), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write_into(page: Path, text: str) -> None:
    """Replace what a page has between the two marks."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise click.ClickException(f"{page} has no table between {MARKS[0]} and {MARKS[1]}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


@click.command(cls=Command)
@click.argument("sizes", nargs=-1, metavar="[PIXELSxIMAGES]...")
@click.option("--precision", type=click.Choice(PRECISIONS), multiple=True, default=PRECISIONS)
@click.option("--program", type=click.Choice(["ours", "textbook"]), multiple=True)
@click.option(
    "--others",
    "clones",
    type=click.Path(exists=True, path_type=Path),
    help="Folder with clones of other programs (see others.py), to be counted anew.",
)
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Option of ours.")
@click.option("--by-name", is_flag=True, help="Also show the operations that move the most bytes.")
@click.option("--page", type=click.Path(path_type=Path), help="Page whose table is replaced.")
@options("out")
def main(
    sizes: Sequence[str],
    precision: Sequence[str],
    program: Sequence[str],
    clones: Path | None,
    overrides: Sequence[str],
    by_name: bool,
    page: Path | None,
    out: Path,
) -> None:
    """Count steps at the official widths, of sizes such as 64x32: batches of 32 images of 64 px.

    A cell with several numbers has one for each precision. What other programs ask was counted
    before, and is shown beside ours in all precisions.

    \b
    python benchmarks/gpu_model.py 8x128 64x32 --program ours --precision tf32 --by-name
    python benchmarks/gpu_model.py --page docs/performance.md
    """
    there = others.cloned(clones) if clones else {}
    programs = [*(program or ("ours", "textbook")), *there]
    rows = list[dict[str, str]]()
    before = json.loads(OTHERS.read_text(encoding="utf-8"))["rows"]
    beside = before if not (program or there) and tuple(precision) == PRECISIONS else []
    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:  # a process for each: their modules have the same names
        pools = {p: stack.enter_context(ProcessPoolExecutor(1, spawn)) for p in programs}
        for size, name in itertools.product(sizes or SIZES, programs):
            counts = {}
            for kind in precision:
                settings = settings_of(size, name, kind)
                settings["overrides"] += overrides if name == "ours" else ()
                settings["other"] = there.get(name)
                counts[kind] = pools[name].submit(count_of, settings).result()
                if by_name:
                    click.echo(
                        f"{name} {size} {kind}\n{markdown(counts[kind].by_name())}", err=True
                    )
            rows.append(row_of(size, name, counts))
            click.echo(markdown(rows[-1:]), err=True)
            if name == programs[-1]:
                rows += [row for row in beside if f"{row['px']}x{row['batch']}" == size]
    machine = conditions(environment_for(1, "default"), "meta") | {
        "precision": " / ".join(precision)
    }
    record = {"conditions": machine, "rows": rows}
    click.echo(save(out, "gpu_model", "What a step asks of a GPU (a model)", record, rows))
    if clones and tuple(precision) == PRECISIONS:
        theirs = [row for row in rows if row["program"] in there]
        revisions = {name: revision_of(Path(folder)) for name, folder in there.items()}
        text = json.dumps({"revisions": revisions, "rows": theirs}, indent=1)
        OTHERS.write_text(text + "\n", encoding="utf-8")
    if page:
        write_into(page, f"{markdown(rows)}\n\nRevision {machine['revision']}.")


if __name__ == "__main__":
    main()
