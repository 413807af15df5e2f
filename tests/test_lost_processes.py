"""Two processes of which one dies, or hangs: the other ends, and says where."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from test_distributed import free_port
from test_interrupts import OPTIONS, ROOT, as_toml, events
from tiny_training import write_pictures

from stylegan.files import checkpoint
from stylegan.run_folder import RunFolder

SECONDS = 600


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lost")
    write_pictures(folder / "pictures")
    schedule = OPTIONS["schedule"] | {"total_kimg": 1000.0}  # until something happens
    network = OPTIONS["network"] | {"deviation_group": 2}
    (folder / "tiny.toml").write_text(as_toml(OPTIONS | {"schedule": schedule, "network": network}))
    return folder


def start_two(folder, out, *options):
    """The processes of a run, as torchrun starts them."""
    port = free_port()
    command = [sys.executable, "-m", "stylegan", "train", "--data", "pictures", "--out", out]
    settings = ["--config", "tiny.toml", "--device", "cpu", "--no-tensorboard", *options]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "STYLEGAN_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return [
        subprocess.Popen(
            [*command, *settings],
            cwd=folder,
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]


def wait_for_progress(out, process):
    deadline = time.monotonic() + SECONDS
    while not any(n > 80 for n in events(out, "progress")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGKILL, "process 0 of 2 has lost contact with another, at image "),
        # where the other was stopped decides what for: a step, or a file that both agree on
        (
            signal.SIGSTOP,
            "process 0 of 2 has waited 0.05 minutes (in a step|for files), at image ",
        ),
    ],
    ids=["killed", "stopped"],
)
def test_when_one_of_two_is_gone_the_other_ends_naming_the_stage(folder, number, message):
    out = folder / number.name
    first, second = start_two(folder, out.name, "--hang-minutes", "0.05")
    try:
        wait_for_progress(out, first)
        second.send_signal(number)
        text = first.communicate(timeout=SECONDS)[0]
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    assert first.returncode == 4, text
    line = next(line for line in text.splitlines() if re.search(message, line))
    assert "resolution 8, batch 4" in line or "resolution 16" in line
    assert "The same command continues" in text or "the same command continues" in text
    saved = checkpoint.load(RunFolder(out).states()[-1])
    assert saved["images_seen"] >= 80
    assert json.loads((out / "log.jsonl").read_text().splitlines()[0])["processes"] == 2
