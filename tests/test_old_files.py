"""Files of an older commit (see assets/old_run/README.md) load, and the run continues as it did."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from tiny_training import differing, flat, run

from stylegan import load_generator
from stylegan.config import from_dict, read_stored_config, to_dict
from stylegan.data import Store
from stylegan.files import checkpoint

OLD = Path(__file__).parent / "assets" / "old_run"
EARLY, FINISHED = "state-000000060.pt", "state-000000120.pt"
# Before a normalization, with next to no gradient: how a processor rounds it decides where Adam
# takes the bias.
DRIFTS = "/generator/synthesis.input.epilogue0.bias"


@pytest.fixture(scope="module")
def continued(tmp_path_factory):
    """States of the old run, continued by the program of today: three steps later, and its end."""
    out = tmp_path_factory.mktemp("old") / "run"
    shutil.copytree(OLD / "run", out)
    config, store = read_stored_config(out / "config.toml"), Store(OLD / "store")
    run(config, store, out, stop_at=60)
    early = state_of(out / EARLY)
    run(config, store, out)
    return early, state_of(out / FINISHED)


def state_of(path):
    """What a state file holds, but for the number of threads, which is this machine's."""
    payload = checkpoint.load(path) | {"threads": 0}
    return payload | {"config": to_dict(from_dict(payload["config"]))}


def compared_tensors(found, expected):
    """Name and both tensors of what is to be compared; everything else must be equal."""
    found, expected = flat(found), flat(expected)
    assert found.keys() == expected.keys()
    tensors = {name for name, value in expected.items() if isinstance(value, torch.Tensor)}
    for name in expected.keys() - tensors:
        assert found[name] == expected[name], name
    return [(name, found[name], expected[name]) for name in sorted(tensors)]


def test_an_old_run_continues_to_the_same_state(continued):
    early, end = continued
    for name, now, then in compared_tensors(early, state_of(OLD / EARLY)):
        if name != DRIFTS:
            torch.testing.assert_close(now, then, rtol=1e-3, atol=1e-5, msg=name)
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
