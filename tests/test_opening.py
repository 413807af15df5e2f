"""One way to open weights: damaged and hostile files, what is not a number, runs, commands."""

import copy
import json
import math
import shlex

import numpy as np
import pytest
import torch
from helpers import foreign_layouts
from helpers.commands import pixels, refused, stylegan, told
from helpers.official import dumps, network_class, snapshot_objects
from helpers.tiny_generators import LABELED, TINY, assert_same_weights, loaded_of, random_generator
from helpers.tiny_training import merge, tiny_config, write_pictures

import hubconf
from stylegan import load_generator
from stylegan.config import build_config, to_dict
from stylegan.files import checkpoint
from stylegan.files.formats.own import save_generator, save_loaded, save_safetensors
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.interop import load_official
from stylegan.networks import Discriminator
from stylegan.training import TrainState
from stylegan.training.transfer import initialize_from

ABSENT = object()
HUGE = 10**400  # no float


def state_payload(images_seen=4):
    """The payload of a state, whose discriminator knows the number of images."""
    state = TrainState.create(tiny_config())
    state.discriminator.head.out.bias.data.fill_(images_seen)
    return {**state.to_payload(), "images_seen": images_seen, "label_rows": None}


def changed(payload, path, value):
    """The payload with another value at a path of keys, or without that key."""
    key, *rest = path
    copy = dict(payload)
    if rest:
        copy[key] = changed(payload[key], rest, value)
    elif value is ABSENT:
        del copy[key]
    else:
        copy[key] = value
    return copy


HOSTILE_STATES = [
    (["config"], ABSENT),
    (["config", "network", "z_dim"], 6.0),
    (["config", "schedule", "batch_size"], 5),
    (["images_seen"], HUGE),
    (["generator", "w_avg"], torch.zeros(3)),
    (["lineage"], {"source": "x"}),
    (["active_rectangle"], [0, HUGE, 0, HUGE]),
    (["config", "data", "crop"], "round"),
]


@pytest.mark.parametrize(("path", "value"), HOSTILE_STATES)
def test_a_hostile_state_is_named_and_the_one_before_is_taken(tmp_path, path, value):
    good, bad = tmp_path / "state-000000004.pt", tmp_path / "state-000000008.pt"
    checkpoint.save(good, "state", state_payload(4))
    checkpoint.save(bad, "state", changed(state_payload(8), path, value))
    for need in ("pictures", "training", "discriminator"):
        with pytest.raises(ValueError, match=r"state-000000008\.pt") as refusal:
            open_weights(bad, need=need)
        assert len(str(refusal.value)) < 1000
        weights = open_weights(tmp_path, need=need)
        assert weights.file == good
        assert weights.left_out == (str(refusal.value),)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["config", "z_dim"], "8"),
        (["config", "equalized"], 1),
        (["resolution"], HUGE),
        (["resolution"], None),
        (["alpha"], math.nan),
        (["psi"], HUGE),
        (["cutoff"], HUGE),
        (["cutoff"], "all"),
        (["images_seen"], "many"),
        (["label_names"], {"a": 0}),
        (["centers"], torch.zeros(2, 3)),
        (["trained_on"], True),
        (["trained_on"], {"crop": "round"}),
        (["trained_on"], {"mirror": 1}),
        (["trained_on"], {"mirrored": True}),
        (["weights", "w_avg"], torch.zeros(8, dtype=torch.complex64)),
    ],
)
def test_a_hostile_generator_is_named_and_the_one_before_is_taken(tmp_path, path, value):
    good, bad = tmp_path / "generator-000000004.pt", tmp_path / "generator-000000008.pt"
    save_generator(good, random_generator())
    payload = changed(torch.load(good, weights_only=True), path, value)
    torch.save(payload, bad)
    with pytest.raises(ValueError, match=r"generator-000000008\.pt"):
        load_generator(bad)
    assert (
        f"not used: {bad} is a generator file that cannot be used"
        in open_weights(tmp_path).loaded.origin
    )


def test_every_opener_leaves_a_damaged_newest_state(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    good, bad = run / "state-000000004.pt", run / "state-000000008.pt"
    checkpoint.save(good, "state", state_payload(4))
    checkpoint.save(bad, "state", state_payload(8))
    data = bad.read_bytes()
    middle = len(data) // 2
    bad.write_bytes(data[:middle] + bytes(1000) + data[middle + 1000 :])
    expected = open_weights(good).discriminator
    assert_same_weights(hubconf.discriminator(run), expected)
    state = TrainState.create(tiny_config())
    lines = initialize_from(state, run)
    assert_same_weights(state.discriminator, expected)
    assert any(line.startswith(f"not used: {bad} is damaged") for line in lines)
    assert [source.source for source in state.lineage] == ["run/state-000000004.pt"]
    told("convert", run, tmp_path / "g.pt", "--discriminator", tmp_path / "d.pt")
    assert_same_weights(hubconf.discriminator(tmp_path / "d.pt"), expected)
    assert f"state file {good}" in told("info", run)


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
            payload = state_payload()
            payload["generator_ema"]["mapping.layers.1.bias"][0] = math.inf
            checkpoint.save(path, "state", payload)
        case "pkl":
            objects = snapshot_objects(network_class(monkeypatch))
            for name, array in objects[2].components["mapping"].variables:
                if name == "Dense1/bias":
                    array[0] = np.nan
            path.write_bytes(dumps(objects))
            return path, "G_mapping/Dense1/bias"
        case "pth":
            tensors = foreign_layouts.weights(foreign_layouts.load("genforce")[0]["generator"])
            tensors["mapping.dense1.bias"][0] = math.nan
            torch.save(tensors, path)
            return path, "mapping.dense1.bias"
    return path, "mapping.layers.1.bias"


@pytest.mark.parametrize("kind", ["pt", "state.pt", "safetensors", "pkl", "pth"])
def test_weights_that_are_not_numbers_are_refused_by_every_command(kind, tmp_path, monkeypatch):
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
        message = refused(*command)
        assert path.name in message
        assert f"{tensor} holds 1 number of " in message
        assert "NaN or infinite" in message
    assert not out.exists()
    assert not list(tmp_path.glob("new*"))


def test_an_official_snapshot_says_so_in_python_too(tmp_path, monkeypatch):
    path, tensor = broken_file("pkl", tmp_path, monkeypatch)
    with pytest.raises(ValueError, match=rf"broken\.pkl cannot be used: {tensor} holds 1 number"):
        load_official(path)


@pytest.mark.parametrize("name", ["faces64", "glyphs64"])
def test_random_weights_have_no_past(name):
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
def test_a_file_of_a_run_is_measured_as_its_run(run, tmp_path, with_data):
    data = ["--data", tmp_path / "pictures"] if with_data else []
    results = []
    for source in (run.path, run.best_generator, run.generator_file(4)):
        command = ["metrics", source, "--metrics", "swd4", "--device", "cpu", "--json", *data]
        results.append(json.loads(told(*command)))
    for result in results:
        assert result["protocol"]["reals"] == results[0]["protocol"]["reals"]
        assert result["values"] == results[0]["values"]
    assert results[1]["protocol"]["reals"]["mirror"] is True
    assert results[1]["protocol"]["reals"]["images"] == 4  # of the eight, those that it used
    assert len(run.metrics_file.read_text().splitlines()) == 3


def test_neighbors_of_a_file_of_a_run_are_those_of_its_run(run, tmp_path):
    drawn = []
    for name, source in (("run", run.path), ("file", run.best_generator)):
        picture = tmp_path / f"{name}.png"
        options = ["--rows", 2, "--nearest", 2, "--out", picture]
        told("figure", "neighbors", source, *options)
        drawn.append(pixels(picture))
    assert np.array_equal(*drawn)


def test_the_run_of_a_file_is_that_of_its_folder_and_a_name_has_none(run, tmp_path, monkeypatch):
    assert RunFolder.of(run.best_generator).path == run.path
    assert RunFolder.of(run.path).path == run.path
    monkeypatch.chdir(run.path)
    for source in ("faces64", tmp_path, tmp_path / "pictures", "https://host.invalid/a.pt"):
        assert RunFolder.of(source) is None


def test_the_commands_of_info_can_be_pasted_one_by_one(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "mine; touch y.pt"
    save_generator(tmp_path / name, random_generator())
    folder = run.path.rename(tmp_path / "my $(run)")
    for source, expected in (
        (name, [["generate", name], ["train", "--init-from", name]]),
        (folder, [["generate", str(folder)], ["train", "--out", str(folder)]]),
    ):
        lines = [line for line in told("info", source).splitlines() if "  stylegan " in line]
        commands = [shlex.split(line[line.index("stylegan") :]) for line in lines]
        assert commands == [["stylegan", *words] for words in expected]


def test_sample_shows_the_classes_in_turn_as_the_command_does(tmp_path):
    path = tmp_path / "classes.pt"
    save_generator(path, random_generator(LABELED))
    told("generate", path, "--seeds", "0-4", "--device", "cpu", "--out", tmp_path)
    sampled = load_generator(path).sample(range(5)).permute(0, 2, 3, 1).numpy()
    for seed in range(5):
        assert np.array_equal(sampled[seed], pixels(tmp_path / f"seed{seed:04d}.png")), seed


def test_a_call_shows_a_growing_network_as_far_as_it_has_grown(tmp_path):
    network = random_generator()
    save_generator(tmp_path / "grows.pt", network, resolution=8, alpha=0.25)
    grows = load_generator(tmp_path / "grows.pt")
    z = torch.randn(2, TINY.z_dim)

    def image(generator, **stage):
        with torch.no_grad():
            return generator(z, noise="const", **stage)

    assert torch.equal(image(grows), image(network, resolution=8, alpha=0.25))
    assert torch.equal(image(grows.generator, resolution=8), image(network, resolution=8))
    assert torch.equal(image(grows.shown(resolution=16)), image(network))
    assert torch.equal(image(copy.deepcopy(grows)), image(grows))


def test_export_writes_a_folder_for_the_hub(source, tmp_path):
    folder = tmp_path / "shared"
    assert "pass --license" in refused("export", source, folder)
    assert not folder.exists()
    told("export", source, f"{folder}/", "--license", "mit", "--trained-on", "91 smileys")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "model.safetensors"]
    text = (folder / "README.md").read_text()
    assert "license: mit\n" in text and "| trained on | 91 smileys |" in text
    assert_same_weights(load_generator(folder), load_generator(source))
    assert "pass --overwrite" in refused("export", source, folder, "--license", "mit")
    assert stylegan("export", source, folder, "--noise", "none").exit_code == 2
    assert stylegan("export", source, tmp_path / "a.pt2", "--license", "mit").exit_code == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "is a Git LFS pointer: ",
        ),
        (b"\n<!DOCTYPE html>\n<title>Sign in</title>", "is a web page: "),
    ],
)
def test_what_came_in_place_of_a_file_is_named(source, tmp_path, content, words):
    """As weights, latents, a direction, an archive of pictures, and a picture."""
    there = tmp_path / "there"
    there.mkdir()
    for name in ("mine.pt", "mine.pkl", "mine.safetensors", "mine.npz", "mine.zip", "mine.png"):
        (there / name).write_bytes(content)
    for name in ("mine.pt", "mine.pkl", "mine.safetensors", "mine.npz"):
        assert f"{name} {words}" in refused("info", there / name)
    latents = ("generate", source, "--latents", there / "mine.npz", "--out", tmp_path / "out")
    assert f"mine.npz {words}" in refused(*latents)
    assert f"mine.zip {words}" in refused("check", there / "mine.zip")
    lines = stylegan("check", there).output
    assert f"the file {words}" in lines and "mine.png" in lines


def test_an_empty_name_is_no_name(source, tmp_path):
    """For Python an empty path is the current folder."""
    for words in [
        ("generate", source, "--out", ""),
        ("train", "--data", ""),
        ("train", "--out", ""),
        ("metrics", ""),
        ("generate", source, "--latents", ""),
    ]:
        assert "the name is empty" in refused(*words, exit_code=2)
    assert "there is no metric ''" in refused("metrics", source, "--metrics", "")
    assert "there is no metric ''" in refused("train", "--metrics", "", "--out", tmp_path / "a")


def test_nothing_is_made_of_nothing():
    generator = random_generator()
    with pytest.raises(ValueError, match="z must not be empty"):
        generator(torch.zeros(0, TINY.z_dim))
    with pytest.raises(ValueError, match="images must not be empty"):
        Discriminator(TINY)(torch.zeros(0, 3, 16, 16))
