"""A run that is interrupted, or killed, is continued by the same command, exactly."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny_training import differing, tiny_options, write_pictures

from stylegan import checkpoint
from stylegan.cli import main

ROOT = Path(__file__).parent.parent
FADE = range(64, 232)  # images within which 16x16 grows in
OPTIONS = tiny_options(
    schedule={
        "initial_resolution": 8,
        "stable_kimg": 0.040,
        "fade_kimg": 0.200,
        "total_kimg": 0.252,
        "tick_kimg": {4: 0.040},
    }
)


def as_toml(options):
    def line(name, value):
        if isinstance(value, dict):
            return f"{name} = {{ {', '.join(line(*item) for item in value.items())} }}"
        return f"{name} = {json.dumps(value)}"

    sections = [name for name in options if isinstance(options[name], dict)]
    lines = [line(*item) for item in options.items() if item[0] not in sections]
    for name in sections:
        lines += [f"[{name}]", *(line(*item) for item in options[name].items())]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupts")
    write_pictures(folder / "pictures")
    (folder / "tiny.toml").write_text(as_toml(OPTIONS))
    return folder


def options(out):
    paths = ["--data", "pictures", "--config", "tiny.toml", "--out", out]
    return [*paths, "--device", "cpu", "--no-tensorboard"]


def start(folder, out):
    """The train command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "stylegan", "train", *options(out)],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "STYLEGAN_CACHE": str(folder / "cache"),
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def events(out, name):
    """The images seen at each event of that name; a line being written counts not yet."""
    path = out / "log.jsonl"
    text = path.read_text() if path.exists() else ""
    records = [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]
    return [record["images_seen"] for record in records if record["event"] == name]


def interrupt_in_the_fade(process, out, signal_number):
    """Sends the signal some steps into the fade-in; what the process printed."""
    deadline = time.monotonic() + 60
    while not any(n in FADE for n in events(out, "progress")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal_number)
    return process.communicate(timeout=60)[0]


def finish(folder, out):
    process = start(folder, out)
    text = process.communicate(timeout=120)[0]
    assert process.returncode == 0, text
    return text


def final_state(out):
    return checkpoint.load(checkpoint.numbered(out, "state")[-1])


@pytest.fixture(scope="module")
def uninterrupted(folder):
    assert "whole is finished, with 252 images seen" in finish(folder, "whole")
    return final_state(folder / "whole")


def test_ctrl_c_in_a_fade_in_saves_and_the_same_command_continues(folder, uninterrupted):
    out = folder / "ctrl-c"
    process = start(folder, out.name)
    text = interrupt_in_the_fade(process, out, signal.SIGINT)
    assert process.returncode == 130
    assert "Traceback" not in text
    (stopped,) = events(out, "stopped")
    assert stopped in FADE
    assert f"stopped after {stopped} images; the same command continues" in text
    assert checkpoint.load(out / f"state-{stopped:09d}.pt")["images_seen"] == stopped
    assert f"continuing from {Path(out.name) / f'state-{stopped:09d}.pt'}" in finish(
        folder, out.name
    )
    assert events(out, "resume") == [stopped]
    assert events(out, "progress") == list(range(4, uninterrupted["images_seen"] + 1, 4))
    assert differing(final_state(out), uninterrupted) == []


def test_a_killed_run_continues_from_its_last_state(folder, uninterrupted):
    out = folder / "killed"
    process = start(folder, out.name)
    interrupt_in_the_fade(process, out, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    saved = checkpoint.load(checkpoint.numbered(out, "state")[-1])["images_seen"]
    reached = events(out, "progress")[-1]
    assert reached in FADE
    assert reached - 40 <= saved <= reached  # a state every 40 images
    finish(folder, out.name)
    assert events(out, "resume") == [saved]
    assert differing(final_state(out), uninterrupted) == []


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_says_so_and_changes_nothing(folder, uninterrupted, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("STYLEGAN_CACHE", str(folder / "cache"))
    before = contents(Path("whole"))
    result = CliRunner().invoke(main, ["train", *options("whole")])
    assert "whole is finished, with 252 images seen" in result.output
    assert contents(Path("whole")) == before
