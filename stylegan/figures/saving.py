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


def check_picture(path: Path) -> None:
    """ValueError unless `path` is the name of a picture that can be written, or replaced."""
    check_file(path, overwrite=True, endings=FORMATS)


def save_picture(path: Path, image: Image, *, overwrite: bool = False) -> None:
    """Write the picture. ValueError if the file exists with other content, without `overwrite`."""
    check_picture(path)
    buffer = io.BytesIO()
    image.save(buffer, **FORMATS[path.suffix.lower()])
    if path.is_file() and path.read_bytes() == buffer.getvalue():
        return
    check_file(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(buffer.getvalue())
