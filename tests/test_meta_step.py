"""A whole step on the meta device: every tensor is there, and nothing waits for its numbers."""

from contextlib import nullcontext

import pytest
import torch
from helpers.meta_device import MetaTracker
from helpers.tiny_training import KINDS, differing, flat, reals_for, stage, tiny_config

from stylegan.layers import NoiseInput
from stylegan.networks import Discriminator, Generator
from stylegan.training import Share, TrainState, draw, optimizer, train_step

COPIES = {  # of draws to the device, where not five: latents, those that mix, penalty factors
    "labels": 6,
    "stored noise, no mixing": 3,
    "traditional": 3,
    "ada": 5 + 3 * 2,
    "all of ada": 5 + 3 * 5,
    "diffaugment": 5 + 3 * 3,
}


def new_state(config):
    """A state on the meta device; images of two stages, and their labels."""
    with torch.device("meta"):
        networks = Generator(config.network), Discriminator(config.network)
    return TrainState.create(config, *networks, device="meta")


def meta_step(state, now, probability=0.5):
    """What the draws and one step ask of the device."""
    reals = torch.empty(4, 3, now.resolution, now.resolution, device="meta")
    pool = torch.arange(3) if state.config.network.label_dim else None
    labels = None if pool is None else torch.empty(4, 3, device="meta")
    with MetaTracker() as drawing:
        draws = draw(state.config, state.images_seen, now, pool, Share(device="meta"), probability)
    with MetaTracker() as tracker:
        train_step(state, reals, labels, now, draws)
    return drawing, tracker


# those left out ask for nothing that others do not: without autocast bf16 is fp32
@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"bf16", "deviation"}))
def test_train_step_stays_on_its_device_without_synchronization(name, monkeypatch):
    """Each random number is copied once; a step after the one that makes the moments."""
    # meta knows no autocast: what else fp16 does, a scaler for each network, is here
    monkeypatch.setattr("stylegan.ops.autocast", lambda *_: nullcontext())
    state = new_state(tiny_config(**{"style_mixing": 1.0} | KINDS[name]))
    for _ in range(2):
        drawing, tracker = meta_step(state, stage(8, 0.5))
    assert (drawing.copies, drawing.waits) == (COPIES.get(name, 5), [])
    assert (tracker.copies, tracker.waits, tracker.strangers) == (0, [], [])
    # Apple's GPUs, which have no float64, refuse fp16; its scaler is PyTorch's
    assert drawing.wide + tracker.wide == [] or name == "fp16"


def test_meta_tracker_sees_float64_wherever_it_is_made():
    with MetaTracker() as tracker:
        x = torch.ones(3, device="meta")
        x.double()
        torch.zeros(3, dtype=torch.float64, device="meta")
        torch.zeros(3, dtype=torch.float64).to("meta")
        torch.zeros(3, dtype=torch.float64).float().to("meta")
        x.cpu().double()
    assert tracker.wide == ["aten._to_copy.default", "aten.zeros.default", "aten._to_copy.default"]


def test_train_step_at_a_new_stage_syncs_only_to_compare_weights():
    state = new_state(tiny_config())
    meta_step(state, stage(8, 0.5))
    _, tracker = meta_step(state, stage(8, 1.0))
    assert set(tracker.waits) <= {"aten.equal.default"}


def test_augment_strength_is_read_every_fourth_step():
    augment = {"kind": "ada", "transforms": ["blit"]}
    state, read_at = new_state(tiny_config(augment=augment)), []
    for i in range(9):
        drawing, tracker = meta_step(state, stage(4, 1.0), state.strength.probability)
        assert drawing.waits == [] and (i == 0 or tracker.waits == [])
        with MetaTracker() as reading:
            state.strength.adapt()
        read_at += [i] * len(reading.waits)
    assert read_at == [3, 7]


def test_meta_step_finds_a_buffer_left_on_the_cpu(monkeypatch):
    made = NoiseInput.__init__

    def init(self, channels, resolution):
        made(self, channels, resolution)
        del self.const
        self.__dict__["const"] = torch.randn(1, 1, resolution, resolution, device="cpu")

    monkeypatch.setattr(NoiseInput, "__init__", init)
    with pytest.raises(RuntimeError, match="of tensors on two devices"):
        meta_step(new_state(tiny_config(noise_mode="const")), stage())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
@pytest.mark.parametrize("options", [
    {}, {"augment": {"kind": "ada", "probability": 0.5}}, {"precision": "fp16"}
])  # fmt: skip
def test_train_step_never_synchronizes_with_the_gpu(options):
    config = tiny_config(**options, style_mixing=1.0)
    state, now = TrainState.create(config, device="cuda"), stage(8, 0.5)
    reals = reals_for(now).cuda()
    for mode in ("default", "default", "default", "error"):
        torch.cuda.set_sync_debug_mode(mode)
        try:
            draws = draw(config, state.images_seen, now, None, Share(device="cuda"), 0.5)
            train_step(state, reals, None, now, draws)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def trained_with_bad_gradients(options, *, save_at=None):
    """The payload after eleven steps, of which four skip the discriminator's update."""
    # an epsilon that is lost in round-off: it depends on whether skipped updates are counted
    state = TrainState.create(tiny_config(**options, adam_eps=1e-30))
    for i in range(11):
        now = stage(8, 0.5 if i < 7 else 1.0)
        probability = state.strength.probability
        draws = draw(state.config, state.images_seen, now, None, Share(), probability)
        reals = reals_for(now, seed=i)
        reals[0, 0, 0, 0] = float("nan") if i in (2, 3, 6, 10) else 0
        train_step(state, reals, None, now, draws)
        state.strength.adapt()
        if i == save_at:
            payload, state = state.to_payload(), TrainState.create(state.config)
            state.restore(payload)
    return state.to_payload()


@pytest.mark.parametrize("name", ["ada", "first moments"])
def test_host_decides_does_not_change_the_updates(name, monkeypatch):
    """Bit for bit, also where gradients are not finite, beside saving, and as a stage begins."""
    by_host = trained_with_bad_gradients(KINDS[name])
    assert [by_host[f"skipped{kind}_d"] for kind in ("", "_in_a_row")] == [4, 1]
    monkeypatch.setattr(optimizer, "host_decides", lambda device: False)
    by_device = trained_with_bad_gradients(KINDS[name])
    group = "/d_optimizer/param_groups/0"
    assert {*differing(by_device, by_host)} == {f"{group}/eps", f"{group}/updates"}
    counted = [flat(each)[f"{group}/updates"] for each in (by_device, by_host)]
    assert counted == [4, 3]  # since the stage began
    assert differing(trained_with_bad_gradients(KINDS[name], save_at=3), by_device) == []


def test_draw_gives_the_same_tensors_for_every_device(monkeypatch):
    """Copies of all tensors but the noise, which is drawn where it is used."""
    config = tiny_config(
        network={"label_dim": 3},
        style_mixing=1.0,
        noise="const",
        augment={"kind": "ada", "transforms": ["bgc", "noise"]},
    )
    here = draw(config, 8, stage(), torch.eye(3), Share(), 0.7)
    copies = []

    def to_device(x, device):
        copies.append(x.clone())
        return copies[-1]

    monkeypatch.setattr("stylegan.utils.distributed.to_device", to_device)
    there = draw(config, 8, stage(), torch.arange(3), Share(), 0.7)
    assert len(copies) == 15
    pairs = zip(tensors_of(there), tensors_of(here), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert {id(x) for x in tensors_of(there)} == {id(x) for x in copies}


def tensors_of(value):
    """Of a dataclass, and of dataclasses in it."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for part in getattr(value, "__dict__", {}).values() for x in tensors_of(part)]
