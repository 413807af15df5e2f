"""The table of docs/glyphs64.md: `tools/alphabets.py`."""

import dataclasses
import io

import alphabets
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from pictures import archive
from PIL import Image, ImageDraw
from tiny_generators import TINY, random_generator

from stylegan.files.formats.own import save_generator

CHARACTERS = "IOT"


def glyph(character, thickness, slant, size=32):
    """A gray picture of strokes with this thickness, leaning by `slant` of their height."""
    image = Image.new("L", (size, size), 255)
    draw = ImageDraw.Draw(image)
    middle, lean = size / 2, slant * size / 4
    if character == "O":
        draw.ellipse([8, 8, size - 8, size - 8], outline=0, width=thickness)
    else:
        draw.line([middle - lean, 24, middle + lean, 8], fill=0, width=thickness)
    if character == "T":
        draw.line([8 + lean, 8, size - 8 + lean, 8], fill=0, width=thickness)
    return image


def faces(numbers):
    """Names and contents of the recipe's zip for faces of several thicknesses."""
    files = {}
    for i in numbers:
        for character in CHARACTERS:
            content = io.BytesIO()
            glyph(character, thickness=1 + i % 4, slant=0.1 * (i % 3)).save(content, "PNG")
            files[f"{character}/face-{i}.png"] = content.getvalue()
    return files


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    return archive(tmp_path / "glyphs.zip", faces(range(12)))


def test_the_characters_of_a_face_stand_in_a_row(data):
    found, characters = alphabets.reals_of(data, 32)
    assert (characters, found.shape) == (list(CHARACTERS), (12, 3, 1, 32, 32))
    names = sorted(f"face-{i}" for i in range(12))
    for row, name in zip(found, names, strict=True):
        i = int(name.removeprefix("face-"))
        for image, character in zip(row, CHARACTERS, strict=True):
            expected = 1 - np.asarray(glyph(character, 1 + i % 4, 0.1 * (i % 3))) / 255
            np.testing.assert_allclose(image[0], expected, atol=1e-6)


def test_traits_are_those_of_the_strokes():
    thin, thick, leaning = (
        alphabets.traits(alphabets.alphabets(np.asarray(glyph("I", *how))[None, None, None]))
        for how in ((2, 0), (4, 0), (2, 1))
    )
    assert thick["darkness"] / thin["darkness"] == pytest.approx(2, rel=0.1)
    assert thick["width"] / thin["width"] == pytest.approx(2, rel=0.2)
    assert thin["slant"] == pytest.approx(0, abs=0.02)
    assert leaning["slant"] == pytest.approx(1, abs=0.05)  # to the right, as italics do


def test_what_belongs_to_the_face_is_one_for_its_own_and_none_for_other_numbers():
    random = np.random.default_rng(0)
    face, glyphs = random.normal(size=(400, 1)), random.normal(size=(400, 36))
    scales = random.uniform(0.1, 10, 36)  # every character has its own
    assert alphabets.belonging(scales * (face + np.zeros(36)) + scales) == pytest.approx(1)
    assert alphabets.belonging(scales * glyphs) == pytest.approx(0, abs=0.02)
    assert alphabets.belonging(scales * (face + glyphs)) == pytest.approx(0.5, abs=0.05)


def test_the_reader_reads_faces_that_it_has_not_seen(data):
    found, characters = alphabets.reals_of(data, 32)
    reader = alphabets.taught(found[:8].repeat(32, 1, 1, 1, 1), epochs=4)
    assert alphabets.share_read(reader, found[8:], characters) == (1, 1)
    assert alphabets.share_read(reader, found[8:].flip(1), "IOT")[0] < 0.5


def test_zero_and_o_may_be_confused_where_this_is_allowed():
    def reader(glyphs):
        return torch.eye(3)[torch.full((len(glyphs),), 1)]

    assert alphabets.share_read(reader, torch.zeros(5, 3, 1, 4, 4), "0OI") == (1 / 3, 2 / 3)


def test_the_table_has_real_faces_samples_and_glyphs_thrown_together(data, tmp_path):
    config = dataclasses.replace(TINY, image_channels=1, label_dim=3)
    source = tmp_path / "tiny.pt"
    save_generator(source, random_generator(config), label_names=list(CHARACTERS))
    command = [str(source), "--data", str(data), "--seeds", "4", "--epochs", "1", "--psi", "0.5"]
    result = CliRunner().invoke(alphabets.main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    rows = [line.split(" | ") for line in result.stdout.splitlines()]
    assert [row[0].strip("| ") for row in rows[2:]] == [
        "faces that the reader has not seen",
        f"`{source}`, psi 0.5",
        "the same, thrown together",
    ]
    assert [row[1] for row in rows[2:]] == ["6", "4", "6"]
