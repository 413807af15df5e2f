"""A save that is killed or refused at any of its calls; `tools/faults` does it to whole runs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parent
SAVES = TESTS / "helpers" / "faulty_save.py"
FAULTS = TESTS.parent / "tools" / "faults"  # a program, not a package
sys.path.append(str(FAULTS))
from faulty_save import FULL, NEWEST, OLDER, Left  # noqa: E402
from injection import Fault, Point  # noqa: E402
from play import play  # noqa: E402
from runs import Tally, Workshop, differing  # noqa: E402
from scenarios import CALLS, SAFE, kill_after, kill_at  # noqa: E402

POINTS = {  # of a save: before, after and, for a write, in the middle of each call
    Point("state", call, place)
    for call in CALLS
    for place in ("before", "middle", "after")
    if place != "middle" or call == "write"
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The points of a save in order, and what each fault left."""
    found = subprocess.run(
        [
            sys.executable,
            str(SAVES),
            str(tmp_path_factory.mktemp("saves")),
        ],
        env=os.environ | {"PYTHONPATH": f"{TESTS.parent}{os.pathsep}{FAULTS}"},
        capture_output=True,
        text=True,
        check=True,
    )
    values = json.loads(found.stdout)
    points = [Point(**point) for point in values["points"]]
    left = [Left(**{**v, "fault": Fault.from_json(json.dumps(v["fault"]))}) for v in values["left"]]
    return points, left


def test_a_save_makes_its_calls_in_the_order_that_survives_a_loss_of_power(results):
    points, left = results
    assert set(points) == POINTS
    calls = "".join(CALLS[point.call] for point in points if point.place == "after")
    assert SAFE.fullmatch(calls)
    assert not SAFE.fullmatch(calls.replace("s", ""))  # without fsync
    assert (left[0].exit_code, left[0].value, left[0].files) == (0, [1.0], [NEWEST])


@pytest.mark.parametrize("point", sorted(POINTS), ids=str)
def test_killed_at_any_call_a_save_leaves_the_old_file_or_the_new_one(results, point):
    points, left = results
    here = [found for found in left if found.fault.kill_at == point]
    assert {found.fault.number for found in here} >= {1, points.count(point)}
    renamed = points.index(Point("state", "rename", "after"))
    for found in here:
        assert found.exit_code == -signal.SIGKILL
        is_new = points.index(point) >= renamed
        assert found.value == [float(is_new)]
        assert (OLDER in found.files) == (point != Point("state", "unlink", "after"))
        assert found.later == [2.0]


def test_a_full_disk_leaves_the_old_files_and_no_other(results):
    _, left = results
    full = left[-1]
    assert full.fault.full_while
    assert (full.exit_code, full.value, full.files) == (FULL, [0.0], [OLDER, NEWEST])
    assert full.later == [2.0]


def test_differing_is_about_bits():
    a = {"x": [torch.tensor([0.0])], "n": 1}
    assert differing(a, {"x": [torch.tensor([0.0])], "n": 1}) == []
    assert differing(a, {"x": [torch.tensor([-0.0])], "n": True}) == ["/n", "/x/0"]
    assert differing(a, {"x": [torch.tensor([0])], "n": 1}) == ["/x/0"]
    assert differing(a, {"x": [], "n": 1, "m": None}) == ["/m", "/x/0"]


@pytest.mark.slow
def test_a_killed_run_ends_as_the_undisturbed_one(tmp_path):
    workshop = Workshop(tmp_path, 'data.include=["smileys"]', "schedule.total_kimg=0.16")
    tally = Tally("test")
    in_a_save = kill_at(Point("state", "write", "middle"), 3)
    try:
        play(workshop, tally, [in_a_save, kill_after(0.2, starting=False)], jobs=1)
    finally:
        workshop.close()
    assert (tally.events, tally.equal, tally.unequal, tally.unreadable) == (2, 1, 0, 0)
    assert tally.wrong == []
