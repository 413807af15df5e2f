"""Processes of their own: what they print, and several that measure or train together."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import ROOT
from stylegan.utils import distributed

TIMEOUT_SECONDS = 900  # on a busy machine


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """That of a child: our package, prepared images below `folder`, one thread; and `variables`."""
    usual = {"PYTHONPATH": str(ROOT), "STYLEGAN_CACHE": str(folder / "cache")}
    return os.environ | usual | {"OMP_NUM_THREADS": "1"} | variables


def run_python(
    folder: Path, *words: object, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Python with these words, in `folder`, after its end: its exit code and what it printed."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=4 * TIMEOUT_SECONDS,
    )


def printed(folder: Path, *words: object, **variables: str) -> str:
    """What Python with these words prints, which succeeds."""
    process = run_python(folder, *words, **variables)
    assert process.returncode == 0, process.stderr
    return process.stdout


@contextmanager
def started_python(code: str, *words: object) -> Iterator["subprocess.Popen[str]"]:
    """A child that runs `code` and has printed its first line; it is killed in the end."""
    command = [sys.executable, "-c", code, *map(str, words)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, env=environment(Path.cwd()), text=True) as process:
        try:
            assert process.stdout and process.stdout.readline()
            yield process
        finally:
            process.kill()


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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawned(work: Callable[..., None], args: tuple[Any, ...], world: int) -> None:
    """Run `work(rank, *args)` in as many processes, and fail if they are not done in time."""
    processes = torch.multiprocessing.spawn(work, args, world, join=False)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not processes.join(timeout=5):
        if time.monotonic() > deadline:
            for process in processes.processes:
                process.kill()
            pytest.fail(f"{world} processes were not done after {TIMEOUT_SECONDS} seconds")
