"""One process per GPU, or a single one: the few collectives that training needs."""

import functools
import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from stylegan.utils import console as console_module
from stylegan.utils.console import SILENT, Console
from stylegan.utils.signals import signal_handler, termination_signals

PARENT = os.getppid()  # torchrun, if it started this process
WATCH_SECONDS = 1.0  # between two checks that the parent is alive
CONNECT_SECONDS = 60.0  # to torchrun's store, which is open before the processes start
PATIENCE = timedelta(days=7)  # timeout while one process prepares data or measures
MAX_STEP = timedelta(minutes=30)  # timeout of collectives in training
LATE_SECONDS = 10.0  # after which the console reports processes that have not joined
MEETINGS = itertools.count()  # of the groups of this process
Value = TypeVar("Value")


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def resolve_device(name: str = "auto") -> torch.device:
    """Resolve a device name; "auto" is this process's GPU, else MPS, else the CPU."""
    there = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if name == "auto":
        name = next((kind for kind, number in there.items() if number), "cpu")
    try:
        known = name.partition(":")[0] in ("cpu", *there)
        device = torch.device(name if known else "")
    except RuntimeError as error:
        raise ValueError(f"{name!r} is not a device; try cpu, cuda, cuda:1 or mps") from error
    if device.type == "cuda" and device.index is None and there["cuda"]:
        device = torch.device("cuda", local_rank())
    number = there.get(device.type, 1)
    if (device.index or 0) >= number:
        raise ValueError(f"device {device} does not exist: PyTorch sees {number} of this type")
    return device


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to the device, asynchronously for CUDA."""
    if device.type != "cuda":
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)


@functools.lru_cache(maxsize=1)
def group_of_cpus(default: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Create a gloo group (collectively), so that control messages never wait for a GPU."""
    group = dist.new_group(backend="gloo", timeout=PATIENCE)
    assert isinstance(group, dist.ProcessGroup)  # every process is a member
    return group


def control_group() -> dist.ProcessGroup:
    return group_of_cpus(dist.group.WORLD)


@contextmanager
def process_group(device: torch.device, console: Console = SILENT) -> Iterator[None]:
    """Initialize torch.distributed under torchrun, unless a group exists. Destroy it on exit,
    except after an error on GPUs: the process should then end."""
    if device.type == "cuda":
        torch.cuda.set_device(device)  # pinned memory belongs to the current device
    if os.environ.get("WORLD_SIZE", "1") == "1" or dist.is_initialized():
        console_module.joined_rank = rank()
        yield
        return
    gpu = device if device.type == "cuda" else None
    world = int(os.environ["WORLD_SIZE"])
    place = ":".join(os.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
    waiting = f"waiting for the other {world - 1} of {world} processes at {place}"
    late = threading.Timer(LATE_SECONDS, console.info, [waiting])
    late.daemon = True
    with exit_with_torchrun():
        late.start()
        try:
            # a signal ends the wait at once; Python would handle it only afterwards
            with signal_handler(termination_signals(), signal.SIG_DFL):
                backend = "nccl" if gpu else "gloo"
                store, own, world = next(dist.rendezvous("env://", timeout=MAX_STEP))
                store.set_timeout(MAX_STEP)
                # torchrun's store keeps the addresses of a group that has ended, also of processes
                # that it restarts, which it counts for each machine alone
                alone = os.environ.get("GROUP_WORLD_SIZE") == "1"
                start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if alone else "0"
                store = dist.PrefixStore(f"stylegan/{start}/{next(MEETINGS)}", store)
                dist.init_process_group(
                    backend,
                    store=store,
                    rank=own,
                    world_size=world,
                    device_id=gpu,
                    timeout=MAX_STEP,
                )
                console_module.joined_rank = rank()
                control_group()
        finally:
            late.cancel()
        ends_together = gpu is None
        try:
            yield
            ends_together = True
        except (KeyboardInterrupt, SystemExit):  # of `Stopped`, which all processes raise at once
            ends_together = True
            raise
        finally:
            # NCCL would wait for kernels that wait for other processes, and the error would stay
            # unprinted.
            if ends_together:
                group_of_cpus.cache_clear()
                dist.destroy_process_group()


@contextmanager
def exit_with_torchrun() -> Iterator[None]:
    """Send SIGTERM to this process once torchrun, its parent, is gone: nothing else would."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # not started by torchrun
        yield
        return
    check_torchrun()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(WATCH_SECONDS):
            if os.getppid() != PARENT:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    threading.Thread(target=watch, name="torchrun", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def check_torchrun() -> None:
    """Raise ConnectionError if torchrun's store is closed: joining would wait for 30 minutes."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":  # rank 0 will open the store
        return
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        socket.create_connection(address, CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(
            f"torchrun does not answer at {address[0]}:{address[1]} ({error}): it has ended; run "
            "the same command again"
        ) from error


def mean_over_ranks(x: Tensor) -> Tensor:
    """Mean of a tensor over all ranks, each of which has an equal share of the batch."""
    if world_size() == 1:
        return x
    total = x.clone()
    dist.all_reduce(total)
    return total / world_size()


def max_over_ranks(number: int) -> int:
    """Maximum of a number over all ranks."""
    if world_size() == 1:
        return number
    vote = torch.tensor(number)
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.MAX
    options.timeout = MAX_STEP
    control_group().allreduce([vote], options).wait()
    return int(vote.item())


def all_gather(value: Value) -> list[Value]:
    """Values of all ranks, in order, on every rank."""
    if world_size() == 1:
        return [value]
    values = [value] * world_size()
    dist.all_gather_object(values, value, group=control_group())
    return values


def run_on_rank0(make: Callable[[], Value]) -> Value:
    """Run `make` on rank 0 and broadcast its result.

    Use it for whatever may differ between ranks (files, clocks): ranks that take different branches
    deadlock in their collectives.
    """
    made = run_on_all_ranks(lambda: make() if rank() == 0 else None, concurrent=True)
    value: Value = all_gather(made)[0]  # type: ignore[assignment]
    return value


def run_on_all_ranks(make: Callable[[], Value], *, concurrent: bool = False) -> Value:
    """Run `make` on every rank, local rank 0 first unless `concurrent`, without collectives in it.

    A ValueError or OSError on one rank is raised on all of them, so that none hangs.
    """
    in_turn = world_size() > 1 and not concurrent
    group = control_group() if in_turn else None
    if in_turn and local_rank() > 0:
        dist.barrier(group)
    error: Exception | None = None
    try:
        value = make()
    except (ValueError, OSError) as caught:
        error = caught
    if in_turn and local_rank() == 0:
        dist.barrier(group)
    problems = [text for text in all_gather(error and str(error)) if text is not None]
    if error is not None:
        raise error
    if problems:
        raise ValueError(problems[0])
    return value
