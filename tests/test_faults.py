"""A save that is killed or refused at any of its calls; `tools/faults` does it to whole runs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SAVES = TESTS / "helpers" / "faulty_save.py"
FAULTS = TESTS.parent / "tools" / "faults"  # a program, not a package
sys.path.append(str(FAULTS))
from faulty_save import FULL  # noqa: E402
from runs import Runs  # noqa: E402
from scenarios import CALLS, SAFE, calls_of, disturb, kill_after, kill_at  # noqa: E402

OLDER, NEWEST = "state-000000001.pt", "state-000000002.pt"
POINTS = sorted(
    [f"state {call} {place}" for call in CALLS for place in ("before", "after")]
    + ["state write middle"]
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The points of a save in order, and what each fault left."""
    found = subprocess.run(
        [sys.executable, str(SAVES), str(tmp_path_factory.mktemp("saves"))],
        env=os.environ | {"PYTHONPATH": f"{TESTS.parent}{os.pathsep}{FAULTS}"},
        capture_output=True,
        text=True,
        check=True,
    )
    values = json.loads(found.stdout)
    return values["points"], values["left"]


def test_a_save_makes_its_calls_in_the_order_that_survives_a_loss_of_power(results):
    points, left = results
    assert sorted(set(points)) == POINTS
    assert SAFE.fullmatch(calls_of(points))
    assert not SAFE.fullmatch(calls_of(points).replace("s", ""))  # without fsync
    assert (left[0]["exit_code"], left[0]["value"], left[0]["files"]) == (0, [1.0], [NEWEST])


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_call_a_save_leaves_the_old_file_or_the_new_one(results, point):
    points, left = results
    here = [found for found in left if found["fault"]["kill_at"] == point]
    assert {found["fault"]["number"] for found in here} >= {1, points.count(point)}
    is_new = points.index(point) >= points.index("state rename after")
    for found in here:
        assert found["exit_code"] == -signal.SIGKILL
        assert found["value"] == [float(is_new)]
        assert (OLDER in found["files"]) == (point != "state unlink after")
        assert found["later"] == [2.0]


def test_a_full_disk_leaves_the_old_files_and_no_other(results):
    _, left = results
    full = left[-1]
    assert full["fault"]["full"]
    assert (full["exit_code"], full["value"], full["files"]) == (FULL, [0.0], [OLDER, NEWEST])
    assert full["later"] == [2.0]


@pytest.mark.slow
def test_a_killed_run_ends_as_the_undisturbed_one(tmp_path):
    runs = Runs(tmp_path, ('data.include=["smileys"]', "schedule.total_kimg=0.16"))
    try:
        disturb(runs, [kill_at("state write middle", 3), kill_after(0.2, starting=False)])
    finally:
        runs.close()
    assert runs.finished >= 1
