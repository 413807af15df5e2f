"""The recipe of the bundled data set, and the data set it made."""

import importlib.util
import io
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fontTools")
from fontTools.ttLib import TTFont

DATASETS = Path(__file__).parents[1] / "datasets"
BUNDLED = DATASETS / "emoji-32.zip"
DEBIAN_FONT = Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
FONT_REVISION = 2.042  # of the font that the bundled zip was made from
KINDS = {
    "activities": 85, "animals": 137, "body": 326, "characters": 26, "couples": 312, "flags": 359,
    "food": 134, "heads": 78, "objects": 293, "people": 676, "plants": 29, "portraits": 843,
    "sky": 47, "smileys": 91, "symbols": 340, "travel": 140,
}  # fmt: skip


def load_recipe():
    """The script as a module; `datasets` is not a package, so by path."""
    spec = importlib.util.spec_from_file_location("emoji_recipe", DATASETS / "emoji.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recipe = load_recipe()


@pytest.fixture(scope="module")
def bundled():
    """File name -> pixels, uint8 (32, 32, 3)."""
    with zipfile.ZipFile(BUNDLED) as archive:
        return {
            name: np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB"))
            for name in archive.namelist()
            if name.endswith(".png")
        }


def test_bundled_zip_is_small_and_licensed():
    assert BUNDLED.stat().st_size <= 6_000_000
    with zipfile.ZipFile(BUNDLED) as archive:
        license_text = archive.read("LICENSE.txt")
        assert archive.testzip() is None
        assert [n for n in archive.namelist() if not n.endswith(".png")] == ["LICENSE.txt"]
    assert license_text == recipe.LICENSE.read_bytes()
    assert b"Apache License" in license_text and b"downscaled" in license_text


def test_bundled_pictures_are_small_squares_without_duplicates(bundled):
    assert Counter(name.split("/")[0] for name in bundled) == KINDS
    assert {pixels.shape for pixels in bundled.values()} == {(32, 32, 3)}
    assert len({pixels.tobytes() for pixels in bundled.values()}) == len(bundled)


@pytest.mark.skipif(
    not (DEBIAN_FONT.exists() and recipe.EMOJI_TEST.exists()),
    reason="needs Debian's fonts-noto-color-emoji and unicode-data",
)
def test_recipe_makes_the_bundled_pictures(bundled):
    font = TTFont(DEBIAN_FONT)
    if round(font["head"].fontRevision, 3) != FONT_REVISION:
        pytest.skip(f"the font is not revision {FONT_REVISION}")
    listing = recipe.parse_emoji_test(recipe.EMOJI_TEST.read_text(encoding="utf-8"))
    pictures = recipe.render(font, listing, 32)
    assert {f"{p.kind}/{p.stem}.png" for p in pictures} == set(bundled)
    for picture in pictures:
        np.testing.assert_array_equal(
            np.asarray(picture.image), bundled[f"{picture.kind}/{picture.stem}.png"]
        )
