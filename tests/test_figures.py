"""Grids of pictures."""

import numpy as np
import pytest

from stylegan.figures import GAP, default_columns, grid


def plain(n, height=4, width=4, channels=3):
    """Pictures of one value each: 10, 20, ..."""
    values = np.arange(1, n + 1, dtype=np.uint8) * 10
    return np.broadcast_to(values[:, None, None, None], (n, height, width, channels))


def test_pictures_go_in_rows():
    image = np.asarray(grid(plain(5, 100, 100), columns=2))
    assert image.shape == (3 * (100 + GAP) + GAP, 2 * (100 + GAP) + GAP, 3)
    found = [
        image[GAP + 50 + (100 + GAP) * row, GAP + 50 + (100 + GAP) * column, 0]
        for row in range(3)
        for column in range(2)
    ]
    assert found == [10, 20, 30, 40, 50, 255]


def test_small_pictures_are_enlarged_by_a_whole_factor_without_smoothing():
    pixels = np.random.RandomState(0).randint(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    cell = np.asarray(grid(pixels))[GAP:-GAP, GAP:-GAP]
    assert np.array_equal(cell, pixels[0].repeat(3, axis=0).repeat(3, axis=1))


def test_large_pictures_are_averaged_down():
    pixels = np.zeros((1, 1024, 1024, 1), np.uint8)
    pixels[:, ::2] = 200
    cell = np.asarray(grid(pixels))[GAP:-GAP, GAP:-GAP]
    assert np.array_equal(cell, np.full((512, 512, 3), 100))


def test_pictures_between_keep_their_size():
    assert grid(plain(1, 128, 96)).size == (96 + 2 * GAP, 128 + 2 * GAP)


def test_labels_stand_under_their_pictures_and_touch_nothing():
    pictures = plain(6, 100, 100)
    bare, labelled = grid(pictures, 3), grid(pictures, 3, [f"seed {i}" for i in range(6)])
    line = (labelled.height - bare.height) // 2
    assert 10 <= line <= 25
    pixels = np.asarray(labelled)
    step = 100 + GAP + line
    for i in range(6):
        x, y = GAP + i % 3 * (100 + GAP), GAP + i // 3 * step
        assert (pixels[y : y + 100, x : x + 100] == 10 * (i + 1)).all()
        below = pixels[y + 100 : y + 100 + line, x : x + 100]
        assert below.min() < 100  # ink
    gaps = pixels[:, 100 + GAP : 100 + 2 * GAP]
    assert (gaps == 255).all()


def test_long_labels_get_a_smaller_font():
    label = "seed 4294967295"
    image = np.asarray(grid(plain(2, 96, 96), 2, [label, label]))
    assert (image[100:, 96 + GAP : 96 + 2 * GAP] == 255).all()


def test_transparent_pictures_lie_on_paper():
    pixels = np.zeros((1, 100, 100, 4), np.uint8)
    assert (np.asarray(grid(pixels)) == 255).all()


@pytest.mark.parametrize(
    ("n", "columns"),
    [(1, 1), (2, 2), (3, 3), (7, 3), (8, 4), (9, 3), (32, 8), (36, 6), (37, 7), (64, 8)],
)
def test_default_columns_fill_the_rows_where_they_can(n, columns):
    assert default_columns(n) == columns


def test_a_grid_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one picture"):
        grid(plain(0))


def test_labels_must_be_as_many_as_pictures():
    with pytest.raises(ValueError, match="2 labels were given for 3 pictures"):
        grid(plain(3), labels=["a", "b"])


def test_no_columns_are_refused():
    with pytest.raises(ValueError, match="at least 1 column, not -1"):
        grid(plain(3), columns=-1)
