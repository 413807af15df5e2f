"""Generators as files for other programs, and back."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from commands import refused, stylegan, told
from torch.testing import assert_close

from stylegan import sampling
from stylegan.files.formats import export
from stylegan.files.loading import LoadedGenerator, load_generator, load_source, save_generator
from stylegan.networks import Generator, NetworkConfig

SNAPSHOT = Path(__file__).parent / "reference" / "official_snapshot.pkl"
SIZES = {
    "resolution": 16,
    "z_dim": 6,
    "w_dim": 5,
    "mapping_layers": 2,
    "mapping_width": 7,
    "max_channels": 8,
}
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


def random_source(told=None, scale=1.0, **options):
    """A generator none of whose numbers is special, with what a file may tell of it; `scale` is
    the standard deviation of what a new network has as zeros."""
    config = NetworkConfig(**SIZES | options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        generator = Generator(config)
        for name, tensor in generator.state_dict().items():
            if name.endswith(("bias", "strength", "w_avg")):
                tensor.normal_().mul_(scale)
            elif name.endswith("input.const"):  # ones would be all rounding after normalization
                tensor.normal_()
    return LoadedGenerator(
        generator.eval(), "memory", **{"resolution": config.resolution} | (told or {})
    )


def assert_same(a, b):
    """Weights, configuration and all that is told."""
    ours, back = (dict(loaded.generator.state_dict()) for loaded in (a, b))
    assert_close(ours, back, rtol=0, atol=0)
    for loaded in (a, b):
        assert loaded.generator.config == a.generator.config
        for name in (*TOLD, "label_names"):
            assert getattr(loaded, name) == getattr(a, name), name


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])


def images(loaded, z, **options):
    stage = {"resolution": loaded.resolution, "alpha": loaded.alpha, "cutoff": loaded.cutoff}
    with torch.no_grad():
        return loaded.generator(z, **stage | options)


def corrupted(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def with_header(path, change):
    """Rewrite a safetensors file with its header changed by `change`."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


# Weights, and back


@pytest.mark.parametrize("options", ABLATIONS, ids=str)
@pytest.mark.parametrize("ending", ["safetensors", "npz"])
def test_every_number_and_all_that_is_said_come_back(tmp_path, ending, options):
    names = ("cat", "dog", "ox") if "label_dim" in options else ()
    source = random_source({**TOLD, "label_names": names}, **options)
    if not options:
        source = random_source({"cutoff": None, "psi": 1.0})
        source.generator.double()
    export(source, tmp_path / f"mine.{ending}")
    back = load_source(tmp_path / f"mine.{ending}")
    assert back.generator.w_avg.dtype == source.generator.w_avg.dtype
    assert_same(source, back)


def test_a_kernel_that_the_official_program_fuses_is_turned_there_and_back(tmp_path):
    source = random_source(resolution=128, max_channels=2)
    export(source, tmp_path / "mine.npz")
    assert_same(source, load_source(tmp_path / "mine.npz"))
    with np.load(tmp_path / "mine.npz") as arrays:
        for r in (64, 128):
            ours = source.generator.synthesis.blocks[str(r)].conv0.weight.detach().numpy()
            ours = ours.transpose(2, 3, 0, 1)  # [kh, kw, in, out]
            turned = ours[::-1, ::-1] if r == 128 else ours
            assert np.array_equal(arrays[f"G_synthesis/{r}x{r}/Conv0_up/weight"], turned)


def test_an_official_snapshot_becomes_its_own_variables_again(tmp_path):
    from stylegan.files.formats.pickles import read_networks

    export(load_source(SNAPSHOT), tmp_path / "official.npz")
    variables = read_networks(SNAPSHOT)[2].variables
    with np.load(tmp_path / "official.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) - set(variables) == {"static_kwargs", "meta"}
        for name, value in variables.items():
            assert np.array_equal(arrays[name], value), name
        assert json.loads(str(arrays["static_kwargs"]))["fmap_max"] == 16


def test_official_variables_with_their_arguments_alone_are_enough(tmp_path):
    path = tmp_path / "official.npz"
    export(random_source(TOLD), path)
    with np.load(path) as archive:
        arrays = dict(archive)
    del arrays["meta"]
    np.savez(path, **arrays)
    back = load_source(path)
    assert (back.resolution, back.alpha, back.psi, back.cutoff) == (8, 0.25, -0.3, 3)
    assert (back.images_seen, back.label_names) == (None, ())


def test_other_programs_read_the_weights(tmp_path):
    path, source = tmp_path / "mine.safetensors", random_source()
    export(source, path)
    weights = safetensors.torch.load_file(path)
    assert_close(weights, dict(source.generator.state_dict()), rtol=0, atol=0)
    with safetensors.safe_open(path, "numpy") as file:
        told = json.loads(file.metadata()["stylegan"])
    assert (told["format"], told["version"], told["kind"]) == ("stylegan", 1, "generator")
    assert told["config"] == dataclasses.asdict(source.generator.config)


def test_what_other_programs_wrote_in_another_order_is_read(tmp_path):
    path, source = tmp_path / "mine.safetensors", random_source()
    export(source, path)
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    metadata["stylegan"] = json.dumps(json.loads(metadata["stylegan"]) | {"sha256": None})
    weights = dict(reversed(safetensors.torch.load_file(path).items()))
    safetensors.torch.save_file(weights, path, metadata)
    assert_same(source, load_source(path))


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_bfloat16_is_read_as_float32(tmp_path, ending):
    source = random_source()
    source.generator.bfloat16()
    export(source, tmp_path / f"mine.{ending}")
    back = dict(load_generator(tmp_path / f"mine.{ending}").state_dict())
    expected = {name: t.float() for name, t in source.generator.state_dict().items()}
    assert_close(back, expected, rtol=0, atol=0)


def test_half_precision_rounds_each_number_to_the_nearest_and_is_read_as_single(tmp_path):
    source = random_source()
    export(source, tmp_path / "half.safetensors", half=True)
    export(source, tmp_path / "full.safetensors")
    back = load_generator(tmp_path / "half.safetensors").state_dict()
    for name, tensor in source.generator.state_dict().items():
        assert_close(back[name], tensor.half().float(), rtol=0, atol=0)
    sizes = [len((tmp_path / f"{name}.safetensors").read_bytes()) for name in ("half", "full")]
    saved = sum(t.numel() * 2 for t in back.values())
    assert abs(sizes[1] - sizes[0] - saved) < 200


def test_a_number_too_large_for_half_precision_is_named(tmp_path):
    source = random_source()
    source.generator.w_avg[0] = 1e5
    with pytest.raises(ValueError, match="w_avg has numbers beyond 65504"):
        export(source, tmp_path / "half.safetensors", half=True)
    source.generator.w_avg[0] = math.nan
    with pytest.raises(ValueError, match="w_avg has numbers that are NaN or infinite"):
        export(source, tmp_path / "half.safetensors", half=True)
    assert not list(tmp_path.iterdir())


# What is damaged, foreign or hostile


@pytest.fixture
def tensors_file(tmp_path):
    export(random_source(), tmp_path / "mine.safetensors")
    return tmp_path / "mine.safetensors"


def test_a_wrong_bit_or_length_other_numbers_or_no_metadata_are_errors(tensors_file):
    data = tensors_file.read_bytes()
    for other in (data[:-4], data + b"1234"):
        tensors_file.write_bytes(other)
        with pytest.raises(ValueError, match=r"mine\.safetensors is damaged"):
            load_source(tensors_file)
    tensors_file.write_bytes(data)
    with_header(tensors_file, lambda header: header["w_avg"].update(dtype="I32"))
    with pytest.raises(ValueError, match="w_avg is not a tensor of real numbers"):
        load_source(tensors_file)
    tensors_file.write_bytes(data)
    corrupted(tensors_file, -3)
    with pytest.raises(ValueError, match="do not have the SHA-256"):
        load_source(tensors_file)
    safetensors.numpy.save_file({"weight": np.zeros(3, np.float32)}, tensors_file)
    with pytest.raises(ValueError, match="without the metadata of this project"):
        load_source(tensors_file)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 20]},
        {"dtype": "F32", "shape": [-5], "data_offsets": [0, 20]},
        {"dtype": "F32", "shape": [5], "data_offsets": [4, 24]},
        {"dtype": "I64", "shape": [5], "data_offsets": [0, 40]},
        {"dtype": "F32", "shape": [5]},
        7,
    ],
)
def test_an_impossible_tensor_is_refused(tensors_file, entry):
    with_header(tensors_file, lambda header: header.update(w_avg=entry))
    with pytest.raises(ValueError, match=r"mine\.safetensors is damaged"):
        load_source(tensors_file)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("psi", "much", "psi must be a finite number, not 'much'"),
        ("psi", 10**400, "psi must be a finite number, not 1000"),
        ("psi", math.nan, "is not JSON"),
        ("cutoff", -5, "cutoff must be a whole number or None, not -5"),
        ("cutoff", 1.5, "cutoff must be a whole number or None, not 1.5"),
        ("images_seen", -3, "images_seen must be a whole number or None, not -3"),
        ("alpha", "all", "alpha must be a finite number, not 'all'"),
        ("resolution", None, "resolution must be a whole number, not None"),
        ("alpha", 7, "alpha must be from 0 to 1, not 7"),
        ("resolution", 7, "resolution 7 is not a power of two from 4 to 16"),
        ("resolution", 64, "resolution 64 is not a power of two from 4 to 16"),
        ("resolution", 0, "resolution 0 is not a power of two from 4 to 16"),
        ("label_names", [1], r"label_names must be texts, not \(1,\)"),
        ("label_names", ["a"] * 9, "9 label_names are given for 0 labels"),
        ("active_rectangle", [1, 2], "active_rectangle must be top, bottom, left, right"),
        ("active_rectangle", [5, 3, 0, 99], r"active_rectangle must be .* not \[5, 3, 0, 99\]"),
        ("version", 99, "version 99"),
        ("kind", "picture", "kind is 'picture'"),
        ("config", {"resolution": 2**60}, "cannot be used"),
        ("config", {"colour": 1}, "cannot be used"),
        ("config", {"mapping_layers": 10**9}, "mapping_layers must be at most 100"),
        ("config", {"channel_base": 10**400}, "channel_base must be at most"),
        ("config", {"channel_decay": 1e300}, "channel_decay must be at most 64"),
    ],
)
def test_wrong_metadata_is_named(tensors_file, field, value, message):
    def change(header):
        told = json.loads(header["__metadata__"]["stylegan"]) | {field: value}
        header["__metadata__"]["stylegan"] = json.dumps(told)

    with_header(tensors_file, change)
    with pytest.raises(ValueError, match=message):
        load_source(tensors_file)


def other_psi(arrays):
    settings = json.loads(str(arrays["static_kwargs"]))
    arrays["static_kwargs"] = np.array(json.dumps(settings | {"truncation_psi": 0.7}))


LODS = dict.fromkeys(("lod", "G_synthesis/lod"), np.array(np.float32(1.5)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("dlatent_avg"), r"mine\.npz cannot .*dlatent_avg is missing"),
        (lambda arrays: arrays.update(colour=np.zeros(2)), "colour is not a variable"),
        (
            lambda arrays: arrays.update(dlatent_avg=np.zeros(2)),
            r"has shape \(2,\) instead of \(5,\)",
        ),
        (lambda arrays: arrays.pop("static_kwargs"), "no entry static_kwargs"),
        (lambda arrays: arrays.update(odd=np.array([None], object)), "Object arrays cannot be"),
        (lambda arrays: arrays.update(LODS), r"lod is 1\.5, but 1\.75 by its meta"),
        (other_psi, r"truncation_psi is 0\.7, but -0\.3 by its meta"),
    ],
)
def test_arrays_that_are_not_those_of_a_generator_are_refused(tmp_path, change, message):
    path = tmp_path / "mine.npz"
    export(random_source(TOLD), path)
    with np.load(path) as archive:
        arrays = dict(archive)
    change(arrays)
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=message):
        load_source(path)


def test_compressed_and_damaged_arrays_are_refused(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, zeros=np.zeros(10))
    with pytest.raises(ValueError, match="is compressed"):
        load_source(path)
    export(random_source(), path, overwrite=True)
    corrupted(path, path.stat().st_size // 2)
    with pytest.raises(ValueError, match="damaged"):
        load_source(path)


@pytest.mark.parametrize("ending", [".onnx", ".pt2"])
def test_programs_are_no_sources_and_say_so(tmp_path, ending):
    path = tmp_path / f"mine{ending}"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match=r"cannot be read back: use the file that it was made"):
        load_source(path)


# ONNX


@pytest.mark.parametrize("options", [*ABLATIONS, *BLURS], ids=str)
def test_onnx_runtime_makes_the_same_images(tmp_path, options):
    source = random_source({"psi": -0.3, "cutoff": 3, "alpha": 0.25}, **options)
    if "blur" in options:  # other precisions are compared in float32
        source.generator.double()
    if "label_dim" in options:
        source.generator.bfloat16()
    assert export(source, tmp_path / "mine.onnx", check=True) < 5e-5  # 2e-6 to 2e-5


def test_onnx_takes_any_number_of_images_each_with_its_psi_and_noise(tmp_path):
    source = random_source({"cutoff": 2, "resolution": 8})
    export(source, tmp_path / "mine.onnx")
    runtime = session(tmp_path / "mine.onnx")
    stored = [m.clone() for m in source.generator.synthesis.noise_maps(1, 8, "const")]
    names = ["z", "psi", *(f"noise_{i}" for i in range(4))]
    needed = [i.name for i in runtime.get_inputs()]
    optional = [i.name for i in runtime.get_overridable_initializers()]
    assert (needed, sorted(optional)) == (["z"], sorted(names[1:]))
    for n in (1, 5):
        z = torch.randn(n, 6)
        (found,) = runtime.run(None, {"z": z.numpy()})
        assert_close(torch.from_numpy(found), images(source, z, psi=0.7, noise="const"))
        psi = torch.linspace(-1, 1, n)
        maps = [torch.randn(n, *m.shape[1:]) for m in stored[:2]] + stored[2:]
        given = dict(zip(names, (x.numpy() for x in (z, psi, *maps)), strict=True))
        (found,) = runtime.run(None, given)
        for i in range(n):
            own = [m[i : i + 1] if len(m) == n else m for m in maps]
            expected = images(source, z[i : i + 1], psi=psi[i].item(), noise=own)
            assert_close(torch.from_numpy(found[i : i + 1]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("noise", ["const", "none"])
def test_onnx_without_noise_inputs_holds_the_stored_maps_or_none(tmp_path, noise):
    source = random_source()
    assert export(source, tmp_path / "mine.onnx", noise=noise, check=True) < 1e-5
    runtime = session(tmp_path / "mine.onnx")
    assert [i.name for i in runtime.get_overridable_initializers()] == ["psi"]
    z = torch.randn(2, 6)
    (found,) = runtime.run(None, {"z": z.numpy()})
    expected = images(source, z, psi=0.7, noise=noise)
    assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-5)


def test_images_with_alpha_come_with_plain_colours(tmp_path):
    source = random_source(image_channels=4, premultiplied=True)
    with torch.no_grad():
        source.generator.synthesis.to_rgb["16"].bias[3] = -1  # alpha about 0, with values around it
    z = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    plain = sampling.straight(images(source, z, psi=source.psi, noise="const"))
    assert (plain[:, :3].abs().max() > 20) and (plain[:, 3] < -1).any() and (plain[:, 3] > 0).any()
    assert export(source, tmp_path / "mine.onnx", check=True) < 5e-4  # divided by alpha
    (found,) = session(tmp_path / "mine.onnx").run(None, {"z": z.numpy()})
    export(source, tmp_path / "mine.pt2", noise="const")
    program = torch.export.load(tmp_path / "mine.pt2").module()
    for made in (torch.from_numpy(found), program(z, torch.tensor(source.psi))):
        assert_close(sampling.to_uint8(made), sampling.to_uint8(plain), rtol=0, atol=1)


def test_images_come_without_their_padding(tmp_path):
    source = random_source({"active_rectangle": [2, 14, 0, 16]})
    assert export(source, tmp_path / "mine.onnx", check=True) < 5e-5
    (found,) = session(tmp_path / "mine.onnx").run(None, {"z": np.zeros((1, 6), np.float32)})
    whole = images(source, torch.zeros(1, 6), psi=source.psi, noise="const")
    assert_close(torch.from_numpy(found), whole[:, :, 2:14], rtol=1e-5, atol=1e-5)


def test_a_file_that_makes_other_images_takes_no_place(tmp_path):
    path, source = tmp_path / "mine.onnx", random_source()
    path.write_text("precious")
    source.generator.register_forward_hook(lambda module, args, images: images + 0.01)
    with pytest.raises(ValueError, match=r"mine\.onnx is not written: .* differ by 1\.0e-02"):
        export(source, path, check=True, overwrite=True)
    assert path.read_text() == "precious"


def test_onnx_tells_what_it_is(tmp_path):
    source = random_source(TOLD)
    export(source, tmp_path / "mine.onnx")
    model = onnx.load(tmp_path / "mine.onnx")
    told = json.loads({p.key: p.value for p in model.metadata_props}["stylegan"])
    assert told["config"] == dataclasses.asdict(source.generator.config)
    assert (told["psi"], told["images_seen"]) == (-0.3, 1200)


@pytest.mark.slow
@pytest.mark.parametrize("resolution", [256, 1024])
def test_onnx_at_the_papers_size_is_within_a_ten_thousandth(tmp_path, resolution):
    papers = {field: getattr(NetworkConfig, field) for field in SIZES}
    source = random_source(scale=0.1, **papers | {"resolution": resolution})
    for name, tensor in source.generator.state_dict().items():
        if "to_rgb" in name:
            tensor.mul_(0.1)  # images from about -1 to 1, as of trained networks
    assert export(source, tmp_path / "big.onnx", check=True) < 1e-4


# torch.export


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["const", "input"])
def test_a_program_makes_any_number_of_images_without_this_package(tmp_path, noise):
    source = random_source({"cutoff": 3, "active_rectangle": [2, 14, 0, 16]}, label_dim=2)
    export(source, tmp_path / "mine.pt2", noise=noise)
    extra = {"stylegan.json": ""}
    program = torch.export.load(tmp_path / "mine.pt2", extra_files=extra).module()
    assert json.loads(extra["stylegan.json"])["cutoff"] == 3
    stored = source.generator.synthesis.noise_maps(1, 16, "const")
    for n in (1, 2, 5):
        z, labels = torch.randn(n, 6), torch.eye(2)[torch.arange(n) % 2]
        maps = [torch.randn(n, *m.shape[1:]) for m in stored]
        given = {"noise": maps} if noise == "input" else {}
        with torch.no_grad():
            found = program(z, torch.tensor(-0.5), labels=labels, **given)
        expected = images(source, z, psi=-0.5, labels=labels, noise=maps if given else "const")
        assert_close(found, expected[:, :, 2:14], rtol=1e-5, atol=1e-4)


# Choices, and the command


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("mine.h5", {}, "must end in .safetensors, .npz, .onnx, .pt2"),
        ("mine.npz", {"noise": "const"}, "leave noise out"),
        ("mine.onnx", {"noise": "loud"}, "noise is input, const, none, not 'loud'"),
        ("mine.npz", {"half": True}, "half precision is for .safetensors"),
        ("mine.npz", {"bias_before_blur": True}, "no bias_before_blur"),
    ],
)
def test_a_choice_that_a_format_does_not_have_is_an_error(tmp_path, name, choices, message):
    options = {"bias_before_blur": choices.pop("bias_before_blur", False)}
    with pytest.raises(ValueError, match=message):
        export(random_source(**options), tmp_path / name, **choices)


def test_nothing_is_overwritten_unless_asked(tmp_path):
    path, source = tmp_path / "mine.npz", random_source()
    path.write_text("precious")
    with pytest.raises(ValueError, match="exists"):
        export(source, path)
    assert path.read_text() == "precious"
    export(source, path, overwrite=True)
    assert_same(source, load_source(path))
    (tmp_path / "other").touch()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["mine.npz", "other"]
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["."], "is a folder; give the name of a file"),
        (["mine.h5", "--noise", "const"], "must end in"),
    ],
)
def test_what_the_command_cannot_write_is_one_line_and_no_file(
    tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    result = stylegan("export", "emoji32", *arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_the_command_exports_checks_and_its_files_make_the_same_pictures(tmp_path):
    source = random_source()
    save_generator(tmp_path / "mine.pt", source.generator)

    assert "images differ by" in told("export", tmp_path / "mine.pt", tmp_path / "mine.onnx")
    pictures = {}
    for name in ("mine.pt", "mine.npz", "mine.safetensors"):
        if name != "mine.pt":
            told("export", tmp_path / "mine.pt", tmp_path / name)
        assert "psi 0.7" in told("info", tmp_path / name)
        out = tmp_path / f"{name}-out"
        told("generate", tmp_path / name, "--seeds", "1-2", "--out", out)
        pictures[name] = [path.read_bytes() for path in sorted(out.iterdir())]
    assert pictures["mine.pt"] == pictures["mine.npz"] == pictures["mine.safetensors"]
    message = refused("export", tmp_path / "mine.pt", tmp_path / "mine.npz")
    assert "exists; pass --overwrite" in message
    told("export", tmp_path / "mine.npz", tmp_path / "b.npz", "--psi", 0.5, "--cutoff", "all")
    back = load_source(tmp_path / "b.npz")
    assert (back.psi, back.cutoff) == (0.5, None)
