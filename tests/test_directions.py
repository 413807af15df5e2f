"""Directions in the space of w and edits along them: closed forms, moves, files, learning."""

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.charts import cells, enlarged
from helpers.commands import run_fails, run_ok, stylegan
from helpers.consoles import RecordingConsole
from helpers.tiny_generators import LABELED, TINY, loaded_of, random_generator, tiny_loaded
from PIL import Image
from torch.nn.functional import normalize
from torch.testing import assert_close

from stylegan import directions, load_generator, sampling
from stylegan.directions import (
    default_path,
    draw_directions,
    find_directions,
    fit_hyperplane,
    load_directions,
    load_or_find_directions,
    read_edits,
    save_directions,
    to_directions,
)
from stylegan.directions.edit_syntax import EditText, parsed
from stylegan.directions.finding import covariance, spectrum, style_matrix
from stylegan.files.formats.native import save_generator
from stylegan.networks.edits import Edit, apply_edits, total_offset
from stylegan.ops import truncate
from stylegan.utils.filesystem import ALLOW_OVERWRITE


def directions_by(method="pca", generator=None, **options):
    """The directions of one method, of a tiny generator."""
    return find_directions(generator or random_generator(), [method], samples=100, **options)[0]


def aligned(vectors, others):
    """|cosine| of each vector with the other of its place."""
    return (vectors * others).sum(dim=1).abs()


def orthogonal(size, seed=0):
    noise = torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(noise.double()).Q


def test_spectrum_of_a_linear_map_gives_its_singular_vectors():
    basis = orthogonal(6)
    scales = torch.tensor([9.0, 5, 3, 1, 0.5, 0.1], dtype=torch.float64)
    z = torch.randn(20_000, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    white = (z - z.mean(dim=0)) @ torch.linalg.inv(torch.linalg.cholesky(covariance(z))).T
    w = white @ (basis * scales).T + 7
    values, vectors = spectrum(covariance(w), 4)
    assert_close(values, scales[:4].square())
    assert_close(aligned(vectors, basis.T[:4]), torch.ones(4, dtype=torch.float64))
    assert_close(spectrum(covariance(-w), 4)[1], vectors)  # signs do not depend on the samples'


def test_covariance_within_groups_ignores_group_offsets():
    w = torch.randn(30, 3, generator=torch.Generator().manual_seed(3))
    apart = w + 100 * torch.tensor([[0.0], [1.0], [5.0]]).repeat(10, 1)
    expected = sum(np.cov(w[i::3].T.double().numpy(), bias=True) for i in range(3)) / 3
    assert_close(covariance(w, groups=3), torch.from_numpy(expected))
    assert_close(covariance(apart, groups=3), covariance(w, groups=3), rtol=1e-4, atol=1e-4)


def test_style_matrix_gives_styles_minus_their_offset():
    generator, layers = random_generator(), range(2, 5)

    def styles(w):
        epilogues = generator.synthesis.epilogues(16)
        return torch.cat([part for i in layers for part in epilogues[i].style(w)], dim=1)

    w = torch.randn(1, 8)
    found = w.double() @ style_matrix(generator, layers).T
    assert_close(found.float(), styles(w) - styles(torch.zeros(1, 8)))


@pytest.mark.parametrize("label_dim", [0, 2])
def test_find_directions_gives_orthonormal_vectors_sorted_by_score(label_dim):
    generator = random_generator(dataclasses.replace(TINY, label_dim=label_dim))
    found = find_directions(generator, count=5, samples=400, layers=range(1, 4))
    assert [d.method for d in found] == ["pca", "sefa"]
    for d in found:
        assert_close(d.vectors @ d.vectors.T, torch.eye(5), rtol=0, atol=1e-5)
        assert (d.scores.diff() <= 0).all() and (d.deviations > 0).all()
        assert (d.layers, d.samples) == (range(1, 4), 400)
    assert_close(found[0].deviations, found[0].scores.sqrt())
    amplified = style_matrix(generator, range(1, 4)).float() @ found[1].vectors.T
    assert_close(amplified.square().sum(dim=0), found[1].scores)


def test_find_directions_measures_within_labels_of_the_data():
    """Where labels are numbers, w of the classes (1, 0) and (0, 1) may be far from all pictures."""
    generator = random_generator(dataclasses.replace(TINY, label_dim=2))
    rows = torch.tensor([[0.5, 3.0], [-2.0, 0.1], [0.0, 0.0]])
    (found,) = find_directions(generator, ["pca"], count=8, samples=300, label_rows=rows)
    w = sampling.sample_w(generator, 300, rows)
    within = sum(torch.cov(w[i::3].double().T, correction=0) for i in range(3)) / 3
    assert_close(found.scores, torch.linalg.eigvalsh(within).flip(0).float())
    (of_classes,) = find_directions(generator, ["pca"], count=8, samples=300)
    assert (found.scores - of_classes.scores).abs().max() > 0.01 * found.scores.max()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pca:2=+3@0-3", EditText("pca", "2", 3.0, range(4))),
        ("pca:2", EditText("pca", "2")),
        ("svm:a b=0.123456789@7", EditText("svm", "a b", 0.123456789, range(7, 8))),
        (
            "dir/f.npz:svm:smile=1e-1@2-3",
            EditText("svm", "smile", 0.1, range(2, 4), Path("dir/f.npz")),
        ),
    ],
)
def test_edit_text_is_parsed_into_its_parts(text, found):
    assert parsed(text) == found


@pytest.mark.parametrize("text", ["pca:2@3-0", "pca:2@0-"])
def test_edit_text_rejects_invalid_layers(text):
    with pytest.raises(ValueError, match="is not an edit like pca"):
        parsed(text)


def test_total_offset_does_not_depend_on_the_order_of_edits():
    a, b = Edit(torch.randn(8), 2.0, range(3)), Edit(torch.randn(8), -0.3)
    move = total_offset([a, b], 6, 8)
    assert torch.equal(move, total_offset([b, a], 6, 8))
    assert_close(move[0], 2 * a.direction - 0.3 * b.direction)
    assert_close(move[4], -0.3 * b.direction)
    ws = torch.randn(2, 6, 8)
    assert apply_edits(ws, []) is ws


def test_apply_edits_moves_by_deviations_in_the_given_layers_only():
    d = directions_by(count=3, layers=range(2, 4))
    ws = torch.randn(2, 6, 8)
    change = apply_edits(ws, [d.edit("2", -1.5)]) - ws
    assert_close(change[:, 2:4], (-1.5 * d.deviations[1] * d.vectors[1]).expand(2, 2, 8))
    assert not change[:, :2].any() and not change[:, 4:].any()
    other = apply_edits(ws, [d.edit("2", 1, range(5, 6))]) - ws
    assert other[:, 5].any() and not other[:, :5].any()


def test_edits_are_applied_after_truncation_and_not_stored():
    loaded = tiny_loaded()
    edits = [Edit(torch.randn(8), 2.0, range(4))]
    (found,) = loaded.generate([3], psi=0.5, edits=edits)
    ws = truncate(
        loaded.map_to_ws(sampling.latents([3], TINY.z_dim)), loaded.generator.w_avg, 0.5, 8
    )
    (expected,) = loaded.generate([3], ws=apply_edits(ws, edits), psi=1)
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, next(loaded.generate([3], psi=0.5)))
    assert loaded.with_settings(edits=edits).description() == loaded.description()


def test_save_directions_round_trips_through_load_directions(source, tmp_path):
    loaded = load_generator(source)
    found = find_directions(loaded.generator, count=3, samples=100, layers=range(1, 3))
    save_directions(tmp_path / "d.npz", found, loaded.generator)
    again = load_directions(tmp_path / "d.npz", loaded.generator)
    for one, other in zip(found, again, strict=True):
        assert (one.method, one.layers, one.samples) == (other.method, other.layers, other.samples)
        for name in ("vectors", "scores", "deviations"):
            assert torch.equal(getattr(one, name), getattr(other, name))
    (edit,) = read_edits([f"{tmp_path / 'd.npz'}:sefa:2=2"], loaded, source)
    assert torch.equal(edit.direction, found[1].edit("2").direction) and edit.strength == 2
    with pytest.raises(ValueError, match="directions of other weights"):
        load_directions(tmp_path / "d.npz", random_generator(seed=1))


def test_directions_of_a_growing_network_are_of_the_layers_that_it_has_reached(tmp_path):
    generator = random_generator()
    other = copy.deepcopy(generator)
    for i, epilogue in enumerate(other.synthesis.epilogues(TINY.resolution)):
        if i >= 4:
            torch.nn.init.normal_(epilogue.style.affine.weight)
    grown = [loaded_of(g, resolution=8) for g in (generator, other)]
    first, second = (
        load_or_find_directions("none.pt", loaded, methods=["sefa"])[0] for loaded in grown
    )
    assert first.layers == range(4) and torch.equal(first.vectors, second.vectors)
    with pytest.raises(ValueError, match="layers must be a range from 0 to 3, got 4 to 5"):
        read_edits(["sefa:1=50@4-5"], grown[0], "none.pt")


def test_load_or_find_directions_prefers_the_file_over_the_run(tmp_path):
    for name in ("config.toml", "log.jsonl"):  # a run
        (tmp_path / name).touch()
    file, loaded = tmp_path / "generator-000000256.pt", tiny_loaded()
    save_generator(file, loaded.generator)
    first, second = (
        find_directions(loaded.generator, ["pca"], count=n, samples=99) for n in (2, 3)
    )
    said = []
    for path, directions_there in ((default_path(tmp_path), first), (default_path(file), second)):
        save_directions(path, directions_there, loaded.generator)
        (found,) = load_or_find_directions(
            file, loaded, methods=["pca"], console=RecordingConsole(said)
        )
        assert torch.equal(found.vectors, directions_there[0].vectors)
    default_path(file).unlink()
    with pytest.raises(ValueError, match=f"{tmp_path / 'directions.npz'} has no directions of svm"):
        read_edits(["svm:smile"], loaded, file)
    assert not said
    other = loaded.replace(generator=random_generator(seed=1))  # an earlier file's
    load_or_find_directions(file, other, methods=["pca"], console=RecordingConsole(said))
    assert "directions.npz has directions of other weights" in said[0]


def test_read_edits_uses_bundled_directions_for_equal_mappings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where directions of a file are kept
    loaded = load_generator("faces64")
    (smile,) = read_edits(["svm:smile=2"], loaded, "faces64")
    tuned = loaded.replace(generator=copy.deepcopy(loaded.generator))
    next(tuned.synthesis.parameters()).data += 1
    file = tmp_path / "tuned.pt"
    (again,) = read_edits(["svm:smile=2"], tuned, file)
    assert torch.equal(again.direction, smile.direction)
    own = to_directions(tuned, "own", smile.direction, 1.0, 100)
    save_directions(default_path(file), [own], tuned.generator)
    (found,) = load_or_find_directions(file, tuned, methods=["svm"])
    assert {"smile", "own"} <= set(found.names)
    with pytest.raises(ValueError, match=r"^mine\.pt has no directions of svm"):
        read_edits(["svm:smile"], tiny_loaded(), "mine.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {"pca_vectors": a["pca_vectors"][:, :5]}, "do not fit w of 8"),
        (lambda a: {"pca_eigenvalues": a["pca_eigenvalues"] * np.nan}, "finite"),
        (lambda a: {"meta": np.array("{}")}, "does not hold directions of version 1"),
    ],
)
def test_load_directions_rejects_damaged_files(tmp_path, change, message):
    generator, path = random_generator(), tmp_path / "d.npz"
    save_directions(path, find_directions(generator, samples=99, count=2), generator)
    arrays = dict(np.load(path))
    np.savez(path, **(arrays | change(arrays)))
    with pytest.raises(ValueError, match=message):
        load_directions(path, generator)


def test_draw_directions_shows_the_seed_in_the_middle_of_each_row(source):
    loaded = load_generator(source).with_settings(psi=0.5)
    d = directions_by("sefa", loaded.generator, count=3)
    expected = enlarged(next(loaded.generate([4]))).astype(int)
    for row in cells(draw_directions(loaded, d, seed=4), 3, 7):
        first, middle = (np.abs(row[i] - expected).max() for i in (0, 3))
        assert middle <= 1 < first


def test_directions_find_writes_files_and_rejects_other_weights(source, tmp_path):
    options = [source, "--samples", 100, "--count", 2, "--layers", "0-3"]
    options += ["--figure", tmp_path / "new" / "d.WEBP"]
    assert "2 by pca and 2 by sefa" in run_ok("directions", "find", *options)
    found = load_directions(default_path(source), load_generator(source).generator)
    assert [(d.method, d.layers) for d in found] == [("pca", range(4)), ("sefa", range(4))]
    for method in ("pca", "sefa"):
        with Image.open(tmp_path / "new" / f"d-{method}.WEBP") as image:
            assert image.width > 700 and image.height > 200
    before = default_path(source).read_bytes()
    run_ok("directions", "find", *options, "--overwrite")
    assert default_path(source).read_bytes() == before
    save_generator(source, random_generator(seed=1), outputs=ALLOW_OVERWRITE)
    message = run_fails("directions", "find", source, "--samples", 100)
    assert "directions of other weights" in message and "--overwrite replaces the wh" in message
    assert default_path(source).read_bytes() == before


def cloud(normal, n=400, margin=0.3):
    """Points of two sides of a plane through a mean that is not 0, with a gap between them."""
    x = torch.randn(n, len(normal), generator=torch.Generator().manual_seed(0))
    side = x @ normal > 0
    return x + margin * normal * (2 * side[:, None] - 1) + 5, side.numpy()


def test_fit_hyperplane_normal_points_to_the_positive_side():
    normal = normalize(torch.tensor([1.0, -2.0, 0.5, 0.0]), dim=0)
    w, present = cloud(normal)
    found, accuracy = fit_hyperplane(w, present)
    assert_close(found.norm(), torch.tensor(1.0))
    assert found @ normal > 0.99 and accuracy > 0.98
    assert fit_hyperplane(w, ~present)[0] @ normal < -0.99
    with pytest.raises(ValueError, match="2 examples with the attribute and 4 without it; at"):
        fit_hyperplane(w[:6], np.arange(6) < 2)


def sorted_by_first_number(loaded, folder, seeds):
    """Folders of pictures named by seed, whose w has a first number above the median, or below."""
    w = loaded.map_to_ws(sampling.latents(seeds, TINY.z_dim))[:, 0, 0]
    for seed, value in zip(seeds, w, strict=True):
        place = folder / ("more" if value > w.median() else "less")
        place.mkdir(exist_ok=True)
        (place / f"seed{seed:04d}.png").touch()  # only names matter
    return folder / "more", folder / "less"


def test_directions_learn_adds_to_the_existing_directions(source, tmp_path):
    loaded = load_generator(source)
    more, less = sorted_by_first_number(loaded, tmp_path, range(200))
    (more / "grid.png").touch()  # as generate writes it
    run_ok("directions", "find", source, "--samples", 99, "--count", 2)
    words = ["directions", "learn", source, "--samples", 99]
    said = run_ok(*words, more, less, "--name", "first", "--figure", tmp_path / "first.png")
    share = float(said.split("accuracy ")[1].split("%")[0])
    assert said.startswith("svm:first: ") and share > 90 and "on 200 examples" in said
    run_ok(*words, less, more)
    found = {d.method: d for d in load_directions(default_path(source), loaded.generator)}
    assert list(found) == ["pca", "sefa", "svm"]
    svm = found["svm"]
    assert svm.names == ["first", "less"] and svm.vectors[0, 0] > 0.8 > -0.8 > svm.vectors[1, 0]
    assert_close(svm.scores[:1], torch.tensor([share / 100]), atol=1e-3, rtol=0)
    assert "with directions svm:first" in run_fails(*words, more, less, "--name", "first")
    run_ok("directions", "find", source, "--samples", 99, "--count", 3, "--overwrite")
    kept = load_directions(default_path(source), loaded.generator)
    assert [(d.method, len(d.vectors)) for d in kept] == [("pca", 3), ("sefa", 3), ("svm", 2)]
    (edit,) = read_edits(["svm:first=2@0-1"], loaded, source)
    assert_close(edit.direction, svm.deviations[0] * svm.vectors[0])
    assert "did you mean first" in run_fails("generate", source, "--edit", "svm:firs")


def test_directions_learn_keeps_what_another_process_adds_meanwhile(source, tmp_path, monkeypatch):
    loaded = load_generator(source)
    more, less = sorted_by_first_number(loaded, tmp_path, range(40))
    fit = directions.fit_hyperplane
    words = ["directions", "learn", source, more, less, "--samples", 99, "--name"]

    def slowly(*arguments):
        monkeypatch.setattr(directions, "fit_hyperplane", fit)
        run_ok(*words, "second")
        return fit(*arguments)

    monkeypatch.setattr(directions, "fit_hyperplane", slowly)
    run_ok(*words, "first")
    (svm,) = load_directions(default_path(source), loaded.generator)
    assert svm.names == ["second", "first"]
    assert not list(source.parent.glob(".*"))


def test_directions_learn_reports_the_class_order_like_generate(tmp_path):
    source = tmp_path / "classes.pt"
    save_generator(source, random_generator(LABELED), label_names=("cat", "dog", "hen"))
    sides = [tmp_path / "more", tmp_path / "less"]
    for i in range(10):
        sides[i % 2].mkdir(exist_ok=True)
        (sides[i % 2] / f"seed{i:04}.png").touch()
    line = "classes alternate, as no --class is given: seed 0 is cat, seed 1 is dog, seed 2 is hen"
    words = ["directions", "learn", source, *sides, "--samples", 99]
    for arguments, is_said in (
        (["generate", source, "--seeds", 0, "--out", tmp_path / "pictures"], True),
        (words, True),
        ([*words, "--class", "cat", "--name", "cats"], False),
    ):
        result = stylegan(*arguments)
        assert result.exit_code == 0, result.output
        assert result.stderr.count(line) == is_said


def test_read_edits_accepts_a_plain_array_of_w(source, tmp_path):
    loaded = load_generator(source)
    boundary = np.random.RandomState(0).randn(1, TINY.w_dim)  # as InterFaceGAN's
    file = tmp_path / "smile_w_boundary.npy"
    np.save(file, boundary)
    for text, strength, layers in ((f"{file}", 1.0, None), (f"{file}=-2@0-1", -2.0, range(2))):
        (edit,) = read_edits([text], loaded, source)
        assert (edit.strength, edit.layers) == (strength, layers)
        assert_close(edit.direction, torch.from_numpy(boundary[0]).float())
    np.save(file, boundary[:, 1:])
    with pytest.raises(ValueError, match=r"direction of shape \(8,\), got \(1, 7\)"):
        read_edits([f"{file}=1"], loaded, source)
