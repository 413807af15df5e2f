"""Cores and memory that a process may use, the threads that train; what a step is said to take."""

import sys
from types import SimpleNamespace

import pytest
import torch
from helpers.consoles import RecordingConsole
from helpers.tiny_training import QUIET, stage, tiny_config

from stylegan.cli.options import use_device
from stylegan.planning import TrainRequest, plan
from stylegan.training import TrainState, costs, start
from stylegan.training.costs import Machine
from stylegan.training.run import set_threads
from stylegan.utils import limits
from stylegan.utils.memory import keep_memory

CPU = torch.device("cpu")
GIB = 2**30
QUOTA_1 = {"cpu/x/cpu.cfs_quota_us": "200000", "cpu/x/cpu.cfs_period_us": "100000"}
NO_QUOTA_1 = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
MEMORY_1 = {
    "memory/x/memory.limit_in_bytes": f"{GIB}",
    "memory/memory.limit_in_bytes": f"{2**63 - 4096}",
}
V1 = "4:memory:/x\n3:cpu,cpuacct:/x\n2:pids:/\n0::/"


@pytest.mark.parametrize(
    ("groups", "files", "cores", "memory"),
    [
        ("0::/", {"cpu.max": "max 100000", "memory.max": "max"}, 8, 64 * GIB),
        ("0::/", {"cpu.max": "250000 100000", "memory.max": f"{GIB}"}, 2, GIB),
        ("0::/", {"cpu.max": "50000 100000"}, 1, 64 * GIB),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 1"}, 3, 64 * GIB),
        ("0::/of/the/host", {"cpu.max": "400000 100000"}, 4, 64 * GIB),  # in a container
        ("0::/", {"cpu.max": "", "memory.max": "?"}, 8, 64 * GIB),
        (V1, {**QUOTA_1, **NO_QUOTA_1, **MEMORY_1}, 2, GIB),
    ],
)
def test_limits_follow_affinity_and_control_groups(
    groups, files, cores, memory, tmp_path, monkeypatch
):
    host = type("Host", (), {"total": 64 * GIB})
    monkeypatch.setattr("psutil.virtual_memory", lambda: host)
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in (files | {"proc/self/cgroup": groups}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert limits.limits(tmp_path) == (cores, memory)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert limits.limits(tmp_path) == (max(cores // 2, 1), memory / 2)
    assert limits.limits(tmp_path / "no Linux") == (4, 32 * GIB)


@pytest.fixture
def four_cores(monkeypatch):
    """Four of eight, by a quota, of which torch knows nothing."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for room in (limits, sys.modules["stylegan.training.run"]):
        monkeypatch.setattr(room, "limits", lambda: limits.Limits(4, 64.0 * GIB))
    torch.set_num_threads(8)  # `same_threads` undoes it


def test_use_device_uses_as_many_threads_as_allowed_cores(four_cores, monkeypatch):
    assert Machine.here(CPU).cores == 4
    use_device("cpu")
    assert torch.get_num_threads() == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    torch.set_num_threads(7)
    use_device("cpu")
    assert torch.get_num_threads() == Machine.here(CPU).cores == 7


def test_plan_counts_no_more_threads_than_cores(monkeypatch):
    monkeypatch.setattr("stylegan.planning.limits", lambda: limits.Limits(1, 64.0 * GIB))
    machine = Machine(CPU, memory=64.0 * GIB, cores=2)
    assert plan(TrainRequest(config="quickstart"), machine, threads=1000).facts.machine.cores == 1


def saved(threads, processes=1):
    return {"threads": threads, "processes": processes}


@pytest.mark.parametrize(
    ("asked", "payload", "threads", "told"),
    [
        (None, {}, 4, []),
        (None, saved(4), 4, []),
        (None, saved(1), 1, ["1 thread, as before; --threads 4 changes it"]),
        (None, saved(16), 4, []),  # of a larger machine
        (None, saved(1, processes=2), 4, []),
        (3, {}, 3, []),
        (2, saved(1), 2, []),
        (1000, saved(1), 4, ["4 threads instead of 1000: one per usable core"]),
    ],
)
def test_set_threads_uses_the_request_the_state_or_the_cores(
    four_cores, asked, payload, threads, told
):
    assert set_threads(asked, payload) == told
    assert torch.get_num_threads() == threads


def test_set_threads_keeps_omp_num_threads(four_cores, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert set_threads(None, saved(1)) == []
    assert torch.get_num_threads() == 8


def test_resume_keeps_the_number_of_threads(four_cores, tmp_path, store):
    """Their number changes last bits, so a resumed run does not choose again."""
    used, told = [], []
    for total_kimg, asked in ((0.008, 3), (0.016, None), (0.048, 2)):
        config = tiny_config(schedule={"total_kimg": total_kimg})
        console = RecordingConsole(told, act=lambda progress: used.append(torch.get_num_threads()))
        start(config, store, tmp_path / "run", **QUIET, console=console, threads=asked)
        assert torch.get_num_threads() == 8  # as before
    assert used == sorted(used, reverse=True) and set(used) == {3, 2}
    assert "3 threads, as before; --threads 4 changes it" in told
    assert [line for line in told if "threads 3 -> 2" in line]


@pytest.mark.parametrize(
    ("durations", "median"),
    [([0.9, 0.1, 0.3, 0.2, 0.1, 0.1, 9.0], 0.1), ([30, 7, 9, 1], 8), ([2, 1.5, 1, 2, 9], 1.5)],
)
def test_median_step_leaves_out_the_first_step(monkeypatch, durations, median):
    times = iter([time for duration in durations for time in (0.0, duration)])
    monkeypatch.setattr(costs, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    state = TrainState.create(tiny_config())
    assert costs.step_seconds(state, stage()) == pytest.approx(median)


def test_keep_memory_does_nothing_on_other_systems(monkeypatch):
    """On Windows there is no library of the process itself."""
    loaded = []
    monkeypatch.setattr("ctypes.CDLL", loaded.append)
    monkeypatch.setattr("sys.platform", "win32")
    keep_memory()
    assert not loaded
