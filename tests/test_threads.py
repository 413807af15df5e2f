"""Threads: how OpenMP's wait, how many train, and what a step is said to take."""

import subprocess
import sys

import pytest
import torch
from helpers.tiny_training import tiny_config

from stylegan import threads
from stylegan.schedule import Stage, coming
from stylegan.training import preflight, start
from stylegan.training.preflight import Trial


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


def test_what_the_user_chose_stays(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    machine(monkeypatch, 100)
    threads.wait_briefly_if_busy()
    assert "GOMP_SPINCOUNT" not in threads.os.environ


def test_a_busy_core_is_seen():
    """By the real counters: a child that computes keeps a core from idling."""
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        try:
            assert threads.busy()
        finally:
            child.kill()


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def tried(**options):
    config = tiny_config()
    return Trial(config, torch.device("cpu")).run(coming(config.schedule, 0), **options)


@pytest.mark.parametrize(
    ("two", "one", "others", "said"),
    [
        (1.0, 1.8, False, "2 threads: 1.8 times as fast as one"),
        (1.0, 1.05, False, "1 thread: 2 are hardly faster"),
        (1.0, 1.8, True, "2 threads: 1.8 times as fast as one"),
        (5.0, 1.0, True, "1 thread: 2 are slower while other programs use the cores"),
    ],
)
def test_a_run_takes_as_many_threads_as_pay(two_threads, monkeypatch, two, one, others, said):
    monkeypatch.setattr(preflight, "busy", lambda: others)
    seconds = {2: two, 1: one}
    monkeypatch.setattr(preflight, "timed_step", lambda *_: seconds[torch.get_num_threads()])
    trial = tried(choose_threads=True)
    assert trial.threads == [said]
    assert torch.get_num_threads() == int(said[0])
    batch = 4  # images, of which the same steps tell the cost
    assert trial.costs[16].seconds_per_image == seconds[int(said[0])] / batch


def test_the_user_and_long_steps_decide_the_threads(two_threads, monkeypatch):
    monkeypatch.setattr(preflight, "CPU_RATE", 1.0)
    long = "2 threads: in long steps every core helps"
    assert tried(choose_threads=True).threads == [long]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert tried(choose_threads=True).threads == []
    assert torch.get_num_threads() == 2


def test_a_run_goes_on_with_its_threads(two_threads, monkeypatch, tmp_path, mixed):
    """Their number changes last bits, so a resumed run does not choose again."""
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(preflight, "timed_step", lambda *_: 1.0)  # one thread is as fast
    used, told = [], []
    for total_kimg in (0.008, 0.016):
        config = tiny_config(schedule={"total_kimg": total_kimg})
        report = lambda progress: used.append(torch.get_num_threads())  # noqa: E731
        start(config, mixed, tmp_path / "run", report=report, tell=told.append)
        assert torch.get_num_threads() == 2  # as before
    assert set(used) == {1}
    assert "1 thread, as before; OMP_NUM_THREADS=2 changes it" in told


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
    monkeypatch.setattr(preflight, "timed_step", lambda *_: next(times))
    trial = Trial(tiny_config(), torch.device("cpu"))
    (seconds,) = trial.median_step(Stage(8, 1.0, 4, 1e-3, 1e-3, 1.0), [1])
    assert seconds == pytest.approx(median)
