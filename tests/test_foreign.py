"""Checkpoints of other PyTorch programs compute here what their publishers' programs computed."""

import re
import sys
import types
from collections import OrderedDict, defaultdict
from datetime import datetime

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import foreign_layouts
from helpers.damage import Runs
from helpers.foreign_layouts import kept, latents, noise_maps, random_tensor
from helpers.reference import SLACK

from stylegan import load_generator
from stylegan.files.formats.foreign import widths_of
from stylegan.interop import import_weights
from stylegan.utils.lineage import UNKNOWN, license_of

LAYOUTS = "rosinality", "genforce", "huangzh13", "mmgeneration"
FILES = {name: foreign_layouts.load(name) for name in LAYOUTS}
DOUBLE, SINGLE = torch.float64, torch.float32
TOLERANCE = {DOUBLE: 1e-11, SINGLE: 4e-6}  # times the largest value
LABELS = torch.eye(3)[[0, 2]]
WHOLE = dict.fromkeys(LAYOUTS, "full") | {"genforce": "generator", "mmgeneration": "generator"}


def weights(layout, variant, dtype=SINGLE):
    return foreign_layouts.weights(FILES[layout][0][variant], dtype)


def assert_as_published(ours, layout, name):
    theirs = FILES[layout][1][name]
    tolerance = TOLERANCE[ours.dtype] * SLACK[ours.dtype] * np.abs(theirs).max()
    found = kept(ours) if ours.ndim == 4 else ours.detach().numpy()
    np.testing.assert_allclose(found, theirs, rtol=0, atol=tolerance)


def imported(layout, variant, dtype=SINGLE):
    return import_weights(weights(layout, variant, dtype))


@pytest.fixture(autouse=True)
def without_graph():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def singles():
    """One network per layout, in float32."""
    return {layout: imported(layout, WHOLE[layout]) for layout in LAYOUTS}


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
def test_import_weights_of_rosinality_equals_its_program(dtype):
    network = imported("rosinality", "full", dtype).generator
    z = latents(2, 16).to(dtype)
    noise = [m.to(dtype) for m in noise_maps(128, each=1) for _ in range(2)]
    assert_as_published(network.mapping(z), "rosinality", "w")
    assert_as_published(network(z, noise=noise), "rosinality", "images")
    assert_as_published(network(z, noise=noise, alpha=0.3), "rosinality", "half")
    assert_as_published(network(z, noise=noise, resolution=32), "rosinality", "small")
    network.w_avg.copy_(random_tensor(998, (1, 16))[0])
    truncated = network(z, noise=noise, resolution=32, psi=0.7)
    assert_as_published(truncated, "rosinality", "truncated")


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
def test_import_weights_of_genforce_equals_its_program(dtype):
    network = imported("genforce", "generator", dtype).generator
    z = latents(2, 16).to(dtype)
    assert_as_published(network.mapping(z), "genforce", "w")
    assert_as_published(network(z, noise="const"), "genforce", "images")
    psi = float(np.float32(0.7))  # a float32 number there
    assert_as_published(network(z, noise="const", psi=psi, cutoff=5), "genforce", "truncated")
    half = network(z, noise="const", resolution=16, alpha=0.4)  # lod 3.6, enlarged there
    assert_as_published(half, "genforce", "half")
    labeled = imported("genforce", "labels", dtype).generator
    assert_as_published(labeled(z, LABELS, noise="const"), "genforce", "labels")


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
def test_import_weights_of_huangzh13_equals_its_program(dtype):
    network = imported("huangzh13", "full", dtype).generator
    z, noise = latents(2, 16).to(dtype), [m.to(dtype) for m in noise_maps(128)]
    assert_as_published(network.mapping(z), "huangzh13", "w")
    assert_as_published(network(z, noise=noise), "huangzh13", "full")
    assert_as_published(network(z, noise=noise, resolution=16, alpha=0.3), "huangzh13", "half")
    truncated = network(z, noise=noise, resolution=16, psi=0.7, cutoff=8)
    assert_as_published(truncated, "huangzh13", "truncated")
    labeled = imported("huangzh13", "labels", dtype).generator
    assert_as_published(labeled(z, LABELS, noise=noise), "huangzh13", "labels")
    sharp = imported("huangzh13", "sharp", dtype).generator
    assert_as_published(sharp(z, noise=noise), "huangzh13", "sharp")


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
def test_import_weights_of_mmgeneration_equals_its_program(dtype):
    network = imported("mmgeneration", "generator", dtype).generator
    arrays = FILES["mmgeneration"][1]
    z = latents(2, 16).to(dtype)  # they add 1e-6 to its norm, whatever that is
    np.testing.assert_allclose(network.mapping(z), arrays["w"], rtol=0, atol=1e-6 * SLACK[dtype])
    ws, maps = torch.from_numpy(arrays["unit_w"]).to(dtype), [m.to(dtype) for m in noise_maps(32)]
    average = random_tensor(998, (1, 16)).to(dtype)

    def pictures(w, **options):
        images = network.synthesis(network.broadcast(w), **options)
        return images.flip(1)  # blue, green, red there

    assert_as_published(pictures(ws, noise="const"), "mmgeneration", "images")
    half = pictures(ws, noise=maps, resolution=16, alpha=0.3)
    assert_as_published(half, "mmgeneration", "half")
    truncated = pictures(average + 0.7 * (ws - average), noise=maps)
    assert_as_published(truncated, "mmgeneration", "truncated")


def test_import_weights_fills_missing_tensors_deterministically(singles):
    first, again = singles["rosinality"].generator, imported("rosinality", "full").generator
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    w = first.mapping(torch.randn(4096, 16, generator=torch.Generator().manual_seed(1)))
    spread = w.std(dim=0) / 64  # of a mean of 4,096
    assert ((first.w_avg - w.mean(dim=0)).abs() < 6 * spread).all()
    block = first.synthesis.blocks["8"]
    assert torch.equal(block.epilogue0.noise.const, block.epilogue1.noise.const)
    assert first.synthesis.input.epilogue0.bias.abs().max() == 0
    own = singles["huangzh13"].generator.synthesis.blocks["8"]
    assert not torch.equal(own.epilogue0.noise.const, own.epilogue1.noise.const)


def test_import_weights_keeps_the_publishers_truncation_defaults(singles):
    kept_apart = {
        name: (found.loaded.settings.psi, found.loaded.settings.cutoff)
        for name, found in singles.items()
    }
    assert kept_apart == {
        "rosinality": (0.7, None),
        "genforce": (0.7, 8),
        "huangzh13": (0.7, 8),
        "mmgeneration": (1.0, None),
    }
    without = imported("huangzh13", "labels")
    assert (without.loaded.settings.psi, without.loaded.settings.cutoff) == (1.0, None)
    assert without.generator.w_avg.abs().max() > 0


@pytest.mark.parametrize(
    ("layout", "pattern"), [("rosinality", "progression.{}.noise"), ("huangzh13", "blocks.{}.epi")]
)
def test_import_weights_finds_resolution_from_noise_strengths(layout, pattern):
    given = weights(layout, "full")
    last = {"rosinality": 4, "huangzh13": 3}[layout]  # the block of 64x64
    for name, tensor in given.items():
        if "noise" in name and any(pattern.format(i) in name for i in (last, last + 1)):
            tensor.zero_()
    assert import_weights(given).loaded.resolution == 32
    for name, tensor in given.items():
        if "noise" in name:
            tensor.zero_()
    with pytest.raises(ValueError, match="all noise strengths are zero"):
        import_weights(given)


def test_import_weights_reads_resolution_and_alpha_of_genforce():
    given = weights("genforce", "generator")
    given["synthesis.lod"] = torch.tensor(1.25)
    found = import_weights({"models": {"generator": given}, "running_metadata": {"seen_img": 7}})
    assert (found.loaded.resolution, found.loaded.settings.alpha, found.loaded.images_seen) == (
        64,
        0.75,
        7,
    )
    given["synthesis.lod"] = torch.tensor(6.0)
    with pytest.raises(ValueError, match=r"synthesis.lod must be from 0 to .* got \[6.0\]"):
        import_weights(given)


def test_import_weights_takes_the_ema_and_ignores_the_rest():
    given, other = weights("genforce", "generator"), weights("genforce", "generator")
    other["truncation.w_avg"] += 1
    models = {"generator": other, "generator_smooth": given}
    found = import_weights({"models": models, "optimizers": {"x": 1}})
    assert torch.equal(found.generator_ema.w_avg, given["truncation.w_avg"])
    full = {"g_running": weights("rosinality", "full"), "generator": {}, "g_optimizer": {}}
    assert import_weights(full).generator_ema.config.resolution == 128


def test_import_weights_rejects_an_ema_of_unknown_layout():
    good = weights("genforce", "generator")
    odd = {f"average.{name}": tensor for name, tensor in good.items()}
    with pytest.raises(ValueError, match="not a checkpoint"):
        import_weights({"models": {"generator": good, "generator_smooth": odd}})
    good = weights("mmgeneration", "generator")
    state = {f"generator.{name}": tensor for name, tensor in good.items()}
    assert import_weights({"state_dict": state}).loaded.resolution == 32
    with pytest.raises(ValueError, match="not a checkpoint"):
        import_weights({"state_dict": state | {"generator_ema.odd": torch.zeros(1)}})


@pytest.mark.parametrize("average", ["", "module."])  # of mmgeneration, of mmagic
def test_import_weights_of_mmgeneration_reads_ema_and_growth(average):
    given = weights("mmgeneration", "generator")
    other = given | {"to_rgbs.0.conv.bias": torch.full((3,), 7.0)}
    state = {f"generator.{name}": tensor for name, tensor in other.items()}
    state |= {f"generator_ema.{average}{name}": tensor for name, tensor in given.items()}
    state |= {"generator_ema.steps": torch.tensor(9), "discriminator.x": torch.zeros(1)}
    state |= {"_curr_scale_int": torch.tensor(16, dtype=torch.int32)}
    state |= {"_curr_transition_weight": torch.tensor(0.25), "shown_nkimg": torch.tensor(2.5)}
    loaded = import_weights({"meta": {"iter": 3}, "state_dict": state, "optimizer": {}}).loaded
    assert (loaded.resolution, loaded.settings.alpha, loaded.images_seen) == (16, 0.25, 2500)
    rgb = loaded.generator.synthesis.to_rgb["4"]
    assert torch.equal(rgb.bias, given["to_rgbs.0.conv.bias"].flip(0))
    assert import_weights(given).loaded.resolution == 32  # by the noise strengths


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("synthesis.layer3.style.bias", None, "looks like a checkpoint of .*bias is missing"),
        ("what.ever", torch.zeros(1), r"what\.ever is not a tensor of this network"),
        ("synthesis.layer3.style.bias", torch.zeros(1), r"bias has shape \(1,\)"),
        ("truncation.w_avg", torch.arange(16), "has dtype torch.int64 instead of"),
        ("synthesis.layer4.blur.kernel", torch.ones(16, 1, 3, 3) / 9, "must be the low-pass"),
    ],
)
def test_import_weights_names_tensors_that_do_not_fit(name, tensor, message):
    given = weights("genforce", "generator") | {name: tensor}
    with pytest.raises(ValueError, match=message):
        import_weights({name: tensor for name, tensor in given.items() if tensor is not None})


@pytest.mark.parametrize("content", [{"conv1.weight": torch.zeros(1)}, [1, 2]])
def test_import_weights_rejects_files_without_a_generator(content):
    with pytest.raises(ValueError, match="not a checkpoint of this project, nor of one of rosin"):
        import_weights(content)


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        ([512] * 4 + [256, 128, 64, 32, 16], (1024, 8192, 512)),
        ([512] * 4, (32, 8192, 512)),
        ([16, 16, 8], (16, 64, 16)),
        ([600, 600], (8, 8192, 600)),
    ],
)
def test_widths_of_recovers_the_channel_settings(channels, expected):
    config = widths_of(channels)
    assert (config.resolution, config.channel_base, config.max_channels) == expected


@pytest.mark.parametrize("new", [True, False])
def test_load_generator_accepts_the_prefix_of_data_parallel(tmp_path, new):
    path = tmp_path / "000100.model"
    given = {f"module.{name}": tensor for name, tensor in weights("rosinality", "full").items()}
    torch.save(given, path, _use_new_zipfile_serialization=new)
    loaded = load_generator(path)
    assert (loaded.resolution, loaded.settings.psi, loaded.settings.cutoff) == (128, 0.7, None)
    assert not loaded.generator.training
    assert loaded.origin == f"checkpoint of rosinality/style-based-gan-pytorch {path}"
    assert license_of(loaded.lineage) == UNKNOWN


def test_load_generator_never_runs_objects_next_to_the_weights(tmp_path, monkeypatch, capsys):
    class HistoryBuffer:  # mmengine keeps its losses in such
        def __init__(self):
            self.history, self.smoothing = np.arange(5.0), max

    class ConfigDict(dict):
        pass

    class Slots:
        __slots__ = ("a",)

        def __init__(self):
            self.a = [1]

    program = types.ModuleType("mmengine")
    for kind in (HistoryBuffer, ConfigDict, Slots):
        kind.__module__ = "mmengine"
        kind.__qualname__ = kind.__name__
        setattr(program, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, "mmengine", program)
    options = ConfigDict(lr=0.1, inner=ConfigDict())
    options.extra = 1
    state = {f"generator_ema.{k}": v for k, v in weights("mmgeneration", "generator").items()}
    hub = {
        "b": 1,
        "losses": HistoryBuffer(),
        Slots(): options,
        "began": datetime.now(),
        "runs": Runs(),
    }
    hub |= {"number": np.float64(1), "set": frozenset([1]), "groups": defaultdict(list, {1: [2]})}
    torch.save({"message_hub": hub, "state_dict": state}, tmp_path / "iter_9.pth")
    monkeypatch.delitem(sys.modules, "mmengine")
    assert load_generator(tmp_path / "iter_9.pth").config.resolution == 32
    assert "executed" not in capsys.readouterr().out


def test_load_generator_names_objects_in_files_without_a_generator(tmp_path):
    torch.save({"state_dict": {"a": torch.zeros(1)}, "began": datetime.now()}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"holds objects \(datetime.datetime\) that only running"):
        load_generator(tmp_path / "a.pth")
    own = {"format": "stylegan", "version": 1, "kind": "generator", "weights": {}, "a": slice(1)}
    torch.save(own, tmp_path / "own.pt")
    with pytest.raises(ValueError, match=r"holds objects .* would restore"):
        load_generator(tmp_path / "own.pt")


# lernapparat's: huangzh13's layers, named as in karras2019stylegan-ffhq-1024x1024.for_g_all.pt


def lernapparat_weights(dtype):
    """The weights of huangzh13, named and shaped as lernapparat's."""

    def renamed(name):
        name = name.replace("g_mapping.map.", "g_mapping.").replace("init_block", "blocks.4x4")
        name = name.replace("to_rgb.5", "torgb")  # of 128x128
        return re.sub(r"blocks\.(\d)\.", lambda m: "blocks.{0}x{0}.".format(8 << int(m[1])), name)

    given = {renamed(name): tensor for name, tensor in weights("huangzh13", "full", dtype).items()}
    return {name: tensor for name, tensor in given.items() if ".to_rgb." not in name}


def test_load_generator_of_lernapparat_equals_huangzh13_with_the_same_layers(tmp_path):
    torch.save(OrderedDict(lernapparat_weights(DOUBLE)), tmp_path / "for_g_all.pt")
    loaded = load_generator(tmp_path / "for_g_all.pt")
    assert (loaded.resolution, loaded.settings.psi, loaded.settings.cutoff) == (128, 0.7, 8)
    z, noise = latents(2, 16).to(DOUBLE), [m.to(DOUBLE) for m in noise_maps(128)]
    assert_as_published(loaded.generator.mapping(z), "huangzh13", "w")
    assert_as_published(loaded.generator(z, noise=noise), "huangzh13", "full")


def test_import_weights_of_lernapparat_averages_smaller_images():
    network = import_weights(lernapparat_weights(SINGLE)).loaded
    z = latents(2, 16).float()
    smaller = network.with_settings(resolution=64)(z, noise="const")
    torch.testing.assert_close(smaller, F.avg_pool2d(network(z, noise="const"), 2))
