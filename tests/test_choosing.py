"""Plain options give plans that make sense; pictures of one's own, a resolution."""

import dataclasses
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stylegan import planning
from stylegan.config import flatten, load_config, parse_options, to_dict
from stylegan.data import Findings
from stylegan.data.images import Fit
from stylegan.files.run_folder import RunFolder
from stylegan.planning import (
    FINEST_CHANNELS,
    Facts,
    dependent_options,
    gamma_of_size,
    shortened,
)
from stylegan.schedule import ScheduleConfig, phases
from stylegan.training.costs import Machine, StepCosts

GIB = 2**30
MACHINES = {  # device, memory, cores, processes
    "a CPU, 23 GiB": ("cpu", 23 * GIB, 2, 1),
    "8 GB": ("cuda", 8 * GIB, 2, 1),
    "24 GB": ("cuda", 24 * GIB, 2, 1),
    "8 x 80 GB": ("cuda", 80 * GIB, 2, 8),
}


CPU = "a CPU, 23 GiB"


def pictures(reach):
    """The findings of pictures of which so many reach each resolution."""
    sizes = Counter()
    larger = 0
    for resolution in sorted(reach, reverse=True):
        sizes[resolution, resolution] = reach[resolution] - larger
        larger = reach[resolution]
    return Findings(Path("photos"), "folder", Fit(), "", all_sizes=sizes, sizes=sizes)


def known(images, size, machine=CPU, *, reach=None, grown=0, **changes):
    """Pictures on a machine, and weights that have grown so far."""
    device, memory, cores, processes = MACHINES[machine]
    there = Machine(torch.device(device), memory, cores, processes)
    start = (
        SimpleNamespace(require_loaded=lambda: SimpleNamespace(grown_resolution=grown))
        if grown
        else None
    )
    return Facts(
        RunFolder("none"), None, "auto", Path("photos"), True,
        dataclasses.replace(there, **changes), start, pictures(reach or {size: images}),
    )  # fmt: skip


def chosen(*asked, of=None, max_channels=None):
    return planning.chosen(parse_options(asked), of or known(300, 64), max_channels)[0]


REACH = {32: 300, 64: 297, 128: 290, 256: 200, 512: 10}  # nine of ten reach 128
OWN = ("network.resolution=128", "schedule.batch_size=16", "schedule.total_kimg=120")
RELATIVISTIC = "discriminator_loss='relativistic'", "generator_loss='relativistic'"
CHOSEN = [  # pictures on a machine, options that were asked for, and some of what is chosen
    (known(300, 64), (), {"r1_gamma": {8: 6.4, 16: 1.6, 32: 0.4, 64: 0.1}}),  # as for each pixel
    (known(300, 64), (), {"schedule.stable_kimg": 7, "schedule.fade_kimg": 5}),
    (known(300, 64), (), {"schedule.g_lr": {4: 0.004}, "schedule.d_lr": {4: 0.004}}),
    (known(300, 64), ("r1_gamma=3.0",), {"r1_gamma": 3}),
    (known(300, 64), ("schedule.fade_kimg=2",), {"schedule.fade_kimg": 2}),
    (known(300, 64, "24 GB"), (), {"r1_gamma": 1}),
    (known(300, 64, grown=64), (), {"r1_gamma": 0.1, "schedule.g_lr": {4: 0.001}}),
    (known(300, 64, grown=64), (), {"schedule.d_lr": {4: 0.002}}),  # faster
    (known(300, 64, grown=64), ("schedule.g_lr=0.003",), {"schedule.g_lr": {4: 0.003}}),
    (known(300, 4, "24 GB", reach=REACH), (), {"network.resolution": 128}),
    (known(300, 4, reach=REACH), (), {"network.resolution": 64}),
    (known(300, 4, reach=REACH, cores=1), (), {"network.resolution": 32}),
    (known(300, 4, reach=REACH, cores=1, grown=64), (), {"network.resolution": 64}),
    (known(300, 32, cores=1, grown=64), (), {"network.resolution": 32}),
    (known(300, 4, reach={4: 300, 8: 30}), (), {"network.resolution": 4}),
    (known(300, 1024, "24 GB"), (), {"network.resolution": 256}),
    (known(300, 1024, "24 GB", grown=1024), (), {"network.resolution": 1024}),
    (known(70_000, 1024, "24 GB", processes=1), (), {"network.resolution": 256}),  # not weeks
    (known(70_000, 1024, "24 GB", processes=2), (), {"network.resolution": 512}),
    (known(70_000, 1024, "24 GB", processes=8), (), {"network.resolution": 1024}),
    (known(300, 64), ("schedule.total_kimg=12",), {"ema_half_life_kimg": 1}),  # a twelfth
    (known(300, 64), ("schedule.total_kimg=48",), {"ema_half_life_kimg": 4}),
    (known(300, 64), ("schedule.total_kimg=1000",), {"ema_half_life_kimg": 5}),
    (known(300, 64), ("schedule.total_kimg=12", "ema_half_life_kimg=3"), {"ema_half_life_kimg": 3}),
    (known(300, 64, "24 GB"), OWN, {"network.resolution": 128, "schedule.batch_size": {4: 16}}),
    (known(300, 64, "24 GB"), OWN, {"schedule.stable_kimg": 7.5}),  # four doublings in half of it
    (known(300, 64), ("augment.kind='diffaugment'",), {"augment.kind": "diffaugment"}),
    (known(3000, 64, "24 GB"), (), {"augment.kind": "ada"}),
    (known(3000, 64, "24 GB"), ("discriminator_loss='wgan_gp'",), {"augment.kind": "none"}),
    (known(3000, 64, "24 GB"), RELATIVISTIC, {"augment.kind": "ada"}),
]


@pytest.mark.parametrize(("of", "asked", "expected"), CHOSEN)
def test_auto_config_keeps_explicit_options_and_chooses_the_rest(of, asked, expected):
    found = flatten(to_dict(chosen(*asked, of=of)))
    assert {name: found[name] for name in expected} == expected


def test_auto_config_counts_the_images_that_reach_an_explicit_resolution():
    reach = {256: 60_000, 1024: 1000}
    of = known(0, 0, "8 x 80 GB", reach=reach)
    found = chosen("network.resolution=1024", of=of)
    alone = chosen("network.resolution=1024", of=known(1000, 1024, "8 x 80 GB"))
    assert found == alone and found.data.mirror and found.augment.kind == "ada"
    assert of.images_at(256) == 60_000
    none = chosen("network.resolution=512", of=known(300, 256, "24 GB"))
    assert none.network.resolution == 512  # refused when the images are read


def test_auto_config_follows_max_channels_and_scales_large_r1_gamma():
    assert chosen(*OWN, of=known(300, 64, "24 GB"), max_channels=64).network.max_channels == 64
    large = chosen("network.resolution=1024", "schedule.batch_size=16")
    assert large.r1_gamma_at(1024) == pytest.approx(0.0002 * 1024**2 / 16, rel=0.05)


def test_gamma_of_size_keeps_r1_gamma_per_pixel_across_resolutions():
    usual = load_config("quickstart").r1_gamma
    assert usual == {4: 1.6, 16: 0.4, 32: 0.05}
    for size, expected in (
        (16, {8: 0.4, 16: 0.1}),
        (32, {8: 1.6, 16: 0.4, 32: 0.05}),
        (64, {8: 6.4, 16: 1.6, 32: 0.2, 64: 0.05}),
    ):
        config = load_config("quickstart", {"network.resolution": size})
        assert gamma_of_size(config, 32) == expected
    assert gamma_of_size(load_config("quickstart", {"r1_gamma": 3.0}), 64) == 3


def kimg_within(seconds, plan, seconds_per_image, *, keep_phases=False):
    def config_of(kimg):
        longer = dataclasses.replace(plan, total_kimg=kimg)
        return SimpleNamespace(schedule=longer if keep_phases else shortened(longer))

    minutes = seconds / 60 / planning.TRAINING_SHARE
    return planning.kimg_within(minutes, config_of, StepCosts(seconds_per_image, {}))


def test_kimg_within_is_what_the_given_minutes_allow():
    plan = ScheduleConfig(resolution=32, initial_resolution=32)
    assert kimg_within(60, plan, {32: 0.01}) == pytest.approx(6, rel=0.005)
    growing = ScheduleConfig(resolution=32, initial_resolution=8, stable_kimg=7, fade_kimg=5)
    costs = {8: 0.001, 16: 0.002, 32: 0.004}  # half of the kimg grow: by 7, 5, 7, 5
    assert kimg_within(32, growing, costs) == pytest.approx(10.45, rel=0.005)
    assert kimg_within(32, growing, costs, keep_phases=True) == pytest.approx(19.25, rel=0.005)
    assert kimg_within(30, plan, {32: 60.0}) == 0
    half_grown = (7 * 0.001 + 12 * 0.002 + 5 * 0.004 + 76 * 0.004) * 1000  # of 100 kimg
    assert kimg_within(half_grown, growing, costs) == pytest.approx(100, rel=0.005)


def test_ema_half_life_kimg_is_at_most_a_twelfth_of_a_short_run():
    config = load_config("quickstart", {"schedule.total_kimg": 12})
    assert config.ema_half_life_kimg == 2
    assert dependent_options(config, 32)["ema_half_life_kimg"] == 1
    assert dependent_options(config, 32, begun=config)["ema_half_life_kimg"] == 2


@pytest.mark.parametrize("processes", [1, 2, 3, 6, 8, 16])
@pytest.mark.parametrize("images", [100, 70_000])
def test_auto_config_batches_hold_whole_minibatch_stddev_groups(images, processes):
    for machine in ("a CPU, 23 GiB", "24 GB"):
        config = chosen(of=known(images, 64, machine, processes=processes))
        for _, _, stage in phases(config.schedule):
            assert stage.batch_size % (4 * processes) == 0
        assert config.schedule.num_processes == processes


def test_auto_config_lowers_batch_gpu_then_resolution_to_fit_memory(monkeypatch):
    def estimated(config, processes):  # at 256: 4 GiB of the device for 4 images
        resolution = config.network.resolution
        return StepCosts({}, {resolution: resolution * (config.batch_gpu or 32) * 0.6})

    def found(memory):
        config = chosen(of=known(2000, 256, "24 GB", memory=memory))
        return config.network.resolution, config.batch_gpu

    monkeypatch.setattr("stylegan.planning.StepCosts.estimate", estimated)
    assert found(256 * 32) == (256, 0)
    assert found(256 * 32 - 1) == (256, 16)
    assert found(256 * 4) == (256, 4)
    assert found(128 * 8) == (256, 4)
    assert found(128 * 8 - 1) == (128, 4)
    own = chosen("batch_gpu=8", of=known(2000, 256, "24 GB", memory=512))
    assert (own.batch_gpu, own.network.resolution) == (8, 64)


def fit(name, *options, **how):
    """The configuration with options, fitted as the command does."""
    config = load_config(name, options)
    fits = dependent_options(config, load_config(name).network.resolution, **how)
    return load_config(name, fits | parse_options(options))


@pytest.mark.parametrize("resolution", [16, 64, 128, 256, 1024])
def test_dependent_options_keep_layers_wide_and_the_last_stage_long(resolution):
    config = fit("quickstart", f"network.resolution={resolution}")
    assert config.network.channels(resolution) >= FINEST_CHANNELS
    *_, (first, end, stage) = phases(config.schedule)
    assert (stage.resolution, stage.alpha) == (resolution, 1.0)
    assert end - first >= end / 2


def test_dependent_options_fit_growth_and_ticks_to_a_short_run():
    plan = fit("ffhq-256", "schedule.total_kimg=120").schedule
    assert (plan.stable_kimg, plan.fade_kimg) == (6.0, 6.0)  # ten phases in 60 kimg
    assert set(plan.tick_kimg.values()) == {10.0}
    assert set(fit("quickstart", "schedule.total_kimg=6").schedule.tick_kimg.values()) == {1.0}
    assert set(fit("quickstart", "schedule.total_kimg=0.5").schedule.tick_kimg.values()) == {0.5}
    without_growth = ScheduleConfig(resolution=8, total_kimg=0.1)
    assert shortened(without_growth).stable_kimg == 600


def test_dependent_options_keep_the_phases_of_a_started_run():
    begun = fit("ffhq-256", "schedule.total_kimg=120")
    longer = fit("ffhq-256", "schedule.total_kimg=240", begun=begun).schedule
    assert (longer.stable_kimg, longer.tick_kimg) == (
        begun.schedule.stable_kimg,
        begun.schedule.tick_kimg,
    )
    assert longer.total_kimg == 240
