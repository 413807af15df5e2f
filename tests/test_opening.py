"""One way to open weights: damaged and hostile files, what is not a number, runs, commands."""

import copy
import json
import math
import shlex

import numpy as np
import pytest
import torch
from helpers.commands import pixels, run_fails, run_ok, stylegan
from helpers.official import dumps, network_class, snapshot_objects
from helpers.stored_files import foreign, state
from helpers.tiny_generators import TINY, assert_same_weights, loaded_of, random_generator
from helpers.tiny_training import merge, tiny_config, write_pictures

import hubconf
from stylegan import load_generator
from stylegan.config import build_config, to_dict
from stylegan.files import checkpoint
from stylegan.files.formats.native import save_generator, save_loaded, save_safetensors
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.interop import load_official
from stylegan.training import TrainState
from stylegan.training.transfer import initialize_from
from stylegan.utils.filesystem import ALLOW_OVERWRITE


def test_open_weights_skips_a_damaged_newest_state_everywhere(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    good, bad = run / "state-000000004.pt", run / "state-000000008.pt"
    state(good, 4)
    state(bad, 8)
    data = bad.read_bytes()
    middle = len(data) // 2
    bad.write_bytes(data[:middle] + bytes(1000) + data[middle + 1000 :])
    expected = open_weights(good).discriminator
    assert_same_weights(hubconf.discriminator(run), expected)
    begun = TrainState.create(tiny_config())
    lines = initialize_from(begun, run)
    assert_same_weights(begun.discriminator, expected)
    assert any(line.startswith(f"not used: {bad} is damaged") for line in lines)
    assert [source.source for source in begun.lineage] == ["run/state-000000004.pt"]
    run_ok("convert", run, tmp_path / "g.pt", "--discriminator", tmp_path / "d.pt")
    assert_same_weights(hubconf.discriminator(tmp_path / "d.pt"), expected)
    assert f"state file {good}" in run_ok("info", run)


def test_open_weights_of_a_run_takes_the_newest_and_of_equals_the_generator_file(tmp_path):
    found = []
    state(tmp_path / "state-000001000.pt", 1000)
    for seed, number in enumerate(("000000999", "000001000", "1001", "000000900")):
        save_generator(tmp_path / f"generator-{number}.pt", random_generator(seed=seed))
        found.append(load_generator(tmp_path))
    names = [loaded.origin.rpartition("/")[2] for loaded in found]
    assert names == ["state-000001000.pt", "generator-000001000.pt", *["generator-1001.pt"] * 2]
    assert_same_weights(found[-1].generator, random_generator(seed=2))
    assert open_weights(tmp_path, need="training").discriminator is not None


def broken_file(kind, folder, monkeypatch):
    """A file with one number that is not finite, and the name of its tensor."""
    path = folder / f"broken.{kind}"
    network = random_generator()
    network.mapping.layers[1].bias.data[3] = math.nan
    loaded = loaded_of(network)
    match kind:
        case "pt":
            save_loaded(path, loaded)
        case "safetensors":
            save_safetensors(path, loaded)
        case "state.pt":
            state(path)
            payload = checkpoint.load(path)
            payload["generator_ema"]["mapping.layers.1.bias"][0] = math.inf
            checkpoint.save(path, "state", payload, outputs=ALLOW_OVERWRITE)
        case "pkl":
            objects = snapshot_objects(network_class(monkeypatch))
            for name, array in objects[2].components["mapping"].variables:
                if name == "Dense1/bias":
                    array[0] = np.nan
            path.write_bytes(dumps(objects))
            return path, "G_mapping/Dense1/bias"
        case "pth":
            foreign(path)
            tensors = torch.load(path)
            tensors["mapping.dense1.bias"][0] = math.nan
            torch.save(tensors, path)
            return path, "mapping.dense1.bias"
    return path, "mapping.layers.1.bias"


@pytest.mark.parametrize("kind", ["pt", "state.pt", "safetensors", "pkl", "pth"])
def test_commands_refuse_weights_that_are_nan_or_infinite(kind, tmp_path, monkeypatch):
    path, tensor = broken_file(kind, tmp_path, monkeypatch)
    write_pictures(tmp_path / "pictures", n=2, size=16)
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    for command in (
        ["generate", path, "--out", out],
        ["metrics", path, "--metrics", "swd2", "--data", tmp_path / "pictures"],
        ["info", path],
        ["convert", path, tmp_path / "new.pt"],
        ["export", path, tmp_path / "new.safetensors"],
    ):
        message = run_fails(*command)
        assert path.name in message
        assert f"{tensor} holds 1 number of " in message
        assert "NaN or infinite" in message
    assert not out.exists()
    assert not list(tmp_path.glob("new*"))


def test_load_official_refuses_weights_that_are_nan(tmp_path, monkeypatch):
    path, tensor = broken_file("pkl", tmp_path, monkeypatch)
    with pytest.raises(ValueError, match=rf"broken\.pkl cannot be used: {tensor} holds 1 number"):
        load_official(path)


@pytest.mark.parametrize("name", ["faces64", "glyphs64"])
def test_hubconf_pretrained_false_has_no_training_history(name):
    trained = load_generator(name)
    untrained = hubconf.__dict__[name](pretrained=False)
    assert trained.images_seen and trained.lineage
    assert untrained.generator.config == trained.generator.config
    assert (untrained.images_seen, untrained.lineage, untrained.label_names) == (None, (), ())
    assert untrained.origin == "random weights"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that was trained with mirroring on the middle of oblong pictures of one folder."""
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    write_pictures(tmp_path / "pictures" / "used", n=4, size=16)
    write_pictures(tmp_path / "pictures" / "unused", n=4, size=16)
    changes = {"data": {"mirror": True, "include": ["used"], "crop": "stretch"}}
    config = build_config(merge(to_dict(tiny_config()), changes))
    run = RunFolder(tmp_path / "run")
    run.create(config, tmp_path / "pictures", ())
    save_generator(run.best_generator, random_generator(config.network), images_seen=4)
    save_generator(run.generator_file(4), random_generator(config.network), images_seen=4)
    return run


@pytest.mark.parametrize("with_data", [False, True])
def test_metrics_of_a_file_in_a_run_equals_metrics_of_the_run(run, tmp_path, with_data):
    data = ["--data", tmp_path / "pictures"] if with_data else []
    results = []
    for source in (run.path, run.best_generator, run.generator_file(4)):
        command = ["metrics", source, "--metrics", "swd4", "--device", "cpu", "--json", *data]
        results.append(json.loads(run_ok(*command)))
    for result in results:
        assert result["protocol"]["reals"] == results[0]["protocol"]["reals"]
        assert result["values"] == results[0]["values"]
    assert results[1]["protocol"]["reals"]["mirror"] is True
    assert results[1]["protocol"]["reals"]["images"] == 4  # of the eight, those that it used
    assert len(run.metrics_file.read_text().splitlines()) == 3


def test_figure_neighbors_is_equal_for_a_run_and_its_file(run, tmp_path):
    drawn = []
    for name, source in (("run", run.path), ("file", run.best_generator)):
        picture = tmp_path / f"{name}.png"
        options = ["--rows", 2, "--nearest", 2, "--out", picture]
        run_ok("figure", "neighbors", source, *options)
        drawn.append(pixels(picture))
    assert np.array_equal(*drawn)


def test_run_folder_of_a_file_is_its_run_and_of_a_name_none(run, tmp_path, monkeypatch):
    assert RunFolder.of(run.best_generator).path == run.path
    assert RunFolder.of(run.path).path == run.path
    monkeypatch.chdir(run.path)
    for source in ("faces64", tmp_path, tmp_path / "pictures", "https://host.invalid/a.pt"):
        assert RunFolder.of(source) is None


def test_info_prints_commands_that_can_be_pasted(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "mine; touch y.pt"
    save_generator(tmp_path / name, random_generator())
    folder = run.path.rename(tmp_path / "my $(run)")
    for source, expected in (
        (name, [["generate", name], ["train", "--init-from", name]]),
        (folder, [["generate", str(folder)], ["train", "--out", str(folder)]]),
    ):
        lines = [line for line in run_ok("info", source).splitlines() if "  stylegan " in line]
        commands = [shlex.split(line[line.index("stylegan") :]) for line in lines]
        assert commands == [["stylegan", *words] for words in expected]


def test_loaded_generator_call_uses_its_own_resolution_and_alpha(tmp_path):
    network = random_generator()
    save_generator(tmp_path / "grows.pt", network, resolution=8, alpha=0.25)
    grows = load_generator(tmp_path / "grows.pt")
    z = torch.randn(2, TINY.z_dim)

    def image(generator, **stage):
        with torch.no_grad():
            return generator(z, noise="const", **stage)

    assert torch.equal(image(grows), image(network, resolution=8, alpha=0.25))
    assert torch.equal(image(grows.generator, resolution=8), image(network, resolution=8))
    assert torch.equal(image(grows.with_settings(resolution=16)), image(network))
    assert torch.equal(image(copy.deepcopy(grows)), image(grows))


def test_export_writes_a_folder_for_the_hub(source, tmp_path):
    folder = tmp_path / "shared"
    assert "pass --license" in run_fails("export", source, folder)
    assert not folder.exists()
    run_ok("export", source, f"{folder}/", "--license", "mit", "--trained-on", "91 smileys")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "model.safetensors"]
    text = (folder / "README.md").read_text()
    assert 'license: "mit"\n' in text and "| trained on | 91 smileys |" in text
    assert_same_weights(load_generator(folder), load_generator(source))
    assert stylegan("export", source, folder, "--noise", "none").exit_code == 2
    assert stylegan("export", source, tmp_path / "a.pt2", "--license", "mit").exit_code == 2
