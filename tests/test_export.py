"""Generators as files for other programs, and back."""

import copy
import dataclasses
import json
import zipfile

import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.torch
import torch
from helpers import ROOT
from helpers.commands import run_ok
from helpers.tiny_generators import (
    ODD,
    assert_same_weights,
    loaded_of,
    random_generator,
    with_fine_noise_only,
)
from torch.testing import assert_close

from stylegan import load_generator, sampling
from stylegan.files.formats import export, native, program
from stylegan.files.formats.native import save_generator

ABLATIONS = [
    {},
    {"label_dim": 3},
    {"styles": False},
    {"constant_input": False},
    {"noise": False},
    {"pixel_norm": True, "instance_norm": False},
    {"activation": "relu", "mapping_activation": "relu"},
    {"blur": False},
    {"equalized": False, "normalize_latents": False, "deviation_group": 2},
]
BLURS = [{"bias_before_blur": True}, {"activation_before_blur": True}]
TOLD = {
    "psi": -0.3,
    "cutoff": 3,
    "resolution": 8,
    "alpha": 0.25,
    "images_seen": 1200,
    "active_rectangle": [2, 14, 0, 16],
}


def random_source(told=None, **options):
    """A generator none of whose numbers is special, with what a file may tell of it.

    With a constant of ones, images would be all rounding after normalization."""
    generator = random_generator(dataclasses.replace(ODD, **options), seed=1, biases=True)
    return loaded_of(generator, **told or {})


def images(loaded, z, **options):
    stage = {
        "resolution": loaded.resolution,
        "alpha": loaded.settings.alpha,
        "cutoff": loaded.settings.cutoff,
    }
    with torch.no_grad():
        return loaded.generator(z, **stage | options)


@pytest.mark.parametrize("options", [*ABLATIONS, *BLURS], ids=str)
def test_export_safetensors_round_trips_weights_and_settings(tmp_path, options):
    names = ("cat", "dog", "ox") if "label_dim" in options else ()
    source = random_source({**TOLD, "label_names": names}, **options)
    if not options:
        source = random_source({"cutoff": None, "psi": 1.0})
        source.generator.double()
    export(source, tmp_path / "mine.safetensors")
    back = load_generator(tmp_path / "mine.safetensors")
    assert back.generator.w_avg.dtype == source.generator.w_avg.dtype
    assert_same_weights(source.generator, back.generator)
    assert back.generator.config == source.generator.config
    for name in (*TOLD, "label_names"):
        here = {"active_rectangle": "rectangle"}.get(name, name)
        ours, theirs = (getattr(x.settings, here, getattr(x, here, None)) for x in (source, back))
        assert ours == theirs, name


def test_export_safetensors_is_readable_by_other_programs(tmp_path):
    path, source = tmp_path / "mine.safetensors", random_source()
    export(source, path)
    assert_same_weights(safetensors.torch.load_file(path), source.generator)
    with safetensors.safe_open(path, "numpy") as file:
        told = json.loads(file.metadata()["stylegan"])
    assert (told["format"], told["version"], told["kind"]) == ("stylegan", 1, "generator")
    assert told["config"] == dataclasses.asdict(source.generator.config)


def test_export_safetensors_is_deterministic(tmp_path):
    source = random_source()
    files = [tmp_path / f"{i}.safetensors" for i in range(8)]  # two orders of two keys
    for file in files:
        export(source, file)
    assert len({file.read_bytes() for file in files}) == 1


@pytest.mark.parametrize("psi", [0.5, 0.25])  # headers of other lengths
def test_export_safetensors_aligns_its_numbers(psi, tmp_path):
    export(random_source(told={"psi": psi}), tmp_path / "mine.safetensors")
    assert int.from_bytes((tmp_path / "mine.safetensors").read_bytes()[:8], "little") % 8 == 0


def test_load_generator_reads_half_precision_as_float32(tmp_path):
    path, source = tmp_path / "half.safetensors", random_source()
    source.generator.half()
    export(source, path)
    assert_same_weights(load_generator(path).generator, source.generator.float())


def test_load_generator_rejects_damaged_or_foreign_safetensors(tmp_path):
    path, source = tmp_path / "mine.safetensors", random_source()
    export(source, path)
    with open(path, "ab") as file:
        file.write(b"1234")
    with pytest.raises(ValueError, match=r"mine\.safetensors is damaged"):
        load_generator(path)
    numbers = {**source.generator.state_dict(), "w_avg": torch.arange(ODD.w_dim)}
    safetensors.torch.save_file(numbers, path, {"stylegan": native.description_as_json(source)})
    with pytest.raises(ValueError, match=r"w_avg has dtype torch\.int64"):
        load_generator(path)
    safetensors.torch.save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="without the metadata of this project"):
        load_generator(path)


def example_images(loaded, noise):
    """Images of the inputs that a program is made with, in the generator's precision."""
    inputs = program.example_inputs(loaded, noise)
    psi = loaded.generator.w_avg.new_tensor(loaded.settings.psi)
    with torch.no_grad():
        return program.Program(loaded, noise)(
            inputs["z"], psi, inputs.get("labels"), inputs.get("noise")
        )


def onnx_difference(path, source, noise="const"):
    """Write the file; the largest differences of ONNX Runtime's images, and of float64's, from
    those of the generator in float32."""
    export(source, path, noise=noise)
    single, double = (
        source.replace(generator=copy.deepcopy(source.generator).to(dtype))
        for dtype in (torch.float32, torch.float64)
    )
    inputs = program.example_inputs(single, noise)
    given = {name: inputs[name].numpy() for name in ("z", "labels") if name in inputs}
    given |= {f"noise_{i}": m.numpy() for i, m in enumerate(inputs.get("noise", ()))}
    (found,) = runtime_of(path).run(["images"], given)
    images = example_images(single, noise)
    others = torch.from_numpy(found), example_images(double, noise)
    return [float((other - images).abs().max()) for other in others]


def runtime_of(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.slow
@pytest.mark.parametrize("options", [*ABLATIONS, *BLURS], ids=str)
def test_export_onnx_gives_the_same_images(tmp_path, options):
    source = random_source({"psi": -0.3, "cutoff": 3, "alpha": 0.25}, **options)
    if "blur" in options:  # other precisions are compared in float32
        source.generator.double()
    # Another program in float32: 2e-6 to 2e-5, 1e-4 where PERTURB_PRODUCTS perturbs ours.
    assert onnx_difference(tmp_path / "mine.onnx", source)[0] < 2e-4


def test_export_onnx_accepts_any_batch_size_psi_and_noise(tmp_path):
    path, source = tmp_path / "mine.onnx", random_source(TOLD)
    assert onnx_difference(path, source, noise="input")[0] < 5e-5
    model = onnx.load(path)
    assert str(ROOT).encode() not in path.read_bytes()
    assert (model.opset_import[0].version, model.ir_version) == (18, 8)
    told = json.loads({p.key: p.value for p in model.metadata_props}["stylegan"])
    assert told["config"] == dataclasses.asdict(source.generator.config)
    assert (told["psi"], told["images_seen"]) == (-0.3, 1200)
    runtime = runtime_of(path)
    assert [i.name for i in runtime.get_overridable_initializers()] == ["psi"]
    z, maps = torch.randn(5, ODD.z_dim), [torch.randn(5, 1, r, r) for r in (4, 4, 8, 8)]
    given = {"z": z.numpy()} | {f"noise_{i}": m.numpy() for i, m in enumerate(maps)}
    for psi in (-0.3, 0.5):
        chosen = {} if psi == source.settings.psi else {"psi": np.array(psi, np.float32)}
        (found,) = runtime.run(["images"], given | chosen)
        expected = images(source, z, psi=psi, noise=maps)[:, :, 1:7]
        assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_export_onnx_of_large_outputs_differs_only_by_rounding(tmp_path):
    """Float32 itself is as far from float64 there; also where hardly trained layers divide by
    deviations near 0."""
    source = random_source()
    with torch.no_grad():
        for layer in source.generator.synthesis.to_rgb.values():
            layer.weight.mul_(1e4)
    found, rounding = onnx_difference(tmp_path / "mine.onnx", source)
    assert 1e-3 < found < 10 * rounding


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # of torch 2.11
@pytest.mark.slow
@pytest.mark.parametrize("noise", ["const", "input"])
def test_export_pt2_gives_the_same_images_for_any_batch_size(tmp_path, noise):
    source = random_source({"cutoff": 3, "active_rectangle": [2, 14, 0, 16]}, label_dim=2)
    export(source, tmp_path / "mine.pt2", noise=noise)
    extra = {"stylegan.json": ""}
    images_of = torch.export.load(tmp_path / "mine.pt2", extra_files=extra).module()
    assert json.loads(extra["stylegan.json"])["cutoff"] == 3
    stored = source.generator.synthesis.noise_maps(1, 16, "const")
    for n in (1, 2, 5):
        z, labels = torch.randn(n, ODD.z_dim), torch.eye(2)[torch.arange(n) % 2]
        maps = [torch.randn(n, *m.shape[1:]) for m in stored]
        given = {"noise": maps} if noise == "input" else {}
        with torch.no_grad():
            found = images_of(z, torch.tensor(-0.5), labels=labels, **given)
        expected = images(source, z, psi=-0.5, labels=labels, noise=maps if given else "const")
        assert_close(found, expected[:, :, 2:14], rtol=1e-5, atol=1e-4)


def test_export_pt2_names_no_folder_of_this_machine(tmp_path):
    export(random_source(), tmp_path / "mine.pt2")
    with zipfile.ZipFile(tmp_path / "mine.pt2") as archive:
        content = b"".join(map(archive.read, archive.namelist()))
    assert b"stylegan" in content and str(ROOT).encode() not in content


def test_exported_program_takes_noise_of_fine_layers_only():
    source = loaded_of(with_fine_noise_only())
    exported = program.exported_program(source, "input").module()
    z, psi = torch.randn(3, 8), torch.tensor(0.5)
    maps = sampling.noise_from_seeds([1, 2, 3], source.generator.config)
    with torch.no_grad():
        expected = program.Program(source, "input")(z, psi, noise=maps)
        assert_close(exported(z, psi, noise=maps), expected, rtol=1e-5, atol=1e-4)


def test_export_command_follows_psi_and_cutoff(tmp_path):
    files = tmp_path / "mine.pt", tmp_path / "mine.safetensors"
    save_generator(files[0], random_source().generator)
    run_ok("export", *files, "--psi", 0.5, "--cutoff", "all")
    back = load_generator(files[1])
    assert (back.settings.psi, back.settings.cutoff) == (0.5, None)
