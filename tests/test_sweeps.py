"""Generators looked at in several ways: truncated, with mixed styles, beside yardsticks."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from stylegan import sampling
from stylegan.cli import main
from stylegan.files.loading import load_generator
from stylegan.metrics import AverageImage, OtherHalf, Subject, Tools, evaluate, parse


@pytest.fixture(scope="module")
def generator():
    return load_generator("emoji32")


def images(batches):
    return torch.cat(list(batches))


# Mixed styles


@pytest.mark.parametrize("mixed", [2, 3, 8])
def test_styles_come_from_as_many_latents_and_the_coarsest_from_the_seed(generator, mixed):
    subject = Subject(generator, mixed=mixed)
    ws = subject.mixed_styles(range(20), None)
    assert ws.shape == (20, 8, generator.config.w_dim)
    own = generator.mapping(sampling.latents(range(20), generator.config.z_dim))
    torch.testing.assert_close(ws[:, 0], own)
    changes = (ws[:, 1:] != ws[:, :-1]).any(dim=2)
    assert (changes.sum(dim=1) == mixed - 1).all()
    if mixed < 8:
        assert changes.any(dim=0).all()  # every crossover is drawn


def test_a_mixed_image_depends_on_its_number_alone(generator):
    many = images(Subject(generator, mixed=3, resolution=8, batch=5).fakes(7))
    one = images(Subject(generator, mixed=3, resolution=8, batch=1).fakes(7))
    assert (many.int() - one.int()).abs().max() <= 1  # arithmetic in batches
    later = images(Subject(generator, mixed=3, resolution=8, batch=1, seed=4).fakes(3))
    assert torch.equal(later, one[4:])
    assert not torch.equal(one, images(Subject(generator, resolution=8, batch=1).fakes(7)))


def test_more_latents_than_layers_are_refused(generator):
    with pytest.raises(ValueError, match=r"has 4 layers with styles at 8x8.* from 5 latents"):
        images(Subject(generator, mixed=5, resolution=8).fakes(1))


def test_given_styles_take_the_place_of_the_seeds_own(generator):
    ws = generator.broadcast(generator.mapping(sampling.latents([5, 6], generator.config.z_dim)))
    (given,) = sampling.generate(generator, [5, 6], ws=ws)
    (own,) = sampling.generate(generator, [5, 6])
    np.testing.assert_array_equal(given, own)
    with pytest.raises(ValueError, match=r"ws must be \(3, 8, 128\), not \(2, 8, 128\)"):
        next(sampling.generate(generator, [5, 6, 7], ws=ws))


# Yardsticks


@pytest.mark.parametrize("mirror", [False, True])
def test_the_halves_have_no_image_in_common_and_leave_none_out(generator, smileys, mirror):
    half = OtherHalf.beside(Subject(generator, store=smileys, mirror=mirror, resolution=8))
    ours, theirs = images(half.fakes(45)), images(half.reals(46, evenly=True))
    shown = images(Subject(generator, store=smileys, resolution=8).reals(91))
    if mirror:  # either way round
        for part, rows in ((ours, shown[1::2]), (theirs, shown[::2])):
            same, flipped = ((part == r).all(dim=(1, 2, 3)) for r in (rows, rows.flip(3)))
            assert (same | flipped).all()
            assert flipped.sum() > 10
    else:
        assert torch.equal(ours, shown[1::2])
        assert torch.equal(theirs, shown[::2])
    assert half.about_reals()["images"] == 46
    assert half.about_reals() != Subject(generator, store=smileys, mirror=mirror).about_reals()


def test_the_average_image_is_that_of_all_reals(generator, smileys):
    plain = AverageImage.beside(Subject(generator, store=smileys, resolution=16, batch=7))
    shown = images(plain.fakes(9))
    expected = smileys.images(16)[:].astype(np.float64).mean(axis=0)
    assert shown.shape == (9, 3, 16, 16)
    np.testing.assert_allclose(shown, np.broadcast_to(expected, shown.shape), atol=0.5)
    mirrored = AverageImage.beside(Subject(generator, store=smileys, mirror=True, resolution=16))
    (shown,) = mirrored.fakes(1)
    assert torch.equal(shown, shown.flip(3))


def test_what_has_no_mixed_styles_refuses_them(generator, tmp_path):
    told = []
    subject = Subject(generator, mixed=2)
    requests = parse("ppl-w-end10,ls10")
    assert list(evaluate(subject, requests, Tools(tmp_path), tell=told.append)) == []
    assert len(told) == 2
    assert all("images of one latent each, not of 2 mixed ones" in text for text in told)


# The command


def run(*arguments):
    found = CliRunner().invoke(main, ["metrics", *map(str, arguments)])
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    return lines, [line for line in found.stderr.splitlines() if line.startswith("|")]


def test_a_sweep_with_yardsticks_orders_them_in_a_table(smileys, tmp_path):
    settings = ("--data", smileys.path, "--metrics", "swd60", "--out", tmp_path / "m.jsonl")
    lines, table = run("emoji32", *settings, "--psi", "1,0", "--mixed", "1,2", "--yardsticks")
    assert [line["metric"] for line in lines] == ["swd60"] * 4 + ["swd45"] * 3
    looked_at = [(f["psi"], f["mixed"]) for f in (line["protocol"]["fakes"] for line in lines[:4])]
    assert looked_at == [(1, 1), (1, 2), (0, 1), (0, 2)]
    full, mixed, none, _, against_half, half, average = (line["values"]["swd"] for line in lines)
    assert half < full < none < average
    assert half < against_half < average
    assert lines[4]["protocol"]["reals"]["images"] == lines[5]["protocol"]["reals"]["images"] == 46
    for line in lines:
        low, high = line["protocol"]["interval_95"]["swd"]
        assert low <= line["values"]["swd"] <= high
    assert full == pytest.approx(mixed, rel=0.3)
    assert [json.loads(text) for text in (tmp_path / "m.jsonl").read_text().splitlines()] == lines
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    assert cells[0][:4] == ["", "psi", "mixed", "swd60"]
    names = [
        "emoji32 against half of the reals",
        "another half of the reals",
        "the average of the reals",
    ]
    assert [row[0] for row in cells[2:]] == ["emoji32"] * 4 + names
    assert [row[3].split()[0] for row in cells[2:6]] == [
        f"{line['values']['swd']:.4g}" for line in lines[:4]
    ]


@pytest.mark.parametrize("content", ["my notes", '{"metric": "fid2"}', "1\n", "x" * 99_999])
def test_results_are_not_added_to_something_else(content, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    found = CliRunner().invoke(main, ["metrics", "emoji32", "--out", str(path)])
    assert found.exit_code == 1
    assert "does not end with a line of results" in found.stderr
    assert path.read_text() == content


@pytest.mark.parametrize(("option", "value"), [("--psi", "1,"), ("--mixed", "0"), ("--psi", "nan")])
def test_lists_of_numbers_are_checked(option, value):
    found = CliRunner().invoke(main, ["metrics", "emoji32", option, value])
    assert found.exit_code == 2
    assert option in found.stderr
