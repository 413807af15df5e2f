"""Linear separability, against closed forms of the entropy."""

import math

import numpy as np
import pytest
import torch
from helpers.linear_generator import linear_samples

from stylegan.metrics import Measurement, Tools
from stylegan.metrics.separability import (
    attribute_entropies,
    conditional_entropy,
    most_confident,
    one_logit,
    score,
    separability,
)


def flip_entropy(p):
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


def table(counts):
    """Pairs of bools, `counts[given][told]` times."""
    pairs = [(g, t) for g in (0, 1) for t in (0, 1) for _ in range(counts[g][t])]
    given, told = np.array(pairs, bool).T
    return given, told


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([[30, 0], [0, 70]], 0),  # told exactly
        ([[0, 30], [70, 0]], 0),  # the sides may have any names
        ([[20, 20], [30, 30]], math.log(2)),  # independent: all entropy is kept
        ([[10, 30], [10, 30]], flip_entropy(0.25)),
        ([[90, 10], [10, 90]], flip_entropy(0.1)),  # a known rate of errors
        ([[40, 10], [60, 90]], 0.25 * flip_entropy(0.2) + 0.75 * flip_entropy(0.4)),
        ([[0, 0], [25, 75]], flip_entropy(0.25)),  # a single side
    ],
)
def test_conditional_entropy_has_its_closed_form(counts, expected):
    assert conditional_entropy(*table(counts)) == pytest.approx(expected)


def test_score_is_two_to_the_power_of_the_entropies_in_bits():
    entropies = {"a": 0.3, "b": math.log(2), "c": 0.0}
    assert score(entropies) == pytest.approx(2 ** (0.3 / math.log(2) + 1))
    assert score({}) == 1


@pytest.mark.parametrize(
    ("logits", "kept"),
    [
        ([0.1, -3, 2, -0.2, 1, -1.5], [1, 2, 5]),  # whatever they say
        ([12, -30, 1, 9.5, -11], [0, 1, 3]),  # probability 1 in float32, but for 1: the first
    ],
)
def test_most_confident_keeps_the_largest_logits(logits, kept):
    assert most_confident(np.array(logits, np.float32), 3).tolist() == kept


def test_one_logit_accepts_logits_of_all_shapes():
    logits = torch.randn(5)
    pair = torch.stack([-logits, logits], dim=1)
    for same in (logits, logits[:, None], pair, pair + 3):
        torch.testing.assert_close(one_logit(lambda images: images, "smile", same), logits)
    with pytest.raises(ValueError, match=r"smile must give .* not \(5, 3\)"):
        one_logit(lambda images: images, "smile", torch.zeros(5, 3))
    with pytest.raises(ValueError, match=r"smile must give .* not finite"):
        one_logit(lambda images: images, "smile", torch.tensor([1.0, math.nan]))
    with pytest.raises(ValueError, match=r"smile cannot classify \(2, 3\): "):
        one_logit(torch.nn.Linear(5, 1), "smile", torch.zeros(2, 3))


def direction(images):
    return images[:, 0, 0, 0]


def unrelated(images):
    return torch.sin(images[:, 0, 0, 0] * 1e6)  # changes its sign all the time


@pytest.fixture(scope="module")
def toy():
    """w = z = 4 coordinates, the first of which is the first pixel."""
    source = linear_samples(dim=4)
    source.samples.generator.matrix = torch.eye(16, 4, dtype=torch.float64) * torch.eye(4)[0]
    return source


def test_attribute_entropies_of_an_unrelated_attribute_score_two(toy, tmp_path):
    entropies = attribute_entropies(toy, {"a": unrelated, "b": direction}, 2000, tmp_path)
    for space in "zw":
        assert entropies[space]["b"] == 0
        assert score(entropies[space]) == pytest.approx(2, abs=0.02)
        assert score(entropies[space]) < 2


class Brightness(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, 0, 0, 0]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "bright.pt"
    with pytest.warns((DeprecationWarning, FutureWarning)):
        torch.jit.save(torch.jit.script(Brightness()), path)
    return path


def test_separability_of_a_torchscript_file_equals_the_function(toy, script, tmp_path):
    tools = Tools(tmp_path, classifiers=(script,))
    values, protocol = separability(Measurement(**vars(toy), num=500, tools=tools))
    expected = attribute_entropies(toy, {"bright": direction}, 500, tmp_path)
    assert values == {
        "ls-z": score(expected["z"]),
        "ls-w": score(expected["w"]),
        "entropy-z/bright": expected["z"]["bright"],
        "entropy-w/bright": expected["w"]["bright"],
    }
    assert protocol["kept_per_attribute"] == 250
    assert len(protocol["classifiers"]["bright"]) == 64


def test_separability_names_bad_classifier_files(toy, script, tmp_path):
    def measure(*classifiers):
        tools = Tools(tmp_path, classifiers=classifiers)
        return separability(Measurement(**vars(toy), num=10, tools=tools))

    with pytest.raises(ValueError, match="pass --classifier"):
        measure()
    with pytest.raises(ValueError, match="need different file names: bright, bright"):
        measure(script, script)
    with pytest.raises(ValueError, match=r"none\.pt"):
        measure(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("no program")
    with pytest.raises(ValueError, match=r"text\.pt is not a TorchScript file"):
        measure(tmp_path / "text.pt")
