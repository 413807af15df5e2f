"""Official snapshots: variables and settings, pickles that are not executed, `stylegan convert`."""

import os

import numpy as np
import pytest
import torch
from helpers.commands import open_image, run_fails, run_ok
from helpers.official import (
    SETTINGS,
    discriminator_variables,
    dumps,
    generator_variables,
    network_class,
    official_variables,
    snapshot_objects,
)
from helpers.reference import SNAPSHOT
from helpers.tiny_generators import assert_same_weights

from stylegan import load_generator
from stylegan.files.formats.official_names import GENERATOR_SETTINGS, config_from_official
from stylegan.files.formats.official_pickle import InertType
from stylegan.files.loading import open_weights
from stylegan.interop import (
    discriminator_from_official,
    generator_from_official,
    load_official,
    mapping_from_official,
    synthesis_from_official,
)
from stylegan.networks import SynthesisNetwork


@pytest.fixture
def official(monkeypatch):
    return network_class(monkeypatch)


def written(tmp_path, content, protocol=4, name="network.pkl"):
    """A file of these bytes, or of the pickle of these objects."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else dumps(content, protocol))
    return path


# Variables and settings


def test_mapping_from_official_suggests_a_name_for_an_unknown_setting():
    with pytest.raises(
        ValueError, match=r"unknown official setting fmap_bas; did you mean fmap_base\?"
    ):
        mapping_from_official({}, {"fmap_bas": 4096})


def test_discriminator_from_official_ignores_unrelated_settings():
    extra = {
        "mapping_layers": 0,
        "structure": "linear",
        "func_name": "training.networks_stylegan.D_basic",
        "dtype": "float32",
        "randomize_noise": False,
        "truncation_psi": 0.7,
        "style_mixing_prob": None,
        "use_noise": False,
    }
    network = discriminator_from_official(discriminator_variables(), SETTINGS | extra)
    assert network.config == discriminator_from_official(discriminator_variables(), SETTINGS).config


def test_config_from_official_uses_the_official_defaults():
    config = config_from_official({}, GENERATOR_SETTINGS)
    assert (config.resolution, config.image_channels, config.channel_base) == (1024, 3, 8192)
    assert (config.z_dim, config.w_dim, config.mapping_width, config.max_channels) == (512,) * 4
    assert (config.mapping_layers, config.mapping_lr_multiplier) == (8, 0.01)
    assert (config.deviation_group, config.deviation_features, config.blur) == (4, 1, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"blur_filter": [1, 3, 3, 1]}, r"blur_filter must be .* got \[1, 3, 3, 1\]"),
        ({"fused_scale": "always"}, "fused_scale must be True, False or 'auto', got 'always'"),
        ({"nonlinearity": "tanh"}, "activation is .tanh.: it must be"),
        ({"resolution": "8"}, "resolution must be of type int, got '8'"),
        ({"use_noise": "no"}, "use_noise must be of type bool, got 'no'"),
        ({"fmap_base": 0.5}, "fmap_base must be of type int, got 0.5"),
    ],
)
def test_generator_from_official_refuses_unsupported_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        generator_from_official(generator_variables(), SETTINGS | settings)


@pytest.mark.parametrize("blur_filter", [None, [], [1, 2, 1], (1, 2, 1)])
def test_config_from_official_reads_blur_filter(blur_filter):
    config = config_from_official({"blur_filter": blur_filter}, GENERATOR_SETTINGS)
    assert config.blur == bool(blur_filter)


def test_generator_from_official_names_all_mismatched_variables():
    variables = generator_variables()
    variables["G_mapping/Dense7/bias"] = variables.pop("G_mapping/Dense1/bias")
    variables["dlatent_avg"] = np.zeros(6, np.float32)
    with pytest.raises(ValueError) as error:
        generator_from_official(variables, SETTINGS)
    assert "G_mapping/Dense1/bias is missing" in str(error.value)
    assert "G_mapping/Dense7/bias is not a tensor of this network" in str(error.value)
    assert "dlatent_avg has shape (6,) instead of (5,)" in str(error.value)
    variables = generator_variables() | {"dlatent_avg": np.array(["a"] * 5)}
    with pytest.raises(ValueError, match="dlatent_avg must hold real numbers"):
        generator_from_official(variables, SETTINGS)


def test_generator_from_official_keeps_float64_exactly():
    variables = generator_variables(np.float64)
    lods = {"lod": np.float32(1), "G_synthesis/lod": np.float32(1)}  # ignored here
    network = generator_from_official(variables | lods, SETTINGS)
    assert {t.dtype for t in network.state_dict().values()} == {torch.float64}
    np.testing.assert_array_equal(network.w_avg.numpy(), variables["dlatent_avg"])


def test_generator_from_official_copies_big_endian_read_only_arrays():
    variables = {k: v.astype(">f4") for k, v in generator_variables().items()}
    variables["dlatent_avg"].flags.writeable = False
    network = generator_from_official(variables, SETTINGS)
    network.w_avg += 1
    np.testing.assert_allclose(network.w_avg.numpy(), variables["dlatent_avg"] + 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("fused", "rotated"), [("auto", {128}), (True, {8, 16, 32, 64, 128}), (False, set())]
)
def test_synthesis_from_official_rotates_only_fused_kernels(fused, rotated):
    settings = {"resolution": 128, "fmap_max": 2, "dlatent_size": 3, "fused_scale": fused}
    config = config_from_official(settings, GENERATOR_SETTINGS)
    network = SynthesisNetwork(config)
    variables = official_variables(network)
    network = synthesis_from_official(variables, settings)
    for r in (8, 16, 32, 64, 128):
        kernel = variables[f"{r}x{r}/Conv0_up/weight"]  # [kh, kw, in, out]
        if r in rotated:
            kernel = kernel[::-1, ::-1]
        ours = network.blocks[str(r)].conv0.weight.detach().numpy()
        np.testing.assert_array_equal(ours, kernel.transpose(2, 3, 0, 1))


# Pickles


def call(module, name, argument=b"1"):
    """Protocol 2 instructions for `module.name(argument)`."""
    return b"\x80\x02c%s\n%s\nU%c%s\x85R." % (
        module.encode(),
        name.encode(),
        len(argument),
        argument,
    )


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", [3, 4])
def test_load_official_reads_every_protocol_and_array_order(official, tmp_path, protocol, order):
    g, d, ema = snapshot_objects(official)
    for part in ema.components.values():
        part.variables = [(name, np.array(value, order=order)) for name, value in part.variables]
    snapshot = load_official(written(tmp_path, (g, d, ema), protocol))
    expected = generator_from_official(generator_variables(), SETTINGS)
    assert_same_weights(snapshot.generator_ema, expected)


def test_load_official_gives_both_networks_one_configuration(official, tmp_path):
    group = {"mbstd_group_size": 2}
    snapshot = load_official(written(tmp_path, snapshot_objects(official, d_settings=group)))
    assert snapshot.generator.config == snapshot.discriminator.config
    assert snapshot.generator.config.deviation_group == 2
    assert snapshot.discriminator.config.w_dim == 5


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (0.7, 8)),
        ({"truncation_psi": 0.5, "truncation_cutoff": 4}, (0.5, 4)),
        ({"truncation_psi": None}, (1.0, None)),
        ({"truncation_cutoff": 0}, (1.0, None)),
    ],
)
def test_load_official_reads_truncation_psi_and_cutoff(official, tmp_path, settings, expected):
    snapshot = load_official(written(tmp_path, snapshot_objects(official, settings)))
    assert (snapshot.loaded.settings.psi, snapshot.loaded.settings.cutoff) == expected


class Claim:
    """Pickled as an array that is larger than its bytes."""

    def __reduce__(self):
        function, arguments, state = np.zeros(3, np.float32).__reduce__()
        return function, arguments, (state[0], (2**40, 2**20), *state[2:])


def built_by(name):
    """Objects whose generator is another function's."""

    def objects(official):
        found = snapshot_objects(official)
        found[0].build_func_name = name
        return found

    return objects


def with_variable(value):
    return lambda official: snapshot_objects(official, extra={"odd": value})


def with_one_array_under_many_names(official):
    array = np.zeros(2**17, np.float32)
    return snapshot_objects(official, extra={str(i): array for i in range(100)})


NO_NUMBERS = "variable odd that does not hold plain numbers"
OLD_PICKLE = "is not a pickle of protocol 2 to 4"
CLASS_STATE = b"\x80\x02cnumpy\nndarray\n%sb0N."
REFUSED = [  # the bytes of a file, or what makes its objects; what the refusal says
    (b"", OLD_PICKLE),
    (b"(lp0\n.", OLD_PICKLE),
    (b"PK\x03\x04...", "torch.save writes: use load_generator"),
    (lambda _: {"G": 1}, "holds dict, not three networks"),
    (call("tfutil", "Network"), "this is a Progressive GAN snapshot"),
    (call("torch_utils.persistence", "_reconstruct_persistent_obj"), "StyleGAN2-ADA"),
    (built_by("G_paper"), "built by G_paper instead of G_style, of Progressive GAN;"),
    (built_by("G_main"), "built by G_main instead of G_style, of StyleGAN2;"),
    (built_by("G_mapping"), "built by G_mapping instead of G_style;"),
    (with_variable(np.array([None, "a"], object)), NO_NUMBERS),
    (with_variable(np.array(["a"])), NO_NUMBERS),
    (with_variable(np.zeros(2, [("a", "f4")])), NO_NUMBERS),
    (with_variable(np.zeros(1, "M8[s]")), NO_NUMBERS),
    (with_one_array_under_many_names, r"has \d+ bytes of variables in \d+ bytes"),
    (with_variable(Claim()), r"odd that claims shape \(1099511627776, 1048576\)"),
    (
        lambda official: snapshot_objects(official, {"mapping_layers": 3}),
        r"network.pkl .*G_mapping/Dense2/weight is missing",
    ),
    (CLASS_STATE % b"}U\x04argsK\x01s", "damaged or truncated"),
    (CLASS_STATE % b"N}U\x04argsK\x01s\x86", "damaged or truncated"),
]


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_load_official_refuses_other_files_in_words(official, tmp_path, content, message):
    path = written(tmp_path, content if isinstance(content, bytes) else content(official))
    with pytest.raises(ValueError, match=message):
        load_official(path)
    assert InertType.args == ()  # a file does not change the classes that stand in


# `convert`


def test_convert_keeps_official_weights_and_truncation(tmp_path):
    files = tmp_path / "g.pt", tmp_path / "d.pt"
    run_ok("convert", SNAPSHOT, files[0], "--discriminator", files[1])
    snapshot, loaded = load_official(SNAPSHOT), load_generator(files[0])
    assert (
        loaded.settings.psi,
        loaded.settings.cutoff,
        loaded.resolution,
        loaded.settings.alpha,
    ) == (0.7, 8, 32, 1.0)
    assert loaded.generator.config == snapshot.generator_ema.config
    assert_same_weights(loaded.generator, snapshot.generator_ema)
    discriminator = open_weights(files[1], need="discriminator").discriminator
    assert discriminator.config == snapshot.discriminator.config
    assert_same_weights(discriminator, snapshot.discriminator)


def test_convert_keeps_resolution_and_alpha_of_a_growing_snapshot(official, tmp_path):
    path = written(tmp_path, snapshot_objects(official, extra={"lod": np.float32(0.25)}))
    run_ok("convert", path, tmp_path / "g.pt")
    for file in (path, tmp_path / "g.pt"):
        loaded = load_generator(file)
        assert (loaded.resolution, loaded.settings.alpha) == (8, 0.75)
    assert sorted(os.listdir(tmp_path)) == ["g.pt", "network.pkl"]
    path = written(tmp_path, snapshot_objects(official, extra={"lod": np.float32(2)}))
    assert "lod must be from 0 to 1 at 8x8, got 2.0" in run_fails(
        "convert", path, tmp_path / "other.pt"
    )


@pytest.mark.parametrize(
    ("name", "size"), [("karras2019stylegan-cars-8x6.pkl", (8, 6)), ("cats-16x8.pkl", (8, 8))]
)
def test_generate_crops_the_padding_of_a_rectangular_snapshot(official, tmp_path, name, size):
    path = written(tmp_path, snapshot_objects(official), name=name)
    run_ok("convert", path, tmp_path / "g.pt")
    run_ok("generate", tmp_path / "g.pt", "--seeds", "0", "--device", "cpu", "--out", tmp_path)
    assert open_image(tmp_path / "seed0000.png").size == size


def test_convert_keeps_the_labels_of_a_conditional_snapshot(official, tmp_path):
    path = written(tmp_path, snapshot_objects(official, labels=3))
    run_ok("convert", path, tmp_path / "g.pt")
    snapshot, loaded = load_official(path), load_generator(tmp_path / "g.pt")
    z, labels = torch.randn(3, 6), torch.eye(3)
    theirs = snapshot.generator_ema(z, labels, noise="const")
    torch.testing.assert_close(loaded.generator(z, labels, noise="const"), theirs)
    assert theirs.shape == (3, 3, 8, 8)


def test_convert_refuses_generators_of_different_architecture(official, tmp_path):
    g, d, _ = snapshot_objects(official)
    other = snapshot_objects(official, {"nonlinearity": "relu"})[2]
    message = run_fails("convert", written(tmp_path, (g, d, other)), tmp_path / "g.pt")
    assert "activation must be equal in G and Gs, got lrelu and relu" in message
    other = snapshot_objects(official, {"truncation_psi": 0.5, "fused_scale": True})[2]
    run_ok("convert", written(tmp_path, (g, d, other)), tmp_path / "g.pt")
    assert load_generator(tmp_path / "g.pt").settings.psi == 0.5


def test_convert_refuses_an_unknown_variable(official, tmp_path):
    objects = snapshot_objects(official)
    objects[2].components["mapping"].variables.append(("lod", np.float32(0)))
    message = run_fails("convert", written(tmp_path, objects), tmp_path / "g.pt")
    assert "G_mapping/lod is not a tensor of this network" in message
