"""Official variables and settings: what is read, what is refused, and what the user is told."""

import numpy as np
import pytest
import torch
from helpers.official import (
    SETTINGS,
    discriminator_variables,
    generator_variables,
    official_variables,
)

from stylegan.files.formats.correspondence import (
    GENERATOR_SETTINGS,
    config_from_official,
)
from stylegan.interop import (
    discriminator_from_official,
    generator_from_official,
    mapping_from_official,
    synthesis_from_official,
)
from stylegan.networks import SynthesisNetwork


def test_an_unknown_setting_is_refused_with_a_suggestion():
    with pytest.raises(
        ValueError, match=r"unknown official setting fmap_bas; did you mean fmap_base\?"
    ):
        mapping_from_official({}, {"fmap_bas": 4096})


def test_settings_of_sister_networks_and_of_run_time_are_ignored():
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


def test_absent_settings_take_the_official_defaults():
    config = config_from_official({}, GENERATOR_SETTINGS)
    assert (config.resolution, config.image_channels, config.channel_base) == (1024, 3, 8192)
    assert (config.z_dim, config.w_dim, config.mapping_width, config.max_channels) == (512,) * 4
    assert (config.mapping_layers, config.mapping_lr_multiplier) == (8, 0.01)
    assert (config.deviation_group, config.deviation_features, config.blur) == (4, 1, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"blur_filter": [1, 3, 3, 1]}, r"blur_filter \[1, 3, 3, 1\] is not supported"),
        ({"fused_scale": "always"}, "fused_scale must be True, False or 'auto', not 'always'"),
        ({"nonlinearity": "tanh"}, "activation must be lrelu or relu, not 'tanh'"),
        ({"resolution": "8"}, "resolution must be of type int, not '8'"),
        ({"use_noise": "no"}, "use_noise must be of type bool, not 'no'"),
        ({"fmap_base": 0.5}, "fmap_base must be of type int, not 0.5"),
    ],
)
def test_a_setting_we_cannot_honor_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        generator_from_official(generator_variables(), SETTINGS | settings)


@pytest.mark.parametrize("blur_filter", [None, [], [1, 2, 1], (1, 2, 1)])
def test_blur_filter_may_be_absent_or_the_papers(blur_filter):
    config = config_from_official({"blur_filter": blur_filter}, GENERATOR_SETTINGS)
    assert config.blur == bool(blur_filter)


def test_missing_surplus_and_misshapen_variables_are_named_in_one_error():
    variables = generator_variables()
    variables["G_mapping/Dense7/bias"] = variables.pop("G_mapping/Dense1/bias")
    variables["dlatent_avg"] = np.zeros(6, np.float32)
    with pytest.raises(ValueError) as error:
        generator_from_official(variables, SETTINGS)
    assert "G_mapping/Dense1/bias is missing" in str(error.value)
    assert "G_mapping/Dense7/bias is not a tensor of this network" in str(error.value)
    assert "dlatent_avg has shape (6,) instead of (5,)" in str(error.value)
    variables = generator_variables() | {"dlatent_avg": np.array(["a"] * 5)}
    with pytest.raises(ValueError, match="dlatent_avg holds <U1 instead of real numbers"):
        generator_from_official(variables, SETTINGS)


def test_double_variables_make_an_exact_double_network():
    variables = generator_variables(np.float64)
    lods = {"lod": np.float32(1), "G_synthesis/lod": np.float32(1)}  # ignored here
    network = generator_from_official(variables | lods, SETTINGS)
    assert {t.dtype for t in network.state_dict().values()} == {torch.float64}
    np.testing.assert_array_equal(network.w_avg.numpy(), variables["dlatent_avg"])


def test_read_only_and_big_endian_arrays_are_read_and_copied():
    variables = {k: v.astype(">f4") for k, v in generator_variables().items()}
    variables["dlatent_avg"].flags.writeable = False
    network = generator_from_official(variables, SETTINGS)
    network.w_avg += 1
    np.testing.assert_allclose(network.w_avg.numpy(), variables["dlatent_avg"] + 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("fused", "rotated"), [("auto", {128}), (True, {8, 16, 32, 64, 128}), (False, set())]
)
def test_kernels_are_rotated_exactly_where_the_official_upscaling_was_fused(fused, rotated):
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
