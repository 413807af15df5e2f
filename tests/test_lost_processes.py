"""Two processes of which one dies, or hangs: the other ends, and says where."""

import re
import signal
import time

import pytest
from helpers.processes import TIMEOUT_SECONDS, command, free_port
from helpers.runs import json_lines, log_of
from helpers.tiny_training import tiny_config, write_pictures

from stylegan.config import to_toml
from stylegan.files import checkpoint
from stylegan.run_folder import RunFolder


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


def start_two(folder, out, *options):
    """The processes of a run, as torchrun starts them."""
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    words = ["--data", "pictures", "--out", out, "--config", "tiny.toml", "--device", "cpu"]
    return [
        command(folder, "train", *words, *options, **group, RANK=str(rank), LOCAL_RANK=str(rank))
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
    ("number", "code", "message"),
    [
        (signal.SIGKILL, 4, "process 0 of 2 has lost contact with another, at image .*continues"),
        (signal.SIGSTOP, 1, "Timeout"),  # then where each thread is
    ],
    ids=["killed", "stopped"],
)
def test_when_one_of_two_is_gone_the_other_ends_and_says_where(folder, number, code, message):
    out = folder / number.name
    first, second = start_two(folder, out.name, "--hang-minutes", "0.4")
    try:
        wait_for_progress(out, first)
        second.send_signal(number)
        text = first.communicate(timeout=TIMEOUT_SECONDS)[0]
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    assert first.returncode == code, text
    assert any(re.search(message, line) for line in text.splitlines())
    saved = checkpoint.load(RunFolder(out).states()[-1])
    assert saved["images_seen"] >= 80
    assert log_of(out)[0]["processes"] == 2
