"""The tool that measures learnt directions: its classifiers, and what it says of them."""

import attributes
import numpy as np
import pytest
import torch
from tiny_generators import random_generator

from stylegan.edits import Edit
from stylegan.files.loaded import LoadedGenerator
from stylegan.sampling import picture


@pytest.fixture(scope="module")
def loaded():
    return LoadedGenerator(random_generator(), "memory", resolution=16)


def test_names_of_pictures_say_their_attributes(loaded, tmp_path):
    for i, name in enumerate(["heads/a-beard", "heads/b", "smileys/c"]):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        picture(np.full((16, 16, 3), 100 * i, np.uint8)).save(path)
    found = {
        name: [present.tolist(), images[:, 0, 0, 0].tolist()]
        for name, sides in attributes.ATTRIBUTES.items()
        if name != "dark"
        for images, present in [attributes.pictures_of(tmp_path, loaded, sides)]
    }
    levels = [2 * x / 255 - 1 for x in (0, 100, 200)]
    assert found["head"] == [[1, 1, 0], pytest.approx(levels)]
    assert found["beard"] == [[1, 0], pytest.approx(levels[:2])]


def test_a_classifier_learns_what_tells_pictures_apart(monkeypatch):
    monkeypatch.setattr(attributes, "STEPS", 60)
    draws = torch.Generator().manual_seed(0)
    present = (torch.arange(40) % 3 == 0).float()
    images = torch.rand(40, 3, 16, 16, generator=draws) + present[:, None, None, None] - 1
    network, right = attributes.trained(images, present)
    assert right == 1
    assert bool((network(images + 2)[:, 0] > network(images - 2)[:, 0]).all())


def test_logits_are_those_of_pictures_moved_along_the_edit(loaded, monkeypatch):
    monkeypatch.setattr(attributes, "SEEDS", range(3))
    classifiers = {"light": torch.nn.Sequential(torch.nn.AvgPool2d(16), torch.nn.Flatten())}
    edit = Edit(torch.ones(8))
    said = attributes.logits_along(loaded, edit, classifiers)["light"]
    assert said.shape == (13, 3)
    (pixels,) = loaded.pictures([2], psi=1, edits=[Edit(torch.ones(8), 3.0)])
    assert said[-1, 2] == pytest.approx(pixels[..., 0].mean() / 127.5 - 1, abs=1e-3)


def test_the_table_has_changes_in_spreads_and_counts_what_rises():
    steps = attributes.STRENGTHS[:, None]
    rows = {"a": steps * [1.0, 1.0, -0.5], "b": 0 * steps + [1.0, 2.0, 3.0]}
    *_, line = attributes.table({"svm:a apart": rows}, {"a": 0.25, "b": 1.0})
    assert line == "| `svm:a apart` | +2.00 | +0.00 | 12 of 12 | 2 of 3 |"
