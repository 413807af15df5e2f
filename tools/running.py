"""Commands of the package for tools that train and measure: each on one thread, some at a time."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")
children: list[subprocess.Popen[bytes]] = []


def stylegan(log: Path, *arguments: object) -> str:
    """Run a command on one thread. The last line it wrote if it failed, else ''."""
    command = [sys.executable, "-m", "stylegan", *map(str, arguments)]
    with log.open("a+", encoding="utf-8", errors="replace") as file:
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        # in a session of its own: a Ctrl-C reaches this process alone, which ends its children
        child = subprocess.Popen(command, stdout=file, stderr=file, env=env, start_new_session=True)
        children.append(child)
        child.wait()
        file.seek(0)
        last = [line.strip() for line in file if line.strip()][-1:] or ["no message"]
    return last[0].removeprefix("Error: ") if child.returncode else ""


def each(jobs: Sequence[Job], finish: Callable[[Job], Outcome], number: int) -> dict[Job, Outcome]:
    """`finish` of every job, `number` at a time. Ctrl-C or SIGTERM ends the commands, whose runs
    save their states."""
    with ThreadPoolExecutor(number) as pool:
        try:
            return dict(zip(jobs, pool.map(finish, jobs), strict=True))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.terminate()
            raise
