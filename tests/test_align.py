"""Alignment of faces: the square by hand, pixels of known pictures, files, the command."""

import math

import numpy as np
import pytest
from helpers.commands import open_image, pixels, run_fails, run_ok
from PIL import Image

from stylegan.data.faces import aligned, eyes_and_mouth, points_of, read_landmarks, square_of

FACE = np.array([[40, 40], [60, 40], [50, 50], [44, 60], [56, 60]], float)  # upright, 20 wide


def turned(points, degrees, center):
    angle = math.radians(degrees)
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return (points - center) @ turn.T + center


def waves(size=100, shift=0.0):
    """A smooth picture, RGB."""
    y, x = np.mgrid[:size, :size] + shift
    planes = [127 + 100 * np.sin(x / 9), 127 + 100 * np.cos(y / 11), 127 + 60 * np.sin((x + y) / 8)]
    return Image.fromarray(np.rint(np.stack(planes, axis=2)).astype(np.uint8))


def test_square_of_follows_from_the_eyes_and_the_mouth():
    # eyes 20 apart, mouth 20 below: 4 * 20 > 3.6 * 20; the center a tenth of the way to the mouth
    square = square_of(FACE)
    assert square.side == pytest.approx(80)
    assert square.center == pytest.approx([50.5, 42.5]) and square.right == pytest.approx([40, 0])
    long = FACE + np.array([[0, 0]] * 3 + [[0, 10]] * 2)  # mouth 30 below: 3.6 * 30
    assert square_of(long).side == pytest.approx(108)
    leaning = turned(FACE, 30, [50, 50])
    assert square_of(leaning).side == pytest.approx(80)
    assert math.degrees(math.atan2(*square_of(leaning).right[::-1])) == pytest.approx(30)


def test_eyes_and_mouth_reads_68_landmarks():
    points, ring = np.zeros((68, 2)), [[-3, 0], [-1, -1], [1, -1], [3, 0], [1, 1], [-1, 1]]
    points[36:42], points[42:48] = FACE[0] + np.array(ring), FACE[1] + np.array(ring)
    points[48], points[54] = FACE[3], FACE[4]
    assert eyes_and_mouth(points) == pytest.approx(FACE[[0, 1, 3, 4]])


def test_aligned_crops_upright_faces_and_rotates_tilted_ones():
    points = np.add(FACE, [0, 10])  # the square is from 10.5 to 90.5, 12.5 to 92.5
    size = 80
    found = np.asarray(aligned(waves(200), points, size), float)
    half = np.asarray(waves(200, 0.5).crop((10, 12, 90, 92)), float)  # between two pixels
    assert np.abs(found - half).max() < 3
    for degrees in (-40, 90, 180):
        picture = waves(200).rotate(-degrees, Image.Resampling.BICUBIC, center=(100.5, 100.5))
        leaning = turned(points + 50, degrees, np.array([100.0, 100.0]))
        upright = np.asarray(aligned(waves(200), points + 50, size), float)
        assert np.abs(np.asarray(aligned(picture, leaning, size), float) - upright).mean() < 2


@pytest.mark.parametrize(("points", "message"), [
    (FACE[[1, 0, 2, 4, 3]], "the mouth must be below the eyes"),
    (FACE + 1000, "outside of the image"),
    ((FACE - 50) * 100 + 50, "8000 pixels a side, in an image of 100x100"),
])  # fmt: skip
def test_aligned_rejects_landmarks_that_do_not_fit_the_image(points, message):
    with pytest.raises(ValueError, match=message):
        aligned(waves(), points, 16)


# Files


def csv_of(faces):
    lines = [",".join([name, *map(str, points.ravel())]) for name, points in faces]
    return "\n".join(["file," + ",".join(f"n{i}" for i in range(10)), *lines]) + "\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    waves().save(tmp_path / "in" / "a.png")
    waves().save(tmp_path / "in" / "deep" / "b.jpg")
    faces = [("a.png", FACE), ("deep/b.jpg", FACE), ("deep/b.jpg", FACE + 10)]
    (tmp_path / "points.csv").write_text(csv_of(faces))
    return tmp_path


def test_read_landmarks_reads_several_faces_per_image(folder):
    found = read_landmarks(folder / "points.csv")
    assert [(n, len(faces)) for n, faces in found.items()] == [("a.png", 1), ("deep/b.jpg", 2)]
    assert points_of(found["deep/b.jpg"][1]) == pytest.approx(FACE + 10)


def command(folder, *arguments, source="in", out="out"):
    points = ["--landmarks", folder / "points.csv", "--size", 32]
    return ["align", folder / source, folder / out, *points, *arguments]


def test_align_writes_an_image_per_face_and_resumes(folder):
    printed = run_ok(*command(folder))
    assert printed.splitlines()[-1] == f"3 faces in {folder / 'out'}, 32x32"
    files = sorted(p.relative_to(folder / "out").as_posix() for p in (folder / "out").rglob("*.*"))
    assert files == ["a.png", "deep/b-0.png", "deep/b-1.png"]
    assert open_image(folder / "out" / "a.png").size == (32, 32)
    expected = np.asarray(aligned(waves(), FACE, 32), int)
    assert (pixels(folder / "out" / "a.png") == expected).all()
    (folder / "out" / "deep" / "b-0.png").unlink()
    run_ok(*command(folder))  # goes on where it was interrupted
    assert (folder / "out" / "deep" / "b-0.png").exists()
    run_ok(*command(folder, source="in/a.png", out="one"))
    assert [path.name for path in (folder / "one").iterdir()] == ["a.png"]


def test_align_names_bad_landmark_lines_and_aligns_the_rest(folder):
    (folder / "points.csv").write_text(csv_of([("lost.png", FACE)]))
    assert "must be an image in" in run_fails(*command(folder))
    bad = {
        "mirrored.png": FACE[[1, 0, 2, 4, 3]],
        "nan.png": FACE * np.nan,
        "four.png": FACE[:4],
        "odd.png": FACE.ravel()[:9],
        "far.png": FACE + 1000,
        "../up.png": FACE,
    }
    for name in bad:
        waves().save(folder / "in" / name)
    (folder / "in" / "broken.png").write_bytes(b"no picture")
    faces = [*bad.items(), ("broken.png", FACE), ("lost.png", FACE), ("a.png", FACE + 1000)]
    faces += [("a.png", FACE), ("deep/b.jpg", FACE), ("a.png", FACE + 5)]
    outside = (folder / "up.png").read_bytes()
    lines = csv_of(faces) + "text.png,1,2,x\n"
    (folder / "points.csv").write_text(lines)
    message = run_fails(*command(folder))
    assert message.startswith("Error: 10 images left out: ")
    assert (folder / "up.png").read_bytes() == outside
    for name in (*bad, "broken.png", "lost.png", "text.png"):
        assert name.removeprefix("..") in message
    files = sorted(p.relative_to(folder / "out").as_posix() for p in (folder / "out").rglob("*.*"))
    assert files == ["a-1.png", "a-2.png", "deep/b.png"]
    assert (pixels(folder / "out" / "a-1.png") == np.asarray(aligned(waves(), FACE, 32))).all()
