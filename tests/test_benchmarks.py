"""The benchmarks measure as documented; how fast anything is, is not tested."""

import json

import bits
import contest
import everything
import loader
import pytest
from click.testing import CliRunner


def test_ratios_are_of_rounds():
    slow = contest.Result("slow", seconds=[2.0, 30.0, 8.0, 1.0])
    fast = contest.Result("fast", seconds=[1.0, 10.0, 4.0])  # failed in the fourth round
    assert contest.ratio(slow, fast).median == 2.0  # not 8 / 4 of medians: rounds are compared


def test_a_contest_runs_in_rounds_and_says_who_failed(tmp_path):
    log = tmp_path / "log"
    (tmp_path / "trials.py").write_text(
        "import pathlib, time\n"
        "from contest import Trial\n"
        "def good(settings):\n"
        "    def once():\n"
        "        time.sleep(0.31)\n"
        "        with pathlib.Path(settings['log']).open('a') as file:\n"
        "            file.write(settings['name'])\n"
        "    return Trial(once)\n"
        "def bad(settings):\n"
        "    raise MemoryError('far too\\nlarge')\n"
        "def gone(settings):\n"
        "    raise SystemExit(3)\n"
    )
    contenders = [
        contest.Contender(name, f"trials:{task}", {"log": str(log), "name": name}, tmp_path)
        for name, task in (("a", "good"), ("b", "good"), ("bad", "bad"), ("gone", "gone"))
    ]
    environment = contest.environment_for(1, "default")
    a, b, bad, gone = contest.contest(contenders, environment, seconds=0)
    assert log.read_text() == "aaabbb" + "abbaab"  # three calls each that warm up
    assert len(a.seconds) == len(b.seconds) == 3
    assert (bad.seconds, bad.error) == ([], "MemoryError: far too large")
    assert (gone.seconds, gone.error) == ([], "exit code 3")


def test_a_part_that_fails_or_takes_too_long_says_so(tmp_path):
    def result(program, limit=60.0):
        return everything.run(everything.Part("part", ["-c", program]), "cpu", limit, tmp_path)

    assert result("print('yes')") == "passed"
    assert (tmp_path / "part.log").read_text() == "yes\n"
    assert result("raise SystemExit(2)") == "failed"
    assert result("import time; time.sleep(600)", 0.2) == "cut off"


@pytest.mark.slow
def test_a_machine_is_checked_and_measured(tmp_path):
    options = ["--device", "cpu", "--minutes", "60", "--out", str(tmp_path)]
    done = CliRunner().invoke(everything.main, options, catch_exceptions=False)
    text = (tmp_path / "everything.md").read_text()
    assert done.exit_code == 0, text
    assert text.count("| passed |") == 6
    for title in ("# One training iteration", "# Generation", "# A real run of quickstart"):
        assert title in text


@pytest.mark.slow
def test_loading_is_measured_beside_image_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "COUNTS", {16: 40})
    command = ["16", "--workers", "0", "--seconds", "0", "--threads", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(loader.main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for result in json.loads((tmp_path / "loader.json").read_text())["rows"][0]["results"]:
        assert len(result["seconds"]) == 3, result["error"]


def test_bits_are_the_same_again_and_follow_the_options(tmp_path):
    pictures = bits.write_pictures(tmp_path / "pictures")
    first, again = (bits.digest({}, pictures, tmp_path / name) for name in ("first", "again"))
    assert first == again
    assert first != bits.digest(bits.TINY["ADA"], pictures, tmp_path / "ada")
