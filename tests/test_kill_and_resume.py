"""A run that is killed at random moments ends with the bits of one that nothing happened to."""

import contextlib
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest
from helpers.processes import environment, free_port
from helpers.tiny_training import write_pictures

from stylegan.files import checkpoint
from stylegan.files.run_folder import RunFolder
from stylegan.utils.records import read_lines

PATIENCE = 300  # seconds
CONFIG = """\
r1_gamma = 1.0
log_kimg = 0.04
snapshot_ticks = 2
[network]
resolution = 16
max_channels = 16
z_dim = 16
w_dim = 16
mapping_layers = 2
mapping_width = 16
[schedule]
initial_resolution = 4
stable_kimg = 0.4
fade_kimg = 0.4
total_kimg = 2.4
batch_size = { 4 = 8 }
tick_kimg = { 4 = 0.08 }  # a state every ten steps
[data]
mirror = true
"""


class Training:
    """The train command as a process of its own, and its run folder."""

    def __init__(self, folder, name, processes=1):
        self.folder, self.run = folder, RunFolder(folder / name)
        launcher = []
        if processes > 1:
            launcher = ["-m", "torch.distributed.run", "--standalone", "--max-restarts=3"]
            launcher += [f"--nproc-per-node={processes}"]
        options = [f"--config={folder / 'small.toml'}", f"--data={folder / 'pictures'}"]
        options += [f"--out={self.run.path}", "--device=cpu", "--no-preflight"]
        self.command = [sys.executable, *launcher, "-m", "stylegan", "train", *options]

    def start(self):
        with open(self.folder / f"{self.run.path.name}.txt", "ab") as output:
            return subprocess.Popen(
                self.command, env=environment(self.folder), stdout=output, stderr=output
            )

    def finish(self):
        assert self.start().wait(PATIENCE) == 0, self.printed()

    def printed(self):
        return (self.folder / f"{self.run.path.name}.txt").read_text()

    def until(self, condition, process):
        """Wait until the condition holds or the process has ended."""
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and not condition():
            assert time.monotonic() < deadline, self.printed()
            time.sleep(0.002)

    def end(self, process, number):
        """Send a signal to the process and all that it has started."""
        if process.poll() is None:
            family = [*psutil.Process(process.pid).children(recursive=True), process]
            for one in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.send_signal(number)
            psutil.wait_procs(family[:-1], PATIENCE)
        process.wait(PATIENCE)

    def check_files(self):
        """Every file under its name is whole."""
        for path in [*self.run.states(), *self.run.generators()]:
            checkpoint.load(path)

    def disturb(self, dice):
        """Start, and kill: while it starts, while it trains, or in the middle of a save."""
        process, states = self.start(), len(self.run.states())
        moment = dice.choice(["start", "training", "save", "signal"])
        if moment == "start":
            time.sleep(dice.uniform(0, 8))
        else:
            self.until(lambda: len(self.run.states()) > min(states, 2), process)
            time.sleep(dice.uniform(0, 0.5))
        if moment == "save":
            self.until(lambda: any(self.run.path.glob(".*.partial")), process)
        self.end(process, signal.SIGTERM if moment == "signal" else signal.SIGKILL)
        self.check_files()


def last_files(training):
    """Names and bytes of the last state and generator."""
    newest = [training.run.states()[-1], training.run.generators()[-1]]
    return [(path.name, path.read_bytes()) for path in newest]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    (folder / "small.toml").write_text(CONFIG)
    write_pictures(folder / "pictures", n=40)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "kills"), [(1, 8), (2, 4)])
def test_resume_after_random_kills_equals_an_uninterrupted_run(folder, processes, kills):
    whole = Training(folder, f"whole-{processes}", processes)
    whole.finish()
    disturbed = Training(folder, f"disturbed-{processes}", processes)
    dice = random.Random(f"{processes}")
    for _ in range(kills):
        disturbed.disturb(dice)
    disturbed.finish()
    assert last_files(disturbed) == last_files(whole)


@pytest.mark.slow
def test_two_machines_train_as_one_with_two_processes(folder):
    """Each has a process of local rank 0; only rank 0 of all may write."""
    whole, apart = (Training(folder, name, 2) for name in ("whole-2", "machines"))
    if not whole.run.states():
        whole.finish()
    place = apart.command.index("--standalone")
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}"]
    apart.command[place : place + 3] = ["--nnodes=2", "--nproc-per-node=1", *meeting]
    machines = [apart.start() for _ in range(2)]
    try:
        assert [one.wait(PATIENCE) for one in machines] == [0, 0], apart.printed()
    finally:
        for one in machines:
            apart.end(one, signal.SIGKILL)
    assert last_files(apart) == last_files(whole)
    events = [line["event"] for line in read_lines(apart.run.log_file, "event")[0]]
    assert events.count("start") == 1
