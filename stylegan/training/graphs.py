"""CUDA graphs: the kernels that lead to an update's gradients are recorded once, then replayed.

Not measured, and never run on a GPU. A replay launches all of them at once, on the very memory of
the recording. So what changes between steps lies in tensors that stay where they are, also numbers
of the host, and gradients stay too. Whatever else an update takes is part of what a recording is
known by: another one is made where it differs. Updates themselves are not recorded.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from stylegan import augment, distributed
from stylegan.loss_registry import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from stylegan.schedule import Stage
from stylegan.training.draws import PassDraws
from stylegan.training.optimizer import Adam

if TYPE_CHECKING:
    from stylegan.training.state import TrainState

WARM_UP = 3  # runs before a recording: libraries choose their kernels, caches are filled
MOST_RECORDINGS = 32  # of a stage; more mean that a number of the host changes with the steps


@dataclass(frozen=True)
class StepInputs:
    """What the gradients of an update are computed from, beside the networks."""

    stage: Stage
    draws: PassDraws
    reals: Tensor | None = None  # these and the rest: of the discriminator's update
    labels: Tensor | None = None
    averages: Tensor | None = None  # of logits, for LeCam
    penalty_mix: Tensor | None = None
    real_transform: augment.Transform | None = None


class Found(NamedTuple):
    """What a computation of gradients gives beside them."""

    metrics: dict[str, Tensor]
    w_mean: Tensor


Compute = Callable[[StepInputs], Found]
Output = tuple[list[str], Tensor, Tensor]  # names and values of metrics, mean of w
Replay = Callable[[], object]
Capture = Callable[[Callable[[], Output]], tuple[Replay, Output, object]]


class Recording(NamedTuple):
    """It must not hold the state, beside which it is kept."""

    slots: list[Tensor]  # the inputs
    replay: Replay
    output: Output  # of the last replay
    kept: object  # what must live as long


class CudaGraphs:
    """Records as PyTorch's documentation asks for; all recordings share their memory, since none
    needs what another has left in it."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], Output]) -> tuple[Replay, Output, object]:
        outside = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(outside)
        try:
            with torch.autograd.set_multithreading_enabled(False), torch.cuda.stream(self.stream):
                for _ in range(WARM_UP):
                    run()
                graph = torch.cuda.CUDAGraph()
                # threads that read images ahead may use the device meanwhile
                capture = torch.cuda.graph(
                    graph, self.pool, self.stream, capture_error_mode="thread_local"
                )
                with capture, Keeper(self.stream.device) as keeper:
                    output = run()
        finally:
            outside.wait_stream(self.stream)
        return graph.replay, output, keeper.kept


class Keeper(TorchDispatchMode):
    """Holds the memory from outside that operations inside use, such as that of a cache, which
    might let go of it."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.made: set[int] = set()  # storages from inside
        self.kept: dict[int, Any] = {}

    def __enter__(self) -> "Keeper":
        super().__enter__()
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for storage in self.storages([*args, *(kwargs or {}).values()]):
            if storage._cdata not in self.made:
                self.kept[storage._cdata] = storage
        result = func(*args, **(kwargs or {}))
        self.made |= {storage._cdata for storage in self.storages(result)} - self.kept.keys()
        return result

    def storages(self, values: Any) -> list[Any]:
        """Of the tensors on the device."""
        found = (x for _, x in leaves(values) if isinstance(x, Tensor))
        return [x.untyped_storage() for x in found if x.device == self.device]


CAPTURES: dict[str, Callable[[torch.device], Capture]] = {"cuda": CudaGraphs}  # by type of device
# beside the states, which hold exactly what survives a restart
REASONS: "WeakKeyDictionary[TrainState, str]" = WeakKeyDictionary()  # why nothing is recorded


class StageGraphs:
    """The recordings of a stage: one for each variant of its steps, with and without mixing, R1,
    augmentation."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.recordings: dict[object, Recording] = {}
        self.slots: dict[object, Tensor] = {}  # by path, shape and type
        self.grads: dict[Adam, list[tuple[Tensor, Tensor]]] = {}

    def play(self, optimizer: Adam, compute: Compute, inputs: StepInputs, variant: object) -> Found:
        """As `compute(inputs)`, with gradients of the optimizer's parameters alone."""
        inputs = lively(inputs)
        live = dict(leaves(inputs))
        known_by = (id(optimizer), variant, *signature(live))
        recording = self.recordings.get(known_by)
        if optimizer not in self.grads:
            trained = [p for p in optimizer.param_groups[0]["params"] if p.requires_grad]
            self.grads[optimizer] = [(p, torch.zeros_like(p)) for p in trained]
        for parameter, grad in self.grads[optimizer]:
            parameter.grad = grad
        numbers = [x for x in live.values() if isinstance(x, Tensor)]
        if recording is None:
            recording = self.record(optimizer, compute, inputs, live)
            self.recordings[known_by] = recording
        fill(recording.slots, numbers)
        recording.replay()
        names, values, w_mean = recording.output
        return Found(dict(zip(names, values.clone().unbind(), strict=True)), w_mean)

    def record(
        self, optimizer: Adam, compute: Compute, inputs: StepInputs, live: dict[str, Any]
    ) -> Recording:
        if len(self.recordings) == MOST_RECORDINGS:
            raise RuntimeError(f"steps differ in more than {MOST_RECORDINGS} ways")
        device = self.grads[optimizer][0][1].device
        here = {path: self.slot(path, x, device) for path, x in live.items()}
        slots = [x for x in here.values() if isinstance(x, Tensor)]
        fill(slots, [x for x in live.values() if isinstance(x, Tensor)])
        given = rebuilt(inputs, here)

        def run() -> Output:
            optimizer.zero_grad(set_to_none=False)
            metrics, w_mean = compute(given)
            return list(metrics), torch.stack(list(metrics.values())), w_mean

        return Recording(slots, *self.capture(run))

    def forget(self) -> None:
        """Let go of all memory."""
        self.recordings.clear()
        self.slots.clear()
        self.grads.clear()

    def slot(self, path: str, x: Any, device: torch.device) -> Any:
        """Where all recordings find this input; what is no tensor they hold themselves."""
        if not isinstance(x, Tensor):
            return x
        key = path, x.shape, x.dtype
        if key not in self.slots:
            self.slots[key] = torch.empty(x.shape, dtype=x.dtype, device=device)
        return self.slots[key]


def stage_graphs(state: "TrainState") -> StageGraphs | None:
    """For a stage that begins; None if the run does not ask for it, or if it cannot be."""
    if not state.config.cuda_graphs:
        return None
    reason = REASONS.get(state) or why_not(state)
    if reason:
        REASONS[state] = reason
        return None
    return StageGraphs(CAPTURES[state.device.type](state.device))


def why_not(state: "TrainState") -> str:
    """Why the steps of a run cannot be recorded, as far as known before; empty if they can."""
    config, network = state.config, state.config.network
    if state.device.type not in CAPTURES:
        return f"the device is {state.device}, and only those of CUDA record"
    if distributed.world_size() > 1:
        return "several processes exchange gradients"
    own = [name for name in (network.generator, network.discriminator) if name != "stylegan"]
    if config.generator_loss not in GENERATOR_LOSSES.built_in:
        own.append(config.generator_loss)
    if config.discriminator_loss not in DISCRIMINATOR_LOSSES.built_in:
        own.append(config.discriminator_loss)
    return f"{own[0]} is of a script, and may use numbers of the host" if own else ""


def gradients(
    state: "TrainState",
    graphs: StageGraphs | None,
    optimizer: Adam,
    compute: Compute,
    inputs: StepInputs,
    variant: object = None,
) -> Found:
    """`compute(inputs)`, which adds to the gradients of the optimizer's parameters: from zero,
    recorded if there are `graphs`. They are known by the inputs and the `variant`."""
    if graphs is not None and state not in REASONS:
        try:
            return graphs.play(optimizer, compute, inputs, variant)
        except RuntimeError as error:
            first = cause(error)
            if isinstance(first, torch.OutOfMemoryError):
                raise first from None
            graphs.forget()
            line = next(iter(str(first).splitlines()), type(first).__name__)
            REASONS[state] = f"recording failed: {line}"
    optimizer.zero_grad(set_to_none=True)
    return compute(inputs)


def cause(error: RuntimeError) -> RuntimeError:
    """What made a recording fail: ending one that has failed fails as well."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return error


def lively(inputs: StepInputs) -> StepInputs:
    """With tensors () for numbers that change from step to step, and shapes that do not."""
    stage, size = inputs.stage, inputs.stage.resolution
    changes: dict[str, Any] = {"g_lr": 0.0, "d_lr": 0.0, "tick_kimg": 0.0}  # no part of gradients
    if stage.alpha < 1:
        changes["alpha"] = torch.tensor(stage.alpha, dtype=torch.float64)
    stage = dataclasses.replace(stage, **changes)

    n, cutoff = len(inputs.draws.latents), torch.as_tensor(inputs.draws.mixing_cutoff)
    transform = augment.whole(inputs.draws.transform, n, size)
    draws = dataclasses.replace(inputs.draws, mixing_cutoff=cutoff, transform=transform)
    of_reals = augment.whole(inputs.real_transform, n, size)
    return dataclasses.replace(inputs, stage=stage, draws=draws, real_transform=of_reals)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What dataclasses and sequences of tensors hold in the end, and where."""
    if dataclasses.is_dataclass(value):
        for f in dataclasses.fields(value):
            yield from leaves(getattr(value, f.name), f"{path}.{f.name}")
    elif of_tensors(value):
        for i, part in enumerate(value):
            yield from leaves(part, f"{path}.{i}")
    else:
        yield path, value


def rebuilt(value: Any, found: dict[str, Any], path: str = "") -> Any:
    """The same structure around other leaves."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        parts = {name: rebuilt(getattr(value, name), found, f"{path}.{name}") for name in names}
        return dataclasses.replace(value, **parts)
    if of_tensors(value):
        return [rebuilt(x, found, f"{path}.{i}") for i, x in enumerate(value)]
    return found[path]


def of_tensors(value: Any) -> bool:
    """Whether it is a sequence that holds tensors, perhaps deeper."""
    if not isinstance(value, list | tuple):
        return False
    return any(isinstance(x, Tensor) or of_tensors(x) for x in value)


def signature(live: dict[str, Any]) -> Iterator[object]:
    """What a recording is made for: all but the numbers in tensors."""
    for path, x in live.items():
        yield path, (x.shape, x.dtype) if isinstance(x, Tensor) else x


def fill(slots: list[Tensor], numbers: list[Tensor]) -> None:
    """Put new numbers into the slots; nobody waits for a copy."""
    pairs = list(zip(slots, numbers, strict=True))
    host = [x.ndim == 0 and x.device.type == "cpu" for x in numbers]
    for (slot, x), single in zip(pairs, host, strict=True):
        if single:
            slot.fill_(x.item())
    rest = [pair for pair, single in zip(pairs, host, strict=True) if not single]
    torch._foreach_copy_([slot for slot, _ in rest], [x for _, x in rest])
