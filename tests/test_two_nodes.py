"""Two machines, as two launches of torchrun that meet on the loopback, train as one with two."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_training import differing, write_pictures

from stylegan.files import checkpoint
from stylegan.run_folder import RunFolder

ROOT = Path(__file__).parents[1]
CONFIG = """
noise = "const"
r1_gamma = 1.0
log_kimg = 0.004
snapshot_ticks = 2
[network]
resolution = 16
max_channels = 6
z_dim = 5
w_dim = 7
mapping_layers = 2
mapping_width = 6
[schedule]
initial_resolution = 4
stable_kimg = 0.024
fade_kimg = 0.040
total_kimg = 0.320
batch_size = { 4 = 4 }
tick_kimg = { 4 = 0.040 }
"""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    write_pictures(folder / "pictures")
    (folder / "tiny.toml").write_text(CONFIG)
    return folder


def training(folder, out):
    """The command that trains in the folder of that name."""
    command = [ROOT / "train.py", "--data", folder / "pictures", "--config", folder / "tiny.toml"]
    command += ["--out", folder / out, "--no-tensorboard", "--no-preflight", "--device", "cpu"]
    return command


def measuring(folder, out):
    """The command that measures the run "one"; results go into the file of that name."""
    command = ["-m", "stylegan", "metrics", folder / "one", "--metrics", "swd64"]
    return [*command, "--out", folder / out, "--device", "cpu"]


def started(folder, *command):
    """A program of Python in a group of processes of its own."""
    known = os.environ | {"STYLEGAN_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, *(str(word) for word in command)]
    with (folder / "out.txt").open("ab") as out:
        return subprocess.Popen(
            words,
            env=known,
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def launch(folder, *options, out, program=training):
    return started(folder, "-m", "torch.distributed.run", *options, *program(folder, out))


def two_nodes(folder, *, out, program=training):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    options = ("--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3")
    options += ("--rdzv-backend", "c10d", "--rdzv-id", out, "--rdzv-endpoint", f"localhost:{port}")
    return [launch(folder, *options, out=out, program=program) for _ in range(2)]


def ended(folder, *launched):
    """Exit codes; whatever still runs at the end of the patience is killed, with its children."""
    deadline = time.monotonic() + 300
    try:
        return [each.wait(max(deadline - time.monotonic(), 1)) for each in launched]
    finally:
        for each in launched:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)


def last_state(folder, out):
    return checkpoint.load(RunFolder(folder / out).states()[-1])


@pytest.fixture(scope="module")
def whole(folder):
    """What one machine with two processes comes to."""
    alone = launch(folder, "--standalone", "--nproc-per-node", "2", out="one")
    assert ended(folder, alone) == [0], (folder / "out.txt").read_text()[-3000:]
    return last_state(folder, "one")


def test_two_nodes_train_as_one_with_two_processes(folder, whole):
    assert ended(folder, *two_nodes(folder, out="two")) == [0, 0]
    assert differing(last_state(folder, "two"), whole) == []


def test_two_nodes_measure_what_one_with_two_processes_does(folder, whole):
    options = ("--standalone", "--nproc-per-node", "2")
    alone = launch(folder, *options, out="one.jsonl", program=measuring)
    assert ended(folder, alone) == [0], (folder / "out.txt").read_text()[-3000:]
    nodes = two_nodes(folder, out="two.jsonl", program=measuring)
    assert ended(folder, *nodes) == [0, 0], (folder / "out.txt").read_text()[-3000:]
    one, two = (json.loads((folder / name).read_text()) for name in ("one.jsonl", "two.jsonl"))
    assert one["values"] == two["values"] and one["protocol"]["processes"] == 2


def test_nodes_that_share_a_range_of_seeds_write_the_pictures_of_one(folder, whole):
    command = ["-m", "stylegan", "generate", folder / "one", "--no-grid", "--device", "cpu"]
    ranges = (("all", "0-7"), ("parts", "0-3"), ("parts", "4-7"))
    nodes = [started(folder, *command, "--seeds", s, "--out", folder / out) for out, s in ranges]
    assert ended(folder, *nodes) == [0, 0, 0], (folder / "out.txt").read_text()[-3000:]
    all_of_them = {path.name: path.read_bytes() for path in (folder / "all").iterdir()}
    parts = {path.name: path.read_bytes() for path in (folder / "parts").iterdir()}
    assert len(parts) == 8 and parts == all_of_them
