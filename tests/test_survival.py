"""What can go wrong in a run, and that nothing is lost by it."""

import contextlib
import dataclasses
import errno
import json
import math
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import ROOT
from helpers.consoles import RecordingConsole
from helpers.documents import blocks
from helpers.processes import started_python as child
from helpers.runs import contents, log_of
from helpers.stored_files import ABSENT, changed
from helpers.tiny_training import (
    QUIET,
    SCHEDULE,
    SHORT,
    differing,
    largest_file,
    tiny_config,
    train_tiny,
)

from stylegan import load_generator
from stylegan.config import load_config
from stylegan.files import checkpoint
from stylegan.files.run_folder import RunFolder, images_seen_in_name
from stylegan.training import Diverged, Evaluation, Stopped, interrupts, start
from stylegan.training.interrupts import collect_signals
from stylegan.training.run import newest_state
from stylegan.utils.filesystem import ALLOW_OVERWRITE
from stylegan.utils.signals import signal_handler


@pytest.fixture(scope="module")
def stopped(store, tmp_path_factory):
    """The folder of a run that was stopped at image 140."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    train_tiny(tiny_config(), store, out, stop_at=140)
    assert states(out) == [80, 120, 140]
    return out


@pytest.fixture
def begun(stopped, tmp_path):
    """A copy of it to continue."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def going(config, store, out, actions, **options):
    """Train; `actions` are called after the steps that end at their image. What was told."""
    told, stopped_by = [], 0

    def act(progress):
        if progress.images_seen in actions:
            actions[progress.images_seen]()

    try:
        state = start(
            config, store, out, **QUIET, console=RecordingConsole(told, act=act), **options
        )
    except Stopped as stopped:
        stopped_by, state = stopped.signal_number, stopped.state
    usual = ("14 images of ", "2 labels found", "continuing from ")
    return state, [line for line in told if not line.startswith(usual)], stopped_by


def states(out):
    return [images_seen_in_name(path) for path in RunFolder(out).states()]


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "flipped":
        for i in range(64):  # more than the padding between entries, which nobody reads
            content[len(content) // 2 + i] ^= 1
    path.write_bytes(content[: {"truncated": len(content) // 2, "empty": 0}.get(how)])


# Files


def test_resume_skips_a_damaged_newest_state_and_names_it(store, whole, begun):
    newest = begun / "state-000000140.pt"
    for images, how in ((144, "truncated"), (148, "empty")):
        damage(Path(shutil.copy(newest, begun / f"state-{images:09}.pt")), how)
    damage(newest, "flipped")
    state, (line,), _ = going(tiny_config(), store, begun, {})
    assert "state-000000140.pt is " in line
    assert "continuing from state-000000120.pt instead" in line
    assert differing(state.to_payload(), whole[1].to_payload()) == []


def test_newest_state_reports_many_damaged_states_in_a_short_line(begun):
    for images in range(1, 61):
        (begun / f"state-{images:09}.pt").write_bytes(b"no state")
    for path in RunFolder(begun).states():
        damage(path, "empty")
    with pytest.raises(ValueError, match=r"is usable .* and \d\d more\); restore") as caught:
        newest_state(RunFolder(begun))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (partial(damage, how="flipped"), r"no state of .* is usable \(.*state-000000080"),
        (Path.unlink, r"holds results of a run, but no state-\*.pt to resume"),
    ],
)
def test_resume_without_usable_states_changes_nothing(spoil, message, store, begun):
    for path in RunFolder(begun).states():
        spoil(path)
    before = contents(begun)
    with pytest.raises(ValueError, match=message):
        train_tiny(tiny_config(), store, begun)
    assert before == contents(begun)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("g_optimizer", ABSENT, "g_optimizer"),
        ("growth", (8, 2, 1), "growth"),
        ("generator/w_avg", torch.zeros(3), r"w_avg .*\(3,\) .*\(7,\)"),
        ("generator/w_avg", torch.full((7,), math.nan), "w_avg .*7 numbers of 7"),
        ("g_optimizer/state/0/exp_avg_sq", torch.zeros(1), "exp_avg_sq"),
        ("images_seen", 10**30, "images_seen"),
        ("strength/probability", math.nan, "strength.probability"),
        ("scores", [{"x": "y"}], r"scores\.0\.x"),
    ],
)
def test_resume_refuses_a_state_with_wrong_values_and_names_it(place, value, words, store, begun):
    newest = RunFolder(begun).states()[-1]
    payload = changed(checkpoint.load(newest), place, value)
    checkpoint.save(newest, "state", payload, outputs=ALLOW_OVERWRITE)
    with pytest.raises(ValueError, match=rf"000140.pt .*{words}.*remove.* state-000000120.pt"):
        train_tiny(tiny_config(), store, begun)
    newest.unlink()
    path, before = newest_state(RunFolder(begun))
    assert (images_seen_in_name(path), before["images_seen"]) == (120, 120)


def test_run_folder_locked_refuses_a_second_process(store, begun):
    code = (
        "import sys, time; from pathlib import Path; "
        "from stylegan.utils.filesystem import LOCK, lock\n"
        "with lock(Path(sys.argv[1]) / LOCK): print('alone', flush=True); time.sleep(3600)"
    )
    with child(code, begun):
        (begun / ".state-000000144.pt.0123456789abcdef.partial").write_bytes(b"being written")
        before = contents(begun)
        with pytest.raises(ValueError, match=r"another process is training in .*run; wait until"):
            train_tiny(tiny_config(batch_gpu=4), store, begun)
        assert contents(begun) == before
    state = train_tiny(tiny_config(), store, begun)  # the lock has gone with its process
    assert state.finished
    assert not (begun / ".state-000000144.pt.0123456789abcdef.partial").exists()


def test_start_continues_if_the_files_of_its_run_are_removed(store, tmp_path):
    config = tiny_config(schedule=SHORT | {"total_kimg": 0.032})
    out = tmp_path / "run"

    def clear():
        for path in out.iterdir():
            if path.is_file() and path.name != ".lock":  # as `rm run/*` does
                path.unlink()

    actions = {12: clear, 20: lambda: signal.raise_signal(signal.SIGINT)}
    going(config, store, out, actions)
    assert states(out) == [16, 20] and (out / "data.txt").is_file()
    state, whole = (train_tiny(config, store, folder) for folder in (out, tmp_path / "whole"))
    assert differing(state.to_payload(), whole.to_payload()) == []


def test_keep_states_and_milestone_kimg_retain_states(store, tmp_path):
    often = SHORT | {"total_kimg": 0.032, "tick_kimg": {4: 0.004}}
    config = tiny_config(keep_states=2, milestone_kimg=0.012, schedule=often)
    train_tiny(config, store, tmp_path / "run")
    assert states(tmp_path / "run") == [12, 24, 28, 32]  # the first from 12 on, and from 24 on


# Signals and the clock


def test_signals_save_the_state_and_all_but_sigusr1_stop(store, whole, tmp_path):
    seen, out = [], tmp_path / "run"
    sent = {52: signal.SIGUSR1, 60: signal.SIGHUP, 72: signal.SIGTERM}
    actions = {images: partial(signal.raise_signal, number) for images, number in sent.items()}
    actions[56] = lambda: seen.append(states(out))
    stopped_by = [going(tiny_config(), store, out, actions)[2] for _ in range(2)]
    assert (seen, stopped_by) == ([[40, 52]], [signal.SIGHUP, signal.SIGTERM])
    assert states(out) == [52, 60, 72]
    state = train_tiny(tiny_config(), store, out)
    assert differing(state.to_payload(), whole[1].to_payload()) == []


def test_signal_that_torchrun_forwards_counts_once(monkeypatch):
    usual = []
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with signal_handler([signal.SIGTERM], lambda number, frame: usual.append(number)):
        with collect_signals() as received:
            for _ in range(3):
                signal.raise_signal(signal.SIGTERM)
            assert (received, usual) == ([signal.SIGTERM], [])
            monkeypatch.setattr(interrupts, "FORWARDED_SECONDS", -1.0)
            signal.raise_signal(signal.SIGTERM)
        assert (received, usual) == ([signal.SIGTERM], [signal.SIGTERM])


def test_save_minutes_saves_the_state_when_due(store, tmp_path):
    seen = []
    actions = {
        28: lambda: seen.append(states(tmp_path / "run")),
        32: partial(signal.raise_signal, signal.SIGINT),
    }
    going(tiny_config(save_minutes=1e-9), store, tmp_path / "run", actions)
    assert seen == [[16, 20, 24]]  # every step; the newest three


# A disk that refuses


def test_full_disk_is_reported_and_training_continues(store, whole, tmp_path):
    out, disk = tmp_path / "run", contextlib.ExitStack()

    def fill():
        disk.enter_context(largest_file(10))

    def make_room():
        disk.close()
        assert states(out) == [40]
        assert checkpoint.load(out / "state-000000040.pt")["images_seen"] == 40
        assert not list(out.glob("*.partial"))

    with disk:
        state, told, _ = going(tiny_config(), store, out, {60: fill, 100: make_room})
    reason = os.strerror(27)
    good = "last good state: state-000000040.pt; going on"
    files = ("log.jsonl", "000000_080.png", "generator-000000080.pt", "state-000000080.pt")
    assert told == [f"could not write {name}: {reason}; {good}" for name in files]
    assert differing(state.to_payload(), whole[1].to_payload()) == []


def test_stop_on_a_full_disk_before_the_first_state_can_be_repeated(store, tmp_path, monkeypatch):
    config = tiny_config(schedule=SHORT)

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(checkpoint, "save", refuse)
        stop = {4: lambda: signal.raise_signal(signal.SIGINT)}
        with pytest.raises(OSError, match="no state has been saved yet; fix the cause and repeat"):
            going(config, store, tmp_path / "run", stop)
    repeated, whole = (train_tiny(config, store, tmp_path / name) for name in ("run", "whole"))
    assert differing(repeated.to_payload(), whole.to_payload()) == []


# Metrics


def test_evaluation_best_by_may_change_between_resumes(store, tmp_path):
    """Of a and b first a decides, then b, then a again."""
    values = iter([(2, 1), (2, 3), (3, 4), (2, 9), (3, 9)])
    best = []
    for decides, kimg in (("a", 0.012), ("b", 0.024), ("b", 0.036), ("a", 0.048), ("a", 0.060)):
        a, b = next(values)
        evaluation = Evaluation(lambda state, stage, a=a, b=b: {"a": a, "b": b}, decides, True, 9.0)
        config = tiny_config(schedule=SCHEDULE | {"total_kimg": kimg})
        train_tiny(config, store, tmp_path / "run", evaluation=evaluation)
        loaded = load_generator(tmp_path / "run" / "generator-best.pt")
        best.append(loaded.images_seen)
    assert best == [12, 24, 24, 48, 48]
    kept = [load_generator(tmp_path / "run" / f"generator-best-{name}.pt") for name in "ab"]
    assert [loaded.images_seen for loaded in kept] == [12, 24]


def test_evaluation_by_another_metric_survives_a_kill(store, tmp_path):
    """A resumed run does not set aside once more."""
    for metric, kimg in (("a", 0.012), ("b", 0.036)):
        evaluation = Evaluation(lambda *_: {"a": 1.0, "b": 1.0}, metric, every_kimg=0.02)
        config = tiny_config(schedule=SCHEDULE | {"total_kimg": kimg, "tick_kimg": {4: 9}})
        train_tiny(config, store, tmp_path / "run", evaluation=evaluation)
    assert states(tmp_path / "run") == [12, 36]
    (tmp_path / "run" / "state-000000036.pt").unlink()  # as after a kill before it
    train_tiny(config, store, tmp_path / "run", evaluation=evaluation)
    assert load_generator(tmp_path / "run" / "generator-best-a.pt").images_seen == 12


def test_evaluation_may_stop_the_run_as_in_docs_library(store, tmp_path):
    (block,) = (b for b in blocks(ROOT / "docs/library.md") if "def patient" in b.text)
    costs = iter([3.0, 1.0, 2.0, 1.5, 1.25])  # at images 20, 40, 60, 80, 100
    measured = Evaluation(lambda *_: {"x": next(costs), "resolution": 16}, "x", every_kimg=0.02)
    namespace = {"evaluation": measured}
    exec(block.text, namespace)
    patient = dataclasses.replace(measured, measure=namespace["patient"])
    state, _, number = going(tiny_config(), store, tmp_path / "run", {}, evaluation=patient)
    assert (number, state.images_seen) == (signal.SIGINT, 80)
    assert [score["x"] for score in state.scores] == [3.0, 1.0, 2.0, 1.5]
    assert load_generator(tmp_path / "run" / "generator-best.pt").images_seen == 40


def test_evaluation_best_by_must_be_measured(store, tmp_path):
    config = tiny_config(schedule=SCHEDULE | {"total_kimg": 0.05}, snapshot_ticks=1)
    numbers = {"resolution": 8, "x": np.float32(0.5), "y": torch.tensor(2.0), "event": True}
    evaluation = Evaluation(lambda state, stage: numbers, "x")
    state = train_tiny(config, store, tmp_path / "run", evaluation=evaluation)
    assert len(log_of(tmp_path / "run", "metrics")) == len(state.scores) > 0
    kept = {name: state.scores[-1][name] for name in numbers}
    assert json.dumps(kept) == '{"resolution": 8, "x": 0.5, "y": 2.0, "event": 1.0}'
    longer = tiny_config(schedule=SCHEDULE | {"total_kimg": 0.06}, snapshot_ticks=1)
    assert train_tiny(longer, store, tmp_path / "run", evaluation=evaluation).images_seen == 60
    for measured, message in (
        (numbers, "must be one of its results .resolution.*, got 'z'"),
        (0.5, "the evaluation must return numbers by name, .* got a float"),
    ):
        folder = RunFolder(tmp_path / f"{type(measured).__name__}")
        with pytest.raises(ValueError, match=message):
            evaluation = Evaluation(lambda state, stage, it=measured: it, "z")
            train_tiny(config, store, folder.path, evaluation=evaluation)
        assert folder.states()  # what was trained is not lost


# Settings


def test_total_kimg_extended_later_equals_a_longer_run(store, tmp_path):
    short, config = (tiny_config(schedule=SHORT | {"total_kimg": k}) for k in (0.012, 0.024))
    assert train_tiny(short, store, tmp_path / "run").images_seen == 12
    file, told = tmp_path / "run" / "config.toml", []
    file.write_text(edited := file.read_text() + "# a comment of mine\n")
    longer = train_tiny(config, store, tmp_path / "run", console=RecordingConsole(told))
    whole = train_tiny(config, store, tmp_path / "whole")
    assert differing(longer.to_payload(), whole.to_payload()) == []
    (copy,) = file.parent.glob("config-*.toml")
    assert copy.read_text() == edited and load_config(file).schedule == config.schedule
    assert any(line.startswith("config.toml changes; ") and str(copy) in line for line in told)


# Numerical health


def test_max_skipped_ends_the_run_with_its_last_good_state(store, tmp_path):
    out = tmp_path / "run"
    config = tiny_config(max_skipped=6, keep_states=9, schedule={"tick_kimg": {4: 0.008}})
    train_tiny(config, store, out, stop_at=36)
    payload, told = checkpoint.load(out / "state-000000036.pt"), []
    payload["discriminator"]["head.out.weight"].fill_(torch.finfo(torch.float32).max)
    checkpoint.save(out / "state-000000036.pt", "state", payload, outputs=ALLOW_OVERWRITE)
    with pytest.raises(Diverged, match=r"not finite in 6 consecutive updates.* larger r1_gamma"):
        train_tiny(config, store, out, console=RecordingConsole(told))
    assert told[-1] == "stopped at image 60; last good state: state-000000040.pt"
    assert told[-2].startswith("no state is saved at image 56: updates are being skipped")
    assert states(out) == [8, 16, 24, 32, 36, 40]  # none from the third skipped update on
    assert log_of(out)[-1]["event"] == "failed"
