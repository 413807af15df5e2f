"""Losses of a user's own, by the names that a configuration gives them."""

import json

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from tiny_training import QUIET, SHORT, differing, run, stage, step, tiny_config, tiny_store

from stylegan import losses, training
from stylegan.cli import main
from stylegan.config import build_config, from_dict, load_config, to_dict
from stylegan.loss_registry import (
    DISCRIMINATOR_LOSSES,
    GENERATOR_LOSSES,
    register_discriminator_loss,
    register_generator_loss,
)
from stylegan.run_folder import RunFolder
from stylegan.training import TrainState
from stylegan.training.preflight import try_losses

OWN = {"generator_loss": "own", "discriminator_loss": "own_pair"}


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What a test registers is gone after it."""
    for table in (GENERATOR_LOSSES, DISCRIMINATOR_LOSSES):
        monkeypatch.setattr(table, "own", {})


def register_least_squares():
    register_generator_loss("own", lambda logits: (logits - 1).square().mean())
    register_discriminator_loss(
        "own_pair",
        real=lambda logits: (logits - 1).square().mean(),
        fake=lambda logits: logits.square().mean(),
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tiny_store(tmp_path_factory.mktemp("data"))


def test_a_run_with_own_losses_is_that_of_the_same_functions_in_the_package(store, tmp_path):
    register_generator_loss("own", losses.nonsaturating)
    register_discriminator_loss("own_pair", losses.logistic_real, losses.logistic_fake)
    payloads = []
    for name, options in (("own", OWN), ("built-in", {})):
        state = run(tiny_config(schedule=SHORT, **options), store, tmp_path / name)
        payloads.append(state.to_payload() | {"config": None})
    assert differing(*payloads) == []
    lines = (tmp_path / "own" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    logged = {key for line in lines for key in json.loads(line)}
    assert {"g/own", "d/own_pair_real", "d/own_pair_fake", "d/r1_penalty"} <= logged


def test_a_run_with_own_losses_continues_where_they_are_registered_and_nowhere_else(
    store, tmp_path
):
    register_least_squares()
    config = tiny_config(schedule=SHORT, **OWN)
    run(config, store, tmp_path / "run", stop_at=4)
    run(config, store, tmp_path / "whole")
    GENERATOR_LOSSES.own.clear()
    DISCRIMINATOR_LOSSES.own.clear()
    stored = RunFolder(tmp_path / "run").config()  # read without them, by all commands
    assert (stored.generator_loss, stored.discriminator_loss) == ("own", "own_pair")
    with pytest.raises(
        ValueError, match=r"generator_loss is 'own', not one of nonsat.*script that"
    ):
        training.start(stored, store, tmp_path / "run", **QUIET)
    found = CliRunner().invoke(
        main,
        ["train", "--config", str(tmp_path / "run" / "config.toml"), "--data", str(store.path)],
    )
    assert found.exit_code == 1
    assert "must be registered (stylegan.loss_registry.register_generator_loss)" in found.stderr
    register_least_squares()
    continued = training.start(stored, store, tmp_path / "run", **QUIET)
    whole = training.start(stored, store, tmp_path / "whole", **QUIET)
    assert differing(continued.to_payload(), whole.to_payload()) == []


def test_penalties_of_images_are_added_and_logged():
    register_discriminator_loss(
        "own_pair",
        losses.hinge_real,
        losses.hinge_fake,
        real_penalty=losses.r1_penalty,
        fake_penalty=lambda logits, images: 0.5 * losses.r2_penalty(logits, images),
        gradient_penalty=True,
    )
    config = tiny_config(discriminator_loss="own_pair", r1_gamma=2.0, r2_gamma=0.0)
    metrics = step(TrainState.create(config), stage(resolution=16, alpha=1.0))
    assert metrics["d/own_pair_real_penalty"] == metrics["d/r1_penalty"] > 0
    assert metrics["d/own_pair_fake_penalty"] > 0
    assert metrics["d/own_pair"] > 0


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (F.softplus, r"returned a tensor of shape \(4,\); a loss returns its mean over the batch"),
        (lambda logits: logits.mean().item(), "returned a float; a loss returns its mean"),
        (lambda logits: None, "returned a NoneType;"),
        (lambda logits: logits.mean()[None], r"of shape \(1,\);"),
        (lambda logits: (logits > 0).sum(), "of type torch.int64;"),
        (lambda logits: logits.detach().mean(), "without a gradient"),
        (lambda logits: torch.ones((), requires_grad=True), "no gradient with respect to the"),
        (lambda logits: logits.log().mean(), "is nan, its slope"),
        (lambda logits: (logits - logits).sqrt().mean(), "its slope nan"),
    ],
)
def test_a_loss_that_cannot_be_trained_with_is_refused_with_its_name(
    loss, message, store, tmp_path
):
    register_generator_loss("own", loss)
    with pytest.raises(ValueError, match=f"the loss g/own .*{message}"):
        training.start(tiny_config(generator_loss="own"), store, tmp_path / "run", **QUIET)
    assert not (tmp_path / "run").exists()
    for side in ("real", "fake"):
        sound = {"real": losses.hinge_real, "fake": losses.hinge_fake}
        register_discriminator_loss("own_pair", **(sound | {side: loss}))
        with pytest.raises(ValueError, match=f"the loss d/own_pair_{side} .*{message}"):
            try_losses(tiny_config(discriminator_loss="own_pair"), torch.device("cpu"))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", list(DISCRIMINATOR_LOSSES.built_in))
def test_the_losses_of_the_package_pass_the_trial(name, precision):
    config = tiny_config(discriminator_loss=name, precision=precision, r2_gamma=1.0)
    try_losses(config, torch.device("cpu"))


@pytest.mark.parametrize("name", ["wgan", "Own", "own loss", "", "2nd", "g/own"])
def test_names_of_the_package_and_names_that_logs_cannot_hold_are_refused(name):
    with pytest.raises(ValueError, match=r"choose another name|small letters"):
        register_generator_loss(name, losses.nonsaturating)
    with pytest.raises(ValueError, match=r"choose another name|small letters"):
        register_discriminator_loss(name, losses.hinge_real, losses.hinge_fake)


def test_a_configuration_takes_registered_names_only():
    for option in ("generator_loss", "discriminator_loss"):
        with pytest.raises(ValueError, match=f"{option} is 'own', not one of .*registered"):
            build_config({option: "own"})
        with pytest.raises(ValueError, match=f"register_{option}"):
            load_config("quickstart", [f'{option}="own"'])
        assert getattr(from_dict({option: "own"}), option) == "own"
    register_least_squares()
    assert build_config(OWN) == from_dict(to_dict(build_config(OWN)))
