"""Files of an older commit (see assets/old_run/README.md) load, and the run continues as it did."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from helpers.tiny_training import differing, flat, run

from stylegan import load_generator
from stylegan.config import load_config
from stylegan.data import Store
from stylegan.files import checkpoint

OLD = Path(__file__).parent / "assets" / "old_run"
START, EARLY, FINISHED = (f"state-{images:09}.pt" for images in (48, 60, 120))
# A bias before a normalization, with next to no gradient: how a processor rounds it decides where
# Adam takes the bias. And what follows from it: its average and its second moment.
DRIFTS = {
    "/generator/synthesis.input.epilogue0.bias",
    "/generator_ema/synthesis.input.epilogue0.bias",
    "/g_optimizer/state/4/exp_avg_sq",
}


@pytest.fixture(scope="module")
def continued(tmp_path_factory):
    """States of the old run, continued by the program of today: three steps later, and its end."""
    out = tmp_path_factory.mktemp("old") / "run"
    shutil.copytree(OLD / "run", out)
    config, store = load_config(out / "config.toml"), Store(OLD / "store")
    run(config, store, out, stop_at=60)
    early = state_of(out / EARLY)
    run(config, store, out)
    return early, state_of(out / FINISHED)


def state_of(path):
    """What a state file holds, but for the number of threads, which is this machine's."""
    return checkpoint.load(path) | {"threads": 0}


def compared_tensors(found, expected):
    """Name and both tensors of what is to be compared; everything else must be equal."""
    found, expected = flat(found), flat(expected)
    assert found.keys() == expected.keys()
    tensors = {name for name, value in expected.items() if isinstance(value, torch.Tensor)}
    for name in expected.keys() - tensors:
        assert found[name] == expected[name], name
    return [(name, found[name], expected[name]) for name in sorted(tensors)]


def test_an_old_run_continues_to_the_same_state(continued):
    """Three steps later, by a tenth of the way: where rounding decides on which side of 0 a number
    is, its slope is another, and Adam makes small gradients large."""
    early, end = continued
    before = flat(state_of(OLD / "run" / START))
    for name, now, then in compared_tensors(early, state_of(OLD / EARLY)):
        if not then.is_floating_point():
            assert torch.equal(now, then), name
        elif name not in DRIFTS:
            assert (now - then).norm() <= 0.1 * (then - before[name]).norm(), name
    for name, now, then in compared_tensors(end, state_of(OLD / FINISHED)):
        if not then.is_floating_point():  # what is drawn and counted, by every processor
            assert torch.equal(now, then), name


@pytest.mark.skipif("EXACT" not in os.environ, reason="other processors round otherwise")
def test_an_old_run_continues_bit_for_bit(continued):
    _, end = continued
    assert not differing(end, state_of(OLD / FINISHED))


def test_an_old_generator_loads():
    generator = load_generator(OLD / "generator-000000080.pt")
    weights = checkpoint.load(OLD / "generator-000000080.pt")["weights"]
    assert all(torch.equal(value, weights[name]) for name, value in generator.state_dict().items())
