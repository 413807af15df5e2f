"""The schedule against the official program's, and its corner cases."""

import ast
import dataclasses
import json
import sys
from pathlib import Path

import pytest

from stylegan import schedule
from stylegan.config import config_names, load_config
from stylegan.schedule import ScheduleConfig, SchedulePosition, phases, resolutions, stage_at

OFFICIAL = json.loads((Path(__file__).parent / "reference" / "schedule.json").read_text())
UNLIMITED = 2**30
OFFICIAL_BASES = {
    "minibatch": 16,
    "max_minibatch_per_gpu": UNLIMITED,
    "G_lrate": 0.001,
    "D_lrate": 0.001,
    "tick_kimg": 160,
}


OFFICIAL_TICKS = {str(r): kimg for r, kimg in schedule.OFFICIAL_TICK_KIMG.items()}


def steps(kwargs: dict, name: str) -> dict[int, float]:
    """An official base and dictionary, which holds at its own resolutions only, as a table of
    steps: the base fills the gaps."""
    base = kwargs.get(f"{name}_base", OFFICIAL_BASES[name])
    table = kwargs.get(name, kwargs.get(f"{name}_dict", {}))
    return {r: table.get(str(r), base) for r in resolutions(1024)}


def from_official(case: dict) -> ScheduleConfig:
    kwargs = case["kwargs"]
    return ScheduleConfig(
        resolution=2 ** case["resolution_log2"],
        initial_resolution=kwargs.get("lod_initial_resolution", 4),
        stable_kimg=kwargs.get("lod_training_kimg", 600),
        fade_kimg=kwargs.get("lod_transition_kimg", 600),
        ramp_kimg=kwargs.get("lrate_rampup_kimg", 0),
        batch_size=steps(kwargs, "minibatch"),
        max_batch_per_process=steps(kwargs, "max_minibatch_per_gpu"),
        g_lr=steps(kwargs, "G_lrate"),
        d_lr=steps(kwargs, "D_lrate"),
        tick_kimg=steps({"tick_kimg_dict": OFFICIAL_TICKS} | kwargs, "tick_kimg"),
        num_processes=case["num_gpus"],
    )


@pytest.mark.parametrize("name", OFFICIAL["configs"])
def test_stage_at_equals_the_official_schedule(name):
    case = OFFICIAL["configs"][name]
    config = from_official(case)
    rows = [
        dict(zip(case["outputs"], row, strict=True))
        for row in zip(*case["outputs"].values(), strict=True)
    ]
    assert len(rows) == 424
    for row in rows:
        stage = stage_at(row["cur_nimg"], config)
        assert stage.alpha == pytest.approx(1 - row["lod"] % 1, abs=1e-12, rel=0)
        assert stage.resolution == row["resolution"]
        assert stage.batch_size == row["minibatch"]
        assert (stage.g_lr, stage.d_lr) == (row["G_lrate"], row["D_lrate"])
        assert stage.tick_kimg == row["tick_kimg"]


# Of a network of 64x64 pixels: after how many kimg which field of a stage has which value.
ARGUMENTS: dict[str, tuple[object, list[tuple[float, str, float]]]] = {
    "lod_initial_resolution": (16, [(0, "resolution", 16), (600.1, "resolution", 32)]),
    "lod_training_kimg": (100, [(100, "alpha", 1), (400, "alpha", 0.5), (700, "alpha", 1)]),
    "lod_transition_kimg": (100, [(625, "alpha", 0.25), (700, "alpha", 1), (1350, "alpha", 0.5)]),
    "minibatch_base": (20, [(0, "batch_size", 18), (1200, "batch_size", 18)]),
    "minibatch_dict": (
        {"4": 32, "16": 7},
        [(0, "batch_size", 30), (1200, "batch_size", 15), (2400, "batch_size", 6)],
    ),
    "max_minibatch_per_gpu": (
        {"8": 2, "16": 9},
        [(0, "batch_size", 15), (1200, "batch_size", 6), (2400, "batch_size", 15)],
    ),
    "G_lrate_base": (0.5, [(0, "g_lr", 0.5), (4800, "g_lr", 0.5), (0, "d_lr", 0.001)]),
    "G_lrate_dict": ({"8": 0.5}, [(0, "g_lr", 0.001), (1200, "g_lr", 0.5), (2400, "g_lr", 0.001)]),
    "D_lrate_base": (0.5, [(0, "d_lr", 0.5), (4800, "d_lr", 0.5), (0, "g_lr", 0.001)]),
    "D_lrate_dict": ({"8": 0.5}, [(0, "d_lr", 0.001), (1200, "d_lr", 0.5), (2400, "d_lr", 0.001)]),
    "lrate_rampup_kimg": (
        2000,
        [(0, "g_lr", 0), (500, "g_lr", 0.00025), (1500, "d_lr", 0.00075), (9999, "g_lr", 0.001)],
    ),
    "tick_kimg_base": (50, [(0, "tick_kimg", 160), (1200, "tick_kimg", 140)]),
    "tick_kimg_dict": ({"8": 9}, [(0, "tick_kimg", 160), (1200, "tick_kimg", 9)]),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_schedule_config_arguments_act_like_the_official_ones(name):
    """On three GPUs, worked out by hand; a base counts where the dictionary has no entry."""
    value, expected = ARGUMENTS[name]
    config = from_official({"resolution_log2": 6, "num_gpus": 3, "kwargs": {name: value}})
    found = [
        (kimg, field, getattr(stage_at(1000 * kimg, config), field)) for kimg, field, _ in expected
    ]
    assert found == [
        (kimg, field, pytest.approx(value, rel=1e-12)) for kimg, field, value in expected
    ]


@pytest.mark.parametrize("processes", [1, 4, 8])
def test_schedule_config_defaults_are_the_official_settings(processes):
    config = ScheduleConfig(
        batch_size=schedule.official_batch_sizes(processes), num_processes=processes
    )
    official = from_official(OFFICIAL["configs"][f"ffhq1024_{processes}gpu"])
    for images_seen in range(0, 25_000_000, 50_000):
        assert stage_at(images_seen, config) == stage_at(images_seen, official)


def test_stage_at_starts_at_full_resolution_without_durations():
    config = ScheduleConfig(stable_kimg=0, fade_kimg=0, batch_size={1024: 4})
    stage = stage_at(0, config)
    assert (stage.resolution, stage.alpha, config.start_resolution) == (1024, 1.0, 1024)
    assert phases(config) == [(0, 25_000_000, stage)]


def test_stage_at_is_the_first_or_the_last_stage_beyond_the_schedule():
    config = ScheduleConfig(resolution=64, stable_kimg=1e-310, fade_kimg=0.0)
    assert stage_at(-(10**17), config) == stage_at(0, config)
    assert stage_at(1, config).growth == (64, False)


def test_stage_at_jumps_between_resolutions_without_fades():
    config = ScheduleConfig(resolution=32, stable_kimg=1, fade_kimg=0)
    stages = [stage_at(n, config) for n in (0, 999, 1000, 1999, 2000, 9000)]
    assert [stage.resolution for stage in stages] == [8, 8, 16, 16, 32, 32]
    assert {stage.alpha for stage in stages} == {1.0}


def test_stage_at_always_fades_without_stable_phases():
    config = ScheduleConfig(resolution=16, initial_resolution=4, stable_kimg=0, fade_kimg=1)
    found = [stage_at(n, config) for n in (0, 250, 1000, 1500, 2000)]
    expected = [(4, 1.0), (8, 0.25), (8, 1.0), (16, 0.5), (16, 1.0)]
    assert [(stage.resolution, stage.alpha) for stage in found] == expected


@pytest.mark.parametrize("initial", resolutions(1024))
def test_stage_at_never_grows_beyond_the_full_resolution(initial):
    config = ScheduleConfig(resolution=32, initial_resolution=initial)
    found = {stage_at(n, config).resolution for n in range(0, 9_000_000, 100_000)}
    assert min(found) == min(initial, 32)
    assert max(found) == 32


def test_ramp_kimg_raises_both_rates_across_resolutions():
    config = ScheduleConfig(resolution=64, ramp_kimg=1000, g_lr={4: 0.004, 16: 0.008}, d_lr={4: 1})
    stages = [stage_at(1000 * kimg, config) for kimg in (0, 500, 750, 1000, 2000)]
    assert [stage.g_lr for stage in stages] == [0, 0.002, 0.006, 0.008, 0.008]
    assert [stage.d_lr for stage in stages] == [0, 0.5, 0.75, 1, 1]
    assert [stage.g_lr for _, _, stage in phases(config)][:2] == [0.004, 0.008]


@pytest.mark.parametrize("processes", [*range(1, 9), 16, 64])
def test_official_batch_sizes_use_the_next_smaller_table(processes):
    table = schedule.official_batch_sizes(processes)
    assert table == schedule.OFFICIAL_BATCH_SIZES[1 << min(processes.bit_length() - 1, 3)]


@pytest.mark.parametrize("name", config_names())
def test_phases_cover_the_whole_training(name):
    config = load_config(name).schedule
    spans = phases(config)
    assert [spans[0][0], *(end for _, end, _ in spans)] == [
        *(start for start, _, _ in spans),
        config.total_images,
    ]
    assert spans[0][0] == 0
    for start, end, stage in spans:
        assert start < end
        for images_seen in (start + 1, end - 1):
            there = stage_at(images_seen, config)
            assert there.resolution == stage.resolution
            assert (there.alpha < 1) == (stage.alpha < 1)
    assert [stage.resolution for _, _, stage in spans][-1] == config.resolution


def test_phases_end_with_the_training():
    spans = phases(ScheduleConfig(total_kimg=700))
    assert [(start, end, stage.resolution) for start, end, stage in spans] == [
        (0, 600_000, 8),
        (600_000, 700_000, 16),
    ]


def test_schedule_module_imports_only_the_standard_library():
    tree = ast.parse(Path(schedule.__file__).read_text())
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names -= {"stylegan.utils.validation"}
    assert names
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_schedule_position_reads_the_schedule_every_few_steps():
    config = ScheduleConfig(
        resolution=8, stable_kimg=0.01, fade_kimg=0.02, total_kimg=0.05, minibatch_repeats=3
    )
    config = dataclasses.replace(config, initial_resolution=4, batch_size={4: 4})
    position, read = SchedulePosition(), []
    while not position.finished(config):
        stage = position.next_stage(config)
        assert stage == stage_at(position.schedule_images, config) == position.stage(config)
        read.append(position.schedule_images)
        position.advance(stage.batch_size)
    assert read == [image for image in range(0, 60, 12) for _ in range(3)]
    assert position == SchedulePosition(images_seen=60, schedule_images=48, repeats_left=0)


def test_schedule_position_without_a_schedule_counts_images():
    position = SchedulePosition()
    position.advance(4)
    assert position == SchedulePosition(images_seen=4)
