"""A step and a picture on the meta device: nothing is made elsewhere, nothing waits for numbers."""

import warnings

import pytest
import torch
from tiny_training import differing, reals_for, stage, step, tiny_config, tiny_store

from stylegan.layers import NoiseInput
from stylegan.loss_registry import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from stylegan.networks import Discriminator, Generator
from stylegan.networks.generator import MappingNetwork
from stylegan.training import Share, TrainState, draw, optimizer, train_step
from stylegan.training import state as training_state
from stylegan.training import step as training_step
from stylegan.training.draws import placed
from stylegan.training.feed import Feed
from stylegan.training.rehearsal import Counts, Witness, rehearse

BASELINE = {"styles": False, "constant_input": False, "instance_norm": False, "pixel_norm": True}
OPTIONS = {
    "plain": {},
    "labels": {"network": {"label_dim": 3}},
    "stored noise, no mixing": {"noise": "const", "style_mixing": 0.0},
    "micro-batches": {"batch_gpu": 2, "network": {"deviation_group": 2}},
    "recomputation": {"checkpoint_activations": True, "r2_gamma": 1.0},
    "lazy r1": {"r1_interval": 4},
    "lecam": {"lecam_weight": 0.3},
    "frozen": {"freeze_d": 8, "freeze_mapping": True},
    "ada": {"augment": {"kind": "ada"}},
    "all of ada": {
        "augment": {"kind": "ada", "transforms": ["bgc", "imgfilter", "noise", "cutout"]}
    },
    "diffaugment": {"augment": {"kind": "diffaugment"}, "batch_gpu": 2},
    "traditional": {"network": BASELINE | {"mapping_layers": 1, "noise": False}},
    "first moments": {"adam_beta1": 0.5},
}
LOSSES = [{"discriminator_loss": name} for name in DISCRIMINATOR_LOSSES.built_in]
LOSSES += [{"generator_loss": name} for name in GENERATOR_LOSSES.built_in]
PRECISIONS = [
    {"precision": precision, "checkpoint_activations": again, "augment": {"kind": "ada"}}
    for precision in ("bf16", "fp16")
    for again in (False, True)
]


def check(found):
    assert not (found.inputs.waits or found.step.strangers or found.step.copies)
    assert found.inputs.copies == 1  # of all random numbers
    assert [wait for wait in found.step.waits if "state.py" not in wait] == []
    assert len(found.step.waits) == 1  # for the step before, beside its own work


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tiny_store(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_step_stays_on_its_device(name):
    check(rehearse(tiny_config(**OPTIONS[name]), stage(8, 0.5)))


@pytest.mark.parametrize("kind", ["none", "ada"])
def test_no_step_waits_twice_and_growing_waits_only_when_it_moves_on(kind, store):
    config = tiny_config(
        augment={"kind": kind},
        data={"labels": True},
        network={"label_dim": 2},
        schedule={"total_kimg": 0.060},
    )
    with torch.device("meta"):
        networks = Generator(config.network), Discriminator(config.network)
    state, waits, growth = TrainState.create(config, *networks, device="meta"), [], []
    feed = Feed(state, store, workers=0)
    with Witness("meta") as witness:
        while not state.finished:
            witness.counts = Counts()
            now = state.position.next_stage(config.schedule)
            reals, labels = feed.next(state.images_seen, now)
            step_draws = feed.draws(state.images_seen, now)
            assert witness.counts.copies <= 2 + 1 + 1  # images and labels, mirroring, draws
            train_step(state, reals, labels, now, step_draws)
            waits.append(len(witness.counts.waits))
            growth.append(now.growth)
        before = [None, *growth]
        usual = [n for n, a, b in zip(waits, before, growth, strict=False) if a == b]
        assert max(usual) == 1 and len(usual) > 10
        assert state.read() is None and state.skipped_d == state.skipped_g == 0


@pytest.mark.parametrize(
    "options", [*LOSSES, *PRECISIONS], ids=lambda options: "-".join(map(str, options.values()))
)
def test_so_does_every_loss_and_precision(options):
    check(rehearse(tiny_config(**options), stage()))


def test_the_meta_device_has_the_autocast_of_the_others():
    def widths(device):
        torch.manual_seed(0)
        config = tiny_config(precision="bf16", noise="const")
        state, found = TrainState.create(config, device=device), []

        def hook(module, inputs, output):
            found.extend(x.dtype for x in (*inputs, output) if isinstance(x, torch.Tensor))

        for network in (state.generator, state.discriminator):
            for module in network.modules():
                module.register_forward_hook(hook)
        with Witness(device):
            images = torch.zeros(2, 3, 16, 16, device=device)
            z = torch.zeros(2, config.network.z_dim, device=device)
            with training_step.autocast(config, state.device):
                state.discriminator(state.generator(z, noise="const", alpha=0.5), alpha=0.5)
                state.discriminator(images)
        return found

    assert widths("meta") == widths("cpu")
    assert {torch.bfloat16, torch.float32} == set(widths("meta"))


@pytest.mark.parametrize("noise", ["const", "random", "none"])
def test_a_picture_stays_on_its_device(noise):
    config = tiny_config(network={"label_dim": 3}).network
    with torch.device("meta"):
        generator = Generator(config)
        z, labels = torch.zeros(4, config.z_dim), torch.zeros(4, 3)
    with Witness("meta") as witness, torch.inference_mode():
        generator(z, labels, psi=0.7, cutoff=4, alpha=0.5, noise=noise)
    counts = witness.counts
    assert counts.kernels > 50 and not (counts.waits or counts.strangers or counts.copies)


def test_a_buffer_left_on_the_cpu_is_found(monkeypatch):
    made = NoiseInput.__init__

    def init(self, channels, resolution):
        made(self, channels, resolution)
        del self.const
        self.__dict__["const"] = torch.randn(1, 1, resolution, resolution, device="cpu")

    monkeypatch.setattr(NoiseInput, "__init__", init)
    with pytest.raises(RuntimeError, match="of tensors on meta and cpu"):
        rehearse(tiny_config(noise="const"), stage())


def test_a_new_tensor_without_a_device_is_found(monkeypatch):
    def average(generator, w_mean, decay):
        generator.w_avg.lerp_(w_mean, 1 - torch.tensor(decay)[None].mean())

    monkeypatch.setattr(training_step, "update_w_avg", average)
    found = rehearse(tiny_config(), stage())
    assert "lift_fresh" in found.step.strangers[0] and "cpu" in found.step.strangers[0]


def test_a_number_that_is_read_in_the_forward_pass_is_found(monkeypatch):
    forward = MappingNetwork.forward

    def reading(self, z, labels=None):
        return forward(self, z * (1.0 if z.square().mean().item() > 0 else 2.0), labels)

    usual = rehearse(tiny_config(), stage()).step.waits
    monkeypatch.setattr(MappingNetwork, "forward", reading)
    waits = rehearse(tiny_config(), stage()).step.waits
    assert len(waits) == len(usual) + 2
    assert "_local_scalar_dense" in waits[0] and "parallel.py" in waits[0]


@pytest.mark.parametrize(
    "read", [torch.Tensor.cpu, torch.Tensor.tolist, bool, torch.Tensor.nonzero]
)
def test_every_way_to_read_a_number_is_a_wait(read):
    with Witness("meta") as witness:
        read(torch.zeros(1, device="meta"))
    assert len(witness.counts.waits) == 1


def test_copies_from_the_host_are_counted():
    with Witness("meta") as witness:
        there = torch.zeros(3).to("meta")
        there.copy_(torch.ones(3))
        there.to(torch.float64)
    assert (witness.counts.copies, witness.counts.waits) == (2, [])


def test_what_a_witness_counts_of_memory_is_what_a_cpu_holds():
    """The same operations on real numbers: the peak of their tensors is that on meta, but for the
    faster ways of a CPU."""
    config = tiny_config(noise="const")
    state, now = TrainState.create(config), stage(8, 0.5, 64)
    with Witness("cpu") as witness:
        for network in (state.generator, state.discriminator, state.generator_ema):
            witness.follow(network.state_dict().values())
        before = witness.bytes
        step(state, now)
        after = witness.bytes
    assert before < after < witness.peak  # gradients and moments stay, graphs go
    assert witness.peak == pytest.approx(rehearse(config, now).peak_bytes, rel=0.25)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("kind", ["none", "ada"])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_gpu_is_asked_for_numbers_once_in_a_step(kind, recorded):
    augmented = {"kind": kind, "strength": 0.5}
    config = tiny_config(augment=augmented, cuda_graphs=recorded, style_mixing=1.0)
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
    "lecam": {"lecam_weight": 0.3},
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
