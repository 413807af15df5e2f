"""A whole step on the meta device: every tensor is there, and nothing waits for its numbers."""

import warnings

import pytest
import torch
from meta_device import MetaTracker
from tiny_training import differing, reals_for, stage, tiny_config

from stylegan.layers import NoiseInput
from stylegan.networks import Discriminator, Generator
from stylegan.training import Share, TrainState, draw, optimizer, train_step
from stylegan.training import state as training_state
from stylegan.training.draws import placed

BASELINE = {"styles": False, "constant_input": False, "instance_norm": False, "pixel_norm": True}
OPTIONS = {
    "labels": {"network": {"label_dim": 3}},
    "stored noise, no mixing": {"noise": "const", "style_mixing": 0.0},
    "micro-batches": {"batch_gpu": 2, "network": {"deviation_group": 2}},
    "recomputation": {"checkpoint_activations": True, "r2_gamma": 1.0},
    "all of ada": {
        "augment": {"kind": "ada", "transforms": ["bgc", "imgfilter", "noise", "cutout"]}
    },
    "diffaugment": {"augment": {"kind": "diffaugment"}, "batch_gpu": 2},
    "traditional": {"network": BASELINE | {"mapping_layers": 1, "noise": False}},
    "wgan_gp": {"discriminator_loss": "wgan_gp", "generator_loss": "wgan", "adam_beta1": 0.5},
}


def second_step(config, now):
    """What the draws and the second step of a run ask of the device."""
    with torch.device("meta"):
        networks = Generator(config.network), Discriminator(config.network)
    state = TrainState.create(config, *networks, device="meta")
    reals = torch.empty(4, 3, now.resolution, now.resolution, device="meta")
    pool = torch.eye(3) if config.network.label_dim else None
    labels = None if pool is None else torch.empty(4, 3, device="meta")
    for _ in range(2):
        with MetaTracker() as drawing:
            draws = draw(config, 0, now, pool, Share(device="meta"), 0.5)
        with MetaTracker() as tracker:
            train_step(state, reals, labels, now, draws)
    return drawing.copies, tracker


@pytest.mark.parametrize("name", OPTIONS)
def test_a_step_stays_on_its_device_and_waits_once(name):
    """All random numbers are copied at once; the wait is for the step before."""
    copies, tracker = second_step(tiny_config(**OPTIONS[name]), stage(8, 0.5))
    assert (copies, tracker.copies, tracker.strangers) == (1, 0, [])
    assert len(tracker.waits) == 1


def test_a_buffer_left_on_the_cpu_is_found(monkeypatch):
    made = NoiseInput.__init__

    def init(self, channels, resolution):
        made(self, channels, resolution)
        del self.const
        self.__dict__["const"] = torch.randn(1, 1, resolution, resolution, device="cpu")

    monkeypatch.setattr(NoiseInput, "__init__", init)
    with pytest.raises(RuntimeError, match="of tensors on two devices"):
        second_step(tiny_config(noise="const"), stage())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("kind", ["none", "ada"])
def test_a_gpu_is_asked_for_numbers_once_in_a_step(kind):
    augmented = {"kind": kind, "strength": 0.5}
    config = tiny_config(augment=augmented, style_mixing=1.0)
    state, now = TrainState.create(config, device="cuda"), stage(8, 0.5)
    reals = reals_for(now).cuda()
    for mode in ("default", "default", "default", "warn"):
        draws = draw(config, state.images_seen, now, None, Share(device="cuda"), 0.5)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode(mode)
            try:
                train_step(state, reals, None, now, draws)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    assert len([w for w in found if "synchroniz" in str(w.message)]) == 1


LATER = {
    "plain": {},
    "ada": {"augment": {"kind": "ada", "speed_kimg": 0.05}},
    "first moments": {"adam_beta1": 0.5},
}


@pytest.mark.parametrize("name", LATER)
def test_updates_that_the_device_decides_are_those_that_the_host_decides(name, monkeypatch):
    """Bit for bit, also where gradients are not finite, beside saving, and as a stage begins."""

    def trained(save_at):
        state = TrainState.create(tiny_config(**LATER[name]))
        for i in range(11):
            now = stage(8, 0.5 if i < 7 else 1.0)
            probability = state.strength.probability
            draws = draw(state.config, state.images_seen, now, None, Share(), probability)
            reals = reals_for(now, seed=i)
            reals[0, 0, 0, 0] = float("nan") if i in (2, 3, 6, 10) else 0
            train_step(state, reals, None, now, draws)
            if i == save_at:
                payload, state = state.to_payload(), TrainState.create(state.config)
                state.restore(payload)
        return state.to_payload()

    expected = trained(save_at=None)
    assert expected["skipped_d"] == 4
    for module in (optimizer, training_state):
        monkeypatch.setattr(module, "host_decides", lambda device: False)
    assert differing(trained(save_at=None), expected) == []
    assert differing(trained(save_at=3), expected) == []


def test_draws_are_the_same_after_their_journey(monkeypatch):
    config = tiny_config(
        network={"label_dim": 3}, augment={"kind": "ada", "transforms": ["bgc", "noise"]}
    )
    drawn = draw(config, 8, stage(), torch.eye(3), Share(), 0.7)
    calls = []

    def sent(x, device):
        calls.append(x)
        return x.clone()

    monkeypatch.setattr("stylegan.distributed.sent", sent)
    there = placed(drawn, torch.device("meta"))
    assert len(calls) == 1 and there is not drawn
    assert differing(vars(there.discriminator.transform), vars(drawn.discriminator.transform)) == []
    for a, b in ((there.discriminator, drawn.discriminator), (there.generator, drawn.generator)):
        assert differing({**vars(a), "transform": 0}, {**vars(b), "transform": 0}) == []
    assert torch.equal(there.penalty_mix, drawn.penalty_mix)
