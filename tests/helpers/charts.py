"""The cells of charts and grids of small pictures."""

import numpy as np

from stylegan.figures import GAP

SIDE = 96  # of a cell that shows a small picture


def cells(image, rows, columns, wide_rows=(), wide_columns=()):
    """The pixels of each cell, in rows; places are counted from the lower right corner."""

    def starts(end, n, wide):
        found, place = [], end - GAP - SIDE
        for i in reversed(range(n)):
            found.append(place)
            place -= SIDE + (4 * GAP if i in wide else GAP)
        return found[::-1]

    pixels = np.asarray(image)
    return [
        [pixels[y : y + SIDE, x : x + SIDE] for x in starts(pixels.shape[1], columns, wide_columns)]
        for y in starts(pixels.shape[0], rows, wide_rows)
    ]


def enlarged(picture):
    """As a cell shows it."""
    factor = SIDE // len(picture)
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)
