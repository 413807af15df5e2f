"""Curves and pictures in other programs: read back with their own readers and formats."""

import math
import struct
import sys
import time

import pytest
import torch
from tiny_training import SHORT, run, tiny_config, tiny_store

from stylegan.records import read_lines
from stylegan.run_folder import RunFolder
from stylegan.training.trackers import tracker

NAMES = {"g/nonsaturating", "d/real_logits", "schedule/g_lr", "speed/images_per_second"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tiny_store(tmp_path_factory.mktemp("data"))


def trained(store, out, kind, **changes):
    run(tiny_config(schedule=SHORT, **changes), store, out, track=kind)
    return [
        line for line in read_lines(out / "log.jsonl", "event")[0] if line["event"] == "progress"
    ]


def blocks(content):
    """The parts of a log in LevelDB's format, after wandb's own 7 bytes."""
    at, kept = 7, b""
    while at + 7 <= len(content):
        if (left := 2**15 - at % 2**15) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        kept += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield kept
            kept = b""


def history(folder):
    """What wandb wrote offline: a dictionary of texts for each step. A process of its own writes,
    the exit last."""
    from wandb.proto.wandb_internal_pb2 import Record

    end = time.monotonic() + 60
    while True:
        content = b"".join(p.read_bytes() for p in folder.glob("wandb/offline-run-*/*.wandb"))
        records = [Record.FromString(block) for block in blocks(content)]
        if any(r.WhichOneof("record_type") == "exit" for r in records) or time.monotonic() > end:
            break
        time.sleep(0.2)
    rows = [record.history.item for record in records if record.history.item]
    return [{i.key or "/".join(i.nested_key): i.value_json for i in items} for items in rows]


@pytest.mark.slow
def test_a_run_in_wandb_has_the_numbers_of_the_log(store, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    out = tmp_path / "run"
    lines = trained(store, out, "wandb")
    rows = history(out)
    numbers = [row for row in rows if "g/nonsaturating" in row]
    assert [int(row["images_seen"]) for row in numbers] == [line["images_seen"] for line in lines]
    for name in NAMES:
        assert [float(row[name]) for row in numbers] == [line[name] for line in lines]
    assert sum("reals/_type" in row for row in rows) == 1 and any(
        "samples/_type" in r for r in rows
    )
    assert list(out.glob("wandb/*/files/media/images/samples_*.png"))
    assert not (out / "tensorboard").exists()


def test_a_run_in_mlflow_goes_on_as_the_same_run(store, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    out, longer = tmp_path / "run", {**SHORT, "total_kimg": 2 * SHORT["total_kimg"]}
    trained(store, out, "mlflow")
    run(tiny_config(schedule=longer), store, out, track="mlflow")
    lines = [one for one in read_lines(out / "log.jsonl", "event")[0] if one["event"] == "progress"]
    client = mlflow.MlflowClient()
    group = client.get_experiment_by_name("stylegan").experiment_id
    (found,) = client.search_runs([group])
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert found.data.params["network.resolution"] == "16"
    for name in NAMES:
        shown = [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, name)]
        assert shown == [(line["images_seen"], line[name]) for line in lines]
    assert client.list_artifacts(found.info.run_id, "samples")


def test_what_a_server_refuses_is_told_once_and_training_goes_on(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    (tmp_path / "log.jsonl").write_text("{}\n")
    told: list[str] = []
    shown = tracker("mlflow", RunFolder(tmp_path), tiny_config(), told.append)
    shown.begin()
    shown.scalars({"a": 1.0, "b": math.nan}, 1)
    whole = shown.client

    class Broken:
        def __getattr__(self, name):
            raise mlflow.exceptions.MlflowException("the server is gone")

    shown.client = Broken()
    shown.scalars({"a": 2.0}, 2)
    shown.picture("samples", torch.zeros(3, 8, 8, dtype=torch.uint8), 2)
    shown.client = whole
    shown.scalars({"a": 3.0}, 3)
    assert told == [
        "could not write MLflow's events: the server is gone; going on, and trying again"
    ]
    assert [m.step for m in whole.get_metric_history(shown.run, "a")] == [1, 3]
    assert not whole.get_metric_history(shown.run, "b")


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_a_package_that_is_not_there_is_named_before_anything_is_written(
    store, tmp_path, monkeypatch, kind
):
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(ValueError, match=rf"pip install 'stylegan\[{kind}\]'"):
        trained(store, tmp_path / "run", kind)
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_server_that_cannot_be_reached_at_the_start_is_an_error(store, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ValueError, match="mlflow did not begin"):
        trained(store, tmp_path / "run", "mlflow")
