"""Precisions: what they become on a device, what stays in float32, and what a run says of them."""

import contextlib
import math
import os
import sys
from pathlib import Path

import pytest
import torch
from helpers.processes import printed
from helpers.runs import log_of
from helpers.tiny_training import SHORT, counts, skips, stage, step, tiny_config, train_tiny
from torch import nn

from stylegan import ops
from stylegan.config import bundled, load_config, to_toml
from stylegan.data import Preparation, cached_store
from stylegan.files.run_folder import RunFolder
from stylegan.networks import Generator
from stylegan.ops import HALF, override_fp32_precision, resolve_precision, without_tf32
from stylegan.ops import precision as precision_of_ops
from stylegan.planning import plan_lines
from stylegan.report import write_report
from stylegan.sampling import deterministic_fp32
from stylegan.training import Share, TrainState, draw, train_step
from stylegan.training.costs import StepCosts
from stylegan.training.loop import real_batches
from stylegan.training.run import backend_flags, resolve_config, with_precision

BACKENDS = torch.backends


@pytest.mark.parametrize(
    ("kind", "capability", "expected"),
    [
        ("cuda", (7, 0), "fp32"),  # V100
        ("cuda", (7, 5), "fp32"),  # T4
        ("cuda", (8, 0), "tf32"),  # A100
        ("cuda", (8, 6), "tf32"),
        ("cuda", (9, 0), "tf32"),  # H100
        ("cuda", (12, 0), "tf32"),
        ("cuda", None, "fp32"),
        ("cpu", None, "fp32"),
        ("cpu", (9, 0), "fp32"),
        ("mps", None, "fp32"),
    ],
)
def test_resolve_precision_auto_is_tf32_where_available(kind, capability, expected):
    device = torch.device(kind)
    assert resolve_precision("auto", device, capability) == expected
    for precision in ("fp32", "tf32"):
        assert resolve_precision(precision, device, capability) == precision
    for precision in ("bf16", "fp16"):
        if kind == "mps":
            with pytest.raises(ValueError, match=f"precision must be .*got {precision}"):
                resolve_precision(precision, device, capability)
        else:
            assert resolve_precision(precision, device, capability) == precision


def on_a100(monkeypatch):
    """A device that says that it is an A100, for plans."""
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0))
    return torch.device("cuda", 1)


def test_plan_lines_contain_the_resolved_precision(monkeypatch):
    for device, expected in ((torch.device("cpu"), "fp32"), (on_a100(monkeypatch), "tf32")):
        config = with_precision(tiny_config(), device, None)
        assert config == tiny_config(precision=expected)
        costs = StepCosts(dict.fromkeys((4, 8, 16), 1.0), dict.fromkeys((4, 8, 16), 1))
        assert f"precision {expected}; " in plan_lines(config, costs, device)[-2]


def test_resolve_config_keeps_the_precision_of_a_run(monkeypatch, tmp_path):
    folder = RunFolder(tmp_path)
    a100 = on_a100(monkeypatch)
    for stored in ("fp32", "tf32", "bf16"):
        folder.config_file.write_text(to_toml(tiny_config(precision=stored)))
        for device in (torch.device("cpu"), a100):
            assert resolve_config(tiny_config(), folder, device).precision == stored
            with pytest.raises(ValueError, match=f'precision: "{stored}" there, "fp16" asked'):
                resolve_config(tiny_config(precision="fp16"), folder, device)
    with pytest.raises(ValueError, match=r"precision must be .*got bf16; choose another --device"):
        resolve_config(tiny_config(), folder, torch.device("mps"))


@pytest.mark.parametrize(
    ("name", "has_instructions", "known", "fast"),
    [
        ("bf16", False, {}, False),
        ("bf16", True, {}, True),  # of a PyTorch that does not name the processor
        ("bf16", True, {"cpu_name": "AMD EPYC"}, True),
        ("bf16", True, {"cpu_name": "Intel Xeon", "amx_bf16": False}, False),
        ("bf16", True, {"cpu_name": "Intel Xeon", "amx_bf16": True}, True),
        ("fp16", True, {"cpu_name": "Intel Xeon", "amx_bf16": True, "amx_fp16": False}, False),
    ],
)
def test_has_fast_matmul_depends_on_the_instructions_of_the_cpu(
    monkeypatch, name, has_instructions, known, fast
):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, f"_is_mkldnn_{name}_supported", lambda: has_instructions)
    monkeypatch.setattr(precision_of_ops, "capabilities", lambda: known)
    decided = precision_of_ops.has_fast_matmul.__wrapped__
    assert decided(HALF[name]) == fast
    assert decided(torch.float32)


NOTES = {
    "tf32": "cpu has no TF32; computing in float32",
    "bf16": "this processor is not faster in bf16 than in float32",
}


@pytest.mark.parametrize(
    ("asked", "became"), [("auto", "fp32"), ("tf32", "tf32"), ("bf16", "bf16")]
)
def test_precision_is_in_log_config_report_and_messages(
    monkeypatch, asked, became, store, tmp_path
):
    for place in ("training.run", "ops.cpu"):
        monkeypatch.setattr(
            f"stylegan.{place}.has_fast_matmul", lambda dtype: dtype not in HALF.values()
        )
    told, folder = [], RunFolder(tmp_path / "run")
    config = tiny_config(precision=asked, schedule=SHORT)
    state = train_tiny(config, store, folder.path, stop_at=4, told=told)
    assert state.config.precision == became
    assert told[0].endswith(f" on cpu, precision {became}")
    noted = {precision for precision in NOTES for line in told if NOTES[precision] in line}
    assert noted == {became} & NOTES.keys()
    first = log_of(folder.path)[0]
    assert (first["event"], first["precision"]) == ("start", became)
    assert f'\nprecision = "{became}"\n' in folder.config_file.read_text()
    assert f", {became}, seed 0</p>" in write_report(folder.path).read_text()
    assert train_tiny(config, store, folder.path).finished  # the same command goes on


def settings():
    """The caller's, as both of torch's interfaces read them; an error where they contradict."""
    readers = {
        "all": lambda: BACKENDS.fp32_precision,
        "cuda": lambda: BACKENDS.cudnn.fp32_precision,
        "matmul": lambda: BACKENDS.cuda.matmul.fp32_precision,
        "conv": lambda: BACKENDS.cudnn.conv.fp32_precision,
        "rnn": lambda: BACKENDS.cudnn.rnn.fp32_precision,
        "cpu": lambda: BACKENDS.mkldnn.matmul.fp32_precision,
        "old matmul": lambda: BACKENDS.cuda.matmul.allow_tf32,
        "old cudnn": lambda: BACKENDS.cudnn.allow_tf32,
        "old": torch.get_float32_matmul_precision,
        "deterministic": lambda: BACKENDS.cudnn.deterministic,
        "benchmark": lambda: BACKENDS.cudnn.benchmark,
    }
    found = {}
    for name, read in readers.items():
        try:
            found[name] = read()
        except RuntimeError as error:
            found[name] = type(error)
    return found


CALLERS = {
    "nothing": "pass",
    "old: all on": "matmul.allow_tf32 = cudnn.allow_tf32 = True",
    "old: all off": "matmul.allow_tf32 = cudnn.allow_tf32 = False",
    "old: medium": "torch.set_float32_matmul_precision('medium')",
    "new: all devices": "torch.backends.fp32_precision = 'tf32'",
    "new: all of CUDA": "cudnn.fp32_precision = 'tf32'; cudnn.benchmark = True",
    "new: each": "matmul.fp32_precision = 'tf32'; cudnn.conv.fp32_precision = 'ieee'",
    "both": "matmul.allow_tf32 = True; matmul.fp32_precision = 'ieee'",
}


CHECK = """
import os
from stylegan.ops.precision import is_tracing
from test_precision import *
cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
is_tracing()  # imports what the others then share
for name, line in CALLERS.items():  # each in a process that has not touched the settings
    if not os.fork():
        exec(line)
        check_contexts()
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


def check_contexts():
    """What each context computes in, and that it leaves no trace."""
    config = tiny_config()
    contexts = {
        without_tf32: "ieee",
        deterministic_fp32: "ieee",
        lambda: override_fp32_precision("tf32"): "tf32",
        lambda: backend_flags(config): "ieee",
    }
    before = settings()

    for context, products in contexts.items():
        with contextlib.suppress(KeyError), context():
            assert products_inside() == {products}
            with without_tf32():
                assert products_inside() == {"ieee"}
            assert products_inside() == {products}
            raise KeyError
        assert settings() == before


def products_inside():
    return {BACKENDS.cuda.matmul.fp32_precision, BACKENDS.cudnn.conv.fp32_precision}


def test_precision_contexts_restore_the_settings_of_the_caller(tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    printed(tmp_path, "-W", "ignore", "-c", CHECK, PYTHONPATH=paths)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("labels", [False, True])
def test_mapping_network_stays_in_float32_under_autocast(dtype, labels):
    network = tiny_config(network={"label_dim": 3 * labels}).network
    generator, z = Generator(network), torch.randn(4, network.z_dim)
    classes = torch.eye(3)[[0, 1, 2, 0]] if labels else None
    weights = list(generator.mapping.parameters())
    w = generator.mapping(z, classes)
    gradients = torch.autograd.grad(w.square().sum(), weights)
    with torch.autocast("cpu", dtype):
        half = generator.mapping(z, classes)
        assert nn.functional.linear(half, half).dtype == dtype
        images = generator(z, classes, noise="const")
    assert half.dtype == torch.float32 and torch.equal(half, w)
    for ours, exact in zip(
        torch.autograd.grad(half.square().sum(), weights), gradients, strict=True
    ):
        assert torch.equal(ours, exact)
    assert images.dtype == torch.float32


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_backend_flags_keep_the_mapping_exact_and_allow_tf32(precision, monkeypatch):
    seen: dict[str, set[str]] = {"mapping": set(), "discriminator": set()}
    state = TrainState.create(tiny_config(precision=precision, style_mixing=1.0))

    def watch(name):
        return lambda *_: seen[name].update(products_inside())

    state.generator.mapping.layers[0].register_forward_hook(watch("mapping"))
    state.discriminator.head.out.register_forward_hook(watch("discriminator"))
    with backend_flags(state.config):
        step(state, stage())
    assert seen == {"mapping": {"ieee"}, "discriminator": {"tf32"}}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    ("d_loss", "g_loss"),
    [
        ("logistic", "nonsaturating"),
        ("logistic", "saturating"),
        ("wgan", "wgan"),
        ("wgan_gp", "wgan"),
        ("hinge", "nonsaturating"),
        ("hinge_gp", "saturating"),
    ],
)
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
        assert skips(state) == [0, 0]
    assert state.generator.w_avg.dtype == torch.float32


def test_fp16_scaler_finds_a_scale_that_trains():
    state = TrainState.create(tiny_config(precision="fp16"))
    for _ in range(20):
        step(state, stage())
    assert sum(skips(state)) < 20
    assert min(counts(state)) >= 10
    assert state.g_scaler.get_scale() >= 1


def test_fp16_overflow_of_one_network_leaves_the_scale_of_the_other():
    state = TrainState.create(tiny_config(precision="fp16"))
    step(state, stage())
    for scaler in (state.g_scaler, state.d_scaler):
        scaler.update(8.0)
    next(state.generator.parameters()).register_hook(lambda grad: grad * math.nan)
    step(state, stage())
    assert (state.g_scaler.get_scale(), state.d_scaler.get_scale()) == (4.0, 8.0)


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
        bundled("datasets/faces-64.zip"), Preparation(resolution=32), cache_dir=cache_dir
    )
    state, sums = TrainState.create(config), {}
    feed = real_batches(state, store, Share(), workers=0)
    for i in range(300):
        now = state.position.next_stage(config.schedule)
        reals, labels = next(feed)
        draws = draw(config, state.images_seen, now, None, Share())
        for name, value in train_step(state, reals, labels, now, draws).items():
            assert value.isfinite(), name
            sums[name] = sums.get(name, 0.0) + value.item() / 100 * (i >= 200)
    assert skips(state) == [0, 0]
    return sums


@pytest.mark.slow
def test_bf16_losses_equal_fp32_losses_within_a_tenth(tmp_path):
    exact, half = (late_losses(precision, tmp_path) for precision in ("fp32", "bf16"))
    assert exact.keys() == half.keys()
    for name, value in exact.items():
        assert half[name] == pytest.approx(value, rel=0.1), name


def test_dense_gradients_do_not_overflow_in_float16():
    x = torch.randn(2, 512).requires_grad_()
    weight = torch.randn(512, 512)
    with torch.autocast("cpu", torch.float16):
        y = ops.dense(x, weight, 2**-6, None)
    grad = torch.full_like(y, 30_000)  # times 22 without the scale, the root of 512
    (grad_x,) = torch.autograd.grad(y, x, grad)
    expected = grad.float() @ weight * 2**-6
    assert (grad_x - expected).norm() < 0.01 * expected.norm()
