"""Losses and networks of a user's own, which a script adds under a name to a dictionary."""

import runpy

import pytest
import torch
import torch.nn.functional as F
from helpers import ROOT
from helpers.tables import kept_tables
from helpers.tiny_training import SHORT, resumed, stage, step, tiny_config, tiny_store
from torch import nn

from stylegan import load_generator, losses
from stylegan.config import build_config
from stylegan.files.formats.native import save_generator
from stylegan.files.run_folder import RunFolder
from stylegan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES, DiscriminatorLoss
from stylegan.metrics import Comparison, Tools, evaluate, parse
from stylegan.networks import DISCRIMINATORS, GENERATORS, Discriminator, Generator, MappingNetwork
from stylegan.training import TrainState

OWN = {
    "generator_loss": "own",
    "discriminator_loss": "own_pair",
    "network": {"generator": "gain", "discriminator": "doubled"},
}


class GainMapping(MappingNetwork):
    """w times a weight of its own."""

    def __init__(self, config):
        super().__init__(config)
        self.gain = nn.Parameter(torch.full((config.w_dim,), 1.5))
        self.register_buffer("one", torch.ones(1), persistent=False)

    def forward(self, z, labels=None):
        return super().forward(z, labels) * self.gain * self.one


class GainGenerator(Generator):
    def __init__(self, config):
        super().__init__(config)
        self.mapping = GainMapping(config)


class DoubledDiscriminator(Discriminator):
    """The same weights by the same names, another function."""

    def forward(self, images, labels=None, *, alpha=1.0):
        return 2 * super().forward(images, labels, alpha=alpha)


@pytest.fixture
def own(monkeypatch):
    """What a script adds, gone after the test."""
    pair = DiscriminatorLoss(losses.logistic_real, losses.logistic_fake, gradient_penalty=True)
    monkeypatch.setitem(GENERATOR_LOSSES, "own", losses.nonsaturating)
    monkeypatch.setitem(DISCRIMINATOR_LOSSES, "own_pair", pair)
    monkeypatch.setitem(GENERATORS, "gain", GainGenerator)
    monkeypatch.setitem(DISCRIMINATORS, "doubled", DoubledDiscriminator)
    return monkeypatch


def test_custom_networks_and_losses_resume_exactly(own, tmp_path):
    store, config = tiny_store(tmp_path), tiny_config(schedule=SHORT, **OWN)
    state = resumed(config, store, tmp_path, 4)
    assert isinstance(state.discriminator, DoubledDiscriminator)
    gain = state.generator_ema.mapping.gain
    assert not torch.equal(gain, torch.full((7,), 1.5))
    mapping = load_generator(tmp_path / "run").generator.mapping
    assert torch.equal(mapping.gain, gain)
    assert torch.equal(mapping.one, torch.ones(1))  # is in no file
    log = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8")
    assert all(f'"{name}"' in log for name in ("g/own", "d/own_pair_real", "d/own_pair"))
    for table, name in ((GENERATORS, "gain"), (DISCRIMINATORS, "doubled")):
        own.delitem(table, name)
    assert RunFolder(tmp_path / "run").config() == state.config
    with pytest.raises(
        ValueError, match="generator must be one of stylegan, got 'gain'; a Python script"
    ):
        load_generator(tmp_path / "run")


def test_build_config_accepts_only_registered_names():
    for option in ("generator_loss", "discriminator_loss"):
        with pytest.raises(ValueError, match=f"{option} must be one of .* got 'own'"):
            build_config({option: "own"})
        assert getattr(build_config({option: "own"}, allow_unregistered=True), option) == "own"
    for option in ("generator", "discriminator"):
        with pytest.raises(ValueError, match=f"network.{option} must be one of stylegan, "):
            build_config({"network": {option: "other"}})


def test_build_config_refuses_a_bare_function_as_loss_of_the_discriminator(own):
    own.setitem(DISCRIMINATOR_LOSSES, "own", F.softplus)
    with pytest.raises(ValueError, match="of a DiscriminatorLoss or PairLoss, got <built-in"):
        build_config({"discriminator_loss": "own"})


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (F.softplus, r"must return its mean over the batch, .* got a Tensor of shape \(4,\)"),
        (lambda logits: logits.mean().item(), "must return its mean .* got a float"),
        (lambda logits: (logits > 0).sum(), r"of shape \(\) and type torch.int64, without a"),
        (lambda logits: logits.detach().mean(), "without a gradient"),
    ],
)
def test_custom_loss_without_a_scalar_gradient_is_refused(loss, message, own):
    own.setitem(GENERATOR_LOSSES, "own", loss)
    state = TrainState.create(tiny_config(generator_loss="own"))
    with pytest.raises(ValueError, match=f"the loss g/own .*{message}"):
        step(state, stage())


@pytest.fixture
def example():
    """What examples/own_parts.py adds, gone after the test."""
    with kept_tables():
        yield runpy.run_path(str(ROOT / "examples" / "own_parts.py"))


def test_own_parts_example_trains_loads_and_is_measured(example, tmp_path):
    own = {"network": {"generator": "attention"}, "generator_loss": "least_squares"}
    state = TrainState.create(tiny_config(**own, discriminator_loss="least_squares"))
    generator, plain = state.generator, Generator(tiny_config().network)
    block = generator.synthesis.blocks["16"]
    assert isinstance(block, example["WithAttention"])
    found = {name.replace(".16.block.", ".16."): x for name, x in generator.state_dict().items()}
    plain.load_state_dict({name: found[name] for name in plain.state_dict()})
    z = torch.randn(3, 5)
    for noise in ("none", "const"):
        assert torch.equal(generator(z, noise=noise), plain(z, noise=noise))
    step(state, stage(16, 1.0))
    assert block.gain != 0
    file = tmp_path / "own.pt"
    save_generator(file, state.generator_ema)
    loaded = load_generator(file)
    source = Comparison.from_generator(loaded)
    (result,) = evaluate(source, parse("contrast20"), Tools(tmp_path))
    images = load_generator(file).sample(range(20), psi=1.0, noise="random").float()
    assert result.values["contrast"] == pytest.approx(images.diff().abs().mean().item(), rel=1e-3)
