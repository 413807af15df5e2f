"""Edits: their texts, moves, files, and the same picture by command and Python."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from commands import look, pixels, refused, told
from PIL import Image
from tiny_generators import TINY, random_generator
from torch.testing import assert_close

from stylegan import load_generator, sampling
from stylegan.directions import (
    SavedEdit,
    default_path,
    edits_path,
    find_directions,
    known_directions,
    load_edits,
    read_edits,
    save_directions,
    with_edit,
    write_edits,
)
from stylegan.edits import Edit, EditText, edited, parsed, text_of, total_move
from stylegan.files.latents import write_latents
from stylegan.files.loading import load_source, save_generator
from stylegan.ops import truncate


@pytest.fixture
def source(tmp_path):
    """A generator with directions beside it."""
    path = tmp_path / "g.pt"
    generator = random_generator()
    save_generator(path, generator)
    save_directions(default_path(path), find_directions(generator, count=3, samples=99), generator)
    return path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pca:2=+3@0-3", EditText("pca:2", 3.0, range(4))),
        ("pca:2", EditText("pca:2")),
        ("smile=-0.5", EditText("smile", -0.5)),
        ("smile=0.123456789", EditText("smile", 0.123456789)),
        ("a b@7", EditText("a b", 1.0, range(7, 8))),
        ("dir/f.json:smile=1e-1@2-3", EditText("dir/f.json:smile", 0.1, range(2, 4))),
    ],
)
def test_the_parts_of_a_text(text, found):
    assert parsed(text) == found
    assert parsed(text_of(found)) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("pca:1=x", "x is not a strength"),
        ("pca:1=", "'' is not a strength"),
        ("pca:1=nan", "nan is not a strength"),
        ("pca:1=1001", "from -1000 to 1000"),
        ("pca:1=1@", "'' is not a layer or a range like 0-3"),
        ("pca:1=1@3-2", "3-2 is not a layer or a range like 0-3"),
        ("pca:1@a", "a is not a layer"),
    ],
)
def test_what_is_no_edit_is_refused_in_one_sentence(text, message):
    with pytest.raises(ValueError, match=message):
        parsed(text)


def test_edits_add_up_in_any_order():
    a, b = Edit(torch.randn(8), 2.0, range(3)), Edit(torch.randn(8), -0.3)
    move = total_move([a, b], TINY)
    assert torch.equal(move, total_move([b, a], TINY))
    assert_close(move[0], 2 * a.direction - 0.3 * b.direction)
    assert_close(move[4], -0.3 * b.direction)
    assert total_move([], TINY) is None
    with pytest.raises(ValueError, match="an edit of 7 numbers does not fit w of 8"):
        total_move([Edit(torch.randn(7))], TINY)
    with pytest.raises(ValueError, match="layers 0 to 5; 4 to 6 is not a range"):
        total_move([Edit(torch.randn(8), 1.0, range(4, 7))], TINY)
    with pytest.raises(ValueError, match="a row of finite numbers"):
        Edit(torch.full((8,), torch.nan))


def test_pictures_are_edited_after_truncation(source):
    loaded = load_source(source)
    edit = read_edits(["pca:1=2@0-3"], loaded, source)
    (found,) = loaded.pictures([3], psi=0.5, edits=edit)
    z = sampling.latents([3], TINY.z_dim)
    ws = truncate(loaded.styles(z), loaded.generator.w_avg, 0.5, 8)
    (expected,) = loaded.pictures([3], ws=edited(ws, edit, TINY), psi=1)
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, next(loaded.pictures([3], psi=0.5)))


def test_the_same_edit_by_command_and_python_gives_equal_pixels(source, tmp_path):
    texts = ["pca:2=+3@0-3", "sefa:1=-1@0-3"]
    options = [word for text in texts for word in ("--edit", text)]
    told("generate", source, "--seeds", 5, *options, "--out", tmp_path / "out")
    by_command = pixels(tmp_path / "out" / "seed0005.png")
    network = load_generator(source)
    edits = read_edits(texts, network.loaded, source)
    by_python = network.sample([5], edits=edits)[0].permute(1, 2, 0).numpy()
    assert np.array_equal(by_command, by_python)


def test_edits_are_saved_listed_used_and_removed_by_command(source, tmp_path):
    told("edits", source, "--save", "both", "--edit", "pca:2=3@0-3", "--edit", "sefa:1=-1")
    assert told("edits", source).startswith("both: pca:2=3@0-3 sefa:1=-1\n")
    assert look(tmp_path / "g.edits.png").width > 300
    told("generate", source, "--seeds", 1, "--edit", "both=2", "--out", tmp_path / "a")
    told(
        *("generate", source, "--seeds", 1, "--edit", "pca:2=6@0-3", "--edit", "sefa:1=-2"),
        *("--out", tmp_path / "b"),
    )
    assert (
        pixels(tmp_path / "a" / "seed0001.png") == pixels(tmp_path / "b" / "seed0001.png")
    ).all()
    before = (tmp_path / "g.edits.json").read_bytes()
    again = ["edits", source, "--save", "both", "--edit", "pca:1"]
    assert "has an edit both already" in refused(*again)
    assert (tmp_path / "g.edits.json").read_bytes() == before
    told(*again, "--overwrite")
    told("edits", source, "--save", "more", "--edit", "both=0.5@1-2")
    assert "has no edit bot; there are both, more" in refused("edits", source, "--remove", "bot")
    told("edits", source, "--remove", "both")
    assert [line.split(":")[0] for line in told("edits", source).splitlines()][:1] == ["more"]
    told("edits", source, "--remove", "more")
    assert not (tmp_path / "g.edits.json").exists() and not (tmp_path / "g.edits.png").exists()
    assert "no edits are saved in" in refused("edits", source)


def test_a_picture_of_the_users_is_not_replaced_by_that_of_edits(source, tmp_path):
    (tmp_path / "g.edits.png").write_bytes(b"mine")
    assert "exists; pass --overwrite" in refused("edits", source, "--save", "a", "--edit", "pca:1")
    assert (tmp_path / "g.edits.png").read_bytes() == b"mine"


def test_saved_edits_need_no_directions_and_give_the_same_numbers(source, tmp_path):
    loaded = load_source(source)
    moves = read_edits(["pca:3=-1.5@2-4", "sefa:2"], loaded, source)
    path = edits_path(source)
    write_edits(path, with_edit(path, "x", SavedEdit(["text"], moves), loaded), loaded)
    default_path(source).unlink()
    again = read_edits(["x"], loaded, source)
    assert torch.equal(total_move(again, TINY), total_move(moves, TINY))
    moved = path.rename(tmp_path / "other.json")
    by_file = read_edits([f"{moved}:x=2"], loaded, "emoji32")
    assert_close(total_move(by_file, TINY), 2 * total_move(moves, TINY))


def test_a_file_of_directions_can_be_named(source, tmp_path):
    loaded = load_source(source)
    moved = default_path(source).rename(tmp_path / "d.npz")
    (found,) = read_edits([f"{moved}:pca:2=2"], loaded, source)
    (expected,) = [d.edit("2", 2) for d in known_directions(source, loaded, moved)][:1]
    assert torch.equal(found.direction, expected.direction)


def damaged(path, change):
    about = json.loads(path.read_text())
    change(about)
    path.write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.update(format="x"), "does not hold edits of version 1"),
        (lambda a: a.update(generator_sha256="x", mapping_sha256="x"), "edits of other weights"),
        (lambda a: a.update(edits=3), "edits are at most"),
        (lambda a: a["edits"]["x"].pop("moves"), "is damaged: 'moves' is missing"),
        (lambda a: a["edits"]["x"]["moves"][0].update(layers=[0, 9]), "layers 0 to 5"),
        (lambda a: a["edits"]["x"]["moves"][0].update(strength=1e9), "the strength of an edit"),
        (lambda a: a["edits"]["x"]["moves"][0].update(direction=["a"] * 8), "must be 8 numbers"),
        (lambda a: a["edits"]["x"]["moves"][0].update(direction=[1.0]), "must be 8 numbers"),
        (lambda a: a["edits"]["x"]["moves"][0].update(direction=[1e300] * 8), "finite numbers"),
        (lambda a: a["edits"].update({"a=b": a["edits"]["x"]}), "an edit is called by"),
    ],
)
def test_damaged_files_are_refused_in_one_sentence(source, change, message):
    loaded, path = load_source(source), edits_path(source)
    moves = read_edits(["pca:1"], loaded, source)
    write_edits(path, {"x": SavedEdit(["pca:1"], moves)}, loaded)
    damaged(path, change)
    with pytest.raises(ValueError, match=message):
        load_edits(path, loaded)
    assert str(path) in refused("generate", source, "--edit", "x", "--out", "nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pca:9", "there is no direction pca:9; there are 1 to 3"),
        ("pca:x", "there is no direction pca:x"),
        ("label:a", "has no classes"),
        ("svm:a", "has no directions learnt from examples"),
        ("smile", "no edits are saved in"),
        ("ica:1", "ica:1 is not an edit like pca:2"),
        ("pca:1@0-6", "layers 0 to 5"),
        ("nowhere.npz:pca:1", "no file nowhere.npz with directions"),
        ("nowhere.json:a", "no file nowhere.json with saved edits"),
    ],
)
def test_what_names_nothing_is_refused_in_one_line(source, text, message):
    assert message in refused("generate", source, "--edit", text, "--out", "nowhere")


def test_figures_films_and_projections_take_edits(source, tmp_path):
    edit = ["--edit", "pca:1=3"]
    for words in (["figure", "grid"], ["figure", "mixing"], ["figure", "truncation"]):
        plain, moved = tmp_path / "plain.png", tmp_path / "moved.png"
        told(*words, source, "--out", plain, "--overwrite")
        told(*words, source, *edit, "--out", moved, "--overwrite")
        assert (pixels(plain) != pixels(moved)).any()
    film = ["video", "walk", source, "--seeds", "0,1", "--seconds", 0.1, "--scale", 1]
    told(*film, *edit, "--out", tmp_path / "f.webp")
    told(*film, "--out", tmp_path / "g.webp")
    with Image.open(tmp_path / "f.webp") as moved, Image.open(tmp_path / "g.webp") as plain:
        assert (np.asarray(moved) != np.asarray(plain)).any()


def test_a_projection_is_edited_after_it_was_found(source, tmp_path):
    told("generate", source, "--seeds", 2, "--out", tmp_path)
    out = tmp_path / "projected"
    told(
        *("project", source, tmp_path / "seed0002.png", "--steps", 2, "--video", "none"),
        *("--distance", "pixels", "--edit", "pca:1=3", "--out", out),
    )
    told(
        *("generate", source, "--latents", out / "seed0002" / "latents.npz"),
        *("--edit", "pca:1=3", "--out", tmp_path / "again"),
    )
    edited_picture = pixels(out / "seed0002" / "edited.png")
    assert (edited_picture == pixels(tmp_path / "again" / "latent0000.png")).all()
    assert (edited_picture != pixels(out / "seed0002" / "projection.png")).any()


def test_files_of_weights_hold_no_edits(source, tmp_path):
    loaded = load_source(source)
    described = loaded.description()
    moves = read_edits(["pca:1"], loaded, source)
    assert loaded.adjusted(edits=moves).description() == described
    latents = dataclasses.replace(loaded, edits=moves).styles(sampling.latents([1], 8))
    write_latents(tmp_path / "l.npz", latents)  # of files neither
    assert_close(latents, loaded.styles(sampling.latents([1], 8)))
