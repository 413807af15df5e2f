"""Faces cropped as in CelebA-HQ and FFHQ: upright, with eyes and mouth at fixed positions.

Karras et al. 2018 (Progressive GAN), appendix C: center, size and direction of the square follow
from two points of the eyes and two of the mouth.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFilter

from stylegan.data.images import decode, image_errors, is_image, quiet_decoding
from stylegan.data.labels import MAX_VALUE, csv_lines
from stylegan.utils.console import SILENT, Console
from stylegan.utils.filesystem import KEEP_EXISTING, OutputWriter, attach_filename, output_stem

SAMPLES = 4  # per pixel and side, which are averaged
BORDER = 0.1  # around the square, relative to its side
FADE = 0.3  # width over which mirrored pixels become the median color, relative to its side
BLUR = 0.02  # standard deviation of the blur, relative to its side
MAX_SIDE = 8  # side of a square, relative to the longer side of the image
FORM = (
    "a face has five points (the eyes, the nose, the corners of the mouth, each from left to right "
    "in the image) or the 68 of iBUG, x and y of each in pixels"
)


class Square(NamedTuple):
    """The square of a face, in coordinates in which the first pixel spans 0 to 1."""

    center: np.ndarray  # x, y
    right: np.ndarray  # from the center to the middle of the right side

    @property
    def side(self) -> float:
        return 2 * math.hypot(*self.right)

    @property
    def down(self) -> np.ndarray:
        return np.array([-self.right[1], self.right[0]])


def eyes_and_mouth(points: np.ndarray) -> np.ndarray:
    """Eyes and corners of the mouth (4, 2), each from left to right."""
    if points.shape == (68, 2):
        return np.stack([points[36:42].mean(0), points[42:48].mean(0), points[48], points[54]])
    return points[[0, 1, 3, 4]]


def square_of(points: np.ndarray) -> Square:
    """The square around a face (5 or 68, 2). Raises ValueError if the points are no face."""
    if points.shape not in ((5, 2), (68, 2)):
        raise ValueError(f"{FORM}, got {points.shape}")
    if not (np.abs(points) < MAX_VALUE).all():  # also NaN
        raise ValueError(
            f"points must be pixels, below {MAX_VALUE:g} in absolute value, got {points.min():g} "
            f"to {points.max():g}"
        )
    left, right, mouth0, mouth1 = eyes_and_mouth(points.astype(float))
    eyes = (left + right) / 2
    to_right = right - left
    to_mouth = (mouth0 + mouth1) / 2 - eyes
    if not to_right[0] * to_mouth[1] - to_right[1] * to_mouth[0] > 0:
        raise ValueError("the mouth must be below the eyes; points go from left to right")
    direction = to_right + np.array([to_mouth[1], -to_mouth[0]])  # that vector, turned right
    half = max(2.0 * math.hypot(*to_right), 1.8 * math.hypot(*to_mouth))
    center = eyes + 0.1 * to_mouth + 0.5  # coordinates of points are those of pixel centers
    return Square(center, direction / math.hypot(*direction) * half)


def aligned(image: Image.Image, points: np.ndarray, size: int) -> Image.Image:
    """Crop the face with these points, upright in a square of `size` pixels a side."""
    square = square_of(points)
    if square.side > MAX_SIDE * max(image.size) or square.side < 1:
        raise ValueError(
            f"the square would have {square.side:.4g} pixels a side, in an image of "
            f"{image.width}x{image.height}; are the points of another one?"
        )
    if (factor := int(square.side / size / 2)) > 1:  # enough pixels are left to average
        image = image.reduce(factor)
        square = Square(square.center / factor, square.right / factor)
    image, square = around(image, square)
    fine = size * SAMPLES
    first = square.center - square.right - square.down
    (a, d), (b, e), (c, f) = 2 * square.right / fine, 2 * square.down / fine, first
    affine = Image.Transform.AFFINE
    bilinear = Image.Resampling.BILINEAR
    square_image = image.transform((fine, fine), affine, (a, b, c, d, e, f), bilinear)
    return square_image.resize((size, size), Image.Resampling.LANCZOS)


def around(image: Image.Image, square: Square) -> tuple[Image.Image, Square]:
    """The part of the image around the square, with a border, and the square in it.

    Beyond its edges, the image is mirrored, blurred, and fades to the median color.
    """
    reach = np.abs(square.right) + np.abs(square.down)
    border = math.ceil(BORDER * square.side)
    low = np.floor(square.center - reach).astype(int) - border
    high = np.ceil(square.center + reach).astype(int) + border
    size = np.array(image.size)
    inside = np.maximum(low, 0), np.minimum(high, size)
    if (inside[0] >= inside[1]).any():
        raise ValueError("the face is outside of the image; are the points of another one?")
    (left, top), (right, bottom) = (edge.tolist() for edge in inside)
    image = image.crop((left, top, right, bottom))
    moved = Square(square.center - inside[0], square.right)
    if ((square.center - reach >= 0) & (square.center + reach <= size)).all():
        return image, moved
    widths = np.maximum(np.stack([-low, high - size]), math.ceil(FADE * square.side))
    whole = mirrored(image, widths, BLUR * square.side)
    return whole, Square(moved.center + widths[0], moved.right)


def mirrored(image: Image.Image, widths: np.ndarray, blur: float) -> Image.Image:
    """Add mirrored margins of these widths ((left, top), (right, bottom))."""
    (left, top), (right, bottom) = widths.tolist()
    pixels = np.asarray(image)
    channels = ((0, 0),) * (pixels.ndim - 2)
    whole = np.pad(pixels, ((top, bottom), (left, right), *channels), mode="reflect")
    height, width = whole.shape[:2]
    x = np.arange(width)
    y = np.arange(height)[:, None]
    # distance beyond the image: 1 at the rim, 0 at the image's edge, negative inside
    beyond_x = np.maximum(1 - x / left, 1 - (width - 1 - x) / right)
    beyond_y = np.maximum(1 - y / top, 1 - (height - 1 - y) / bottom)
    beyond = np.maximum(beyond_x, beyond_y).reshape(height, width, *[1] * (pixels.ndim - 2))
    blurred = np.asarray(Image.fromarray(whole).filter(ImageFilter.GaussianBlur(blur)))
    mixed = whole + (blurred - whole.astype(float)) * np.clip(1 + 3 * beyond, 0, 1)
    mixed += (np.median(pixels, axis=(0, 1)) - mixed) * np.clip(beyond, 0, 1)
    return Image.fromarray(np.clip(np.rint(mixed), 0, 255).astype(np.uint8))


def read_landmarks(path: Path) -> dict[str, list[list[str]]]:
    """Read a CSV of faces: a line is an image name, then x and y of each point.

    Returns name -> numbers of each face. Raises ValueError if there is none.
    """
    faces: dict[str, list[list[str]]] = {}
    with attach_filename(path):
        content = path.read_bytes()
    try:
        lines = csv_lines(content)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"the landmarks in {path} cannot be used: {error}") from error
    for i, (name, *numbers) in enumerate(lines):
        if i > 0 or is_image(name):  # else a header
            faces.setdefault(name.replace("\\", "/"), []).append(numbers)
    if not faces:
        raise ValueError(f"{path} has no landmarks; {FORM}")
    return faces


def points_of(numbers: Sequence[str]) -> np.ndarray:
    points = np.array(numbers, float)
    return points.reshape(-1, 2) if points.size % 2 == 0 else points


def align_files(
    source: Path,
    landmarks: Mapping[str, Sequence[Sequence[str]]],
    out: Path,
    size: int,
    *,
    outputs: OutputWriter = KEEP_EXISTING,
    console: Console = SILENT,
) -> tuple[dict[Path, float], list[ValueError | OSError]]:
    """Write a PNG of each face of an image, or of the images in a folder, to the folder `out`.

    A file has the name of its image; several faces add `-0`, `-1`, ... Returns each file with the
    side of its square in the image, in pixels, and the errors of skipped images and faces.
    """
    folder = source.parent if source.is_file() else source
    names = [source.name] if source.is_file() else list(landmarks)
    left_out: list[ValueError | OSError] = []
    files: dict[str, list[Path]] = {}
    for name in names:
        path = out / name
        if name not in landmarks or not (folder / name).is_file():
            left_out.append(ValueError(f"{name} must be an image in {folder} and have landmarks"))
        elif out.resolve() not in path.resolve().parents:
            left_out.append(ValueError(f"{path} would be outside of {out}"))
        else:
            faces = len(landmarks[name])
            ends = [""] if faces == 1 else [f"-{i}" for i in range(faces)]
            files[name] = [path.with_name(f"{output_stem(path)}{end}.png") for end in ends]
    sources = [folder / name for name in files]
    outputs.check(*chain.from_iterable(files.values()), sources=sources, exist_ok=True)
    sides: dict[Path, float] = {}
    for done, name in enumerate(files, 1):
        image: Image.Image | None = None
        for file, numbers in zip(files[name], landmarks[name], strict=True):
            try:
                with image_errors(name):
                    points = points_of(numbers)
                    side = square_of(points).side
                if image is None:
                    with quiet_decoding():
                        image = decode((folder / name).read_bytes(), name=str(folder / name))
                with image_errors(name):
                    square = aligned(image, points, size)
            except (ValueError, OSError) as error:
                left_out.append(error)
                continue
            buffer = io.BytesIO()
            square.save(buffer, "png")
            outputs.content(file, buffer.getvalue())
            sides[file] = side
        console.progress("aligned", done, len(files))
    return sides, left_out
