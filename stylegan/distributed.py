"""One process per GPU, or one alone: the few collective operations that training needs."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Value = TypeVar("Value")
MEETING_SECONDS = 0.05  # between two looks at the store
PARENT = os.getppid()  # torchrun, if it has started this process


by_itself = False


@contextmanager
def alone() -> Iterator[None]:
    """This process computes inside as if there were no others, to whom it must not speak."""
    global by_itself
    before, by_itself = by_itself, True
    try:
        yield
    finally:
        by_itself = before


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() and not by_itself else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() and not by_itself else 1


def launched_processes() -> int:
    """How many processes torchrun started, known before they have met; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """The number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def processes_of_machine() -> int:
    """How many processes torchrun started on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def is_orphan() -> bool:
    """Whether torchrun has started this process and is gone: nobody would end it any more."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != PARENT


def pick_device(name: str = "auto") -> torch.device:
    """The device to use: `auto` takes the process's own GPU, else MPS, else the CPU.

    ValueError for what is not a device, or not one of this machine.
    """
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
        raise ValueError(f"device {device} was asked for, but PyTorch sees {number} of this type")
    return device


def sent(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device; neither waits for the other."""
    if device.type != "cuda":
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)


control_group: dist.ProcessGroup | None = None  # of the CPUs: agreeing never waits for a device


@contextmanager
def process_group(device: torch.device, timeout_minutes: float = 60) -> Iterator[None]:
    """Joins the processes that torchrun started, and leaves them at the end, unless they have met
    already."""
    global control_group
    if device.type == "cuda":
        torch.cuda.set_device(device)  # pinned memory belongs to the current one
    if launched_processes() == 1 or dist.is_initialized():
        yield
        return
    timeout = timedelta(minutes=timeout_minutes)
    own: dict[str, Any] = {"timeout": timeout}
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        number, count = int(os.environ["RANK"]), launched_processes()
        own |= {"store": meeting(number, count, timeout), "rank": number, "world_size": count}
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device, **own)
    else:
        dist.init_process_group("gloo", **own)
    patient = timedelta(days=7)  # one process may prepare data or measure while others wait
    group = dist.new_group(backend="gloo", timeout=patient)
    assert isinstance(group, dist.ProcessGroup)
    control_group = group
    try:
        yield
    finally:
        control_group = None
        dist.destroy_process_group()


def meeting(rank: int, count: int, timeout: timedelta) -> dist.Store:
    """A part of torchrun's store that belongs to the processes which live now.

    torchrun serves all its attempts with one store (pytorch issue 135712), so that after a restart
    it still holds addresses of processes that are gone. So each first writes a random word. Rank 0
    answers it with the name of the part, until all have repeated the name.
    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(host, port, is_master=False, timeout=timeout)
    word = secrets.token_hex(16)
    deadline = time.monotonic() + timeout.total_seconds()
    if rank > 0:
        store.set(f"word/{rank}", word)
    missing = set(range(1, count)) if rank == 0 else {rank}
    while missing:
        for other in sorted(missing):
            if rank == 0:
                store.set(f"answer/{other}", seen(store, f"word/{other}") + word)
                if seen(store, f"name/{other}") == word:
                    missing.remove(other)
            elif (answer := seen(store, f"answer/{rank}")).startswith(word):
                word = answer.removeprefix(word)
                store.set(f"name/{rank}", word)
                missing.clear()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(missing)} of {count} processes have not come")
        time.sleep(MEETING_SECONDS)
    return dist.PrefixStore(word, store)


def seen(store: dist.Store, key: str) -> str:
    """What the store holds; empty if nothing."""
    return store.get(key).decode() if store.check([key]) else ""


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


def is_lost_contact(error: Exception) -> bool:
    """Whether a collective operation failed because another process is gone."""
    signs = ("connection closed by peer", "connection reset by peer", "gloo", "nccl")
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(sign in text for sign in signs)
