"""Files of an older commit (see assets/old_run/README.md) load, and the run continues as it did."""

import os
import shutil

import pytest
import torch
from helpers.old_run import END, FOLDER, STOPPED
from helpers.tiny_generators import assert_same_weights
from helpers.tiny_training import differing, flat, run

from stylegan import load_generator
from stylegan.config import load_config
from stylegan.data import Store
from stylegan.files import checkpoint

STATE, LAST = (f"state-{images:09}.pt" for images in (STOPPED, END))
# A bias before a normalization, with next to no gradient: how a processor rounds it decides where
# Adam takes the bias. And what follows from it: its average and its second moment.
DRIFTS = {
    "/generator/synthesis.input.epilogue0.bias",
    "/generator_ema/synthesis.input.epilogue0.bias",
    "/g_optimizer/state/4/exp_avg_sq",
}


@pytest.fixture(scope="module")
def continued(tmp_path_factory):
    """The last state of the old run, continued by the program of today."""
    out = tmp_path_factory.mktemp("old") / "run"
    shutil.copytree(FOLDER / "run", out)
    run(load_config(out / "config.toml"), Store(FOLDER / "store"), out)
    return state_of(out / LAST)


def state_of(path):
    """What a state file holds, but for the number of threads, which is this machine's."""
    return checkpoint.load(path) | {"threads": 0}


def compared_tensors(found, expected):
    """Name and both tensors of what is to be compared; everything else must be equal."""
    found, expected = flat(found), flat(expected)
    assert found.keys() >= expected.keys()
    assert all(name.startswith("/config/") for name in found.keys() - expected.keys())  # newer ones
    tensors = {name for name, value in expected.items() if isinstance(value, torch.Tensor)}
    for name in expected.keys() - tensors:
        assert found[name] == expected[name], name
    return [(name, found[name], expected[name]) for name in sorted(tensors)]


def test_an_old_run_continues_to_the_same_state(continued):
    """Two steps later, by a tenth of the way: where rounding decides on which side of 0 a number
    is, its slope is another, and Adam makes small gradients large."""
    before = flat(state_of(FOLDER / "run" / STATE))
    for name, now, then in compared_tensors(continued, state_of(FOLDER / LAST)):
        if not then.is_floating_point():  # what is drawn and counted, by every processor
            assert torch.equal(now, then), name
        elif name not in DRIFTS:
            assert (now - then).norm() <= 0.1 * (then - before[name]).norm(), name


@pytest.mark.skipif("EXACT" not in os.environ, reason="other processors round otherwise")
def test_an_old_run_continues_bit_for_bit(continued):
    assert not differing(continued, state_of(FOLDER / LAST))


def test_an_old_generator_loads():
    generator = load_generator(FOLDER / f"generator-{END:09}.pt")
    weights = checkpoint.load(FOLDER / f"generator-{END:09}.pt")["weights"]
    assert_same_weights(generator, weights)
