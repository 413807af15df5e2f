"""TensorBoard files, read back with TensorBoard's own reader."""

import io
import json
import math
import os
import resource
import threading

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_training import SHORT, run, tiny_config, tiny_store

from stylegan.config import from_dict
from stylegan.data import cached_store
from stylegan.files import checkpoint
from stylegan.networks import Discriminator, Generator
from stylegan.run_folder import RunFolder
from stylegan.training.tensorboard import TensorBoard

LOSSES = {
    "d/fake_logits",
    "d/real_logits",
    "d/real_signs",
    "d/logistic_fake",
    "d/logistic_real",
    "d/r1_penalty",
    "d/r2_penalty",
    "g/nonsaturating",
}
RATES = {"schedule/resolution", "schedule/alpha", "schedule/batch_size"}
RATES |= {"schedule/g_lr", "schedule/d_lr"}
SPEED = {"speed/images_per_second", "speed/data_wait_share", "health/skipped_updates"}
SPEED |= {"augment/probability"}


def events(folder):
    """All events of a run, none left out."""
    sizes = dict.fromkeys(("scalars", "images", "histograms"), 0)
    return EventAccumulator(str(folder / "tensorboard"), sizes).Reload()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tiny_store(tmp_path_factory.mktemp("data"))


SCHEDULE = {**SHORT, "g_lr": {4: 0.002, 16: 0.003}, "d_lr": {4: 0.001}}


def recorded(store, out, options=None, **changes):
    """A run with events, and with what else is asked for."""
    config = tiny_config(schedule=SCHEDULE, r2_gamma=1.0, **changes)
    run(config, store, out, **{"track": "tensorboard"} | (options or {}))
    return out


@pytest.fixture(scope="module")
def plain(store, tmp_path_factory):
    """A run without further wishes."""
    return recorded(store, tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def rich(store, tmp_path_factory):
    """A run with everything that can be asked for."""
    everything, out = {"histograms": True, "graph": True}, tmp_path_factory.mktemp("rich") / "run"
    return recorded(store, out, everything, data={"labels": True})


def test_every_loss_logit_rate_and_speed_is_a_scalar_at_every_line_of_the_log(plain):
    reader = events(plain)
    assert set(reader.Tags()["scalars"]) == LOSSES | RATES | SPEED
    lines = [json.loads(line) for line in (plain / "log.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["event"] == "progress"]
    assert [line["images_seen"] for line in lines] == [4, 8, 12]
    for name in reader.Tags()["scalars"]:
        found = [(event.step, event.value) for event in reader.Scalars(name)]
        expected = [(line["images_seen"], np.float32(line[name])) for line in lines]
        assert found == expected, name


def test_the_scalars_of_the_schedule_are_its_values(plain):
    reader = events(plain)
    for name, values in {
        "schedule/resolution": [8, 16, 16],
        "schedule/alpha": [1, 0.5, 1],
        "schedule/batch_size": [4, 4, 4],
        "schedule/g_lr": [0.002, 0.003, 0.003],
        "schedule/d_lr": [0.001, 0.001, 0.001],
        "health/skipped_updates": [0, 0, 0],
    }.items():
        assert [event.value for event in reader.Scalars(name)] == pytest.approx(values), name
    assert all(event.value > 0 for event in reader.Scalars("speed/images_per_second"))
    assert all(0 <= event.value <= 1 for event in reader.Scalars("speed/data_wait_share"))


def test_the_grids_of_samples_and_reals_are_images(plain):
    reader = events(plain)
    assert sorted(reader.Tags()["images"]) == ["reals", "samples"]
    assert [event.step for event in reader.Images("reals")] == [0]
    assert [event.step for event in reader.Images("samples")] == [8, 12]
    for name, path in (("reals", "reals.png"), ("samples", "samples/000000.png")):
        last = reader.Images(name)[-1]
        with (
            Image.open(io.BytesIO(last.encoded_image_string)) as shown,
            Image.open(plain / path) as written,
        ):
            assert np.array_equal(np.asarray(shown), np.asarray(written))


def test_histograms_and_the_graph_are_there_only_when_asked_for(plain):
    tags = events(plain).Tags()
    assert tags["histograms"] == []
    assert tags["graph"] is False


def test_histograms_hold_every_weight_and_the_gradients_of_those_in_use(rich):
    reader = events(rich)
    state = checkpoint.load(RunFolder(rich).states()[-1])
    config = from_dict(state["config"]).network
    networks = {"generator": Generator(config), "discriminator": Discriminator(config)}
    weights, unused = set(), set()
    for network, module in networks.items():
        module.load_state_dict(state[network])
        for name, weight in module.named_parameters():
            weights.add(f"{network}/{name}")
            if "rgb.4." in name:  # training began at 8x8
                unused.add(f"{network}/{name}")
            first, last = reader.Histograms(f"{network}/{name}")
            assert (first.step, last.step) == (8, 12)
            values = last.histogram_value
            assert values.num == weight.numel()
            assert values.sum == pytest.approx(weight.double().sum().item(), rel=1e-5, abs=1e-5)
            assert values.max == pytest.approx(weight.max().item())
    assert len(unused) == 4
    gradients = {name.replace("/", "_gradient/") for name in weights - unused}
    assert set(reader.Tags()["histograms"]) == weights | gradients


def test_the_graph_is_the_generators(rich):
    reader = events(rich)
    assert reader.Tags()["graph"] is True
    nodes = {node.name for node in reader.Graph().node}
    assert any("mapping" in name for name in nodes)
    assert any("synthesis" in name for name in nodes)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("how_many", ["one", "all"])
def test_a_gradient_that_is_not_finite_does_not_stop_the_histograms(tmp_path, bad, how_many):
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    for weight in network.parameters():
        weight.grad = torch.ones_like(weight)
    if how_many == "all":
        network[0].weight.grad.fill_(bad)
    else:
        network[0].weight.grad[0, 0] = bad
    board = TensorBoard(RunFolder(tmp_path).tensorboard, print)
    board.histograms("network", network, 5)
    reader = events(tmp_path)
    tags = set(reader.Tags()["histograms"])
    names = {name for name, _ in network.named_parameters()}
    gradients = {f"network_gradient/{name}" for name in names}
    assert {f"network/{name}" for name in names} <= tags
    assert gradients - {"network_gradient/0.weight"} <= tags
    (event,) = reader.Histograms("network_gradient/1.weight")
    assert (event.step, event.histogram_value.num, event.histogram_value.sum) == (5, 2, 2)
    if how_many == "one":
        (event,) = reader.Histograms("network_gradient/0.weight")
        assert (event.histogram_value.num, event.histogram_value.sum) == (5, 5)


def test_a_finished_run_adds_no_events(store, plain):
    before = {path: path.read_bytes() for path in plain.rglob("*") if path.is_file()}
    recorded(store, plain)
    assert {path: path.read_bytes() for path in plain.rglob("*") if path.is_file()} == before


def test_what_the_disk_refuses_is_told_once_and_later_events_are_written(tmp_path):
    told, threads = [], threading.active_count()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    board = TensorBoard(RunFolder(tmp_path).tensorboard, told.append)
    try:
        for step, size in enumerate([limit[0], 150, 10, limit[0], limit[0]]):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
            board.scalars({"a": 1.0, "b": 2.0}, step)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [event.step for event in events(tmp_path).Scalars("b")] == [0, 3, 4]
    (line,) = told
    assert line == f"could not write TensorBoard's events: {os.strerror(27)}; going on, and " + (
        "trying again"
    )
    assert threading.active_count() == threads


def test_a_file_where_the_events_should_be_does_not_stop_a_run(store, tmp_path):
    told = []
    (tmp_path / "tensorboard").touch()
    board = TensorBoard(RunFolder(tmp_path).tensorboard, told.append)
    board.scalars({"a": 1.0}, 0)
    assert len(told) == 1 and "File exists" in told[0]


@pytest.mark.parametrize("channels", [1, 4])
def test_images_of_other_channels_are_shown(store, tmp_path, channels):
    other = cached_store(
        store.origin, resolution=16, channels=channels, cache_dir=tmp_path / "cache"
    )
    reader = events(recorded(other, tmp_path / "run", network={"image_channels": channels}))
    for name in ("reals", "samples"):
        event = reader.Images(name)[-1]
        assert (event.width, event.height) == (8 * 16, (2 if name == "reals" else 4) * 16)


def test_without_tensorboard_there_are_no_events(store, tmp_path):
    recorded(store, tmp_path, {"track": "none", "histograms": True, "graph": True})
    assert not (tmp_path / "tensorboard").exists()
    assert (tmp_path / "log.jsonl").exists()
