"""Cores and memory that this process may use, whatever else runs on the machine."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch


class Limits(NamedTuple):
    cores: int
    memory: float  # bytes


def limits(root: Path = Path("/")) -> Limits:
    """This process's share of what affinity and control groups (`docker --cpus`, Slurm) allow."""
    import psutil  # not needed by torch.hub

    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores: float = len(affinity(0)) if affinity else os.cpu_count() or 1
    memory: float = psutil.virtual_memory().total
    for group in control_groups(root):
        quota = group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us"
        match numbers(group / "cpu.max") or [x for path in quota for x in numbers(path)]:
            case [share, period] if share > 0 and period > 0:  # -1: no limit
                cores = min(cores, share / period)
        for name in ("memory.max", "memory.limit_in_bytes"):
            memory = min([memory, *numbers(group / name)])
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return Limits(max(int(cores / processes), 1), memory / processes)


def control_groups(root: Path) -> Iterator[Path]:
    """Folders of this process's control groups and their ancestors, up to a container's own."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        for controller in controllers.split(","):  # version 2 has a single one, without a name
            top = root / "sys/fs/cgroup" / controller
            group = top / name.lstrip("/")
            yield from (path for path in (group, *group.parents) if path.is_relative_to(top))


def numbers(path: Path) -> list[float]:
    """Numbers in a file, infinity for "max"; empty if it cannot be read."""
    try:
        return [math.inf if word == "max" else float(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []


def usual_threads() -> int:
    """Default thread count: OMP_NUM_THREADS, else torch's, which ignores control groups."""
    if "OMP_NUM_THREADS" in os.environ:
        return torch.get_num_threads()
    return min(torch.get_num_threads(), limits().cores)
