"""Every command takes every source of a generator alike."""

import hashlib
import json
import shlex
import shutil

import pytest
import torch
from helpers import foreign_layouts
from helpers.commands import run_ok
from helpers.reference import SNAPSHOT
from helpers.tiny_generators import assert_same_weights
from helpers.tiny_training import tiny_config, write_pictures
from PIL import Image

from stylegan import load_generator
from stylegan.files import checkpoint
from stylegan.files.formats.native import save_generator, save_safetensors
from stylegan.files.loading import open_weights
from stylegan.networks import Generator
from stylegan.training import TrainState

FOREIGN = {  # file -> layout, variant without labels
    "genforce.pth": ("genforce", "generator"),
    "huangzh13.pth": ("huangzh13", "sharp"),
    "mmgeneration.pth": ("mmgeneration", "generator"),
    "rosinality.model": ("rosinality", "full"),
}
OURS = ("run", "generator.pt", "state-000000004.pt", "mine.safetensors", "shared")
KINDS = (*OURS, "official.pkl", *FOREIGN, "faces64", "address")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One file or folder of every kind, under its name in KINDS; and pictures."""
    folder = tmp_path_factory.mktemp("sources")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        state = TrainState.create(tiny_config())
        generator = Generator(tiny_config().network)
    save_generator(folder / "generator.pt", generator)
    checkpoint.save(folder / "state-000000004.pt", "state", state.to_payload())
    for name in ("run", "shared"):
        (folder / name).mkdir()
    shutil.copy(folder / "generator.pt", folder / "run" / "generator-000000004.pt")
    loaded = load_generator(folder / "generator.pt")
    for path in (folder / "mine.safetensors", folder / "shared" / "model.safetensors"):
        save_safetensors(path, loaded)
    shutil.copy(SNAPSHOT, folder / "official.pkl")
    for name, (layout, variant) in FOREIGN.items():
        description = foreign_layouts.load(layout)[0][variant]
        torch.save(foreign_layouts.weights(description), folder / name)
    write_pictures(folder / "pictures", n=6, size=128)
    return folder


@pytest.fixture
def source_of(folder, tmp_path, monkeypatch):
    """What a user types for a kind of source, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("STYLEGAN_CACHE", str(folder / "cache"))

    def source(kind):
        if kind == "faces64":
            return kind
        if kind == "address":  # as if downloaded before
            content = (folder / "generator.pt").read_bytes()
            digits = hashlib.sha256(content).hexdigest()
            cached = tmp_path / "torch" / "hub" / "checkpoints" / digits / "mine.pt"
            cached.parent.mkdir(parents=True)
            cached.write_bytes(content)
            return f"https://host.invalid/mine.pt#sha256={digits}"
        return str(folder / kind)

    return source


@pytest.mark.parametrize("kind", KINDS)
def test_generate_and_info_take_every_source(source_of, kind):
    source = source_of(kind)
    loaded = load_generator(source)
    run_ok("generate", source, "--seeds", "7", "--device", "cpu")
    with Image.open("out/seed0007.png") as picture:
        assert picture.size == (loaded.resolution, loaded.resolution)
    text, full = run_ok("info", source), loaded.generator.config.resolution
    assert f"{full}x{full}, 3 channels" in text
    assert f"stylegan generate {shlex.quote(source)}\n" in text
    assert f"stylegan train --init-from {shlex.quote(source)}\n" in text
    assert ("run folder" in text) == (kind == "run")
    is_foreign = kind in ("official.pkl", *FOREIGN)
    assert (f"stylegan convert {shlex.quote(source)} " in text) == is_foreign


@pytest.mark.parametrize(
    ("name", "file", "kind"),
    [
        ("convert", "new.pt", "rosinality.model"),
        ("convert", "new.pt", "mine.safetensors"),
        ("export", "new.safetensors", "run"),
        ("export", "new.safetensors", "official.pkl"),
    ],
)
def test_convert_and_export_write_the_weights_of_their_source(source_of, name, file, kind):
    """Both open it as `generate` does, which takes every kind."""
    source = source_of(kind)
    run_ok(name, source, file)
    found, wanted = load_generator(file), load_generator(source)
    assert_same_weights(found.generator, wanted.generator)
    assert (found.settings.psi, found.settings.cutoff) == (
        wanted.settings.psi,
        wanted.settings.cutoff,
    )
    assert (found.resolution, found.settings.alpha) == (wanted.resolution, wanted.settings.alpha)


@pytest.mark.parametrize("kind", ["run", "shared", "official.pkl", "faces64"])
def test_metrics_distinguishes_generators_from_images(source_of, folder, kind):
    options = ["--metrics", "swd12", "--data", folder / "pictures", "--device", "cpu", "--json"]
    result = json.loads(run_ok("metrics", source_of(kind), *options).splitlines()[-1])
    assert (result["metric"], result["values"]["swd"] > 0) == ("swd12", True)


@pytest.mark.parametrize("kind", KINDS)
def test_open_weights_for_training_reads_every_source(source_of, kind):
    source = source_of(kind)
    networks = open_weights(source, need="training").networks()
    assert_same_weights(networks["generator_ema"], load_generator(source).generator)
    assert networks.keys() >= {"generator", "generator_ema"}
