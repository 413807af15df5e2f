"""Directions in the space of w: closed forms, moves, files and the command."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from commands import refused, stylegan, told
from PIL import Image
from tiny_generators import TINY
from torch.testing import assert_close

from stylegan import sampling
from stylegan.directions import (
    AMOUNTS,
    closed_form_factors,
    covariance,
    default_path,
    deviations_along,
    draw_directions,
    find_directions,
    load_directions,
    save_directions,
    spectrum,
    style_matrix,
)
from stylegan.edits import edited
from stylegan.files.loading import load_source, save_generator
from stylegan.networks import Generator


def tiny(config=TINY, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Generator(config).eval()


def directions_by(method="pca", generator=None, **options):
    """The directions of one method, of a tiny generator."""
    return find_directions(generator or tiny(), [method], samples=100, **options)[0]


def orthogonal(size, seed=0):
    noise = torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(noise.double()).Q


def aligned(vectors, others):
    """|cosine| of each vector with the other of its place."""
    return (vectors * others).sum(dim=1).abs()


def test_components_of_a_linear_map_are_its_left_singular_vectors():
    basis = orthogonal(6)
    scales = torch.tensor([9.0, 5, 3, 1, 0.5, 0.1], dtype=torch.float64)
    z = torch.randn(20_000, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    white = (z - z.mean(dim=0)) @ torch.linalg.inv(torch.linalg.cholesky(covariance(z))).T
    w = white @ (basis * scales).T + 7
    values, vectors = spectrum(covariance(w), 4)
    assert_close(values, scales[:4].square())
    assert_close(aligned(vectors, basis.T[:4]), torch.ones(4, dtype=torch.float64))


def test_factors_of_a_matrix_are_its_right_singular_vectors():
    left, right = orthogonal(7, 1)[:, :5], orthogonal(5, 2)
    singular = torch.tensor([4.0, 3, 2, 1, 0.5], dtype=torch.float64)
    values, vectors = closed_form_factors(left * singular @ right.T, 3)
    assert_close(values, singular[:3].square())
    assert_close(aligned(vectors, right.T[:3]), torch.ones(3, dtype=torch.float64))


def test_the_largest_number_of_a_direction_is_positive_and_its_length_is_1():
    matrix = torch.tensor([[2.0, 1.0], [1.0, 2.0]]).double()
    matrix = torch.block_diag(matrix, 9 * torch.eye(1).double())
    values, vectors = spectrum(matrix, 3)
    assert_close(values, torch.tensor([9.0, 3.0, 1.0]).double())
    half = math.sqrt(0.5)
    assert_close(vectors[:2].abs(), torch.tensor([[0, 0, 1], [half, half, 0]]).double())
    assert (vectors.gather(1, vectors.abs().argmax(1, keepdim=True)) > 0).all()
    assert_close(vectors @ vectors.T, torch.eye(3).double())


def test_a_sign_does_not_depend_on_that_of_the_samples():
    w = torch.randn(50, 4, generator=torch.Generator().manual_seed(2))
    assert_close(spectrum(covariance(w), 4).vectors, spectrum(covariance(-w), 4).vectors)


@pytest.mark.parametrize("count", [0, 4])
def test_more_directions_than_dimensions_are_refused(count):
    with pytest.raises(ValueError, match=f"from 1 to 3 directions, not {count}"):
        spectrum(torch.eye(3), count)


def test_covariance_within_groups_ignores_what_differs_between_them():
    w = torch.randn(30, 3, generator=torch.Generator().manual_seed(3))
    apart = w + 100 * torch.tensor([[0.0], [1.0], [5.0]]).repeat(10, 1)
    assert_close(covariance(apart, groups=3), covariance(w, groups=3), rtol=1e-4, atol=1e-4)
    expected = sum(np.cov(w[i::3].T.double().numpy(), bias=True) for i in range(3)) / 3
    assert_close(covariance(w, groups=3), torch.from_numpy(expected))
    with pytest.raises(ValueError, match="at least 6 samples, not 5"):
        covariance(w[:5], groups=3)


def test_deviations_along_the_axes_are_those_of_the_numbers():
    spread = torch.diag(torch.tensor([4.0, 9.0, 0.0]))
    assert_close(deviations_along(torch.eye(3), spread), torch.tensor([2.0, 3.0, 0.0]))


def test_the_style_matrix_gives_the_styles_less_their_offset():
    generator = tiny()
    w, origin = torch.randn(1, 8), torch.zeros(1, 8)
    layers = range(2, 5)
    for_w, for_origin = (
        torch.cat(
            [torch.cat(generator.synthesis.noise_layers(16)[i].style(x), dim=1) for i in layers],
            dim=1,
        )
        for x in (w, origin)
    )
    found = w.double() @ style_matrix(generator, layers).T
    assert_close(found.float(), for_w - for_origin)


def test_samples_are_the_seeds_and_classes_take_turns():
    config = dataclasses.replace(TINY, label_dim=3)
    generator = tiny(config)
    w = sampling.mapped_samples(generator, 5)
    z, labels = sampling.latents(range(5), 8), torch.eye(3)[[0, 1, 2, 0, 1]]
    assert_close(w, generator.mapping(z, labels).detach())


@pytest.mark.parametrize("label_dim", [0, 2])
def test_both_methods_find_orthonormal_directions_in_falling_order(label_dim):
    generator = tiny(dataclasses.replace(TINY, label_dim=label_dim))
    found = find_directions(generator, count=5, samples=400, layers=range(1, 4))
    assert [d.method for d in found] == ["pca", "sefa"]
    for d in found:
        assert_close(d.vectors @ d.vectors.T, torch.eye(5), rtol=0, atol=1e-5)
        assert (d.eigenvalues.diff() <= 0).all() and (d.deviations > 0).all()
        assert (d.layers, d.samples) == (range(1, 4), 400)
    assert_close(found[0].deviations, found[0].eigenvalues.sqrt())
    amplified = style_matrix(generator, range(1, 4)).float() @ found[1].vectors.T
    assert_close(amplified.square().sum(dim=0), found[1].eigenvalues)


def test_directions_do_not_depend_on_the_number_of_threads():
    threads = torch.get_num_threads()
    generator, found = tiny(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            found.append(find_directions(generator, count=4, samples=3000))
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(*found, strict=True):
        assert_close(one.vectors, other.vectors, rtol=0, atol=1e-4)
        assert_close(one.eigenvalues, other.eigenvalues, rtol=1e-4, atol=0)


def test_without_styles_there_is_pca_alone():
    generator = tiny(dataclasses.replace(TINY, styles=False, constant_input=False))
    assert directions_by(generator=generator, count=2).layers == range(1)
    with pytest.raises(ValueError, match="only pca"):
        find_directions(generator, count=2, samples=100)


@pytest.mark.parametrize("layers", [range(0), range(4, 7), range(-1, 2), range(0, 4, 2)])
def test_layers_that_are_not_there_are_refused(layers):
    with pytest.raises(ValueError, match="layers 0 to 5"):
        find_directions(tiny(), layers=layers, samples=100)


def test_an_edit_is_so_many_deviations_in_its_layers_alone():
    d, config = directions_by(count=3, layers=range(2, 4)), TINY
    ws = torch.randn(2, 6, 8)
    change = edited(ws, [d.edit("2", -1.5)], config) - ws
    assert_close(change[:, 2:4], (-1.5 * d.deviations[1] * d.vectors[1]).expand(2, 2, 8))
    assert not change[:, :2].any() and not change[:, 4:].any()
    other = edited(ws, [d.edit("2", 1, range(5, 6))], config) - ws
    assert other[:, 5].any() and not other[:, :5].any()
    with pytest.raises(ValueError, match="no direction pca:4; there are 1 to 3"):
        d.edit("4")


def test_directions_come_back_from_their_file(tmp_path):
    generator = tiny()
    found = find_directions(generator, count=3, samples=100, layers=range(1, 3))
    save_directions(tmp_path / "d.npz", found, generator)
    again = load_directions(tmp_path / "d.npz", generator)
    for one, other in zip(found, again, strict=True):
        assert (one.method, one.layers, one.samples) == (other.method, other.layers, other.samples)
        for name in ("vectors", "eigenvalues", "deviations"):
            assert torch.equal(getattr(one, name), getattr(other, name))
    with pytest.raises(ValueError, match="directions of other weights"):
        load_directions(tmp_path / "d.npz", tiny(seed=1))


def written(path, generator, change):
    """A file of directions with some of its arrays changed."""
    save_directions(path, find_directions(generator, ["pca"], samples=99, count=2), generator)
    arrays = dict(np.load(path))
    np.savez(path, **(arrays | change(arrays)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {"pca_vectors": a["pca_vectors"][:, :5]}, "do not fit w of 8"),
        (lambda a: {"pca_deviations": a["pca_deviations"][:1]}, "do not fit w of 8"),
        (lambda a: {"pca_eigenvalues": a["pca_eigenvalues"] * np.nan}, "not finite"),
        (lambda a: {"pca_vectors": a["pca_vectors"] + 0j}, "complex64, not floating-point"),
        (lambda a: {"meta": np.array(str(a["meta"]).replace("99", "1e999"))}, "1e999 is not a fin"),
        (lambda a: {"meta": np.array("{}")}, "does not hold directions of version 1"),
        (lambda a: {"meta": np.array(str(a["meta"]).replace('"pca"', '"ica"'))}, "unknown method"),
        (lambda a: {"meta": np.array(str(a["meta"]).replace("[0, 6]", "[0, 7]"))}, "layers 0 to 5"),
        (lambda a: {"meta": np.array(str(a["meta"]).replace("samples", "s"))}, "is missing"),
    ],
)
def test_damaged_files_are_refused(tmp_path, change, message):
    written(tmp_path / "d.npz", tiny(), change)
    with pytest.raises(ValueError, match=message):
        load_directions(tmp_path / "d.npz", tiny())


def test_what_is_no_file_of_directions_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        load_directions(tmp_path / "d.npz", tiny())
    (tmp_path / "d.npz").write_bytes(b"anything")
    with pytest.raises(ValueError, match="damaged or no file of plain arrays"):
        load_directions(tmp_path / "d.npz", tiny())


def test_the_figure_has_a_row_for_each_direction_and_the_seed_in_the_middle(tmp_path):
    save_generator(tmp_path / "g.pt", tiny())
    loaded = load_source(tmp_path / "g.pt")
    d = directions_by("sefa", loaded.generator, count=3)
    image = np.asarray(draw_directions(loaded, d, seed=4, psi=0.5))
    (pixels,) = sampling.generate(loaded.generator, [4], psi=0.5)
    enlarged = pixels[0].repeat(6, axis=0).repeat(6, axis=1)
    table = image[-300:, -100 * len(AMOUNTS) :]  # places of 96 pixels and gaps of 4 after them
    for row in range(3):
        first, middle = (table[100 * row :, 100 * i :][:96, :96] for i in (0, 3))
        assert np.abs(middle.astype(int) - enlarged).max() <= 1
        assert np.abs(first.astype(int) - enlarged).max() > 1


def test_directions_are_kept_with_the_model_or_where_the_user_is(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "g.pt").touch()
    assert default_path(tmp_path / "run") == tmp_path / "run" / "directions.npz"
    assert default_path(tmp_path / "g.pt") == tmp_path / "g.directions.npz"
    assert str(default_path("emoji32")) == "emoji32.directions.npz"
    address = "https://example.org/a/g-0123abcd.pt#sha256=0123abcd"
    assert str(default_path(address)) == "g-0123abcd.directions.npz"


def test_the_class_of_a_figure_is_asked_for_before_anything_is_measured(tmp_path):
    save_generator(tmp_path / "g.pt", tiny(dataclasses.replace(TINY, label_dim=2)))
    endless = [tmp_path / "g.pt", "--samples", 10**7, "--figure", tmp_path / "d.png"]
    assert "choose one, as with --class 0" in refused("directions", *endless)
    assert "there is no class '2'" in refused("directions", *endless, "--class", 2)


def test_the_command_writes_directions_and_figures_and_replaces_nothing(tmp_path):
    save_generator(tmp_path / "g.pt", tiny())
    options = [tmp_path / "g.pt", "--samples", 100, "--count", 2, "--layers", "0-3"]
    options += ["--figure", tmp_path / "new" / "d.WEBP"]
    assert "2 by pca and 2 by sefa" in told("directions", *options)
    found = load_directions(tmp_path / "g.directions.npz", load_source(tmp_path / "g.pt").generator)
    assert [(d.method, d.layers) for d in found] == [("pca", range(4)), ("sefa", range(4))]
    for method in ("pca", "sefa"):
        with Image.open(tmp_path / "new" / f"d-{method}.WEBP") as image:
            assert image.width > 700 and image.height > 200
    before = (tmp_path / "g.directions.npz").read_bytes()
    assert "exists; pass --overwrite" in refused("directions", *options, "--seed", 1)
    told("directions", *options, "--overwrite")
    assert (tmp_path / "g.directions.npz").read_bytes() == before
    save_generator(tmp_path / "g.pt", tiny(seed=1))
    message = refused("directions", tmp_path / "g.pt", "--samples", 100)
    assert "directions of other weights" in message and "--overwrite replaces all" in message
    assert (tmp_path / "g.directions.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layers", "5-2"], "ends before it begins"),
        (["--layers", "a"], "neither a layer nor a range"),
        (["--layers", "0-1,3"], "one range is needed, 0-1,3 are 2"),
        (["--psi", "nan", "--samples", 10**7], "nan is not a number from"),
        (["--layers", "0-9"], "layers 0 to 5"),
        (["--count", "9"], "from 1 to 8 directions, not 9"),
        (["--figure", "x.tiff"], "it must end in .png, .webp, .jpg"),
        (["--class", "0"], "has no labels"),
        (["--out", "here.npz"], "is a folder"),
        (["--out", "same.png", "--figure", "same.png"], "it must end in .npz"),
        (["--seed", "-1"], "not a whole number from 0 to 4294967295"),
        (["--seed", 2**32], "not a whole number from 0 to 4294967295"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.npz").mkdir()
    save_generator(tmp_path / "g.pt", tiny())
    result = stylegan("directions", tmp_path / "g.pt", "--samples", 50, *options)
    assert result.exit_code in (1, 2) and message in result.output
    assert not (tmp_path / "g.directions.npz").exists()
