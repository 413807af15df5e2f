"""A run that is interrupted, or killed, is continued by the same command, exactly."""

import json
import signal
import time

import pytest
from processes import TIMEOUT_SECONDS, command
from tiny_training import differing, tiny_config, write_pictures

from stylegan.config import to_toml
from stylegan.files import checkpoint
from stylegan.run_folder import RunFolder

pytestmark = pytest.mark.slow
FADE = range(64, 232)  # images within which 16x16 grows in
SCHEDULE = {
    "initial_resolution": 8,
    "stable_kimg": 0.040,
    "fade_kimg": 0.200,
    "total_kimg": 0.252,
    "tick_kimg": {4: 0.040},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupts")
    write_pictures(folder / "pictures")
    (folder / "tiny.toml").write_text(to_toml(tiny_config(schedule=SCHEDULE)))
    return folder


def start(folder, out):
    """The train command as a process of its own."""
    paths = ["--data", "pictures", "--config", "tiny.toml", "--out", out]
    return command(folder, "train", *paths, "--device", "cpu", "--no-tensorboard")


def events(out, name):
    """The images seen at each event of that name; a line being written counts not yet."""
    path = out / "log.jsonl"
    text = path.read_text() if path.exists() else ""
    records = [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]
    return [record["images_seen"] for record in records if record["event"] == name]


def interrupt_in_the_fade(processes):
    """Sends each its signal some steps into the fade-in; {(process, run folder): signal}."""
    waiting, deadline = dict(processes), time.monotonic() + TIMEOUT_SECONDS
    while waiting:
        for (process, out), number in list(waiting.items()):
            assert process.poll() is None, process.communicate()[0]
            if any(n in FADE for n in events(out, "progress")):
                process.send_signal(number)
                del waiting[process, out]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def finish(process):
    """What the process printed, and its exit code."""
    text = process.communicate(timeout=TIMEOUT_SECONDS)[0]
    return text, process.returncode


def newest_state(out):
    return checkpoint.load(RunFolder(out).states()[-1])


@pytest.fixture(scope="module")
def uninterrupted(folder):
    return start(folder, "whole"), folder / "whole"


@pytest.fixture(scope="module")
def interrupted(folder, uninterrupted):
    """The runs that were sent each signal, and what they had printed, returned and saved then."""
    numbers = {"ctrl-c": signal.SIGINT, "killed": signal.SIGKILL}
    processes = {(start(folder, name), folder / name): number for name, number in numbers.items()}
    interrupt_in_the_fade(processes)
    return {
        number: (out, *finish(process), newest_state(out)["images_seen"])
        for (process, out), number in processes.items()
    }


@pytest.fixture(scope="module")
def continued(folder, interrupted):
    """What the same commands print then."""
    processes = {number: start(folder, out.name) for number, (out, *_) in interrupted.items()}
    return {number: finish(process) for number, process in processes.items()}


@pytest.fixture(scope="module")
def whole(uninterrupted, continued):
    """The finished run that nothing interrupted, and its last state."""
    process, out = uninterrupted
    text, code = finish(process)
    assert (code, "whole is finished, with 252 images seen" in text) == (0, True), text
    return out, newest_state(out)


def test_ctrl_c_in_a_fade_in_saves_and_the_same_command_continues(interrupted, continued, whole):
    out, text, code, saved = interrupted[signal.SIGINT]
    assert code == 130
    assert "Traceback" not in text
    assert events(out, "stopped") == [saved]
    assert saved in FADE
    assert f"stopped after {saved} images; the same command continues" in text
    text, code = continued[signal.SIGINT]
    assert code == 0, text
    assert f"state-{saved:09d}.pt" in text
    assert events(out, "resume") == [saved]
    assert events(out, "progress") == list(range(4, 253, 4))
    assert differing(newest_state(out), whole[1]) == []


def test_a_killed_run_continues_from_its_last_state(interrupted, continued, whole):
    out, _, code, saved = interrupted[signal.SIGKILL]
    assert code == -signal.SIGKILL
    text, code = continued[signal.SIGKILL]
    assert code == 0, text
    assert events(out, "resume") == [saved]
    progress = events(out, "progress")
    again = len(progress) - 1 - progress[::-1].index(saved + 4)
    reached = progress[again - 1]
    assert reached in FADE
    assert reached - 40 <= saved <= reached  # a state every 40 images
    assert progress[again:] == list(range(saved + 4, 253, 4))
    assert differing(newest_state(out), whole[1]) == []
