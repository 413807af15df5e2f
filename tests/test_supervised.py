"""Directions learnt from examples: planes, held-out accuracy, what they are orthogonal to."""

import dataclasses
import shutil

import numpy as np
import pytest
import torch
from commands import refused, told
from tiny_generators import TINY, random_generator
from torch import nn
from torch.testing import assert_close

from stylegan import sampling
from stylegan.directions import (
    Examples,
    class_directions,
    classified,
    default_path,
    examples_of,
    load_directions,
    read_edits,
    separated,
)
from stylegan.files.latents import write_latents
from stylegan.files.loading import load_source, save_generator

pytest.importorskip("sklearn")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "g.pt"
    save_generator(path, random_generator())
    return path


def cloud(normal, n=400, margin=0.3, seed=0):
    """Points of two sides of a plane through a mean that is not 0, with a gap between them."""
    x = torch.randn(n, len(normal), generator=torch.Generator().manual_seed(seed))
    side = x @ normal > 0
    return Examples(x + margin * normal * (2 * side[:, None] - 1) + 5, side.numpy())


def unit(*numbers):
    return nn.functional.normalize(torch.tensor(numbers), dim=0)


def test_the_normal_of_a_plane_points_to_the_positive_side():
    normal = unit(1.0, -2.0, 0.5, 0.0)
    found = separated(cloud(normal))
    assert_close(found.vector.norm(), torch.tensor(1.0))
    assert found.vector @ normal > 0.99 and found.accuracy > 0.98
    assert separated(flipped(cloud(normal))).vector @ normal < -0.99


def flipped(examples):
    return Examples(examples.w, ~examples.present)


def test_the_accuracy_of_noise_is_that_of_guessing():
    """A plane fits 60 points of 50 numbers without a fault, so only held-out ones tell."""
    x = torch.randn(60, 50, generator=torch.Generator().manual_seed(0))
    found = separated(Examples(x, np.arange(60) % 2 == 0))
    assert 0.25 < found.accuracy < 0.75


def test_a_direction_is_orthogonal_to_others_and_the_best_of_those():
    a, b = unit(1.0, 1.0, 0.0, 0.0), unit(1.0, 0.0, 0.0, 0.0)
    found = separated(cloud(a), b[None] * 7)
    assert abs(found.vector @ b) < 1e-6
    assert found.vector @ unit(0.0, 1.0, 0.0, 0.0) > 0.98
    assert 0.6 < found.accuracy < separated(cloud(a)).accuracy
    again = separated(cloud(a), torch.stack([b, -2 * b, 0 * b]))  # alike: they are one direction
    assert_close(again.vector, found.vector)


def test_too_few_examples_and_nothing_left_are_refused():
    examples = cloud(unit(1.0, 0.0))
    few = Examples(examples.w[:6], np.arange(6) < 2)
    with pytest.raises(
        ValueError, match="2 examples with the attribute and 4 without it; at least"
    ):
        separated(few)
    with pytest.raises(ValueError, match="leave nothing of w"):
        separated(examples, torch.eye(2))


def sorted_by_first_number(loaded, folder, seeds):
    """Folders of pictures named by seed, whose w has a first number above the median, or below."""
    w = loaded.styles(sampling.latents(seeds, TINY.z_dim))[:, 0, 0]
    for seed, value in zip(seeds, w, strict=True):
        place = folder / ("more" if value > w.median() else "less")
        place.mkdir(exist_ok=True)
        (place / f"seed{seed:04d}.png").touch()  # only names matter
    return folder / "more", folder / "less"


def test_the_command_learns_from_folders_of_pictures_and_keeps_what_there_was(source, tmp_path):
    loaded = load_source(source)
    more, less = sorted_by_first_number(loaded, tmp_path, range(200))
    (more / "grid.png").touch()  # as generate writes it
    told("directions", source, "--samples", 99, "--count", 2)
    words = ["directions", source, "--from", more, less, "--samples", 99]
    said = told(*words, "--name", "first", "--figure", tmp_path / "first.png")
    share = float(said.split("svm:first: ")[1].split("%")[0])
    assert share > 90 and "of 200 examples, held out in turn" in said
    found = {d.method: d for d in load_directions(default_path(source), loaded.generator)}
    assert list(found) == ["pca", "sefa", "svm"] and found["svm"].names == ("first",)
    assert found["svm"].vectors[0, 0] > 0.8
    assert_close(found["svm"].accuracies, torch.tensor([share / 100]), atol=1e-3, rtol=0)
    told(*words, "--name", "second", "--orthogonal-to", "svm:first")
    (svm,) = [
        d for d in load_directions(default_path(source), loaded.generator) if d.method == "svm"
    ]
    assert svm.names == ("first", "second") and abs(svm.vectors[0] @ svm.vectors[1]) < 1e-5
    assert "exists, with directions svm:first" in refused(*words, "--name", "first")
    told("directions", source, "--samples", 99, "--count", 3, "--overwrite")
    kept = load_directions(default_path(source), loaded.generator)
    assert [(d.method, len(d.vectors)) for d in kept] == [("pca", 3), ("sefa", 3), ("svm", 2)]
    (edit,) = read_edits(["svm:first=2@0-1"], loaded, source)
    assert_close(edit.direction, svm.deviations[0] * svm.vectors[0])
    told("generate", source, "--seeds", 1, "--edit", "svm:first=2@0-1", "--out", tmp_path / "out")
    assert "did you mean first" in refused("generate", source, "--edit", "svm:firs")


def test_latents_are_examples_as_the_seeds_are_that_they_are_of(source, tmp_path):
    loaded = load_source(source)
    more, less = sorted_by_first_number(loaded, tmp_path, range(40))
    by_seed = examples_of(loaded, more, less)
    sides = [tmp_path / "a.npz", tmp_path / "b"]
    seeds = [sorted(int(p.stem[4:]) for p in place.iterdir()) for place in (more, less)]
    ws = [loaded.styles(sampling.latents(some, TINY.z_dim)) for some in seeds]
    write_latents(sides[0], ws[0])
    for i, row in enumerate(ws[1]):  # as project writes them
        (sides[1] / f"{i:03d}").mkdir(parents=True)
        write_latents(sides[1] / f"{i:03d}" / "latents.npz", row[None])
    by_latents = examples_of(loaded, *sides)
    assert_close(by_latents.w, by_seed.w)
    assert (by_latents.present == by_seed.present).all()
    assert_close(separated(by_latents).vector, separated(by_seed).vector, atol=1e-3, rtol=0)


def test_folders_that_are_none_are_refused_in_one_line(source, tmp_path):
    loaded = load_source(source)
    more, less = sorted_by_first_number(loaded, tmp_path, range(20))
    words = ["directions", source, "--from", more]
    (tmp_path / "empty").mkdir()
    assert "neither pictures of seeds" in refused(*words, tmp_path / "empty")
    missing = tmp_path / "missing"
    assert f"no folder or file {missing} with examples" in refused(*words, missing)
    same = shutil.copytree(more, tmp_path / "same")
    assert "is in both" in refused(*words, same)
    (less / "smile.png").touch()
    assert "seed is not in their name: smile.png" in refused(*words, less)
    assert "exclude one another" in refused(*words, less, "--method", "pca", exit_code=2)
    assert "--edit NAME@0-3" in refused(*words, less, "--layers", "0-3", exit_code=2)
    assert not default_path(source).exists()


class First(nn.Module):
    """Whether the picture is bright."""

    def forward(self, images):
        return images.mean(dim=(1, 2, 3))


@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning")
def test_a_classifier_teaches_what_it_says(source, tmp_path):
    torch.jit.script(First()).save(tmp_path / "bright.pt")
    said = told(
        *("directions", source, "--classifier", tmp_path / "bright.pt", "--samples", 400),
    )
    assert said.startswith("svm:bright: ")
    loaded = load_source(source)
    examples = classified(loaded, First(), "bright", 400)
    assert len(examples.w) == 200 and 5 < examples.present.sum() < 195
    edits = [read_edits([f"svm:bright={a}"], loaded, source) for a in (-2, 0, 2)]
    means = [np.mean(list(loaded.pictures(range(8), psi=1, edits=edit))) for edit in edits]
    assert means == sorted(means)


def test_each_class_has_a_direction_towards_it(tmp_path):
    config = dataclasses.replace(TINY, label_dim=3)
    path = tmp_path / "g.pt"
    save_generator(path, random_generator(config), label_names=("a", "b", "c"))
    said = told("directions", path, "--method", "label", "--samples", 300)
    assert [line.split(":")[1] for line in said.splitlines()[:3]] == ["a", "b", "c"]
    loaded = load_source(path)
    (found,) = load_directions(default_path(path), loaded.generator)
    assert found.method == "label" and found.names == ("a", "b", "c")
    w = sampling.mapped_samples(loaded.generator, 300)
    along = w @ found.vectors.T  # of class i most along direction i
    means = torch.stack([along[i::3].mean(dim=0) for i in range(3)])
    assert (means.argmax(dim=0) == torch.arange(3)).all()
    (edit,) = read_edits(["label:b=3"], loaded, path)
    assert_close(edit.direction, found.deviations[1] * found.vectors[1])
    default_path(path).unlink()
    assert read_edits(["label:b"], loaded, path)[0].direction.isfinite().all()
    with pytest.raises(ValueError, match="has no classes"):
        class_directions(load_source("emoji32"), 10)
