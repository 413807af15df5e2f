"""Pictures as files."""

import io
from pathlib import Path
from typing import Any

from PIL.Image import Image

from stylegan.disk import atomic_file, check_file

FORMATS: dict[str, dict[str, Any]] = {  # by ending
    ".png": {"format": "PNG"},
    ".webp": {"format": "WEBP", "lossless": True},
    ".jpg": {"format": "JPEG", "quality": 95, "subsampling": 0},
}
LARGEST_SIDE = {".webp": 16_383, ".jpg": 65_500}  # pixels that the format, or its library, allows


def check_picture(path: Path) -> None:
    """ValueError unless `path` is the name of a picture that can be written, or replaced."""
    check_file(path, overwrite=True, endings=FORMATS)


def save_picture(path: Path, image: Image, *, overwrite: bool = False) -> None:
    """Write the picture. ValueError if the file exists with other content, without `overwrite`, and
    for a picture too large for the format."""
    check_picture(path)
    ending = path.suffix.lower()
    largest = LARGEST_SIDE.get(ending, max(image.size))
    if max(image.size) > largest:
        raise ValueError(
            f"{path} would be {image.width}x{image.height}, but a {ending} has at most {largest} "
            "pixels a side; choose png, other --columns, or fewer pictures"
        )
    buffer = io.BytesIO()
    image.save(buffer, **FORMATS[ending])
    if path.is_file() and path.read_bytes() == buffer.getvalue():
        return
    check_file(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(buffer.getvalue())
