"""A training step on the meta device, where tensors have shapes but no numbers: as on a GPU.

Whatever is not on the device of the state fails here as it does on a GPU, without one.
"""

import dataclasses
import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from stylegan import augment, distributed
from stylegan.config import TrainConfig
from stylegan.networks import make_discriminator, make_generator
from stylegan.schedule import Position, Stage
from stylegan.training.draws import Draws, PassDraws, Share, draw, mapped
from stylegan.training.kernels import kernels
from stylegan.training.state import TrainState
from stylegan.training.step import train_step

TRIED_PROBABILITY = 0.5  # of an adaptive augmentation, which begins without any
PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
OWN_FILES = ("rehearsal.py", "precision.py")  # through which operations pass on meta
ATEN = torch.ops.aten
BLOCK_BYTES = 512  # what the allocator of CUDA rounds up to
ASKING = {ATEN._local_scalar_dense, ATEN.equal, ATEN.nonzero, ATEN.masked_select, ATEN._unique2}


@dataclass
class Counts:
    """What a step asks of a device."""

    kernels: int = 0
    copies: int = 0  # from the host
    waits: list[str] = field(default_factory=list)  # of the host for the device, and where
    strangers: list[str] = field(default_factory=list)  # tensors made elsewhere, and where


class Witness(TorchDispatchMode):
    """Sees every operation inside that concerns a device: counts, and memory of its tensors.

    Reading a number from a meta tensor gives 1 (an index of nonzero: nothing). RuntimeError, as on
    a GPU, for an operation whose tensors are on two devices.
    """

    def __init__(self, device: torch.device | str) -> None:
        super().__init__()
        self.kind = torch.device(device).type
        self.counts = Counts()
        self.bytes = self.peak = 0
        self.known: dict[int, weakref.ref[Any]] = {}

    def __enter__(self) -> "Witness":
        super().__enter__()
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = tensors([args, kwargs])
        here = [x for x in given if x.device.type == self.kind]
        elsewhere = [x for x in given if x.device.type != self.kind]
        copies = func.overloadpacket in (ATEN._to_copy, ATEN.copy_)
        if here and not copies and any(x.ndim for x in elsewhere):
            raise RuntimeError(f"{func} of tensors on {self.kind} and {elsewhere[0].device}")
        if here and func.overloadpacket in ASKING:
            self.counts.waits.append(f"{func} at {place()}")
            if self.kind == "meta":
                return answer(func, here[0])
        if copies and self.kind == "meta" and here:
            result = self.copied(func, args, kwargs)
        else:
            result = func(*args, **kwargs)
        made = tensors(result)
        if copies:
            self.count_copy(func, args, made)
        elif not here:
            new = [x for x in made if x.device.type != self.kind and x.numel()]
            self.counts.strangers += [f"{func} on {x.device} at {place()}" for x in new]
        if not view_or_empty(func) and (here or any(x.device.type == self.kind for x in made)):
            self.counts.kernels += 1
        self.follow(made)
        return result

    def copied(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A copy between meta and the host: whatever numbers there were are gone."""
        if func.overloadpacket is ATEN._to_copy and kwargs.get("device", args[0].device) != "meta":
            target = torch.device(kwargs.get("device") or args[0].device)
            if target.type != "meta":
                dtype = kwargs.get("dtype") or args[0].dtype
                return torch.ones(args[0].shape, dtype=dtype, device=target)
        return func(*args, **kwargs)

    def count_copy(self, func: Any, args: Sequence[Any], made: list[Tensor]) -> None:
        """A copy to the device, or one from it, for which the host waits."""
        source = args[1] if func.overloadpacket is ATEN.copy_ else args[0]
        before, after = source.device.type == self.kind, made[0].device.type == self.kind
        self.counts.copies += after and not before
        if before and not after:
            self.counts.waits.append(f"{func} to {made[0].device} at {place()}")

    def follow(self, found: Iterable[Tensor]) -> None:
        """Count the memory of tensors on the device until it is free."""
        for x in found:
            if x.device.type != self.kind:
                continue
            storage = x.untyped_storage()
            key = storage._cdata
            if key in self.known and self.known[key]() is not None:
                continue
            size = -(-storage.nbytes() // BLOCK_BYTES) * BLOCK_BYTES
            self.known[key] = weakref.ref(storage)
            weakref.finalize(storage, self.free, key, size)
            self.bytes += size
            self.peak = max(self.peak, self.bytes)

    def free(self, key: int, size: int) -> None:
        self.bytes -= size
        del self.known[key]


class Inputs(NamedTuple):
    """What a step takes, but for the stage."""

    reals: Tensor
    labels: Tensor | None
    draws: Draws


def random_inputs(state: TrainState, stage: Stage) -> Inputs:
    """Random images, labels without meaning, and draws as those of a run."""
    config = state.config
    share = Share.of_process(state.device, state.generator.w_avg.dtype)
    reals, labels = some_images(state, stage, stage.batch_size // share.world_size)
    pool = None if labels is None else torch.zeros(1, labels.shape[1])
    adaptive = config.augment.adaptive
    probability = TRIED_PROBABILITY if adaptive else state.strength.probability
    return Inputs(reals, labels, draw(config, 0, stage, pool, share, probability))


def largest_inputs(state: TrainState, stage: Stage) -> Inputs:
    """Inputs on meta, of the stage's batch, that take the most memory. Little is drawn for them,
    as nobody knows how large the batch is."""
    n, size, one = stage.batch_size, stage.resolution, dataclasses.replace(stage, batch_size=1)
    reals, labels = some_images(state, stage, n)
    pool = None if labels is None else torch.zeros(1, labels.shape[1])
    config = state.config
    drawn = draw(config, 0, one, pool, Share(), 1.0)

    def enlarged(x: Tensor) -> Tensor:
        return torch.empty(n, *x.shape[1:], device="meta")

    def of_pass(one: PassDraws) -> PassDraws:
        noise = one.noise if isinstance(one.noise, str) else [enlarged(m) for m in one.noise]
        mixing = one.latents if config.style_mixing and config.network.styles else None
        found = dataclasses.replace(one, noise=noise, mixing_latents=mixing, transform=None)
        placed: PassDraws = mapped(found, enlarged)
        return dataclasses.replace(placed, transform=augment.strongest(one.transform, n, size))

    return Inputs(
        reals,
        labels,
        Draws(
            of_pass(drawn.discriminator),
            of_pass(drawn.generator),
            torch.empty(n, device="meta"),
            augment.strongest(drawn.real_transform, n, size),
        ),
    )


def some_images(state: TrainState, stage: Stage, n: int) -> tuple[Tensor, Tensor | None]:
    """n random images, and labels where the networks have them."""
    network, like = state.config.network, state.generator.w_avg
    shape = (n, network.image_channels, stage.resolution, stage.resolution)
    labels = like.new_zeros(n, network.label_dim) if network.label_dim else None
    return torch.rand(shape, device=like.device, dtype=like.dtype) * 2 - 1, labels


@dataclass(frozen=True)
class Rehearsal:
    """What a step of a run under way asks of a device."""

    inputs: Counts  # until its random numbers are there
    step: Counts
    input_bytes: int
    peak_bytes: int  # of all tensors at once; what kernels take for themselves is not in it


def rehearse(
    config: TrainConfig,
    stage: Stage,
    device: str = "cuda",
    inputs: Callable[[TrainState, Stage], Inputs] = random_inputs,
) -> Rehearsal:
    """The second step of a run at that stage on meta, by a process alone, as on a device of that
    type but for the faster convolutions of CPUs."""
    with torch.device("meta"):
        networks = make_generator(config.network), make_discriminator(config.network)
    state = TrainState.create(config, *networks, device="meta")
    witness = Witness("meta")
    with distributed.alone(), kernels(config), augment.meta_as(device), witness:
        for network in (state.generator, state.discriminator, state.generator_ema):
            witness.follow(network.state_dict().values())
        for _ in range(2):
            state.position = Position()  # where R1 is due
            witness.counts, witness.peak, held = Counts(), 0, witness.bytes
            batch = inputs(state, stage)
            held = witness.bytes - held
            before, witness.counts = witness.counts, Counts()
            train_step(state, batch.reals, batch.labels, stage, batch.draws)
            del batch
    return Rehearsal(before, witness.counts, held, witness.peak)


def tensors(value: Any) -> list[Tensor]:
    """Those in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [x for part in value for x in tensors(part)]


@functools.cache
def view_or_empty(func: Any) -> bool:
    """Whether an operation computes nothing: it shows a tensor otherwise, or makes room."""
    views = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
    return views or "empty" in func._schema.name or func.overloadpacket is ATEN.detach


def answer(func: Any, asked: Tensor) -> Any:
    """What a host reads that has no numbers."""
    if func.overloadpacket is ATEN.nonzero:
        return torch.empty(0, asked.ndim, dtype=torch.long, device=asked.device)
    if func.overloadpacket in (ATEN.equal, ATEN._local_scalar_dense):
        return True if asked.dtype == torch.bool or func.overloadpacket is ATEN.equal else 1.0
    raise RuntimeError(f"the size of what {func} gives is known to the device alone")


def place() -> str:
    """The line of the package that is being run, if any."""
    frame = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(PACKAGE) and not file.endswith(OWN_FILES):
            return f"{file.removeprefix(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "?"
