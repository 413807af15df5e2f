"""Files of older commits load, and their runs continue as they did: one of before the first
format was settled, and a store, a run, a generator and features of 871c5d9.

assets/old_run: 10 random images of 8x8 in two classes (`store/`); a run that was stopped at image
52 (`run/`); the state and the generator with which it finished, at image 60.

assets/files_of_871c5d9, by PyTorch 2.14.1 on one thread: the same of images without classes and
with ADA, the features that metrics kept (`cache/`), and seeds 0 to 3 of its generator, uint8
(4, 3, 8, 8) (`pictures.npy`). Neither is written anew: they must open after every change.
"""

import os
import shutil

import numpy as np
import pytest
import torch
from helpers import ROOT
from helpers.commands import run_ok
from helpers.pictures import names_of
from helpers.runs import json_lines
from helpers.tiny_generators import assert_same_weights
from helpers.tiny_training import differing, flat, train_tiny

from stylegan import load_generator
from stylegan.config import flatten, load_config, unflatten
from stylegan.data import Store
from stylegan.files import checkpoint

ASSETS = ROOT / "tests" / "assets"
FOLDER, OF_871C5D9 = ASSETS / "old_run", ASSETS / "files_of_871c5d9"
STOPPED, END = 52, 60  # images
STATE, LAST = (f"state-{images:09}.pt" for images in (STOPPED, END))
GENERATOR = "generator-000000040.pt"
# A bias before a normalization, with next to no gradient: how a processor rounds it decides where
# Adam takes the bias. And what follows from it: its average and its second moment.
DRIFTS = {
    "/generator/synthesis.input.epilogue0.bias",
    "/generator_ema/synthesis.input.epilogue0.bias",
    "/g_optimizer/state/4/exp_avg_sq",
}


@pytest.fixture(scope="module", params=[FOLDER, OF_871C5D9], ids=lambda folder: folder.name)
def continued(request, tmp_path_factory):
    """The files of an old run, and its last state as the program of today continues to it."""
    folder = request.param
    out = tmp_path_factory.mktemp("old") / "run"
    shutil.copytree(folder / "run", out)
    store = Store(shutil.copytree(folder / "store", out.parent / "store"))
    train_tiny(load_config(out / "config.toml"), store, out)
    return folder, state_of(out / LAST)


def state_of(path):
    """Content of a state file, options by their present names, without this machine's threads."""
    payload = checkpoint.load(path)
    return payload | {"config": unflatten(flatten(payload["config"])), "threads": 0}


def compared_tensors(found, expected):
    """Name and both tensors of what is to be compared; everything else must be equal."""
    found, expected = flat(found), flat(expected)
    assert found.keys() >= expected.keys()
    newer = found.keys() - expected.keys()
    added = "/config/", "/label_rows", "/best_by", "/num_images"
    assert not {name for name in newer if not name.startswith(added)}
    tensors = {name for name, value in expected.items() if isinstance(value, torch.Tensor)}
    for name in expected.keys() - tensors:
        assert found[name] == expected[name], name
    return [(name, found[name], expected[name]) for name in sorted(tensors)]


def test_resume_of_an_old_run_reaches_the_same_state(continued):
    """Two steps later, by a tenth of the way: where rounding decides on which side of 0 a number
    is, its slope is another, and Adam makes small gradients large."""
    folder, state = continued
    before = flat(state_of(folder / "run" / STATE))
    for name, now, then in compared_tensors(state, state_of(folder / LAST)):
        if not then.is_floating_point():  # what is drawn and counted, by every processor
            assert torch.equal(now, then), name
        elif name not in DRIFTS:
            assert (now - then).norm() <= 0.1 * (then - before[name]).norm(), name


@pytest.mark.skipif("EXACT" not in os.environ, reason="other processors round otherwise")
def test_resume_of_an_old_run_is_bit_identical(continued):
    folder, state = continued
    then = state_of(folder / LAST)
    assert not [name for name in differing(state, then) if name in flat(then)]  # less new options


@pytest.mark.parametrize(
    "file",
    [FOLDER / f"generator-{END:09}.pt", OF_871C5D9 / "run" / GENERATOR],
    ids=["old", "of 871c5d9"],
)
def test_load_generator_reads_old_generator_files(file):
    generator = load_generator(file).generator
    weights = checkpoint.load(file)["weights"]
    assert_same_weights(generator, weights)


def test_store_of_an_old_version_has_the_same_images():
    store = Store(OF_871C5D9 / "store")
    pictures = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 3), np.uint8)
    order = [int(name.split("/")[1].removesuffix(".png")) for name in names_of(store)]
    assert sorted(order) == list(range(10))
    assert np.array_equal(store.images(8), pictures[order].transpose(0, 3, 1, 2))


def test_load_generator_of_an_old_run_generates_the_same_samples():
    expected = np.load(OF_871C5D9 / "pictures.npy").astype(int)
    pictures = load_generator(OF_871C5D9 / "run" / GENERATOR).sample(range(4)).numpy()
    assert abs(pictures - expected).max() <= 1  # gray level
    assert load_generator(OF_871C5D9 / "run").origin.endswith(STATE)  # which is newer


def test_metrics_finds_cached_features_of_an_old_version(tmp_path, monkeypatch):
    """Beside those of another version of PyTorch they are computed anew, as they may differ."""
    cache = shutil.copytree(OF_871C5D9 / "cache", tmp_path / "cache")
    out = shutil.copytree(OF_871C5D9 / "run", tmp_path / "run")
    (out / STATE).unlink()  # newer than the generator that was measured
    store = shutil.copytree(OF_871C5D9 / "store", tmp_path / "store")
    monkeypatch.setenv("STYLEGAN_CACHE", str(cache))
    (before,) = json_lines(out / "metrics.jsonl")
    monkeypatch.setattr(torch, "__version__", before["protocol"]["versions"]["torch"])
    run_ok("metrics", out, "--data", store, "--metrics", "eff-fd20", "--device", "cpu")
    assert json_lines(out / "metrics.jsonl")[-1]["values"] == pytest.approx(
        before["values"], rel=1e-3
    )
    assert [path.name for path in (cache / "metrics").iterdir()] == [
        path.name for path in (OF_871C5D9 / "cache" / "metrics").iterdir()
    ]


def test_info_and_report_read_an_old_run(tmp_path):
    out = shutil.copytree(OF_871C5D9 / "run", tmp_path / "run")
    assert "1 generator and 2 state files" in run_ok("info", out)
    run_ok("report", out)
    assert "eff-fd20" in (out / "report.html").read_text()
