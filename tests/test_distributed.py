"""Two processes against one with the same total batch."""

import numpy as np
import pytest
import torch
from helpers.linear_generator import KINDS, measured
from helpers.measuring import scores
from helpers.pictures import save_picture
from helpers.processes import free_port, spawned
from helpers.runs import log_of
from helpers.tiny_generators import assert_same_weights
from helpers.tiny_training import differing, train_tiny
from helpers.two_processes import (
    BATCH,
    COMPARED,
    MOVED,
    STAGES,
    config_of,
    fed,
    strengths,
    trained,
    work,
)

from stylegan.data import Preparation, cached_store
from stylegan.files import checkpoint
from stylegan.files.run_folder import RunFolder


def gray_store(folder):
    """Sixteen images, each of one brightness of its own."""
    for i in range(16):
        save_picture(folder / f"{i:02d}.png", np.full((16, 16, 3), i, np.uint8))
    return cached_store(folder, Preparation(resolution=16), cache_dir=folder.parent / "cache")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return gray_store(tmp_path_factory.mktemp("data") / "gray")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, store, faces):
    """Where two processes have left their results."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "store").symlink_to(store.path)
    (folder / "faces").symlink_to(faces.path)
    train_tiny(MOVED, store, folder / "moved", stop_at=60)
    spawned(work, (free_port(), str(folder)), 2)
    return folder


@pytest.fixture(scope="module")
def results(folder):
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


NETWORKS = ("generator", "discriminator", "generator_ema")


@pytest.mark.parametrize("name", COMPARED)
def test_train_step_on_two_processes_equals_one_process(name, results):
    # With micro-batches as large as a process's share, the same images share a deviation group.
    config = config_of(name, batch_gpu=BATCH // 2 if name == "deviation" else 0)
    alone, (together, other) = trained(config), (result["steps"][name] for result in results)
    assert name != "ada" or alone["strength"]["probability"] > 0
    for network in NETWORKS:
        assert_same_weights(alone[network], together[network], atol=1e-9)
    assert together["images_seen"] == alone["images_seen"] == BATCH * len(STAGES)
    assert together["skipped_g"] == together["skipped_d"] == 0
    assert together["generator"]["w_avg"].abs().max() > 0
    assert differing(together, other) == []


def test_augment_strength_on_two_processes_equals_one_process(results):
    alone, first, second = strengths(), results[0]["strengths"], results[1]["strengths"]
    assert first == second
    assert first == pytest.approx(alone, rel=0, abs=1e-9)
    assert max(alone) > 0


def test_process_group_works_next_to_the_group_of_a_script(results):
    for result in results:
        assert result["agreed"] == [(1, [0, 1], True)] * 2


def test_batches_of_two_processes_are_disjoint_halves(results, store):
    alone, first, second = fed(store), results[0]["fed"], results[1]["fed"]
    for whole, a, b in zip(alone, first, second, strict=True):
        assert a + b == whole
        assert not set(a) & set(b)
    assert sorted(alone[0] + alone[1]) == list(range(16))  # one epoch shows each image once


def test_handle_signals_stops_both_processes_and_they_resume(results, folder):
    first, second = (result["stopped"][0] for result in results)
    (signal_number, stopped_at), end = first
    assert first == second and signal_number == 2 and end == (0, 168)
    assert 48 <= stopped_at < 168  # they ask each other twice in a second
    assert differing(results[0]["stopped"][1], results[1]["stopped"][1]) == []
    out = folder / "run"
    events = [e for line in log_of(out) if (e := line["event"]) not in ("progress", "saved")]
    assert events == ["start", "stopped", "resume", "finished"]  # only one process writes
    progress = [line["images_seen"] for line in log_of(out, "progress")]
    assert progress == [*range(4, 157, 4), 168]  # the last steps have the line of the end
    saved = checkpoint.load(RunFolder(out).states()[-1])
    assert differing(saved["generator_ema"], results[0]["stopped"][1]["generator_ema"]) == []


def schedule_of(out):
    """Where the run was at each line of its log."""
    return [
        {k: v for k, v in line.items() if k.startswith(("images_seen", "schedule/"))}
        for line in log_of(out, "progress")
    ]


def test_resume_with_two_processes_keeps_the_schedule_of_one(results, folder, store):
    assert [result["continued"][1] for result in results] == [108, 108]
    told, silent = (result["continued"][0] for result in results)  # one process speaks for all
    assert "the run continues with processes 1 -> 2" in told[0]
    assert "continuing from " in told[-1] and "state-000000060.pt" in told[-1]
    assert silent == []
    train_tiny(MOVED, store, folder / "alone")
    assert schedule_of(folder / "moved") == schedule_of(folder / "alone")
    saved = checkpoint.load(RunFolder(folder / "moved").states()[-1])
    assert saved["processes"] == 2
    assert saved["config"]["schedule"]["num_processes"] == 1  # whose batch table stays


def test_metrics_on_two_processes_equal_one_process(results, folder):
    first, second = (result["scores"] for result in results)
    assert first == second
    for kind, values in scores(folder, "cache of one").items():
        assert first[kind] == pytest.approx(values, rel=1e-5)  # of features in float32


def test_path_lengths_and_entropies_are_equal_on_two_processes(results, tmp_path):
    """Both families."""
    alone = measured(tmp_path, 16)
    for together in (result["lengths"] for result in results):
        for kind in KINDS:
            np.testing.assert_allclose(together.lengths[kind], alone.lengths[kind], rtol=1e-9)
        assert together.entropies == alone.entropies


def test_evaluate_fails_on_all_ranks_if_one_rank_fails(results):
    refused = [], ["swd9 could not be measured: the last disk is full"]
    assert [result["full disk"] for result in results] == [refused] * 2
