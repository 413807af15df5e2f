"""The benchmarks measure as documented; how fast anything is, is not tested."""

import bits
import click
import contest
import everything
import numpy as np
import pytest
import quality
from click.testing import CliRunner
from helpers.pictures import save_picture


def test_contest_ratio_compares_rounds_not_medians():
    slow = contest.Result("slow", seconds=[2.0, 30.0, 8.0, 1.0])
    fast = contest.Result("fast", seconds=[1.0, 10.0, 4.0])  # failed in the fourth round
    assert contest.ratio(slow, fast).median == 2.0  # not 8 / 4 of medians: rounds are compared


def test_contest_runs_rounds_and_reports_failures(tmp_path):
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


def test_everything_run_reports_failures_and_timeouts(tmp_path):
    def result(program, limit=60.0):
        part = everything.Part("part", ["-c", program])
        (row,) = everything.run([part], "cpu", limit, tmp_path)
        return row["result"]

    assert result("print('yes')") == "passed"
    assert (tmp_path / "part.log").read_text() == "yes\n"
    assert result("raise SystemExit(2)") == "failed"
    assert result("import time; time.sleep(600)", 0.2) == "cut off"


def test_quality_rejects_results_of_other_settings_and_shrinks_images(tmp_path):
    file = tmp_path / "out" / "settings.json"
    for _ in range(2):
        quality.keep_settings(file, {"kimg": 60.0})
    with pytest.raises(click.UsageError, match="holds results of other settings"):
        quality.keep_settings(file, {"kimg": 61.0})
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[::2, ::2] = 200  # one of four
    folder = save_picture(tmp_path / "pictures" / "0.png", pixels)
    assert np.array_equal(quality.small_images(folder, 2), np.full((1, 3, 2, 2), 50))


@pytest.mark.slow
def test_everything_checks_and_measures_a_machine(tmp_path):
    options = ["--device", "cpu", "--minutes", "60", "--out", str(tmp_path)]
    done = CliRunner().invoke(everything.main, options, catch_exceptions=False)
    text = (tmp_path / "everything.md").read_text()
    assert done.exit_code == 0, text
    assert text.count("| passed |") == 10
    for title in ("# One training iteration", "# Generation", "# A real run of quickstart"):
        assert title in text


def test_bits_digest_is_reproducible_and_depends_on_options(tmp_path):
    pictures = bits.write_images(tmp_path / "pictures")
    first, again = (bits.digest({}, pictures, tmp_path / name) for name in ("first", "again"))
    assert first == again
    assert first != bits.digest(bits.TINY["ADA"], pictures, tmp_path / "ada")
