"""A store that several machines prepare has the bytes of one prepared at once."""

import pytest
from commands import refused, told
from pictures import MIXED, folder

from stylegan.data import prepare, prepare_part


@pytest.fixture
def photos(tmp_path):
    return folder(tmp_path / "photos", MIXED)


def contents(store):
    return {path.name: path.read_bytes() for path in store.iterdir()}


@pytest.mark.parametrize("parts", [1, 3, 40])
@pytest.mark.parametrize("options", [{}, {"crop": "tiles 2"}, {"channels": 4, "premultiply": True}])
def test_parts_that_are_joined_are_the_whole_byte_for_byte(photos, tmp_path, parts, options):
    options = {"resolution": 8} | options
    whole = prepare(photos, tmp_path / "whole", **options)
    for k in reversed(range(1, parts + 1)):  # in any order; some may be empty
        prepare_part(photos, tmp_path / "joined", (k, parts), **options)
    joined = prepare(photos, tmp_path / "joined", parts=parts, **options)
    assert contents(joined.path) == contents(whole.path)
    assert joined.meta.skipped == whole.meta.skipped


def test_a_part_that_is_missing_or_of_other_images_is_refused(photos, tmp_path):
    out, resolution = tmp_path / "out", ("--resolution", 8)
    text = told("prepare", photos, out, *resolution, "--part", "2/2")
    assert "out.part-2-of-2: when all are there, the same with --join 2" in text
    missing = refused("prepare", photos, out, *resolution, "--join", 2)
    assert "1 part missing, the first is" in missing and "out.part-1-of-2" in missing
    told("prepare", photos, out, *resolution, "--part", "1/2")
    other = refused("prepare", photos, out, "--resolution", 4, "--join", 2)
    assert "was made of other images or with other options; remove it and make it again" in other
    assert not out.exists()
    assert "image" in told("prepare", photos, out, *resolution, "--join", 2)
    assert "counted from 1" in refused("prepare", photos, out, *resolution, "--part", "3/2")
    words = ("--part", "1/2", "--strict")
    assert "without --part" in refused("prepare", photos, out, *resolution, *words, exit_code=2)
