"""Threads: how OpenMP's wait, and how many train; what a step is said to take."""

import subprocess
import sys

import pytest
import torch
from helpers.consoles import Heard
from helpers.processes import begun
from helpers.tiny_training import QUIET, stage, tiny_config

from stylegan.machine import threads
from stylegan.training import TrainState, costs, resuming, start
from stylegan.training.start import settle_threads


def machine(monkeypatch, percent):
    """One of two cores that are used to this part."""
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(threads.psutil, "cpu_percent", lambda interval: percent)


@pytest.mark.parametrize(("percent", "spin"), [(0, None), (20, None), (30, "1000"), (100, "1000")])
def test_threads_sleep_soon_beside_other_programs(monkeypatch, percent, spin):
    for name in threads.CHOSEN_BY_USER:
        monkeypatch.setenv(name, "")  # so that it is undone
        monkeypatch.delenv(name)
    machine(monkeypatch, percent)
    threads.wait_briefly_if_busy()
    assert threads.os.environ.get("GOMP_SPINCOUNT") == spin


def test_torch_is_imported_only_after_the_choice():
    code = "import sys, stylegan.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_what_the_user_chose_stays(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    machine(monkeypatch, 100)
    threads.wait_briefly_if_busy()
    assert "GOMP_SPINCOUNT" not in threads.os.environ


def test_a_busy_core_is_seen():
    """By the real counters: a child that computes keeps a core from idling."""
    with begun("print(flush=True)\nwhile True: pass"):
        assert threads.busy()


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


BEGUN_ON_ONE = {"threads": 1, "processes": 1}
OTHERS = "because other programs use the cores"


@pytest.mark.parametrize(
    ("asked", "payload", "others", "threads", "told"),
    [
        (None, {}, False, 2, []),
        (None, {}, True, 1, [f"1 thread, {OTHERS}; --threads 2 changes it"]),
        (None, BEGUN_ON_ONE, False, 1, ["1 thread, as before; --threads 2 changes it"]),
        (None, {"threads": 2, "processes": 1}, True, 2, []),
        (None, {"threads": 8, "processes": 1}, True, 2, []),  # of a larger machine
        (None, {"threads": 1, "processes": 2}, False, 2, []),
        (1, {}, False, 1, []),
        (2, BEGUN_ON_ONE, True, 2, []),
    ],
)
def test_threads_are_those_asked_for_or_of_the_run_or_one_beside_others(
    two_threads, monkeypatch, asked, payload, others, threads, told
):
    monkeypatch.setattr(resuming, "busy", lambda: others)
    assert settle_threads(asked, payload, torch.device("cpu")) == told
    assert torch.get_num_threads() == threads


def test_the_number_that_a_user_gave_openmp_stays(two_threads, monkeypatch):
    monkeypatch.setattr(resuming, "busy", lambda: True)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert settle_threads(None, BEGUN_ON_ONE, torch.device("cpu")) == []
    assert torch.get_num_threads() == 2


def test_a_run_goes_on_with_its_threads(two_threads, monkeypatch, tmp_path, store):
    """Their number changes last bits, so a resumed run does not choose again."""
    used, told = [], []
    for total_kimg, others in ((0.008, True), (0.016, False)):
        monkeypatch.setattr(resuming, "busy", lambda others=others: others)
        config = tiny_config(schedule={"total_kimg": total_kimg})
        report = lambda progress: used.append(torch.get_num_threads())  # noqa: E731
        start(config, store, tmp_path / "run", **QUIET, console=Heard(told, act=report))
        assert torch.get_num_threads() == 2  # as before
    assert set(used) == {1}
    assert f"1 thread, {OTHERS}; --threads 2 changes it" in told
    assert "1 thread, as before; --threads 2 changes it" in told


@pytest.mark.parametrize(
    ("durations", "median"),
    [
        ([0.9, 0.1, 0.3, 0.2, 0.1, 0.1, 9.0], 0.1),
        ([30, 7, 9, 1], 8),
        ([2, 1.5, 1, 2, 9], 1.5),
    ],
)
def test_a_step_takes_the_median_after_the_first(monkeypatch, durations, median):
    times = iter(durations)
    monkeypatch.setattr(costs, "timed_step", lambda *_: next(times))
    state = TrainState.create(tiny_config())
    assert costs.median_step(state, stage()) == pytest.approx(median)
