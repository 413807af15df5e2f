"""Training in half precision: finite everywhere, and bfloat16 as good as float32."""

import pytest
import torch
from tiny_training import counts, stage, step, tiny_config

from stylegan.config import bundled, load_config
from stylegan.data import Preparation, cached_store
from stylegan.schedule import stage_at
from stylegan.training import TrainState, train_step
from stylegan.training.loop import Feed


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("g_loss", ["nonsaturating", "saturating", "wgan"])
@pytest.mark.parametrize("d_loss", ["logistic", "wgan", "wgan_gp", "hinge", "hinge_gp"])
def test_every_loss_in_every_precision_stays_finite(g_loss, d_loss, precision):
    config = tiny_config(
        generator_loss=g_loss, discriminator_loss=d_loss, r2_gamma=1.0, precision=precision
    )
    state = TrainState.create(config)
    for now in (stage(8, 0.5), stage(8, 1.0)):
        metrics = step(state, now)
        assert f"g/{g_loss}" in metrics
        assert {f"d/{d_loss.removesuffix('_gp')}_{side}" for side in ("real", "fake")} <= set(
            metrics
        )
        assert (f"d/{d_loss}" in metrics) == d_loss.endswith("_gp")
        for name, value in metrics.items():
            assert value.dtype == torch.float32, name
            assert value.isfinite(), name
    for parameter in (*state.generator.parameters(), *state.discriminator.parameters()):
        assert parameter.isfinite().all()
    if precision != "fp16":  # whose scale may be too large at first
        assert (state.skipped_g, state.skipped_d) == (0, 0)
    assert state.generator.w_avg.dtype == torch.float32


def test_fp16_finds_a_scale_that_lets_it_train():
    state = TrainState.create(tiny_config(precision="fp16"))
    for _ in range(20):
        step(state, stage())
    assert state.skipped_g + state.skipped_d < 20
    assert min(counts(state)) >= 10
    assert state.g_scaler.get_scale() >= 1


SMALL = (  # the quickstart's pictures at 32x32 from the start; the paper's gamma and rates
    "network.max_channels=16",
    "network.channel_base=256",
    "network.z_dim=64",
    "network.w_dim=64",
    "network.mapping_width=64",
    "schedule.stable_kimg=0",
    "schedule.fade_kimg=0",
    "schedule.batch_size={ 4 = 8 }",
    "schedule.g_lr={ 4 = 0.001 }",
    "schedule.d_lr={ 4 = 0.001 }",
    "r1_gamma=10.0",
    "r1_interval=1",
)


def late_losses(precision, cache_dir):
    """Averages of every metric over the last 100 of 300 steps on the bundled pictures."""
    config = load_config("quickstart", [*SMALL, f'precision="{precision}"'])
    store = cached_store(
        bundled("datasets/people-64.zip"), Preparation(resolution=32), cache_dir=cache_dir
    )
    state, sums = TrainState.create(config), {}
    feed = Feed(state, store, workers=0)
    for i in range(300):
        now = stage_at(state.images_seen, config.schedule)
        reals, labels, draws = feed.next(state.images_seen, now)
        for name, value in train_step(state, reals, labels, now, draws).items():
            assert value.isfinite(), name
            sums[name] = sums.get(name, 0.0) + value.item() / 100 * (i >= 200)
    assert (state.skipped_g, state.skipped_d) == (0, 0)
    return sums


@pytest.mark.slow
def test_losses_in_bfloat16_are_those_in_float32_within_a_tenth(tmp_path):
    exact, half = (late_losses(precision, tmp_path) for precision in ("fp32", "bf16"))
    assert exact.keys() == half.keys()
    for name, value in exact.items():
        assert half[name] == pytest.approx(value, rel=0.1), name
