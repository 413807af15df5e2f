"""The loop: runs grow, are saved, continue exactly, and do not grow in memory."""

import dataclasses
import json
import shutil
import tomllib
from pathlib import Path

import pytest
import torch
from helpers.tiny_training import QUIET, differing, run, tiny_config, tiny_store
from PIL import Image

from stylegan.config import build_config
from stylegan.run_folder import RunFolder
from stylegan.training import start


def lines(out, event):
    records = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [record for record in records if record["event"] == event]


STOPS = {
    4: "after the first step",
    24: "at the last reading before a resolution grows in",
    36: "at a reading, within a fade-in",
    52: "between two readings, within a fade-in",
    72: "at the change from fading to grown",
    96: "as the next resolution begins to grow",
    156: "before the last step",
}


@pytest.mark.parametrize("images", STOPS, ids=STOPS.values())
def test_a_run_stopped_and_continued_equals_one_that_was_not_bit_for_bit(
    images, store, whole, tmp_path
):
    stopped = run(tiny_config(), store, tmp_path / "run", stop_at=images)
    assert stopped.images_seen == images
    continued = run(tiny_config(), store, tmp_path / "run")
    assert continued is not stopped
    assert differing(continued.to_payload(), whole[1].to_payload()) == []


def test_a_run_grows_through_its_resolutions_and_leaves_its_files(store, whole):
    out, state = whole
    assert state.images_seen == 168  # readings are every 12 images; the first from 160 on ends it
    progress = lines(out, "progress")
    assert [line["images_seen"] for line in progress] == [*range(4, 160, 4), 168]
    assert sorted({line["schedule/resolution"] for line in progress}) == [4, 8, 16]
    for line in progress:
        assert all(value == value for value in line.values())  # no NaN
    names = {"d/logistic_fake", "d/logistic_real", "d/r1_penalty", "g/nonsaturating"}
    assert names <= progress[0].keys()
    assert [len(lines(out, event)) for event in ("start", "resume", "finished")] == [1, 0, 1]
    states = [path.name for path in RunFolder(out).states()]
    assert states == ["state-000000080.pt", "state-000000120.pt", "state-000000168.pt"]
    generators = [path.name for path in RunFolder(out).generators()]
    assert generators == [f"generator-{n:09d}.pt" for n in (80, 168)]
    assert not list(out.glob("*.partial"))
    assert build_config(tomllib.loads((out / "config.toml").read_text())) == state.config
    for path in (out / "reals.png", *(out / "samples").iterdir()):
        with Image.open(path) as image:
            rows = 4 if path.name != "reals.png" else 2  # of 8 pictures each
            assert image.size == (8 * 16, rows * 16)


def test_a_run_that_stopped_after_its_last_step_still_writes_its_generator(store, whole, tmp_path):
    run(tiny_config(), store, tmp_path / "run", stop_at=168)
    assert not (tmp_path / "run" / "generator-000000168.pt").exists()
    state = run(tiny_config(), store, tmp_path / "run")
    assert (tmp_path / "run" / "generator-000000168.pt").exists()
    assert differing(state.to_payload(), whole[1].to_payload()) == []


def test_a_run_of_other_images_is_refused(whole, tmp_path):
    out = Path(shutil.copytree(whole[0], tmp_path / "run"))
    with pytest.raises(ValueError, match=r"trained on other images .* --init-from"):
        run(tiny_config(), tiny_store(tmp_path, seed=1), out)


def test_the_number_of_workers_does_not_change_a_run(store, tmp_path):
    config = tiny_config(schedule={"total_kimg": 0.036})
    states = [start(config, store, tmp_path / str(n), **QUIET, workers=n) for n in (0, 2)]
    assert differing(*(state.to_payload() for state in states)) == []


def test_the_seed_decides_the_run(store, tmp_path):
    config = tiny_config(schedule={"total_kimg": 0.012})
    same = [run(config, store, tmp_path / name) for name in "ab"]
    assert differing(same[0].to_payload(), same[1].to_payload()) == []
    other = run(dataclasses.replace(config, seed=1), store, tmp_path / "c")
    assert not torch.equal(other.generator.w_avg, same[0].generator.w_avg)
