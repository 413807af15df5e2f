"""Eight iterations of the official program, through the training step that users run."""

import numpy as np
import pytest
import torch
from helpers.reference import DEVICE, SLACK, load, to_test_device, under

from stylegan import interop
from stylegan.config import build_config
from stylegan.schedule import Stage
from stylegan.training import Draws, PassDraws, TrainState, train_step

FLOAT64 = 1e-8
FLOAT32 = 2e-4


def initial_state(dtype):
    arrays, meta = load("trajectory")
    common = meta["common_kwargs"]
    generator = interop.generator_from_official(
        under("initial/G/", arrays), common | meta["G_kwargs"]
    )
    discriminator = interop.discriminator_from_official(
        under("initial/D/", arrays), common | meta["D_kwargs"]
    )
    config = build_config(
        {
            "r1_gamma": 10.0,
            "precision": "fp32",
            "noise_mode": "const",
            "style_mixing": 0.0,
            "network": {"resolution": 16, "max_channels": 10, "channel_base": 48, "z_dim": 10},
            "schedule": {"batch_size": {4: 4}},
        }
    )
    networks = generator.to(dtype), discriminator.to(dtype)
    return TrainState.create(config, *networks, device=DEVICE)


def largest_difference(ours, official, rebuild):
    """Over the variables of one network: imported official ones against our module's."""
    expected = rebuild(official).state_dict()
    found = ours.state_dict()
    names = [name for name in found if not name.endswith("noise.const")]
    return max((found[n].cpu().double() - expected[n].double()).abs().max().item() for n in names)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, FLOAT64), (torch.float32, FLOAT32)])
def test_train_step_reproduces_eight_official_iterations(dtype, limit):
    limit *= SLACK[dtype]
    (arrays, meta), (steps, _) = load("trajectory"), load("trajectory_steps")
    reals = load("trajectory_reals")[0]["reals_processed"]
    settings = {
        "G": meta["common_kwargs"] | meta["G_kwargs"],
        "D": meta["common_kwargs"] | meta["D_kwargs"],
    }
    constants = {
        key: value
        for key, value in under("initial/G/", arrays).items()
        if key.startswith("G_synthesis/noise")
    }

    def generator(official):
        return interop.generator_from_official(constants | official, settings["G"])

    def discriminator(official):
        return interop.discriminator_from_official(official, settings["D"])

    state = initial_state(dtype)
    prefix = "f64/" if dtype == torch.float64 else ""
    for i, lod in enumerate(arrays["lods"]):
        alpha = 1 - float(np.float32(lod))
        stage = Stage(16, alpha, batch_size=4, g_lr=0.001, d_lr=0.001, tick_kimg=1)
        draws = Draws(
            *(
                PassDraws(to_test_device(arrays[f"latents_{x}"][i], dtype), noise="const")
                for x in "DG"
            )
        )
        images = to_test_device(reals[i], dtype)
        metrics = train_step(state, images, None, stage, draws)

        d_loss = metrics["d/logistic_fake"] + metrics["d/logistic_real"]
        for name, found in {
            "D_loss_mean": d_loss + 5 * metrics["d/r1_penalty"],
            "G_loss_mean": metrics["g/nonsaturating"],
            "r1_penalty_mean": metrics["d/r1_penalty"],
        }.items():
            expected = arrays[prefix + name][i]
            assert found.item() == pytest.approx(expected, abs=max(limit / 40, 1e-9)), name

        now = f"f64/step{i:02d}"
        official = {x: under(f"{now}/{x}/", steps) for x in "GD"}
        assert largest_difference(state.generator, official["G"], generator) < limit
        assert largest_difference(state.discriminator, official["D"], discriminator) < limit
        w_avg = torch.from_numpy(arrays[prefix + "dlatent_avg/after_G_step"][i])
        assert (state.generator.w_avg.cpu() - w_avg).abs().max() < limit
        ema_w_avg = torch.from_numpy(arrays[prefix + "Gs_dlatent_avg"][i])
        assert (state.generator_ema.w_avg.cpu() - ema_w_avg).abs().max() < limit
        assert state.g_optimizer.param_groups[0]["updates"] == arrays["opt_steps"][i]

    final = under(prefix + "final/Gs/", arrays)
    assert largest_difference(state.generator_ema, final, generator) < limit
    assert state.images_seen == 32
