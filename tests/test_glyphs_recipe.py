"""The recipe of glyphs64, on the fonts that matplotlib brings."""

import io
import struct
import tarfile
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from click.testing import CliRunner
from helpers.recipes import recipe

from stylegan.data import Preparation, prepare

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
NAMES = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono-Oblique", "STIXGeneral")


glyphs = recipe("glyphs")


def font_file(name):
    return glyphs.FontFile("a-package", f"{name}.ttf", (FONTS / f"{name}.ttf").read_bytes())


@pytest.fixture(scope="module")
def faces():
    return [face for name in NAMES for face in glyphs.faces_of(font_file(name), 64)]


def package(path, files):
    """A Debian package of some files."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": data.getvalue()}
    with open(path, "wb") as file:
        file.write(b"!<arch>\n")
        for name, content in members.items():
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode())
            file.write(content + b"\n" * (len(content) % 2))
    return path


def test_faces_of_a_damaged_font_are_left_out(monkeypatch):
    def damaged(*_):
        raise struct.error("unpack requires a buffer of 2 bytes")

    monkeypatch.setattr(glyphs, "face_of", damaged)
    (left_out,) = glyphs.faces_of(font_file(NAMES[0]), 64)
    assert str(left_out) == "cannot be read (error)"


def test_glyphs_recipe_makes_a_folder_per_character_and_a_license(tmp_path):
    fonts = {f"usr/share/fonts/x/{name}.ttf": font_file(name).content for name in NAMES[:3]}
    notice = {"usr/share/doc/fonts-x/copyright": b"free as in speech"}
    (tmp_path / "packages").mkdir()
    package(tmp_path / "packages" / "fonts-x_1.0_all.deb", fonts | notice)
    out, archive = tmp_path / "out", tmp_path / "glyphs.zip"
    arguments = [str(tmp_path / "packages"), "--out", str(out), "--zip", str(archive)]
    found = CliRunner().invoke(glyphs.main, [*arguments, "--size", "32"])
    assert found.exit_code == 0, found.output
    assert "108 pictures: 3 faces of 2 families from 1 packages" in found.output
    for name, content in fonts.items():  # a font file itself
        alone = tmp_path / Path(name).name
        alone.write_bytes(content)
        (font,) = glyphs.fonts_under(alone, {})
        assert font.content == content
    licenses = (out / "LICENSES.txt").read_text()
    assert "== fonts-x\nDejaVu Sans: " in licenses and "free as in speech" in licenses
    stores = [
        prepare(path, tmp_path / name, Preparation(channels=1))
        for path, name in ((out, "a"), (archive, "b"))
    ]
    for store in stores:
        assert store.label_names == list(glyphs.CHARACTERS)
        assert store.images(32).shape == (108, 1, 32, 32)
    np.testing.assert_array_equal(*[store.images(32) for store in stores])
