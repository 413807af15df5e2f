"""Recorded steps: those of the usual way, bit for bit, on an emulation of CUDA graphs."""

import dataclasses
import gc
import json
import weakref

import pytest
import torch
from recorded_operations import recording
from tiny_training import SHORT, differing, reals_for, run, stage, tiny_config, tiny_store
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from stylegan import augment, ops
from stylegan.losses import nonsaturating
from stylegan.networks.generator import MappingNetwork
from stylegan.ops import fast, formulas
from stylegan.training import Share, TrainState, draw, graphs, train_step
from stylegan.training.kernels import kernels
from stylegan.training.parallel import stage_networks
from stylegan.training.rehearsal import Witness, rehearse

OPTIONS = {
    "plain": {},
    "labels, lazy r1": {"network": {"label_dim": 3}, "r1_interval": 4},
    "micro-batches": {"batch_gpu": 2, "network": {"deviation_group": 2}, "r2_gamma": 1.0},
    "recomputation": {"checkpoint_activations": True},
    "ada, lecam": {"augment": {"kind": "ada", "strength": 0.6}, "lecam_weight": 0.3},
    "adaptive": {"augment": {"kind": "ada", "speed_kimg": 0.05}},
    "all of ada": {
        "augment": {"kind": "ada", "strength": 0.6, "transforms": ["bgc", "imgfilter", "cutout"]},
        "batch_gpu": 2,
        "network": {"deviation_group": 2},
    },
    "diffaugment": {"augment": {"kind": "diffaugment"}},
    "penalty, frozen": {"discriminator_loss": "wgan_gp", "freeze_d": 8, "adam_beta1": 0.5},
    "stored noise": {"noise": "const", "style_mixing": 0.0},
    "bf16": {"precision": "bf16"},
}


def stages(alphas=(0.13, 0.27, 0.57, 0.93)):
    """4 px, then 8 px that grows in, then that have."""
    return [stage(4, 1.0), *(stage(8, alpha) for alpha in alphas), stage(8, 1.0), stage(8, 1.0)]


def trained(config, now, device="cpu"):
    """The state and metrics after steps at those stages."""
    state, metrics, n = TrainState.create(config, device=device), [], config.network.label_dim
    pool, labels = None, None
    if n:
        pool, labels = torch.eye(n), torch.eye(n)[torch.arange(4) % n].to(device)
    for at in now:
        probability = state.strength.probability
        draws = draw(config, state.images_seen, at, pool, Share(device=device), probability)
        reals = reals_for(at, seed=state.images_seen).to(device)
        metrics.append(train_step(state, reals, labels, at, draws))
    return state, metrics


def differences(options, now, device="cpu"):
    """Between steps of the usual way and recorded ones."""
    expected, metrics = trained(tiny_config(**options), now, device)
    state, found = trained(tiny_config(**options, cuda_graphs=True), now, device)
    assert state not in graphs.REASONS
    payload = state.to_payload() | {"config": expected.to_payload()["config"]}
    return differing(found, metrics) + differing(payload, expected.to_payload())


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.setitem(graphs.CAPTURES, "cpu", recording)


@pytest.fixture
def whole(monkeypatch):
    """The usual step warps as recordings do: nearly the same, see below."""
    apply = augment.apply

    def applied(images, transform):
        return apply(images, augment.whole(transform, len(images), images.shape[-1]))

    monkeypatch.setattr(augment, "apply", applied)


@pytest.mark.parametrize("name", OPTIONS)
def test_recorded_steps_are_those_of_the_usual_way(name, recorded, whole):
    # a CPU, other than CUDA, rounds alpha to bfloat16 in the derivative of R1
    alphas = {"alphas": (0.125, 0.25, 0.5, 0.875)} if name == "bf16" else {}
    assert differences(OPTIONS[name], stages(**alphas)) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", [*OPTIONS, "fp16"])
def test_a_gpu_replays_the_steps_of_the_usual_way(name, whole):
    options = OPTIONS.get(name, {"precision": "fp16"})
    with kernels(tiny_config(deterministic=True)):
        assert differences({**options, "deterministic": True}, stages(), "cuda") == []


@pytest.mark.parametrize("number", ["alpha", "mixing cutoff", "weight of R1"])
def test_a_number_of_the_host_in_a_recording_would_be_found(number, recorded, monkeypatch):
    """Each is left as a number, and recordings are no longer told apart by numbers."""
    lively, gradients = graphs.lively, graphs.gradients

    def careless(inputs):
        live = lively(inputs)
        if number == "alpha":
            return dataclasses.replace(live, stage=inputs.stage)
        if number == "mixing cutoff":
            return dataclasses.replace(live, draws=inputs.draws)
        return live

    def signature(live):
        return ((path, getattr(x, "shape", None)) for path, x in live.items())

    monkeypatch.setattr(graphs, "lively", careless)
    monkeypatch.setattr(graphs, "signature", signature)
    if number == "weight of R1":
        monkeypatch.setattr(
            "stylegan.training.step.gradients", lambda *given: gradients(*given[:5], None)
        )
    assert differences({"r1_interval": 2, "style_mixing": 1.0}, stages()) != []


def test_there_is_a_recording_for_each_variant_until_the_stage_ends(recorded):
    config = tiny_config(cuda_graphs=True, r1_interval=4, style_mixing=1.0)
    state, _ = trained(config, [stage(8, 0.05 * i, lr=1e-3 * i) for i in range(1, 9)])
    held = stage_networks(state, stage(8, 0.5)).graphs
    assert len(held.recordings) == 2 + 1  # with R1 and without; the generator's
    grads = {id(p.grad) for p in state.generator.parameters() if p.grad is not None}
    assert grads <= {id(g) for pairs in held.grads.values() for _, g in pairs}
    gone = weakref.ref(held)
    del held
    now = stage(8, 1.0)
    train_step(state, reals_for(now), None, now, draw(config, 0, now, None, Share()))
    gc.collect()
    assert gone() is None


def test_recordings_do_not_keep_a_state(monkeypatch):
    """As those of CUDA, which hold no function of ours."""
    monkeypatch.setitem(graphs.CAPTURES, "cpu", lambda device: lambda run: (int, run(), None))
    state, _ = trained(tiny_config(cuda_graphs=True), [stage()])
    gone = weakref.ref(state)
    del state
    gc.collect()
    assert gone() is None


def witness_inside():
    (witness,) = (m for m in _get_current_dispatch_mode_stack() if isinstance(m, Witness))
    return witness


@pytest.mark.parametrize("options", [{}, {"augment": {"kind": "ada"}, "r1_interval": 2}])
def test_what_is_recorded_neither_waits_nor_copies(options, monkeypatch):
    found = []

    def capture(run):
        run()  # a first one fills caches, before a recording too
        counts = witness_inside().counts
        before = len(counts.waits), counts.copies, len(counts.strangers)
        output = run()
        found.append((len(counts.waits), counts.copies, len(counts.strangers)) == before)
        return lambda: None, output, None

    monkeypatch.setitem(graphs.CAPTURES, "meta", lambda device: capture)
    step = rehearse(tiny_config(cuda_graphs=True, **options), stage(8, 0.5)).step
    assert found and all(found)
    assert len(step.waits) == 1 and step.copies == 0  # as without


def test_the_numbers_that_come_out_are_not_those_of_the_next_step(recorded):
    _, metrics = trained(tiny_config(cuda_graphs=True), [stage()] * 2)
    assert not torch.equal(metrics[0]["d/real_logits"], metrics[1]["d/real_logits"])


def test_memory_that_others_may_let_go_of_is_held():
    cached, given = torch.ones(3), torch.ones(3)
    with graphs.Keeper(torch.device("cpu")) as keeper:
        made = torch.stack([cached[1:] * 2, given[:2]])
        made.add_(1)
    outside = {x.untyped_storage()._cdata for x in (cached, given)}
    assert keeper.kept.keys() == outside


def test_steps_that_cannot_be_recorded_are_made_as_usual(recorded, monkeypatch):
    forward = MappingNetwork.forward

    def reading(self, z, labels=None):
        return forward(self, z * (1.0 if z.sum().item() else 0.0), labels)

    monkeypatch.setattr(MappingNetwork, "forward", reading)
    _, metrics = trained(tiny_config(), stages())
    state, found = trained(tiny_config(cuda_graphs=True), stages())
    assert differing(found, metrics) == []
    assert "capturing: training/parallel.py" in graphs.REASONS[state]


def test_too_many_variants_end_recording(recorded, monkeypatch):
    monkeypatch.setattr(graphs, "MOST_RECORDINGS", 1)
    state, _ = trained(tiny_config(cuda_graphs=True), [stage()])
    assert graphs.REASONS[state] == "recording failed: steps differ in more than 1 ways"
    of_stage = stage_networks(state, stage()).graphs
    assert not (of_stage.recordings or of_stage.slots or of_stage.grads)


@pytest.mark.parametrize("ending", [False, True], ids=["", "also as the recording ends"])
def test_memory_that_is_not_enough_is_no_reason_to_go_on(monkeypatch, ending):
    def capture(run):
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        finally:
            if ending:
                raise RuntimeError("the capture is not valid")

    monkeypatch.setitem(graphs.CAPTURES, "cpu", lambda device: capture)
    with pytest.raises(torch.OutOfMemoryError):
        trained(tiny_config(cuda_graphs=True), [stage()])


def test_what_is_of_a_script_or_of_several_processes_is_not_recorded(recorded, monkeypatch):
    monkeypatch.setitem(graphs.GENERATOR_LOSSES.own, "mine", nonsaturating)
    state = TrainState.create(tiny_config(cuda_graphs=True, generator_loss="mine"))
    assert "mine is of a script" in graphs.why_not(state)
    state = TrainState.create(tiny_config(cuda_graphs=True))
    assert graphs.why_not(state) == ""
    monkeypatch.setattr("stylegan.distributed.world_size", lambda: 2)
    assert "several processes" in graphs.why_not(state)


def test_a_run_without_a_gpu_says_so_once_and_goes_on(tmp_path):
    store, told = tiny_store(tmp_path), []
    config = tiny_config(cuda_graphs=True, schedule=SHORT)
    state = run(config, store, tmp_path / "run", tell=told.append)
    expected = run(tiny_config(schedule=SHORT), store, tmp_path / "usual")
    assert differing(state.generator.state_dict(), expected.generator.state_dict()) == []
    assert [line for line in told if "cuda_graphs" in line] == [
        "without cuda_graphs: the device is cpu, and only those of CUDA record"
    ]
    events = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events].count("no_cuda_graphs") == 1


def test_a_recorded_run_resumes_bit_for_bit(tmp_path, recorded):
    store = tiny_store(tmp_path)
    config = tiny_config(cuda_graphs=True, schedule={"total_kimg": 0.060})
    whole = run(config, store, tmp_path / "whole")
    run(config, store, tmp_path / "parts", stop_at=36)
    resumed = run(config, store, tmp_path / "parts")
    assert whole not in graphs.REASONS and resumed not in graphs.REASONS
    assert differing(resumed.to_payload(), whole.to_payload()) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tensor_fades_as_a_number_does_also_in_the_derivatives(dtype):
    torch.manual_seed(0)
    coarse, fine, weights = torch.randn(3, 2, 4, 6, 6, dtype=dtype)
    for alpha in torch.linspace(0.01, 0.99, 23).tolist():
        found = []
        for by in (alpha, torch.tensor(alpha, dtype=torch.float64)):
            inputs = coarse.clone().requires_grad_(), fine.clone().requires_grad_()
            faded = ops.fade(*inputs, by)
            firsts = torch.autograd.grad(
                (faded * weights).sin(), inputs, weights, create_graph=True
            )
            seconds = torch.autograd.grad(sum(g.square().sum() for g in firsts), inputs)
            found.append([faded, *firsts, *seconds])
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert fast.fade(coarse, fine, 0.3).equal(formulas.fade(coarse, fine, 0.3))


def test_shapes_that_hold_for_every_draw_change_a_hundred_thousandth():
    config = tiny_config(augment={"kind": "ada"}).augment
    rng = torch.Generator().manual_seed(0)
    images = torch.randn(6, 3, 16, 16, dtype=torch.float64, generator=rng)
    for probability in (0.1, 0.9):
        drawn = augment.draw(images.shape, config, probability, rng)
        whole = augment.whole(drawn, 6, 16)
        assert whole.windows != tuple(drawn.windows)
        torch.testing.assert_close(
            augment.apply(images, whole), augment.apply(images, drawn), rtol=0, atol=1e-5
        )
