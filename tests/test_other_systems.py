"""Windows, by what it lacks."""

import json
from pathlib import Path

import pytest
from helpers import windows
from helpers.commands import pixels
from helpers.processes import printed
from helpers.tiny_training import SHORT, tiny_config, write_pictures

from stylegan.config import to_toml
from stylegan.run_folder import RunFolder


def without_posix(folder, *commands):
    """What these commands print, one after the other in one such process."""
    lines = json.dumps([[str(word) for word in command] for command in commands])
    return printed(folder, "-W", "error", windows.__file__, lines)


def test_generating_needs_nothing_of_posix(tmp_path, source):
    command = ["generate", source, "--seeds", "0-1", "--device", "cpu", "--out"]
    without_posix(tmp_path, [*command, "there"])
    (tmp_path / "here").mkdir()
    printed(tmp_path, "-m", "stylegan", *command, "here")
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert names
    for name in names:
        assert (pixels(tmp_path / "here" / name) == pixels(tmp_path / "there" / name)).all()


@pytest.mark.slow
def test_a_run_is_trained_continued_and_looked_at(tmp_path):
    """Preparing, locking, saving and what stands on them."""
    write_pictures(tmp_path / "pictures")
    (tmp_path / "tiny.toml").write_text(to_toml(tiny_config(schedule=SHORT)))
    run = ["--data", "pictures", "--config", "tiny.toml", "--out", "run", "--device", "cpu"]
    prepared = ["prepare", "pictures", "store", "--resolution", "8"]
    half = ["train", *run, "-o", "schedule.total_kimg=0.008"]
    figure = ["figure", "truncation", "run", "--out", "figure.png", "--device", "cpu"]
    metrics = ["metrics", "run", "--metrics", "swd8", "--device", "cpu"]
    told = without_posix(tmp_path, prepared, half, ["train", *run], figure, metrics, ["cache"])
    assert "continuing from" in told and "run is finished" in told
    assert RunFolder(tmp_path / "run").saved() == 12
    assert {path.name for path in tmp_path.iterdir()} >= {"store", "run", "figure.png"}
    assert [p for p in tmp_path.rglob("*.*") if "partial" in p.name or "unfinished" in p.name] == []


def test_names_of_posix_alone_stand_nowhere_else():
    """`os.name` and the like in the package that Windows has not, but for what asks first."""
    absent = {"fork", "sysconf", "getuid", "geteuid", "mkfifo", "sched_getaffinity", "getloadavg"}
    words = [f"os.{name}" for name in absent] + ['"/proc', "/dev/"]
    package = Path(windows.__file__).parents[2] / "stylegan"
    found = {
        (path.name, word)
        for path in package.rglob("*.py")
        for word in words
        if word in path.read_text(encoding="utf-8")
    }
    assert found == set()
