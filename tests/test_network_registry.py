"""Networks of a user's own, by the names that a configuration gives them."""

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tiny_training import QUIET, SHORT, differing, run, tiny_config, tiny_store
from torch import nn

from stylegan import load_generator, training
from stylegan.cli import main
from stylegan.config import build_config, from_dict
from stylegan.files.formats import export
from stylegan.files.loading import load_discriminator, load_source, save_generator
from stylegan.networks import (
    Discriminator,
    Generator,
    MappingNetwork,
    NetworkConfig,
    register_discriminator,
    register_generator,
)
from stylegan.networks.registry import DISCRIMINATORS, GENERATORS
from stylegan.run_folder import RunFolder
from stylegan.training import TrainState


class GainMapping(MappingNetwork):
    """w times a weight of its own."""

    def __init__(self, config):
        super().__init__(config)
        self.gain = nn.Parameter(torch.full((config.w_dim,), 1.5))

    def forward(self, z, labels=None):
        return super().forward(z, labels) * self.gain


class GainGenerator(Generator):
    def __init__(self, config):
        super().__init__(config)
        self.mapping = GainMapping(config)


class DoubledDiscriminator(Discriminator):
    """The same weights by the same names, another function."""

    def forward(self, images, labels=None, *, alpha=1.0):
        return 2 * super().forward(images, labels, alpha=alpha)


OWN = {"network": {"generator": "gain", "discriminator": "doubled"}}


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What a test registers is gone after it."""
    for table in (GENERATORS, DISCRIMINATORS):
        monkeypatch.setattr(table, "own", {})
    register_generator("gain", GainGenerator)
    register_discriminator("doubled", DoubledDiscriminator)


def forget():
    GENERATORS.own.clear()
    DISCRIMINATORS.own.clear()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tiny_store(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory):
    """A run of own networks."""
    register_generator("gain", GainGenerator)
    register_discriminator("doubled", DoubledDiscriminator)
    out = tmp_path_factory.mktemp("runs") / "run"
    state = run(tiny_config(schedule=SHORT, **OWN), store, out)
    forget()
    return out, state


def test_own_networks_are_trained_and_continued_to_the_same_end(trained, store, tmp_path):
    out, whole = trained
    assert isinstance(whole.generator, GainGenerator)
    assert isinstance(whole.discriminator, DoubledDiscriminator)
    assert not torch.equal(whole.generator.mapping.gain, torch.full((7,), 1.5))
    config = tiny_config(schedule=SHORT, **OWN)
    run(config, store, tmp_path / "again", stop_at=4)
    state = training.start(config, store, tmp_path / "again", **QUIET)
    assert differing(state.to_payload(), whole.to_payload()) == []
    with pytest.raises(ValueError, match=r'network.generator: "gain" there, "stylegan" asked'):
        training.start(tiny_config(schedule=SHORT), store, out, **QUIET)


def test_files_of_own_networks_are_read_where_they_are_registered(trained, tmp_path):
    out, state = trained
    folder = RunFolder(out)
    G = load_generator(out)
    assert isinstance(G, GainGenerator)
    expected = state.generator_ema.mapping.gain
    for source in (folder.states()[-1], folder.generators()[-1], tmp_path / "own.safetensors"):
        if source.suffix == ".safetensors":
            export(load_source(out), source)
        loaded = load_generator(source)
        assert torch.equal(loaded.mapping.gain, expected)
        assert torch.equal(loaded.sample([3]), G.sample([3]))
    pixels = np.stack(list(load_source(out).pictures([3])))
    assert (G.sample([3]).permute(0, 2, 3, 1).numpy() == pixels).all()
    assert isinstance(load_discriminator(out), DoubledDiscriminator)
    export(load_source(out), tmp_path / "own.pt2")
    for name in ("own.npz", "own.onnx"):
        with pytest.raises(ValueError, match="not one of your own"):
            export(load_source(out), tmp_path / name)


def test_without_the_script_there_is_a_sentence_for_every_file(trained, tmp_path):
    out, _ = trained
    forget()
    folder = RunFolder(out)
    assert folder.config().network.generator == "gain"
    for source in (out, folder.states()[-1], folder.generators()[-1]):
        found = CliRunner().invoke(main, ["generate", str(source), "--out", str(tmp_path / "o")])
        assert found.exit_code == 1
        assert len(found.stderr.splitlines()) == 1
        assert "network.generator is 'gain', not one of stylegan" in found.stderr
        assert "registered (stylegan.networks.register_generator)" in found.stderr


def test_a_class_that_files_would_not_name_is_not_written(tmp_path):
    sizes = tiny_config().network
    with pytest.raises(
        ValueError, match=r"GainGenerator, but its configuration names .*'stylegan'"
    ):
        save_generator(tmp_path / "own.pt", GainGenerator(sizes))
    assert not list(tmp_path.iterdir())
    named = NetworkConfig(**{**vars(sizes), "generator": "gain"})
    save_generator(tmp_path / "own.pt", GainGenerator(named))
    assert isinstance(load_generator(tmp_path / "own.pt"), GainGenerator)


@pytest.mark.parametrize("name", ["Own", "", "a b", 5, None, "x" * 200, "\x1b[2J"])
def test_names_of_networks_are_words(name):
    with pytest.raises(ValueError, match="generator is a name of small letters"):
        NetworkConfig(generator=name)


def test_a_configuration_takes_registered_names_only():
    assert isinstance(TrainState.create(tiny_config(**OWN)).generator_ema, GainGenerator)
    forget()
    for option in ("generator", "discriminator"):
        with pytest.raises(ValueError, match=f"network.{option} is 'other', not one of stylegan"):
            build_config({"network": {option: "other"}})
        assert getattr(from_dict({"network": {option: "other"}}).network, option) == "other"
