"""The attacks on every command: what they notice, and that they find nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tools" / "attacks"


def attacked(*words):
    command = [sys.executable, str(FOLDER), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout


def test_twenty_attempts_find_nothing():
    found = attacked("--attempts=20", "--kind=options", "--seed=7")
    assert found.splitlines()[-1] == "20 attempts, 0 failed", found


@pytest.mark.slow
def test_eighty_attempts_that_no_moment_decides_find_nothing():
    """The other kinds depend on the moment of a signal or the speed of a disk: run them by hand."""
    kinds = ("--kind=options", "--kind=files", "--kind=folders")
    found = attacked("--attempts=80", "--seed=8", *kinds)
    assert found.splitlines()[-1] == "80 attempts, 0 failed", found


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from place import Place

    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "mine.txt").write_text("mine")
    return Place(tmp_path / "place", tmp_path / "base")


@pytest.mark.parametrize(
    ("code", "printed", "fault"),
    [
        (0, "fine\n", None),
        (1, "Error: no file x\n", None),
        (None, "", "hangs"),
        (1, "Traceback (most recent call last)\nKeyError: 3\n", "traceback: KeyError: 3"),
        (0, "Exception ignored in: x\nOSError: y\n", "traceback: OSError: y"),
        (1, "", "exit code 1 without a reason"),
        (-11, "", "exit code -11"),
        (0, "\x1b[31m", r"prints raw '\x1b'"),
    ],
)
def test_what_a_command_must_not_do_is_noticed(place, code, printed, fault):
    from place import Ended

    found = place.faults(Ended(code, printed, 1.0))
    assert [one.startswith(fault) for one in found] == ([True] if fault else [])


def test_what_is_lost_or_left_is_noticed(place):
    from place import Ended

    def found(code, **options):
        return place.faults(Ended(code, "Error: x", 1.0), **options)

    (place.mine / "new.txt").touch()
    assert found(1) == ["left: 'new.txt'"]
    assert found(0) == found(1, makes=True) == []
    (place.mine / ".x.partial").touch()
    (place.mine / "mine.txt").write_text("other")
    assert found(0) == ["changed: 'mine.txt'", "left: '.x.partial'"]
    assert found(0, changes=["mine.txt"]) == ["left: '.x.partial'"]
    (place.mine / "mine.txt").unlink()
    assert "changed: 'mine.txt'" in found(0)


def test_a_command_runs_in_a_copy_of_the_process_and_cannot_hang_it(place):
    ended = place.run(["info", "mine.txt"])
    assert ended.code == 1 and ended.printed.startswith("Error: ")
    assert place.run(["--help"], lambda: exec("while True: pass"), limit=0.2).code is None
