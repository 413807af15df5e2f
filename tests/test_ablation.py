"""The ladder of table 1: its rows, its runs, and what the table says of them."""

import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from tiny_training import differing, run, tiny_config, tiny_store, write_pictures

from stylegan.ablation import (
    Job,
    Outcome,
    Summary,
    clearly_best,
    parse_jobs,
    row_configs,
    summaries,
    table,
    training_seconds,
)
from stylegan.cli import main
from stylegan.cli.ablation import plan_lines, results_of
from stylegan.cli.ladder import Ladder, claim, reason
from stylegan.config import flatten, load_config, read_stored_config, to_dict, to_toml
from stylegan.data import cached_store
from stylegan.files import checkpoint
from stylegan.metrics import Subject, Tools, parse
from stylegan.networks import Generator
from stylegan.run_folder import RunFolder, images_of

IMAGES = 300  # of each run
BASE = tiny_config(
    gp_weight=1e39,  # which row A alone has: it diverges
    max_skipped=3,
    snapshot_ticks=100,
    log_kimg=0.012,
    network={"resolution": 8, "w_dim": 5},
    schedule={"stable_kimg": 0.06, "fade_kimg": 0.06, "total_kimg": 0.3, "tick_kimg": {4: 0.1}},
)

# Rows

E = {"style_mixing": 0.0}
D = E | {"network.noise": False}
C = D | {"network.constant_input": False}
B = C | {
    "network.styles": False,
    "network.mapping_layers": 0,
    "network.instance_norm": False,
    "network.pixel_norm": True,
}
A = B | {
    "network.blur": False,
    "generator_loss": "wgan",
    "discriminator_loss": "wgan_gp",
    "r1_gamma": 0.0,
}


@pytest.mark.parametrize(
    ("row", "switches"), [("a", A), ("b", B), ("c", C), ("d", D), ("e", E), ("f", {})]
)
def test_a_row_differs_from_the_base_by_its_switches_of_table_1_alone(row, switches):
    base = flatten(to_dict(load_config("ablation-32")))
    found = flatten(to_dict(row_configs("ablation-32", [], row)[row]))
    assert {name: value for name, value in found.items() if value != base[name]} == switches


def test_options_are_of_all_rows_but_for_what_a_row_switches():
    options = ["schedule.total_kimg=5", "r1_gamma=3", "data.mirror=true"]
    configs = row_configs("ablation-32", options, "fab")
    assert list(configs) == ["a", "b", "f"]
    assert [config.r1_gamma for config in configs.values()] == [0, 3, 3]
    assert all(config.schedule == configs["a"].schedule for config in configs.values())
    assert configs["a"].schedule.total_images == 5000
    assert all(config.data.mirror for config in configs.values())


@pytest.mark.parametrize(
    ("base", "rows"), [("style_mixing = 0.0", "E and F"), ("[network]\nnoise = false", "D and E")]
)
def test_a_base_without_what_distinguishes_two_rows_is_refused(tmp_path, base, rows):
    path = tmp_path / "mine.toml"
    path.write_text(base)
    with pytest.raises(ValueError, match=rf"mine\.toml the rows {rows} are the same"):
        row_configs(str(path), [], "abcdef")


def test_a_base_that_there_is_not_is_refused():
    with pytest.raises(FileNotFoundError, match=r"'ablation-23'; did you mean ablation-32\?"):
        row_configs("ablation-23", [], "a")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A-D:0,E-F:0-2", "a0 b0 c0 d0 e0 f0 e1 f1 e2 f2"),
        ("f, a:1", "f0 a1"),
        ("a,A-B", "a0 b0"),
        ("C:998-999", "c998 c999"),
    ],
)
def test_rows_and_seeds_become_runs_first_seeds_first(text, names):
    assert [f"{row}{seed}" for row, seed in parse_jobs(text)] == names.split()
    assert Job("e", 2).name == "e-seed2"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("G", "no row of table 1 'g'; known: a to f"),
        ("A-Z", "no row of table 1 'z'"),
        ("A-B-C", "no row of table 1 'a-b-c'"),
        ("", "no row of table 1 ''"),
        ("A,,B", "no row of table 1 ''"),
        ("A:1000", "no seed '1000'; known: 0 to 999"),
        ("A:0:1", "no seed '0:1'"),
        ("A:one", "no seed 'one'"),
        ("F-A", "'f-a' runs backwards"),
        ("A:2-0", "'2-0' runs backwards"),
    ],
)
def test_rows_and_seeds_that_there_are_not_are_refused_by_name(text, problem):
    with pytest.raises(ValueError, match=problem):
        parse_jobs(text)


# Numbers


def test_mean_and_spread_of_a_row():
    summary = Summary([1.0, 2.0, 4.0])
    assert summary.mean == pytest.approx(7 / 3)
    assert summary.spread == pytest.approx(math.sqrt(7 / 3))  # (16 + 1 + 25) / 9 / 2
    assert (summary.text(), summary.text(bold=True)) == ("2.333 ± 1.5", "**2.333** ± 1.5")
    assert (Summary([5.0]).spread, Summary([5.0]).text()) == (None, "5")
    assert Summary([10290.0, 12010.0]).text() == "11150 ± 1216"


@pytest.mark.parametrize(
    ("c", "lower", "best"),
    [
        (9.5, True, "c"),  # ahead by 1.5, spread of a: 1.414
        (9.7, True, None),  # by 1.3
        (9.5, False, "b"),
        (13.0, False, None),
    ],
)
def test_bold_is_the_row_ahead_by_more_than_the_largest_spread(c, lower, best):
    found = {"a": Summary([10.0, 12.0]), "b": Summary([14.0]), "c": Summary([c])}
    assert clearly_best(found, lower) == best


def test_nothing_is_bold_without_a_spread_or_a_rival():
    assert clearly_best({"a": Summary([1.0]), "b": Summary([2.0])}, True) is None
    assert clearly_best({"a": Summary([1.0, 1.1])}, True) is None


OUTCOMES = {
    Job("f", 1): Outcome(failed="failed with exit code 1: no room"),
    Job("f", 0): Outcome(2000, 90.0, 1300, {"swd20": 7.0}),
    Job("e", 0): Outcome(2000, 120.0, 1234, {"swd20": 10.0}),
    Job("e", 1): Outcome(2000, 60.0, 1234, {"swd20": 12.0}),
    Job("a", 0): Outcome(failed="diverged: too steep"),
}


def test_the_table_has_a_line_for_each_row_and_says_what_failed():
    lines = table(OUTCOMES, parse("swd20"), {"the average": {"swd20": 99.0}}).splitlines()
    heads = (
        "|  | configuration | kimg | seeds | G parameters | minutes | swd20 ↓ | FID published* |"
    )
    assert lines[0] == heads
    assert lines[2:6] == [
        "| A | baseline | - | 0 of 1 | - | - | diverged | 8.04 |",
        "| E | noise | 2 | 2 | 1,234 | 1.5 | 11 ± 1.4 | 4.42 |",
        "| F | mixing | 2 | 1 of 2 | 1,300 | 1.5 | **7** | 4.40 |",
        "|  | the average |  |  |  |  | 99 |  |",
    ]
    assert "a-seed0: diverged: too steep" in lines
    assert "f-seed1: failed with exit code 1: no room" in lines
    assert summaries(OUTCOMES, "swd20") == {"e": Summary([10.0, 12.0]), "f": Summary([7.0])}


def test_the_time_of_a_run_counts_what_was_trained_twice_once(tmp_path):
    speeds = [(100, 50.0), (300, 400.0), (300, 100.0)]
    lines = [
        json.dumps({"event": "progress", "images_seen": seen, "speed/images_per_second": speed})
        for seen, speed in speeds
    ]
    (tmp_path / "log.jsonl").write_text("\n".join([*lines, lines[0][:20]]))
    assert training_seconds(tmp_path) == (300, 100 / 50 + 200 / 100)
    assert training_seconds(tmp_path / "none") == (0, 0)


# Runs


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ladder")
    write_pictures(folder / "pictures")
    (folder / "tiny.toml").write_text(to_toml(BASE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STYLEGAN_CACHE", str(folder / "cache"))
        yield folder


def invoke(place, *options, data="pictures"):
    settings = ("--base", place / "tiny.toml", "--data", place / data, "--device", "cpu")
    settings += ("--metrics", "swd20")
    return CliRunner().invoke(main, ["ablation", *map(str, (*settings, *options))])


class Stopped(NamedTuple):
    """What was there after Ctrl-C."""

    output: str
    exit_code: int
    saved: int  # images seen by the newest state of row F
    plan: str  # of the rows A, E and F


@pytest.fixture(scope="module")
def stopped(place):
    """A ladder of row F, stopped as soon as its log told of progress."""
    out = place / "ladder"
    folder = out / "f-seed0"
    thread = threading.Thread(target=interrupt_once_begun, args=(folder / "log.jsonl",))
    thread.start()
    found = invoke(place, "--rows", "F", "--out", out)
    thread.join()
    plan = invoke(place, "--rows", "A,E-F", "--out", out, "--dry-run").output
    saved = [images_of(path) for path in RunFolder(folder).states()]
    return Stopped(found.output, found.exit_code, max(saved), plan)


@pytest.fixture(scope="module")
def continued(place, stopped):
    """What the command said that continued it with more rows, one of which fails."""
    return invoke(place, "--rows", "A,E-F", "--out", place / "ladder")


@pytest.fixture(scope="module")
def ladder(place, continued):
    """The folder of the ladder then."""
    assert continued.exit_code == 1, continued.output
    return place / "ladder"


def interrupt_once_begun(log):
    """Ctrl-C, as soon as the log of a run tells of progress."""
    deadline = time.monotonic() + 300
    while not (log.exists() and '"progress"' in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGINT)


def contents(*folders):
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


@pytest.mark.parametrize(
    ("options", "data", "problem"),
    [
        (["-o", "r1_gamma=7"], "pictures", "run of another configuration (r1_gamma: 1.0 there"),
        ([], "cache", "was trained on"),
        ([], "nothing", "no folder, zip or store"),
        (["--rows", "F-G"], "pictures", "no row of table 1 'g'"),
    ],
)
def test_another_ladder_in_the_same_folder_is_refused(place, ladder, options, data, problem):
    before = contents(ladder)
    found = invoke(place, "--rows", "F", "--out", ladder, *options, data=data)
    assert found.exit_code == 1
    assert problem in found.stderr
    assert contents(ladder) == before


def test_a_folder_of_something_else_is_refused(place):
    found = invoke(place, "--out", place / "pictures")
    assert found.exit_code == 1
    assert "pictures is not empty and holds no ladder; choose another --out" in found.stderr


def test_ctrl_c_saves_the_runs_and_the_plan_tells_how_far_they_are(stopped):
    assert stopped.exit_code == 130
    assert "stopped; the same command continues" in stopped.output
    assert 0 < stopped.saved < IMAGES
    assert f"f-seed0: 0.3 kimg, {stopped.saved / 1000:.4g} kimg so far" in stopped.plan
    assert "a-seed0: 0.3 kimg, not begun" in stopped.plan


def test_a_stopped_ladder_goes_on_to_the_weights_of_one_that_was_not(place, stopped, ladder):
    log = ladder / "f-seed0" / "log.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    ends = [e["images_seen"] for e in events if e["event"] in ("stopped", "resume")]
    assert ends == [stopped.saved] * 2
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    store = cached_store(place / "pictures", resolution=8, cache_dir=place / "cache")
    whole = run(BASE, store, place / "whole").generator_ema.state_dict()
    torch.set_num_threads(threads)
    found = checkpoint.load(ladder / "f-seed0" / f"generator-{IMAGES:09d}.pt")["weights"]
    assert differing(found, dict(whole)) == []


def test_a_run_that_fails_is_told_and_stops_no_other(ladder, continued):
    assert "1 of 3 runs failed, see " in continued.stderr
    text = (ladder / "table.md").read_text()
    assert "| A | baseline | - | 0 of 1 | - | - | diverged | 8.04 |" in text
    assert "a-seed0: diverged: the gradients of the discriminator were not finite in 3" in text
    rows = json.loads((ladder / "results.json").read_text())["rows"]
    assert [rows[row]["seeds"] for row in "aef"] == [0, 1, 1]
    assert rows["a"]["scores"] == {}


def test_a_ladder_ends_with_a_table_numbers_and_samples(ladder):
    found = json.loads((ladder / "results.json").read_text())
    rows = row_configs(str(ladder.parent / "tiny.toml"), [], "ef")
    for row in "ef":
        folder = ladder / f"{row}-seed0"
        assert read_stored_config(folder / "config.toml") == rows[row]
        (line,) = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        score = {"mean": line["values"]["swd"], "spread": None, "values": [line["values"]["swd"]]}
        assert found["rows"][row]["scores"]["swd20"] == score
        assert found["rows"][row]["kimg"] == [0.3]
        assert f"{line['values']['swd']:.4g}" in (ladder / "table.md").read_text()
    half, average = found["yardsticks"].items()
    assert (half[0], average[0]) == (
        "another half of the reals (at most 14)",  # of 14, mirrored and not
        "the average of the reals",
    )
    assert half[1]["swd20"] < average[1]["swd20"]
    with Image.open(ladder / "samples.png") as picture:
        assert picture.width == 12 * 100 + 4
        assert 2 * 100 < picture.height < 2 * 130


def test_the_same_command_trains_and_measures_nothing(place, ladder):
    kept = [ladder / name for name in ("e-seed0", "f-seed0", "logs")]
    before, numbers = contents(*kept), (ladder / "results.json").read_text()
    measured = (ladder / "yardsticks.jsonl").read_text()
    found = invoke(place, "--rows", "E-F", "--out", ladder)
    assert found.exit_code == 0, found.output
    assert "0 of 2 runs to train" in found.output
    assert contents(*kept) == before
    assert (ladder / "yardsticks.jsonl").read_text() == measured
    again, numbers = json.loads((ladder / "results.json").read_text()), json.loads(numbers)
    assert again["rows"] == {row: numbers["rows"][row] for row in "ef"}
    assert again["yardsticks"] == numbers["yardsticks"]


def test_a_run_that_stopped_before_its_first_line_of_the_log_has_begun(tmp_path):
    ladder = Ladder(tmp_path, tmp_path, {"f": BASE}, "cpu")
    (tmp_path / "f-seed0").mkdir()
    (tmp_path / "f-seed0" / "state-000000012.pt").touch()
    jobs = parse_jobs("F:0-1")
    assert plan_lines(ladder, jobs, jobs, 2) == [
        "f-seed0: 0.3 kimg, 0.012 kimg so far",
        "f-seed1: 0.3 kimg, not begun",
        "2 of 2 runs to train, 2 at a time: 0.588 kimg",
    ]


def test_a_run_whose_process_outlived_the_command_is_not_trained_twice(place, tmp_path):
    log = tmp_path / "out" / "logs" / "f-seed0.txt"
    log.parent.mkdir(parents=True)
    with log.open("ab") as file:
        claim(file, Job("f", 0))
        wait = [sys.executable, "-c", "input()"]
        child = subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=file)
    (tmp_path / "out" / "configs").mkdir()
    (tmp_path / "out" / "configs" / "f.toml").touch()
    found = invoke(place, "--rows", "F", "--out", tmp_path / "out")
    assert found.exit_code == 1
    assert f"f-seed0 is being trained by another process, which writes {log}" in found.stderr
    assert not (tmp_path / "out" / "f-seed0").exists()
    child.communicate(b"\n")
    with log.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no error: it is free


def test_the_last_line_of_a_run_says_why_it_ended(tmp_path):
    log = tmp_path / "log.txt"
    log.write_bytes(b"10%|#\r20%|##\nError: no room on the disk\n\n")
    assert reason(1, log) == "failed with exit code 1: no room on the disk"
    assert reason(3, log) == "diverged: no room on the disk"
    log.write_bytes(b"")
    assert reason(-9, log) == "failed with exit code -9: it said nothing"


# Results of before


def test_what_another_network_version_or_data_gave_is_measured_again(tmp_path):
    generator = Generator(BASE.network).eval()
    subject = Subject(generator, tiny_store(tmp_path))
    requests, tools = parse("swd4,own-fd14"), Tools(tmp_path / "metrics")
    file = tmp_path / "metrics.jsonl"
    first = results_of(subject, requests, file, tools)
    known = file.read_text()
    again = results_of(subject, requests[::-1], file, tools)
    assert [r.values for r in again] == [r.values for r in first[::-1]]
    assert file.read_text() == known
    swd, own = (json.loads(line)["protocol"] for line in known.splitlines())
    for change, measured in [
        ({"sha256": "0" * 64}, ["own-fd14"]),
        ({"versions": swd["versions"] | {"stylegan": "0.0.1"}}, ["swd4", "own-fd14"]),
        ({"reals": own["reals"] | {"data": "other"}}, ["swd4", "own-fd14"]),
    ]:
        changed = [
            {"metric": result.metric, "values": {"swd": 1.0}, "protocol": about | change}
            for result, about in zip(first, (swd, own), strict=True)
        ]
        lines = [json.dumps(line) for line in changed]
        file.write_text("\n".join([*lines, ""]))
        found = results_of(subject, requests, file, tools)
        appended = [json.loads(line)["metric"] for line in file.read_text().splitlines()[2:]]
        assert appended == measured
        trusted = {"swd": 1.0} if "swd4" not in measured else first[0].values
        assert [result.values for result in found] == [trusted, first[1].values]
