"""Damaged files of every kind that the project reads; the whole set is `python tools/fuzz.py`."""

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

TOOLS = Path(__file__).parents[1] / "tools"
sys.path.insert(0, str(TOOLS))
import fuzz  # noqa: E402

FILES = 60


@pytest.mark.slow
def test_damaged_files_are_read_or_refused_with_one_line_that_names_them(tmp_path):
    result = CliRunner().invoke(
        fuzz.main, ["--files", str(FILES), "--keep", str(tmp_path / "findings")]
    )
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == [target.name for target in fuzz.TARGETS]
    for _, files, loaded, refused, findings, *_ in rows:
        assert int(files) == FILES
        assert int(loaded) + int(refused) == FILES
        assert int(refused) > 0
        assert int(findings) == 0
    assert not (tmp_path / "findings").exists()


def test_the_same_seed_does_the_same_damage():
    data = bytes(range(256)) * 4
    for mutate in (fuzz.damage.anything, *fuzz.damage.SIMPLE):
        assert mutate(data, fuzz.Random("0")) == mutate(data, fuzz.Random("0"))
    damaged = {fuzz.damage.anything(data, fuzz.Random(str(seed))) for seed in range(50)}
    assert len(damaged) > 45


# What the harness must notice


def crash(path):
    os.abort()


def print_something(path):
    os.write(2, b"words")


def warn(path):
    warnings.warn("words", stacklevel=1)


def run_a_command(path):
    os.system("true")


def run_code(path):
    exec("pass")


def start_a_process(path):
    subprocess.run(["true"], check=True)


def write_outside(path):
    (path.parents[2] / "outside.txt").write_text("words")


def take_memory(path):
    _ = b"x" * (600 * 2**20)


def fail_to_take_memory(path):
    try:
        bytearray(2**45)
    except MemoryError as error:
        raise ValueError(f"{path} is damaged") from error


def hang(path):
    time.sleep(600)


def raise_another_error(path):
    raise KeyError("words")


def raise_without_a_name(path):
    raise ValueError("words")


def raise_several_lines(path):
    raise ValueError(f"{path}\nwords")


def refuse(path):
    raise ValueError(f"{path} is damaged")


FINDINGS = {  # the last three spoil or end the process
    refuse: "",
    print_something: "printed 'words'",
    warn: "warned: UserWarning: words",
    run_a_command: "did os.system",
    run_code: "did exec",
    start_a_process: "did subprocess.Popen",
    write_outside: "did open",
    fail_to_take_memory: "asked for more memory than there is",
    raise_another_error: "KeyError at test_fuzz.py",
    raise_without_a_name: "that does not name f.txt",
    raise_several_lines: "several lines",
    take_memory: "MiB",
    crash: "ended the process with exit code -6",
    hang: "hangs: no answer for 1 s",
}


def read_by_name(path):
    """Do what the file says; nothing for "good"."""
    action = path.read_text()
    if action != "good":
        globals()[action](path)


def make_good(folder):
    return [b"good"]


def keep(data, rng):
    return data


def test_the_harness_notices_whatever_is_improper(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    target = fuzz.Target("test", "f.txt", make_good, keep, read_by_name)
    with fuzz.Reader(scratch) as reader:
        sample = fuzz.Sample(target, scratch)
        assert reader.read(sample, b"good").loaded
        for action, finding in FINDINGS.items():
            if reader.process is None:
                reader.read(sample, b"good")
            if action is hang:
                monkeypatch.setattr(fuzz, "MAX_WAIT", 1)
            found = reader.ask(sample, action.__name__.encode()).finding
            assert finding in found
            assert bool(finding) == bool(found)


@pytest.mark.parametrize("target", fuzz.TARGETS, ids=lambda target: target.name)
def test_every_mutation_changes_most_files(target, tmp_path):
    good = fuzz.Sample(target, tmp_path).good
    changed = sum(target.mutate(good[0], fuzz.Random(str(seed))) != good[0] for seed in range(20))
    assert changed >= 15
