"""Table 1 in small: the rows of `tools/ladder.py`, its runs, and its table."""

import json
import os
import re
import subprocess
import sys

import ladder
import pytest
from ladder import Job, clearly_best, digits, parse_jobs, row_configs, scores_of, summary, table
from PIL import Image
from tiny_training import tiny_config, write_pictures

from stylegan.config import flatten, load_config, read_stored_config, to_dict, to_toml
from stylegan.metrics import parse

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


def test_a_row_differs_from_the_base_by_its_switches_of_table_1_alone():
    base = flatten(to_dict(load_config("ablation-32")))
    found = {
        row: {name: y for name, y in flatten(to_dict(config)).items() if y != base[name]}
        for row, config in row_configs("ablation-32", [], "abcdef").items()
    }
    assert found == {"a": A, "b": B, "c": C, "d": D, "e": E, "f": {}}


def test_options_are_of_all_rows_but_for_what_a_row_switches():
    options = ["schedule.total_kimg=5", "r1_gamma=3", "data.mirror=true"]
    configs = row_configs("ablation-32", options, "abf")
    assert [config.r1_gamma for config in configs.values()] == [0, 3, 3]
    assert all(config.schedule.total_images == 5000 for config in configs.values())
    assert all(config.data.mirror for config in configs.values())


@pytest.mark.parametrize(
    ("base", "rows"), [("style_mixing = 0.0", "E and F"), ("[network]\nnoise = false", "D and E")]
)
def test_a_base_without_what_distinguishes_two_rows_is_refused(tmp_path, base, rows):
    path = tmp_path / "mine.toml"
    path.write_text(base)
    with pytest.raises(ValueError, match=rf"mine\.toml the rows {rows} are the same"):
        row_configs(str(path), [], "abcdef")


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
    assert [f"{job.row}{job.seed}" for job in parse_jobs(text)] == names.split()


@pytest.mark.parametrize(
    "part", ["G", "A-Z", "A-B-C", "", "A:1000", "A:0:1", "A:one", "F-A", "A:2-0"]
)
def test_rows_and_seeds_that_there_are_not_are_refused(part):
    with pytest.raises(ValueError, match=f"'{part.lower()}' is not rows A to F"):
        parse_jobs(f"B,{part}")


def test_mean_and_spread_of_a_row():
    assert summary([1.0, 2.0, 4.0]) == "2.333 ± 1.5"  # the root of (16 + 1 + 25) / 9 / 2
    assert (summary([5.0]), summary([]), digits(12345.6)) == ("5", "-", "12346")


def test_the_table_has_a_line_for_each_row_and_says_what_failed():
    facts = {"kimg": 0.06, "G parameters": 1234, "minutes": 2}
    outcomes = {
        Job(0, "a"): "too steep",
        Job(0, "e"): facts | {"swd20": 10.0},
        Job(0, "f"): facts | {"swd20": 7.0},
        Job(1, "e"): facts | {"swd20": 12.0, "minutes": 3},
        Job(1, "f"): "no room",
    }
    lines = table(outcomes, parse("swd20"), {"the average": {"swd20": 99.0}}).splitlines()
    heads = "configuration | seeds | kimg | G parameters | minutes | swd20 ↓ | FID published*"
    assert lines[0] == f"|  | {heads} |"
    assert lines[2:6] == [
        "| A | baseline | 0 of 1 | - | - | - | - | 8.04 |",
        "| E | noise | 2 | 0.06 | 1,234 | 2.5 | 11 ± 1.4 | 4.42 |",
        "| F | mixing | 1 of 2 | 0.06 | 1,234 | 2.0 | **7** | 4.40 |",
        "|  | the average |  |  |  |  | 99 |  |",
    ]
    assert "a-seed0: too steep" in lines
    assert "f-seed1: no room" in lines


def test_a_row_is_clearly_best_if_it_is_ahead_by_more_than_the_largest_deviation():
    values = {"d": [10.0, 12.0], "e": [9.0], "f": [7.5], "a": []}  # the deviation of d is 1.41
    assert clearly_best(values, 1) == "f"
    assert clearly_best(values | {"e": [8.5]}, 1) is None
    assert clearly_best({"e": [9.0], "f": [1.0]}, 1) is None  # no deviation is known
    assert clearly_best(values, -1) == "d"


def test_scores_are_those_of_the_last_generator_as_it_is(tmp_path):
    (tmp_path / "config.toml").write_text(to_toml(tiny_config()))
    (tmp_path / "log.jsonl").write_text('{"event": "finished", "images_seen": 60}\n')
    plain = {"psi": 1.0, "mixed": 1, "noise": "random", "seed": 0}
    lines = [
        {"metric": metric, "values": {"swd": y}, "protocol": {"generator": {}, "fakes": fakes}}
        for metric, y, fakes in [
            ("swd20", 1.0, plain),
            ("swd20", 2.0, plain | {"psi": 0.5}),
            ("swd20", 3.0, plain | {"mixed": 2}),
            ("swd200", 4.0, plain),
            ("swd20", 5.0, plain),
            ("swd10", 6.0, {"seed": 0}),
        ]
    ]
    for line, images in zip(lines, (60, 60, 60, 60, 40, None), strict=True):
        line["protocol"]["generator"] = {"sha256": images, "images_seen": images, "origin": "half"}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert scores_of(tmp_path, parse("swd20")) == {None: {"swd20": 1.0}, "half": {"swd20": 6.0}}


@pytest.mark.slow
def test_a_ladder_is_trained_measured_and_continued_by_the_same_command(tmp_path):
    base = tiny_config(
        gp_weight=1e12,  # which row A alone has: it diverges
        gp_target=1e-14,
        max_skipped=3,
        network={"resolution": 8, "w_dim": 5},
        schedule={"stable_kimg": 0.02, "fade_kimg": 0.02, "total_kimg": 0.06},
    )
    (tmp_path / "tiny.toml").write_text(to_toml(base))
    data, out = write_pictures(tmp_path / "pictures"), tmp_path / "ladder"

    def run(rows, *options):
        command = [sys.executable, ladder.__file__, "--base", tmp_path / "tiny.toml", "--out", out]
        command += ["--data", data, "--metrics", "swd20", "--rows", rows, "--device", "cpu"]
        cache = os.environ | {"STYLEGAN_CACHE": str(tmp_path / "cache")}
        return subprocess.run([*command, *options], capture_output=True, text=True, env=cache)

    first = run("F")
    assert first.returncode == 0, first.stderr
    trained = {path: path.read_bytes() for path in (out / "f-seed0").rglob("*.*")}
    assert "f-seed0: 0.06 of 0.06 kimg" in run("F", "--dry-run").stdout
    further = run("F,A")
    assert further.returncode == 1
    assert "1 of 2 runs failed, see " in further.stderr
    text = (out / "table.md").read_text()
    assert "| A | baseline | 0 of 1 | - | - | - | - | 8.04 |" in text
    assert "a-seed0: the gradients of the discriminator were not finite in 3" in text
    assert {path: path.read_bytes() for path in (out / "f-seed0").rglob("*.*")} == trained
    (line,) = map(json.loads, (out / "f-seed0" / "metrics.jsonl").read_text().splitlines()[:1])
    assert re.search(r"\| F \| mixing \| 1 \| 0\.06 \| [\d,]+ \| [\d.]+ \| ", text)
    assert f" | {line['values']['swd']:.4g} | 4.40 |" in text
    assert read_stored_config(out / "f-seed0" / "config.toml") == base
    with Image.open(out / "samples.png") as picture:
        assert picture.width == 12 * 100 + 4
