"""The experiment of docs/few-images.md: the runs of `tools/few_images.py`, and what it keeps."""

import json

import few_images
import pytest
from click.testing import CliRunner
from few_images import all_runs, draw, due, logged, parse_runs, scores, table, unpack
from PIL import Image
from tiny_training import tiny_config

from stylegan.config import flatten, load_config, to_dict, to_toml
from stylegan.files.download import BUNDLED
from stylegan.report.history import read_run


def test_runs_differ_by_augmentation_weight_of_r1_and_seed_alone():
    plain, other = (
        flatten(to_dict(load_config("quickstart", all_runs([0, 2])[name].options)))
        for name in ("91-none", "300-ada-rule-seed2")
    )
    changed = {name: value for name, value in other.items() if value != plain[name]}
    assert changed == {"seed": 2, "augment.kind": "ada", "r1_gamma": 0.0064}
    assert (plain["augment.kind"], plain["data.mirror"]) == ("none", True)
    assert plain["schedule.total_kimg"] == 400


def test_runs_are_chosen_by_name():
    chosen = parse_runs("91-none, 300-ada-rule-seed1, heads-from-smileys-freeze16")
    assert [(run.size, run.label) for run in chosen] == [
        (91, "none"),
        (300, "ada"),
        (78, "from-other-freeze16"),
    ]
    assert chosen[2].source == "smileys-scratch-40"
    with pytest.raises(ValueError, match="'300-lecam' is not a run"):
        parse_runs("300-lecam")


def test_what_a_transfer_begins_with_is_bundled_or_a_run():
    runs = all_runs([0])
    sources = {run.source for run in runs.values()} - {"", *BUNDLED}
    assert sources == {"heads-scratch-40", "smileys-scratch-40"} <= runs.keys()


def test_sets_are_evenly_spread_over_the_pictures_of_their_kind(tmp_path):
    unpack(tmp_path)
    few, whole = (sorted((tmp_path / size).rglob("*.png")) for size in ("300", "843"))
    assert [path.name for path in few] == [whole[i * 843 // 300].name for i in range(300)]
    sizes = {run.size for run in all_runs([0]).values()}
    assert sizes == {size for size in sizes if len(set(tmp_path.glob(f"{size}/*/*.png"))) == size}


@pytest.fixture
def folder(tmp_path):
    """A run with generators at 20 to 100 kimg, of which one was measured."""
    (tmp_path / "config.toml").write_text(to_toml(tiny_config()))
    lines = [
        {"event": "progress", "images_seen": kimg * 1000, "d/real_signs": kimg / 10}
        for kimg in (1, 10, 11)
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for kimg in range(20, 101, 20):
        (tmp_path / f"generator-{kimg * 1000:09d}.pt").touch()
    line = {"metric": "swd20", "values": {"swd": 1.23456}}
    line["protocol"] = {"generator": {"sha256": "a", "images_seen": 40_000}}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    return tmp_path


def test_the_last_generator_and_those_of_every_so_many_kimg_are_measured_once(folder):
    assert [path.name[10:-3] for path in due(folder, ["swd20"], 40)] == ["000080000", "000100000"]


def test_results_of_a_run_are_over_kimg(folder):
    history = read_run(folder)
    assert scores(history, ["swd20"]) == {"swd": [(40, 1.235)]}
    assert logged(history) == {"r_t": [(2, 0.1), (10, 1), (12, 1.1)]}


def test_what_is_there_is_drawn():
    results = {
        "91-none": {"kimg": 80, "r_t": [[10, 0.9], [20, 0.8]], "eff-fd": [[40, 900], [80, 500]]},
        "3916-ada-seed1": {"kimg": 20, "r_t": [[10, 0.9]], "p": [[10, 0.1]]},
    }
    figure = draw({all_runs([0, 1])[name]: result for name, result in results.items()})
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["91 smileys", "all 3,916 emoji", "", "", "", ""]  # distance, r_t and p
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["none", "ada"]
    assert figure.axes[0].lines[0].get_ydata().tolist() == [900, 500]
    assert all(axes.get_ylim()[1] > 0.1 for axes in figure.axes[4:])  # p, of the second column
    *_, first, second = table(results).splitlines()
    assert first == "| 91-none | 80 | 500 | 80 | 500 | - | - | 0.8 | - | - | - |"
    assert second == "| 3916-ada-seed1 | 20 | - | - | - | - | - | 0.9 | 0.1 | - | - |"


@pytest.mark.slow
def test_runs_are_trained_measured_and_continued_by_the_same_command(tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    tiny = ("network.resolution=8", "network.max_channels=4", "schedule.total_kimg=0.08")
    tiny += ("schedule.tick_kimg={4=0.04}", "schedule.stable_kimg=0.02", "schedule.fade_kimg=0.02")
    monkeypatch.setattr(few_images, "BASE", (*few_images.BASE, *tiny))
    monkeypatch.setattr(few_images, "COPIES", 4)
    results = tmp_path / "docs"

    def run(*options):
        places = ["--out", str(tmp_path / "runs"), "--results", str(results), "--device", "cpu"]
        options = [*options, *places, "--metrics", "swd20"]
        found = CliRunner().invoke(few_images.main, options)
        assert found.exit_code == 0, found.output
        return json.loads((results / "few-images.json").read_text())

    first = run("--runs", "300-none")
    assert first["300-none"]["kimg"] == 0.128  # the schedule is read every four batches
    assert {"median", "near", "others"} == set(first["300-none"]["copies"])
    trained = {path: path.read_bytes() for path in (tmp_path / "runs" / "300-none").rglob("*.pt")}
    assert run("--runs", "91-ada,300-none").keys() == {"91-ada", "300-none"}
    assert trained == {path: path.read_bytes() for path in trained}
    assert run("--no-train", "--runs", "3916-none").keys() == {"91-ada", "300-none"}
    with Image.open(results / "few-images" / "300-none.png") as picture:
        assert picture.width == 8 * 8
    assert (results / "few-images.png").exists()
