"""Plain options give plans that make sense; pictures of one's own, a resolution."""

import pytest

from stylegan.config import load_config
from stylegan.fitting import FINEST_CHANNELS, choose, fitted, shortened
from stylegan.schedule import ScheduleConfig, phases

REACH = {32: 300, 64: 297, 128: 290, 256: 200, 512: 10}


@pytest.mark.parametrize(
    ("reach", "device", "chosen"),
    [
        (REACH, "cpu", (64, 96.0, 128)),
        (REACH, "cuda", (128, 192.0, 128)),  # which nine of ten reach
        (dict.fromkeys((32, 64, 128, 256, 512), 300), "cuda", (256, 384.0, 512)),
        ({4: 300, 8: 300, 16: 299}, "cpu", (16, 48.0, 16)),
        ({4: 300, 8: 30}, "cuda", (4, 48.0, 4)),
    ],
)
def test_the_resolution_that_most_pictures_reach_up_to_what_the_device_can_do(
    reach, device, chosen
):
    choice = choose(reach, 300, device)
    assert (choice.resolution, choice.total_kimg, choice.possible) == chosen


def fit(name, *options, **how):
    """The configuration with options, fitted as the command does."""
    config = load_config(name, options)
    fits = fitted(config, load_config(name).network.resolution, **how)
    return load_config(name, [*fits, *options])


@pytest.mark.parametrize("name", ["quickstart", "ffhq-256", "ffhq-1024", "emoji-32", "car-512"])
def test_what_fits_already_stays(name):
    assert fit(name) == load_config(name)


@pytest.mark.parametrize("resolution", [16, 64, 128, 256, 1024])
def test_another_resolution_of_the_quickstart_has_wide_layers_and_time_for_the_last(resolution):
    config = fit("quickstart", f"network.resolution={resolution}")
    assert config.network.channels(resolution) >= FINEST_CHANNELS
    *_, (first, end, stage) = phases(config.schedule)
    assert (stage.resolution, stage.alpha) == (resolution, 1.0)
    assert end - first >= end / 2


def test_another_resolution_of_the_papers_networks_is_the_papers():
    config = fit("ffhq-256", "network.resolution=128")
    assert config.network.channel_base == 8192
    assert config.schedule.stable_kimg == 600
    assert fit("ffhq-256", "network.resolution=1024").network.channel_base == 8192


def test_a_short_training_grows_in_half_of_it_and_shows_samples_a_dozen_times():
    plan = fit("ffhq-256", "schedule.total_kimg=120").schedule
    assert (plan.stable_kimg, plan.fade_kimg) == (6.0, 6.0)  # ten phases in 60 kimg
    assert set(plan.tick_kimg.values()) == {10.0}
    assert set(fit("quickstart", "schedule.total_kimg=6").schedule.tick_kimg.values()) == {1.0}
    assert set(fit("quickstart", "schedule.total_kimg=0.5").schedule.tick_kimg.values()) == {0.5}
    without_growth = ScheduleConfig(resolution=8, total_kimg=0.1)
    assert shortened(without_growth).stable_kimg == 600


def test_a_run_that_has_begun_keeps_its_phases():
    begun = fit("ffhq-256", "schedule.total_kimg=120").schedule
    longer = fit("ffhq-256", "schedule.total_kimg=240", begun=begun).schedule
    assert (longer.stable_kimg, longer.tick_kimg) == (begun.stable_kimg, begun.tick_kimg)
    assert longer.total_kimg == 240


def test_a_width_keeps_the_proportions_and_may_be_given_again():
    narrow = fit("ffhq-256", width=64).network
    assert (narrow.max_channels, narrow.channels(16), narrow.channels(256)) == (64, 64, 8)
    assert fitted(load_config("ffhq-256", fit_options(narrow)), 256, width=64)[:2] == fit_options(
        narrow
    )


def fit_options(network):
    return [
        f"network.channel_base={network.channel_base}",
        f"network.max_channels={network.max_channels}",
    ]
