"""The recipe of people: who is drawn. The drawing itself needs Node.js and its packages."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.pictures import colors, save_picture
from helpers.recipes import recipe

from stylegan.data import prepare

people = recipe("people")


def test_person_is_a_function_of_its_number():
    eight = people.person(8)
    assert people.person(9) != eight == people.person(8)
    assert eight["hair"] in people.SHARES["hair"]


def test_person_attributes_are_as_frequent_as_shares():
    drawn = [people.person(number) for number in range(2000)]
    for attribute, times in people.SHARES.items():
        counts = Counter(person[attribute] for person in drawn)
        for value, share in times.items():
            expected = 2000 * share / sum(times.values())
            assert counts[value] == pytest.approx(expected, abs=5 * expected**0.5), value


def test_drawing_has_a_beard_exactly_if_the_person_has_one():
    for number in range(40):
        person = people.person(number)
        options = people.drawing(person)
        bearded = person["facialHair"] != "none"
        assert options["facialHairProbability"] == 100 * bearded
        assert ("facialHair" in options) == bearded
        assert options["hairColor"] == [people.COLORS[person["hairColor"]]]


def test_people_leaves_nothing_if_node_fails(tmp_path, monkeypatch):
    failed = SimpleNamespace(returncode=1)
    monkeypatch.setattr(people.subprocess, "run", lambda *arguments, **options: failed)
    for name in ("people", "people.zip"):
        result = CliRunner().invoke(people.main, [str(tmp_path / "new" / name), "--count", "1"])
        assert result.exit_code == 1 and "is `npm install` done in .?" in result.stderr
        assert list((tmp_path / "new").iterdir()) == []
    result = CliRunner().invoke(people.main, [str(tmp_path / "new")])
    assert result.exit_code == 1 and f"{tmp_path / 'new'} exists" in result.stderr


def test_pack_writes_a_zip_with_the_pixels_of_the_folder(tmp_path):
    folder = tmp_path / "people"
    pixels = colors(64, 64)
    save_picture(folder / "000000.png", pixels)
    (folder / "labels.csv").write_text("file,hair=long,hair=bald\n000000.png,1,1\n")
    people.pack(folder, tmp_path / "people.zip")
    store = prepare(tmp_path / "people.zip", tmp_path / "store")
    np.testing.assert_array_equal(store.images(64)[0].transpose(1, 2, 0), pixels)
    assert store.label_names == ["hair=long", "hair=bald"]
