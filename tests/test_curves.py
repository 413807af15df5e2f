"""Learning curves: `tools/curves.py`."""

import json

import curves
import pytest
from click.testing import CliRunner
from PIL import Image
from tiny_training import tiny_config

from stylegan.config import to_toml
from stylegan.report.history import read_run


def a_run(folder, distances):
    """A run of 4 kimg at 10 images a second and, after a pause, 4 kimg at 20."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(tiny_config()))
    log = [
        {"event": "start", "time": 0, "images_seen": 0},
        *(
            {"event": "progress", "images_seen": kimg * 1000, "speed/images_per_second": speed}
            for kimg, speed in ((2, 10), (4, 10), (8, 20))
        ),
    ]
    lines = [
        {
            "metric": f"{metric}20",
            "values": values,
            "protocol": {"generator": {"images_seen": 1000 * kimg}},
        }
        for kimg, distance in distances.items()
        for metric, values in (
            ("eff-fd", {"eff-fd": distance}),
            ("eff-pr", {"eff-precision": 1 / distance, "eff-recall": 0.5}),
        )
    ]
    for name, some in (("log", log), ("metrics", lines)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in some))
    return folder


def test_time_is_that_of_training_alone(tmp_path):
    history = read_run(a_run(tmp_path / "run", {4: 300}))
    found = [(kimg, round(minutes, 3)) for kimg, minutes in curves.minutes(history)]
    assert found == [(0, 0), (2, 3.333), (4, 6.667), (8, 10)]


def test_runs_of_other_seeds_share_a_colour(tmp_path):
    runs = [
        read_run(a_run(tmp_path / name, {4: 300, 8: 200}))
        for name in ("glyphs-seed0", "glyphs-seed1", "quickstart")
    ]
    figure = curves.draw(runs)
    by_images, by_time = figure.axes[:2]
    first, second, third = (line.get_color() for line in by_images.lines)
    assert first == second != third
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["glyphs", "quickstart"]
    assert by_images.lines[0].get_xydata().tolist() == [[4, 300], [8, 200]]
    assert by_time.lines[0].get_xdata() == pytest.approx([6.667, 10], abs=0.001)


def test_a_picture_is_written_and_a_run_without_measurements_refused(tmp_path):
    run, empty = a_run(tmp_path / "run", {4: 300}), a_run(tmp_path / "empty", {})
    out = tmp_path / "curves.png"
    assert CliRunner().invoke(curves.main, [str(run), "--out", str(out)]).exit_code == 0
    with Image.open(out) as picture:
        assert picture.width > 500
    result = CliRunner().invoke(curves.main, [str(empty), "--out", str(out)])
    assert result.exit_code == 1 and "has no eff-fd and eff-pr" in result.stderr
