"""Two processes of which one dies, or hangs, or that lose torchrun: the others end."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import timedelta

import psutil
import pytest
import torch
import torch.distributed as dist
from helpers import ROOT
from helpers.consoles import RecordingConsole
from helpers.processes import TIMEOUT_SECONDS, environment, free_port, printed
from helpers.runs import json_lines, log_of
from helpers.tiny_training import tiny_config, write_pictures

from stylegan.cli.common import echo
from stylegan.config import to_toml
from stylegan.files import checkpoint
from stylegan.files.run_folder import RunFolder
from stylegan.utils import console, distributed
from stylegan.utils.signals import signal_handler


def events(out, name):
    """The images seen at each event of that name; a line being written counts not yet."""
    path = out / "log.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [line["images_seen"] for line in json_lines(whole) if line["event"] == name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lost")
    write_pictures(folder / "pictures")
    endless = {"initial_resolution": 8, "total_kimg": 1000.0, "tick_kimg": {4: 0.04}}
    config = tiny_config(num_processes=2, schedule=endless, network={"deviation_group": 2})
    (folder / "tiny.toml").write_text(to_toml(config))
    return folder


IMPATIENT = """
from datetime import timedelta
from stylegan.cli import main
from stylegan.utils import distributed
distributed.MAX_STEP = timedelta(seconds=30)
main()
"""


def start_two(folder, out):
    """The processes of a run, as torchrun starts them, which wait for half a minute in a step."""
    words = ["--data", "pictures", "--out", out, "--config", "tiny.toml", "--device", "cpu"]
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            [sys.executable, "-c", IMPATIENT, "train", *words],
            cwd=folder,
            env=environment(folder, **group, RANK=str(rank), LOCAL_RANK=str(rank)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]


def wait_for_progress(out, process):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not any(n > 80 for n in events(out, "progress")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "why"),
    [(signal.SIGKILL, "by peer"), (signal.SIGSTOP, "Timed out")],
    ids=["killed", "stopped"],
)
def test_train_saves_and_exits_when_another_process_is_lost(folder, number, why):
    out = folder / number.name
    first, second = start_two(folder, out.name)
    try:
        wait_for_progress(out, first)
        second.send_signal(number)
        text = first.communicate(timeout=TIMEOUT_SECONDS)[0]
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    assert first.returncode == 4, text
    message = f"process 0 of 2 has lost contact with another at image .*continues.*{why}"
    assert re.search(message, text), text
    saved = checkpoint.load(RunFolder(out).states()[-1])
    assert saved["images_seen"] >= 80
    assert log_of(out)[0]["processes"] == 2


TWICE = """
import torch
from stylegan.utils import distributed
for _ in range(2):
    with distributed.process_group(torch.device("cpu")):
        print(distributed.all_gather(distributed.rank()), flush=True)
"""


@pytest.mark.slow
def test_processes_of_torchrun_may_meet_twice(tmp_path):
    (tmp_path / "twice.py").write_text(TWICE)
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "twice.py"]
    assert printed(tmp_path, *words).count("[0, 1]") == 4


def test_process_group_does_not_wait_if_torchrun_is_gone(monkeypatch):
    for name, value in (("TORCHELASTIC_RUN_ID", "1"), ("TORCHELASTIC_USE_AGENT_STORE", "True")):
        monkeypatch.setenv(name, value)
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "1"), ("MASTER_ADDR", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    with (
        pytest.raises(ConnectionError, match="torchrun does not answer at"),
        distributed.process_group(torch.device("cpu")),
    ):
        pass


def test_exit_with_torchrun_sends_sigterm_when_torchrun_is_gone(monkeypatch):
    received = []
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setattr(distributed, "WATCH_SECONDS", 0.01)
    with (
        signal_handler([signal.SIGTERM], lambda number, frame: received.append(number)),
        distributed.exit_with_torchrun(),
    ):
        time.sleep(0.05)
        assert received == []
        monkeypatch.setattr(distributed, "PARENT", -1)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not received:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert received == [signal.SIGTERM]


def test_process_group_reports_late_processes(monkeypatch):
    told = []
    monkeypatch.setattr(distributed, "LATE_SECONDS", 0.01)
    monkeypatch.setattr(distributed, "MAX_STEP", timedelta(seconds=1))
    group = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    for name, value in (group | {"MASTER_PORT": (port := str(free_port()))}).items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(dist.DistError, match="1/2 clients joined"),
        distributed.process_group(torch.device("cpu"), RecordingConsole(told)),
    ):
        pass
    assert told == [f"waiting for the other 1 of 2 processes at 127.0.0.1:{port}"]


@pytest.mark.parametrize(
    ("device", "error", "destroyed"),
    [
        ("cuda:0", None, True),
        ("cuda:0", KeyboardInterrupt, True),
        ("cuda:0", SystemExit, True),
        ("cuda:0", MemoryError, False),
        ("cpu", MemoryError, True),
    ],
)
def test_process_group_of_gpus_is_left_after_an_error(device, error, destroyed, monkeypatch):
    """To destroy it would wait for the other processes, before anything is printed."""
    called = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(dist, "rendezvous", lambda *_, **__: iter([(dist.HashStore(), 0, 2)]))
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: called.append("destroy"))
    monkeypatch.setattr(distributed, "control_group", lambda: None)
    raised = pytest.raises(error) if error else nullcontext()
    try:
        raise MemoryError  # of a larger training, which a script has caught
    except MemoryError:
        with raised, distributed.process_group(torch.device(device)):
            if error:
                raise error from None
    assert called == ["destroy"] * destroyed


def test_echo_prints_on_every_rank_outside_a_process_group(monkeypatch, capsys):
    """Its lines are of the first process of a group only once it is in one."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    echo("a line")
    monkeypatch.setattr(console, "joined_rank", 1)
    echo("a line of another")
    assert capsys.readouterr().out == "a line\n"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="Windows knows no parents that are gone")
@pytest.mark.parametrize("met", [False, True])
def test_train_ends_on_all_ranks_when_torchrun_is_killed(met, folder):
    out = folder / f"torchrun-{met}"
    words = ["--data", "pictures", "--out", out, "--config", "tiny.toml", "--device", "cpu"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    process = subprocess.Popen(
        [*torchrun, str(ROOT / "train.py"), *map(str, words)], cwd=folder, env=environment(folder)
    )
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(workers := psutil.Process(process.pid).children()) < 2:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        if met:
            wait_for_progress(out, process)
    finally:
        process.kill()
        process.wait()
    _, left = psutil.wait_procs(workers, timeout=120)  # seconds, but for a busy machine
    for worker in left:
        worker.kill()
    assert left == []
    if met:
        assert log_of(out)[-1]["event"] == "stopped"
