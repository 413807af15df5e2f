"""Every source of a generator, and what is said about everything else."""

import copy
import dataclasses
import email.message
import io

import pytest
import torch
from helpers.tiny_generators import (
    LABELED,
    TINY,
    assert_same_weights,
    loaded_of,
    named_by_hash,
    random_generator,
)

import stylegan
from stylegan import load_generator
from stylegan.config import DataConfig, TrainConfig
from stylegan.files import checkpoint, download
from stylegan.files.formats.native import save_generator, save_loaded
from stylegan.files.loading import open_weights
from stylegan.networks import Discriminator
from stylegan.schedule import ScheduleConfig, SchedulePosition, stage_at
from stylegan.training import Share, TrainState, draw, train_step

HOST = "https://host.invalid"


def training_state(images_seen=0):
    """Tiny, with an average that differs from the generator, in the schedule 8, 16 of 1 kimg."""
    schedule = ScheduleConfig(resolution=16, stable_kimg=1, fade_kimg=1, total_kimg=4)
    state = TrainState.create(TrainConfig(network=TINY, schedule=schedule))
    state.generator_ema.load_state_dict(random_generator(seed=9).state_dict())
    state.position = SchedulePosition(images_seen, images_seen)
    return state


def save_state(path, images_seen=0, **extra):
    state = training_state(images_seen)
    checkpoint.save(path, "state", {**state.to_payload(), **extra})
    return state


def test_save_generator_and_load_generator_keep_every_bit(tmp_path):
    generator, path = random_generator().double().train(), tmp_path / "mine.pt"
    save_generator(path, generator)
    before = torch.get_rng_state()
    back = stylegan.load_generator(str(path))
    assert torch.equal(before, torch.get_rng_state())
    assert_same_weights(generator, back.generator)
    assert (back.config, back.generator.w_avg.dtype, back.training) == (TINY, torch.float64, False)
    assert not any(p.requires_grad for p in back.parameters())
    assert torch.load(path, weights_only=True)["kind"] == "generator"
    loaded = load_generator(path)
    assert (loaded.resolution, loaded.settings.alpha, loaded.images_seen) == (16, 1.0, None)
    assert (loaded.settings.psi, loaded.settings.cutoff, loaded.label_names) == (0.7, 8, ())


def test_load_generator_restores_every_stored_field(tmp_path):
    path = tmp_path / "mine.pt"
    about = {
        "images_seen": 1200,
        "resolution": 8,
        "alpha": 0.25,
        "psi": 0.5,
        "cutoff": None,
        "label_names": ("cat", "dog", "hen"),
        "active_rectangle": (2, 14, 0, 16),
        "trained_on": DataConfig(crop="pad", mirror=True, labels=True),
    }
    private = {"trained_on": dataclasses.replace(about["trained_on"], include=("private",))}
    save_generator(path, random_generator(LABELED), **about | private)
    assert b"private" not in path.read_bytes()
    loaded = load_generator(path)
    owner = {name: loaded.settings if hasattr(loaded.settings, name) else loaded for name in about}
    assert {name: getattr(owner[name], name) for name in about} == about
    assert loaded.origin == f"generator file {path}"


@pytest.mark.parametrize(
    ("images_seen", "resolution", "alpha"), [(0, 8, 1.0), (1500, 16, 0.5), (3000, 16, 1.0)]
)
def test_load_generator_of_a_state_is_the_ema_at_its_stage(
    tmp_path, images_seen, resolution, alpha
):
    path = tmp_path / "state-000001500.pt"
    state = save_state(path, images_seen, label_names=[], active_rectangle=[2, 14, 0, 16])
    loaded = load_generator(path)
    assert_same_weights(loaded.generator, state.generator_ema)
    assert (loaded.resolution, loaded.images_seen) == (resolution, images_seen)
    assert loaded.settings.alpha == pytest.approx(alpha, abs=1e-3)
    assert (loaded.label_names, loaded.settings.active_rectangle) == ((), (2, 14, 0, 16))
    assert not loaded.generator.training


def test_open_weights_reads_discriminator_and_half_precision(tmp_path):
    path = tmp_path / "both.pt"
    generator, critic = random_generator().half(), Discriminator(TINY).half()
    loaded = loaded_of(generator)
    save_loaded(path, loaded, discriminator=critic)
    for need in ("pictures", "training", "discriminator"):
        weights = open_weights(path, need=need)
        assert_same_weights(weights.generator_ema, generator.float())
        assert_same_weights(weights.require_discriminator(), critic.float())
    assert set(weights.networks()) == {"generator", "discriminator", "generator_ema"}
    payload = torch.load(path, weights_only=True)
    infinite = {name: tensor / 0 for name, tensor in payload["discriminator"].items()}
    for odd, message in (
        ({"from_rgb": 1}, "cannot be used: weights must be tensors by name"),
        (None, "cannot be used: weights must be tensors by name"),
        ({}, "the weights do not fit the network"),
        (infinite, "are NaN or infinite"),
    ):
        torch.save(payload | {"discriminator": odd}, path)
        with pytest.raises(ValueError, match=message):
            open_weights(path)


def test_load_generator_prefers_bundled_names_and_checks_their_hash(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "WEIGHTS", tmp_path)
    monkeypatch.chdir(tmp_path)
    save_generator(tmp_path / "new.pt", random_generator())
    bundled = named_by_hash(tmp_path / "new.pt", "faces64")
    (tmp_path / "faces64").mkdir()
    assert_same_weights(load_generator("faces64").generator, random_generator())
    with pytest.raises(FileNotFoundError, match="the folder faces64 holds neither"):
        load_generator("./faces64")
    bundled.write_bytes(bundled.read_bytes() + b"\0")
    with pytest.raises(ValueError, match="is damaged: its SHA-256 begins with"):
        load_generator("faces64")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://host/a-0123abcd.pt", "is not an https address without blanks"),
        (f"{HOST}/my file-0123abcd.pt", "is not an https address without blanks"),
        ("https://host/", "does not name a file"),
        (f"{HOST}/generator-000600000.pt", r"does not specify the SHA-256 .*add #sha256="),
        (f"{HOST}/a.pt#sha256=0123", "does not specify the SHA-256 .*first 8 to 64 digits"),
    ],
)
def test_load_generator_from_a_url_needs_https_and_a_hash(hub_cache, url, message):
    with pytest.raises(ValueError, match=message):
        load_generator(url)
    assert not hub_cache.exists()


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return tmp_path / "hub" / "checkpoints"


def test_load_generator_without_network_says_where_to_put_the_file(hub_cache):
    with pytest.raises(OSError, match=r"could not be downloaded.*put the file at .*x-0123abcd\.pt"):
        load_generator("https://127.0.0.1:9/x-0123abcd.pt")


class Answer(io.BytesIO):
    """What a server sends."""

    def info(self):
        return email.message.Message()


def test_load_generator_keeps_a_download_only_if_its_hash_matches(hub_cache, tmp_path, monkeypatch):
    save_generator(tmp_path / "new.pt", random_generator())
    path = named_by_hash(tmp_path / "new.pt", "faces")
    monkeypatch.setattr(torch.hub, "urlopen", lambda request: Answer(path.read_bytes()))
    with pytest.raises(OSError, match=r"could not be downloaded \(invalid hash value"):
        load_generator(f"{HOST}/faces.pt#sha256=01234567")
    assert not [file for file in hub_cache.rglob("*") if file.is_file()]
    assert_same_weights(load_generator(f"{HOST}/{path.name}").generator, random_generator())
    monkeypatch.undo()  # what was downloaded needs no network
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert_same_weights(load_generator(f"{HOST}/{path.name}").generator, random_generator())
    (kept,) = hub_cache.rglob("*.pt")
    kept.write_bytes(kept.read_bytes() + b"\0")
    with pytest.raises(ValueError, match="is damaged"):
        load_generator(f"{HOST}/{path.name}")


@pytest.mark.parametrize(
    ("seeds", "message"),
    [(5, r"a sequence, such as \[5\] or range\(5\), got 5"), ([], "there are no seeds")],
)
def test_sample_refuses_a_number_and_no_seeds(seeds, message):
    with pytest.raises(ValueError, match=message):
        loaded_of(random_generator()).sample(seeds)


def test_pretrained_refuses_latents_without_rows():
    with pytest.raises(ValueError, match="z has no rows"):
        loaded_of(random_generator())(torch.zeros(0, 8))


def test_load_generator_freezes_weights_and_passes_gradients_on(source):
    generator = load_generator(source).generator
    ws = generator.broadcast(generator.w_avg[None]).clone().requires_grad_()
    images = generator.synthesis(ws, noise="const")
    assert torch.equal(images, generator.synthesis(ws, noise="const"))
    images.square().mean().backward()
    assert ws.grad.abs().sum(dim=2).min() > 0  # of every layer
    assert all(p.grad is None for p in generator.parameters())
    schedule = ScheduleConfig(resolution=16, initial_resolution=16)
    state = TrainState.create(
        TrainConfig(network=TINY, schedule=schedule), copy.deepcopy(generator)
    )
    stage = stage_at(0, schedule)
    reals = torch.rand(stage.batch_size, 3, 16, 16)
    train_step(state, reals, None, stage, draw(state.config, 0, stage, None, Share()))
    moved = state.generator.mapping.layers[0].weight
    assert not torch.equal(moved, generator.mapping.layers[0].weight)
