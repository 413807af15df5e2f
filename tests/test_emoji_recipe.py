"""The recipe of the bundled data set, and the data set it made."""

import importlib.util
import io
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

pytest.importorskip("fontTools")
from fontTools.fontBuilder import FontBuilder
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

EMOJI_TEST = """
# group: Smileys & Emotion
# subgroup: face-smiling
1F600                  ; fully-qualified     # 😀 E1.0 grinning face
1F642                  ; fully-qualified     # 🙂 E1.0 slightly smiling face
# subgroup: face-costume
1F47B                  ; fully-qualified     # 👻 E0.6 ghost
# subgroup: face-newly-invented
1F976                  ; fully-qualified     # 🥶 E11.0 cold face
# group: People & Body
# subgroup: person-activity
1F3C3                  ; fully-qualified     # 🏃 E0.6 person running
1F3C3 200D 2640 FE0F   ; fully-qualified     # 🏃‍♀️ E4.0 woman running
1F3C3 200D 2640        ; minimally-qualified # 🏃‍♀ E4.0 woman running
# group: Symbols
# subgroup: arrow
27A1 FE0F              ; fully-qualified     # ➡️ E0.6 right arrow
# group: Flags
# subgroup: flag
1F3F4                  ; fully-qualified     # 🏴 E1.0 black flag
# subgroup: country-flag
1F1F3 1F1F4            ; fully-qualified     # 🇳🇴 E2.0 flag: Norway
1F1E7 1F1FB            ; fully-qualified     # 🇧🇻 E2.0 flag: Bouvet Island
"""


def load_recipe():
    """The script as a module; `datasets` is not a package, so by path."""
    spec = importlib.util.spec_from_file_location("emoji_recipe", DATASETS / "emoji.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recipe = load_recipe()
emoji = recipe.parse_emoji_test(EMOJI_TEST)


@pytest.fixture(scope="module")
def bundled():
    """File name -> pixels, uint8 (32, 32, 3)."""
    with zipfile.ZipFile(BUNDLED) as archive:
        return {
            name: np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB"))
            for name in archive.namelist()
            if name.endswith(".png")
        }


def test_glyphs_are_spelled_by_cmap_and_ligatures():
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "runner", "joiner", "female", "woman_running"])
    builder.setupCharacterMap({0x1F3C3: "runner", 0x200D: "joiner", 0x2640: "female"})
    builder.addOpenTypeFeatures(
        "feature ccmp { sub runner joiner female by woman_running;"
        " sub female joiner runner by woman_running; } ccmp;"
    )
    spellings = recipe.glyph_spellings(builder.font)
    assert spellings["runner"] == [(0x1F3C3,)]
    assert set(spellings["woman_running"]) == {(0x1F3C3, 0x200D, 0x2640), (0x2640, 0x200D, 0x1F3C3)}


@pytest.mark.parametrize(
    ("points", "name", "kind"),
    [
        ((0x1F600,), "grinning face", "smileys"),
        ((0x1F976,), "cold face", "characters"),  # blue; also: an unknown sub-group
        ((0x1F47B,), "ghost", "characters"),
        ((0x1F3C3, 0x200D, 0x27A1), "person running right arrow", "people"),
        ((0x1F3F4, 0xE0075, 0xE0073, 0xE0074, 0xE0078, 0xE007F), "flag: ustx", "flags"),
        ((0x1F3F4, 0xE007F), "flag: unknown", "flags"),
        ((0x37,), "DIGIT SEVEN", "symbols"),
    ],
)
def test_every_picture_has_a_name_and_a_kind(points, name, kind):
    entry = recipe.describe(points, emoji)
    assert (entry.name, recipe.kind_of(entry)) == (name, kind)


def test_edges_are_blends_of_the_picture_and_white():
    size = 32
    pixels = np.zeros((128, 136, 4), np.uint8)  # transparent black: the classic source of fringes
    pixels[20:100, 30:90] = (250, 200, 0, 255)
    pixels[10:20, 30:90] = (250, 200, 0, 128)
    square = np.asarray(recipe.on_white_square(Image.fromarray(pixels), size)).astype(int)
    assert square.shape == (size, size, 3)
    opacity = (255 - square[..., 2]) / 255
    expected = 255 - opacity[..., None] * np.array([5, 55, 255])
    assert np.abs(square - expected).max() <= 2  # two roundings


def test_errors_say_what_to_do(tmp_path):
    font = tmp_path / "plain.ttf"
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef"])
    builder.setupCharacterMap({})
    builder.setupPost()
    builder.save(font)
    listing = tmp_path / "emoji-test.txt"
    listing.write_text(EMOJI_TEST, encoding="utf-8")

    def error(*args):
        result = CliRunner().invoke(recipe.main, [str(font), *map(str, args)])
        assert result.exit_code != 0
        return result.output

    out = tmp_path / "out"
    assert "give --out DIR, --zip FILE, or both" in error()
    assert "is not empty" in error("--out", tmp_path)
    assert "no CBDT table" in error("--out", out, "--emoji-test", listing)
    assert not out.exists()


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
