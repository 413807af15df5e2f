"""Several processes on this machine that measure or train together."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from stylegan import distributed

TIMEOUT_SECONDS = 900


@contextmanager
def one_of(world: int, rank: int, port: int) -> Iterator[None]:
    """Be process `rank` of `world`, on one thread, without a GPU."""
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with distributed.process_group(torch.device("cpu")):
        yield


def spawned(work: Callable[..., None], args: tuple[Any, ...], world: int) -> None:
    """Run `work(rank, *args)` in as many processes, and fail if they are not done in time."""
    processes = torch.multiprocessing.spawn(work, args, world, join=False)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not processes.join(timeout=5):
        if time.monotonic() > deadline:
            for process in processes.processes:
                process.kill()
            pytest.fail(f"{world} processes were not done after {TIMEOUT_SECONDS} seconds")
