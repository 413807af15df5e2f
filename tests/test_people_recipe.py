"""The recipe of people: who is drawn. The drawing itself needs Node.js and its packages."""

import subprocess
from collections import Counter

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
    for name, error, says in (
        ("people", subprocess.CalledProcessError(1, "node"), "is `npm install` done in .?"),
        ("people.zip", FileNotFoundError("node"), "Node.js is needed"),
    ):

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr(people.subprocess, "run", fail)
        result = CliRunner().invoke(people.main, [str(tmp_path / "new" / name), "--count", "1"])
        assert result.exit_code == 1 and says in result.stderr
        assert list((tmp_path / "new").iterdir()) == []
    result = CliRunner().invoke(people.main, [str(tmp_path / "new")])
    assert result.exit_code == 1 and f"{tmp_path / 'new'} exists" in result.stderr


def test_people_leaves_nothing_if_packing_is_interrupted(tmp_path, monkeypatch):
    def draw(folder, *_):
        folder.mkdir()
        (folder / "labels.csv").write_text("file")
        save_picture(folder / "000000.png", colors(8, 8))

    monkeypatch.setattr(people, "draw", draw)
    monkeypatch.setattr(people.Image, "open", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        people.main.callback(tmp_path / "people.zip", 0, 1, 8, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_pack_writes_a_zip_with_the_pixels_of_the_folder(tmp_path):
    folder = tmp_path / "people"
    pixels = colors(64, 64)
    save_picture(folder / "000000.png", pixels)
    (folder / "labels.csv").write_text("file,hair=long,hair=bald\n000000.png,1,1\n")
    people.pack(folder, tmp_path / "people.zip")
    store = prepare(tmp_path / "people.zip", tmp_path / "store")
    np.testing.assert_array_equal(store.images(64)[0].transpose(1, 2, 0), pixels)
    assert store.label_names == ["hair=long", "hair=bald"]
