"""The loop: runs grow, are saved, and continue exactly."""

import dataclasses
import tomllib

import pytest
import torch
from helpers.runs import log_of
from helpers.tiny_training import (
    KINDS,
    SHORT,
    differing,
    flat,
    merge,
    resumed,
    tiny_config,
    train_tiny,
)

from stylegan.config import CHANGEABLE_WITHIN_RUN, build_config, unflatten
from stylegan.files import checkpoint
from stylegan.files.run_folder import RunFolder
from stylegan.training import TrainState

STOPS = (
    4,  # after the first step
    24,  # at the last reading before a resolution grows in
    36,  # at a reading, within a fade-in
    52,  # between two readings, within a fade-in
    72,  # at the change from fading to grown
    96,  # as the next resolution begins to grow
    156,  # before the last step
    168,  # after it, before its generator is written
)


def test_resume_is_bit_identical_at_any_step(store, whole, tmp_path):
    """One run, stopped at each; to find which is to blame, leave the others out."""
    for images in STOPS:
        train_tiny(tiny_config(), store, tmp_path / "run", stop_at=images)
    generator = tmp_path / "run" / "generator-000000168.pt"
    assert not generator.exists()
    state = train_tiny(tiny_config(), store, tmp_path / "run")
    assert generator.exists()
    assert differing(state.to_payload(), whole[1].to_payload()) == []


CLASSES = {"data": {"labels": True}, "network": {"label_dim": 2}}
LONG = {"schedule": SHORT | {"total_kimg": 0.032, "d_lr": {4: 0.02}}}  # D(real) becomes positive
ADA = {"kind": "ada", "target": -0.9, "ada_kimg": 0.04}
RESUMED = {  # kinds of training, and the image at which they are stopped
    **{name: (KINDS[name], 8) for name in ("lazy r1", "first moments", "recomputation", "frozen")},
    **{name: (KINDS[name], 8) for name in ("bf16", "fp16", "relativistic")},
    "labels": (CLASSES, 8),
    "adaptive": (LONG | {"augment": ADA, "checkpoint_activations": True, "batch_gpu": 2}, 24),
    "diffaugment": (
        LONG | {"augment": {"kind": "diffaugment", "probability": 0.5}, "r2_gamma": 1.0},
        24,
    ),
    "fixed": (
        LONG
        | {"augment": ADA | {"probability": 0.3, "transforms": ["bgc", "imgfilter", "cutout"]}},
        24,
    ),
}


@pytest.mark.parametrize("kind", RESUMED)
def test_resume_is_bit_identical_for_every_kind_of_training(kind, store, tmp_path):
    options, stop_at = RESUMED[kind]
    config = tiny_config(**{"schedule": SHORT} | options)
    source = None
    if kind == "frozen":  # which only weights can be that have grown so far
        source = tmp_path / "source.pt"
        grown = tiny_config(schedule={"initial_resolution": 16})
        checkpoint.save(source, "state", TrainState.create(grown).to_payload())
    state = resumed(config, store, tmp_path, stop_at, init_from=source)
    if "augment" in options:
        probability = state.strength.probability
        assert probability > 0
        assert config.augment.adaptive or probability == config.augment.probability


HARMLESS_CHANGES = {
    "checkpoint_activations": True,
    "deterministic": True,
    "keep_states": 1,
    "log_kimg": 0.008,
    "max_saturated_kimg": 1.0,
    "max_skipped": 2,
    "milestone_kimg": 0.004,
    "save_minutes": 1e-9,
    "schedule.total_kimg": 0.02,
    "snapshot_ticks": 1,
    "batch_gpu": 2,  # equal but for round-off: see test_training_step.py
}


USUAL = {"schedule": SHORT, "network": {"deviation_group": 0}}


@pytest.fixture(scope="module")
def usual(store, tmp_path_factory):
    """The end of a short run."""
    return train_tiny(
        tiny_config(**USUAL), store, tmp_path_factory.mktemp("usual") / "run"
    ).to_payload()


@pytest.mark.parametrize("name", HARMLESS_CHANGES)
def test_changeable_within_run_options_do_not_change_the_result(name, usual, store, tmp_path):
    assert HARMLESS_CHANGES.keys() == CHANGEABLE_WITHIN_RUN
    changed = tiny_config(**merge(USUAL, unflatten({name: HARMLESS_CHANGES[name]})))
    assert changed != tiny_config(**USUAL)
    train_tiny(changed, store, tmp_path / "run", stop_at=8)
    state = train_tiny(tiny_config(**USUAL), store, tmp_path / "run").to_payload()
    different = differing(state, usual)
    if name == "batch_gpu":
        ours, theirs = flat(state), flat(usual)
        # Adam makes a full step of a gradient's round-off near 0. Later gradients amplify it: their
        # squares, which are large, differ by a twentieth on a Xeon; all else by less than 0.01.
        large = {k: 0.1 * theirs[k].abs().max() for k in different if k.endswith("/exp_avg_sq")}
        near = {k: 1e-2 + large.get(k, 0) for k in different}
        different = [k for k in different if (ours[k] - theirs[k]).abs().max() > near[k]]
    assert different == []


def test_start_grows_through_all_resolutions_and_writes_its_files(store, whole):
    out, state = whole
    assert state.images_seen == 168  # readings are every 12 images; the first from 160 on ends it
    progress = log_of(out, "progress")
    assert [line["images_seen"] for line in progress] == [*range(4, 160, 4), 168]
    assert sorted({line["schedule/resolution"] for line in progress}) == [4, 8, 16]
    assert {0.3, 1.0} < {round(line["schedule/alpha"], 9) for line in progress}
    for line in progress:
        assert all(value == value for value in line.values())  # no NaN
    names = {"d/logistic_fake", "d/logistic_real", "d/r1_penalty", "g/nonsaturating"}
    assert names <= progress[0].keys()
    assert [len(log_of(out, event)) for event in ("start", "resume", "finished")] == [1, 0, 1]
    states = [path.name for path in RunFolder(out).states()]
    assert states == ["state-000000080.pt", "state-000000120.pt", "state-000000168.pt"]
    generators = [path.name for path in RunFolder(out).generators()]
    assert generators == [f"generator-{n:09d}.pt" for n in (80, 168)]
    assert not list(out.glob("*.partial"))
    assert build_config(tomllib.loads((out / "config.toml").read_text())) == state.config


def test_seed_decides_the_run(store, tmp_path):
    config = tiny_config(schedule={"total_kimg": 0.012})
    same = [train_tiny(config, store, tmp_path / name) for name in "ab"]
    assert differing(same[0].to_payload(), same[1].to_payload()) == []
    other = train_tiny(dataclasses.replace(config, seed=1), store, tmp_path / "c")
    assert not torch.equal(other.generator.w_avg, same[0].generator.w_avg)
