"""One process per GPU, or one alone: the few collective operations that training needs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Value = TypeVar("Value")


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def launched_processes() -> int:
    """How many processes torchrun started, known before they have met; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """The number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def processes_of_machine() -> int:
    """How many processes torchrun started on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def pick_device(name: str = "auto") -> torch.device:
    """The device to use: `auto` takes the process's own GPU, else MPS, else the CPU."""
    has_mps = torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name} was asked for, but this PyTorch sees no CUDA GPU")
    if device.type == "mps" and not has_mps:
        raise ValueError(f"device {name} was asked for, but this PyTorch sees no Apple GPU")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", local_rank())
    return device


control_group: dist.ProcessGroup | None = None  # of the CPUs: agreeing never waits for a device


@contextmanager
def process_group(device: torch.device, timeout_minutes: float = 60) -> Iterator[None]:
    """Joins the processes that torchrun started, and leaves them at the end."""
    global control_group
    if device.type == "cuda":
        torch.cuda.set_device(device)  # pinned memory belongs to the current one
    if launched_processes() == 1:
        yield
        return
    timeout = timedelta(minutes=timeout_minutes)
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device, timeout=timeout)
    else:
        dist.init_process_group("gloo", timeout=timeout)
    patient = timedelta(days=7)  # one process may prepare data or measure while others wait
    group = dist.new_group(backend="gloo", timeout=patient)
    assert isinstance(group, dist.ProcessGroup)
    control_group = group
    try:
        yield
    finally:
        control_group = None
        dist.destroy_process_group()


def mean(x: Tensor) -> Tensor:
    """Average of a tensor over all processes; each holds an equal share of the batch."""
    if world_size() == 1:
        return x
    total = x.clone()
    dist.all_reduce(total)
    return total / world_size()


def largest(number: int) -> int:
    """The largest of the numbers that the processes hold."""
    if world_size() == 1:
        return number
    vote = torch.tensor(number)
    dist.all_reduce(vote, op=dist.ReduceOp.MAX, group=control_group)
    return int(vote.item())


def gather(value: Value) -> list[Value]:
    """What each process holds, by rank."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value, group=control_group)
    return values


def barrier() -> None:
    if world_size() > 1:
        dist.barrier(control_group)


@contextmanager
def first_of_machine_first() -> Iterator[None]:
    """The first process of each machine runs the block, however long it takes; then the others,
    which find its work done."""
    if local_rank() > 0:
        barrier()
    yield
    if local_rank() == 0:
        barrier()


def is_lost_contact(error: Exception) -> bool:
    """Whether a collective operation failed because another process is gone."""
    signs = ("connection closed by peer", "connection reset by peer", "gloo", "nccl")
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(sign in text for sign in signs)
