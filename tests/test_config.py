"""Configurations: strict names and types, round trips, and the bundled files."""

import dataclasses
import json
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from stylegan import config as configuration
from stylegan.config import (
    CHANGEABLE_WITHIN_RUN,
    TrainConfig,
    build_config,
    config_names,
    differences,
    load_config,
    option_names,
    to_dict,
    to_toml,
)
from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.schedule import phases
from stylegan.utils import validation

PROCESSES = (1, 2, 4, 8)
PAPER = {  # appendix C, and the official program's settings where the paper is silent
    "generator_loss": "nonsaturating", "discriminator_loss": "logistic",
    "r1_gamma": 10, "r1_interval": 1, "r2_gamma": 0, "gp_weight": 10, "gp_target": 1, "drift": 1e-3,
    "adam_beta1": 0, "adam_beta2": 0.99, "adam_eps": 1e-8,
    "ema_half_life_kimg": 10, "w_avg_decay": 0.995, "style_mixing": 0.9, "noise_mode": "random",
    "batch_gpu": 0, "snapshot_ticks": 10,
    "network.resolution": 1024, "network.image_channels": 3, "network.label_dim": 0,
    "network.z_dim": 512, "network.w_dim": 512, "network.mapping_layers": 8,
    "network.mapping_width": 512, "network.mapping_lr_multiplier": 0.01,
    "network.mapping_activation": "lrelu", "network.normalize_latents": True,
    "network.channel_base": 8192, "network.channel_decay": 1, "network.max_channels": 512,
    "network.activation": "lrelu", "network.styles": True, "network.constant_input": True,
    "network.noise": True, "network.pixel_norm": False, "network.instance_norm": True,
    "network.blur": True, "network.equalized": True,
    "network.deviation_group": 4, "network.deviation_features": 1,
    "schedule.initial_resolution": 8, "schedule.stable_kimg": 600, "schedule.fade_kimg": 600,
    "schedule.total_kimg": 25_000, "schedule.ramp_kimg": 0, "schedule.max_batch_per_process": {},
    "schedule.batch_size": {4: 128, 32: 64, 64: 32, 128: 16, 256: 8, 512: 4},
    "schedule.g_lr": {4: 0.001, 128: 0.0015, 256: 0.002, 512: 0.003},
    "schedule.d_lr": {4: 0.001, 128: 0.0015, 256: 0.002, 512: 0.003},
    "schedule.tick_kimg": {
        4: 160, 8: 140, 16: 120, 32: 100, 64: 80, 128: 60, 256: 40, 512: 30, 1024: 20
    },
    "schedule.minibatch_repeats": 4, "schedule.num_processes": 1,
    "data.mirror": False, "data.labels": False,  # mirroring is switched on for faces
}  # fmt: skip
OWN = {  # the official program has nothing like them
    "network.bias_before_blur", "network.activation_before_blur", "network.premultiplied",
    "network.generator", "network.discriminator", "seed",
    "log_kimg", "keep_states", "data.crop", "data.include",
    "checkpoint_activations", "deterministic", "save_minutes", "milestone_kimg",
    "max_skipped", "max_saturated_kimg", "augment.kind", "augment.transforms",
    "augment.probability",
    "augment.target", "augment.ada_kimg",
    "d_only_kimg", "freeze_d_from", "precision",
}  # fmt: skip


def flat(config: TrainConfig) -> dict:
    return configuration.flatten(to_dict(config))


def from_paper(name: str) -> dict:
    """What a configuration changes against the paper's."""
    paper, values = flat(TrainConfig()), flat(load_config(name))
    return {k: v for k, v in values.items() if v != paper[k] and k != "schedule.resolution"}


def test_train_config_defaults_equal_the_paper():
    values = flat(load_config(None))
    assert {name: values[name] for name in PAPER} == PAPER
    assert set(option_names()) == set(PAPER) | OWN
    assert load_config(None) == TrainConfig()


@pytest.mark.parametrize("name", config_names())
def test_bundled_configs_split_over_1_2_4_and_8_processes(name):
    for processes in PROCESSES:
        config = load_config(name, num_processes=processes)
        for _, _, stage in phases(config.schedule):
            assert stage.batch_size % processes == 0
        assert config.schedule.resolution == config.network.resolution
    with torch.device("meta"):
        generator, discriminator = Generator(config.network), Discriminator(config.network)
        images = generator(torch.empty(2, config.network.z_dim))
        size, channels = config.network.resolution, config.network.image_channels
        assert images.shape == (2, channels, size, size)
        assert discriminator(images).shape == (2,)


@pytest.mark.parametrize("name", config_names())
def test_to_toml_and_to_dict_round_trip_through_build_config(name):
    for processes in PROCESSES:
        config = load_config(name, ['data.include=["a \\"b\\"", "ü\\u007f"]'], processes)
        text = to_toml(config)
        assert to_toml(build_config(tomllib.loads(text))) == text  # a second `train` writes it
        assert build_config(tomllib.loads(text)) == config
        assert build_config(to_dict(config)) == config
        assert build_config(json.loads(json.dumps(to_dict(config)))) == config
        assert set(configuration.flatten(tomllib.loads(text))) == set(option_names())


BASELINE = {
    "style_mixing": 0, "network.styles": False, "network.pixel_norm": True,
    "network.instance_norm": False, "network.mapping_layers": 0,
    "network.constant_input": False, "network.noise": False,
}  # fmt: skip
WGAN_GP = {"generator_loss": "wgan", "discriminator_loss": "wgan_gp", "r1_gamma": 0}
NO_MIXING = {"style_mixing": 0}
WITHOUT_NOISE = {**NO_MIXING, "network.noise": False}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("table1-a-baseline", {**BASELINE, **WGAN_GP, "network.blur": False}),
        ("table1-b-tuned", BASELINE),
        ("table1-c-styles", {**WITHOUT_NOISE, "network.constant_input": False}),
        ("table1-d-constant-input", WITHOUT_NOISE),
        ("table1-e-noise", NO_MIXING),
        ("table1-f-mixing", {}),
        ("table2-mixing-50", {"style_mixing": 0.5}),
        ("table2-mixing-100", {"style_mixing": 1}),
        ("table4-traditional-8", BASELINE.items() - {("network.mapping_layers", 0)}),
        ("table4-style-based-0", {"network.mapping_layers": 0}),
        ("table4-style-based-1", {"network.mapping_layers": 1}),
        ("table4-style-based-2", {"network.mapping_layers": 2}),
    ],
)
def test_paper_table_configs_equal_the_rows_of_the_paper(name, changes):
    assert from_paper(f"paper/{name}") == {"data.mirror": True, **dict(changes)}


def test_data_set_configs_equal_the_settings_of_the_paper():
    capped = {4: 0.001, 128: 0.0015, 256: 0.002}
    expected = {
        "ffhq-1024": {"data.mirror": True},
        "ffhq-256": {"data.mirror": True, "network.resolution": 256},
        "celebahq-1024": {
            "data.mirror": True, **WGAN_GP, "schedule.g_lr": capped, "schedule.d_lr": capped
        },
        "bedroom-256": {"network.resolution": 256, "schedule.total_kimg": 70_000},
        "cat-256": {"network.resolution": 256, "schedule.total_kimg": 70_000},
        "car-512": {
            "network.resolution": 512, "schedule.total_kimg": 46_000, "data.crop": "pad"
        },
    }  # fmt: skip
    assert {name: from_paper(name) for name in expected} == expected


WRONG_OPTIONS = [  # an option, and the words that name it and say what is wrong
    ("schedule.total_kimgs=1", r"schedule.total_kimgs\b.* schedule.total_kimg\b"),
    ("lr=0.1", "schedule.g_lr or schedule.d_lr"),
    ("precision=bf16", "quotes: 'precision=\"bf16\"'"),
    ('precision="bf17"', "precision .* 'auto', 'fp32'"),
    ("seed=true", "seed is true"),
    ("seed=-1", "seed is -1"),
    ("r1_gamma={64=1}", "r1_gamma .* resolution 8"),
    ("r1_gamma={4=1, 7=2}", "r1_gamma.* power of two.* got 7"),
    ("r1_gamma={4=-1}", "r1_gamma.4 is -1"),
    ("r1_gamma=nan", "r1_gamma is NaN"),
    ("batch_gpu=3", "128 .* batch_gpu 3"),
    ("data.include='\udce9.png'", "Unicode"),
    ("augment={kind='ada', transforms=['blits']}", "transforms .*blit.*'blits'"),
    ("augment={kind='none', probability=0.5}", "probability need kind"),
    ("augment={kind='ada', target=1.0}", "target is 1.0"),
    ("network.resolution=48", "network.* power of two from 4 to 1024, got 48"),
    ("network.resolution=2048", "network.* power of two from 4 to 1024, got 2048"),
    ("network.label_dim=-1", "label_dim is -1"),
    ("network={mapping_layers=0, z_dim=6, w_dim=5}", "w_dim must be 6, got 5"),
    ("network={mapping_layers=0, label_dim=2}", "label.*w_dim must be 1024, got 512"),
    ("network.deviation_features=3", "deviation_features 3 .* 512 channels at 4x4"),
    ("network.deviation_group=3", "128 images .* deviation_group 3"),
    ("network.activation='tanh'", "activation .*tanh.* 'lrelu' or 'relu'"),
    ("schedule.resolution=64", "schedule.resolution .* follows from"),
    ("schedule.initial_resolution=2", "initial_resolution .* power of two.* got 2"),
    ("schedule.stable_kimg=-1", "stable_kimg is -1"),
    ("schedule.stable_kimg=inf", "stable_kimg is Infinity"),
    ("schedule.fade_kimg=nan", "fade_kimg is NaN"),
    ("schedule.ramp_kimg=-1", "ramp_kimg is -1"),
    ("schedule.total_kimg=0", "total_kimg is 0"),
    ("schedule.minibatch_repeats=0", "minibatch_repeats is 0"),
    ("schedule.num_processes=0", "num_processes is 0"),
    ("schedule.batch_size={16=4}", "batch_size .* resolution 8"),
    ("schedule.batch_size={4=1e13}", "schedule.batch_size.4 is 1"),
    ("schedule.batch_size={4=0}", "batch_size.4 is 0"),
    ("schedule.batch_size={4=8, 24=4}", "batch_size.* power of two.* got 24"),
    ("schedule.batch_size={4=8, 2048=4}", "batch_size.* power of two.* got 2048"),
    ("schedule.max_batch_per_process={4=0}", "max_batch_per_process.4 is 0"),
    ("schedule.max_batch_per_process={24=4}", "max_batch_per_process.* power of two.* got 24"),
    ("schedule.g_lr={4=-0.1}", "g_lr.4 is -0.1"),
    ("schedule.d_lr={16=0.1}", "d_lr .* resolution 8"),
    ("schedule.tick_kimg={}", "tick_kimg .* resolution 8"),
]


@pytest.mark.parametrize(("option", "words"), WRONG_OPTIONS)
def test_load_config_rejects_wrong_options_by_name(option, words):
    with pytest.raises(ValueError, match=words) as error:
        load_config(None, [option])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("depth", [150, 210, 900, 3000])
@pytest.mark.parametrize(("opening", "closing"), [("a.", "b=1"), ("[", "]"), ("{a=", "}")])
def test_load_config_rejects_deep_nesting_in_one_line(depth, opening, closing):
    """By whichever reader meets its limit first: Python's of TOML, JSON's, or recursion."""
    if opening == "a.":
        text = opening * depth + closing
    else:
        text = f"seed={opening * depth}1{closing * depth}"
    with pytest.raises(ValueError, match=r"nested|option|not a TOML value|seed is") as error:
        load_config(None, [text])
    assert len(str(error.value)) < 700
    assert "\n" not in str(error.value)
    assert "num_processes" not in str(error.value)  # the whole configuration


def test_build_config_rejects_non_unicode_text_in_one_line():
    with pytest.raises(ValueError, match=r"^a value is nested .* text that is not Unicode$"):
        configuration.build_config({"data": {"include": "\udce9"}})


def test_build_config_counts_a_text_each_time_it_is_repeated():
    with pytest.raises(ValueError, match="too large"):
        configuration.build_config({"data": {"include": ["a" * 2**20] * 2**20}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xef\xbb\xbf[schedule]\ntotal_kimgs = 1\n", r"unknown option schedule\.total_kimgs"),
        ("[schedule]\ntotal_kimgs = 1\n".encode("utf-16"), r"unknown option schedule\.total_kimgs"),
        (b"seed = \n", "is not valid TOML: .*line 1"),
        (b"data.include = " + 3000 * b"[", "is not valid TOML"),
        (3000 * b"a." + b"a = 1\n", "(.*nested|unknown option|is not valid TOML)"),
    ],
)
def test_load_config_names_an_invalid_file(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_bytes(text)
    for read in (lambda: load_config(path), lambda: load_config(path, allow_unregistered=True)):
        with pytest.raises(ValueError, match=rf"mine\.toml:? {message}"):
            read()


def test_num_processes_accepts_a_custom_batch_size_table():
    batches = "schedule.batch_size={4=96, 64=48, 256=12}"
    config = load_config("ffhq-256", [batches], num_processes=3)
    assert {s.batch_size for _, _, s in phases(config.schedule)} == {96, 48, 12}
    assert load_config("ffhq-1024", ["schedule.num_processes=8"]) == load_config("ffhq-1024", [], 8)
    with pytest.raises(ValueError, match=r"batch_size .* processes, 64, got 32"):
        load_config("ffhq-1024", num_processes=64)


def test_build_config_keeps_batches_for_another_num_processes():
    config = load_config("ffhq-256", num_processes=8)
    again = build_config(tomllib.loads(to_toml(config)), num_processes=2)
    assert again == config
    configuration.check_batches(again, 2)
    with pytest.raises(ValueError, match="processes 3: the batch is not divisible"):
        configuration.check_batches(again, 3)


def test_load_config_merges_sections_and_lets_later_options_win():
    options = ["seed=1", "network.blur=false", "network.z_dim=8", "seed=2"]
    config = load_config("ffhq-256", options)
    assert (config.seed, config.network.z_dim, config.network.resolution) == (2, 8, 256)
    assert not config.network.blur


def test_differences_name_every_option_that_matters():
    config = load_config("quickstart")
    assert set(option_names()) > CHANGEABLE_WITHIN_RUN
    options = ["seed=2", 'precision="bf16"', "network.blur=false", "batch_gpu=8"]
    assert differences(config, load_config("quickstart", options)) == [
        "seed: 0 there, 2 asked",
        'precision: "auto" there, "bf16" asked',
        "network.blur: true there, false asked",
    ]


def test_load_config_accepts_options_as_dict_or_strings_and_a_number_as_a_table():
    texts = ["schedule={batch_size=8, g_lr=0.01}", 'data.crop="pad"', "network.blur=false"]
    values = {"schedule.batch_size": 8, "schedule.g_lr": 0.01, "data.crop": "pad"}
    config = load_config("ffhq-256", texts)
    assert config == load_config("ffhq-256", values | {"network.blur": False})
    assert (config.schedule.batch_size, config.schedule.g_lr) == ({4: 8}, {4: 0.01})


@pytest.mark.parametrize(
    ("kind", "inside", "outside"),
    [
        (
            validation.NonNegativeFloat,
            [0, 1e12],
            [-1e-9, 1e13, math.nan, math.inf, True, "1", None],
        ),
        (validation.PositiveFloat, [1e-9], [0, -1]),
        (validation.Decay, [0, 0.99], [1, -0.1]),
        (validation.Probability, [0, 1], [1.1, -0.1]),
        (str, ["a"], [b"a", Path("a"), 1]),
        (validation.PositiveInt, [1, np.int64(3)], [0, 1.5, np.float32(2.5), False]),
    ],
)
def test_validate_enforces_the_range_of_each_type(kind, inside, outside):
    for value in inside:
        assert validation.validate(kind, value) == value
    for value in outside:
        with pytest.raises(ValueError, match=r"^a\.pt: the value is .*: it must be ") as error:
            validation.validate(kind, value, "a.pt")
        assert "\n" not in str(error.value)


def test_config_constructors_convert_and_validate_values():
    network = NetworkConfig(z_dim=np.int64(7), mapping_lr_multiplier=np.float32(0.5))
    assert (type(network.z_dim), type(network.mapping_lr_multiplier)) == (int, float)
    assert configuration.DataConfig(include=["a", "b"]).include == ("a", "b")
    assert dataclasses.replace(network, z_dim=8).mapping_lr_multiplier == 0.5
    with pytest.raises(ValueError, match=r"^z_dim is 0: it must be greater than or equal to 1$"):
        dataclasses.replace(network, z_dim=0)
    with pytest.raises(ValueError, match="pixel_norm"):
        NetworkConfig(pixel_norm=torch.zeros(0))
