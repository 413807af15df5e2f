"""One stated policy for turning any image file into 8-bit pixels."""

import contextlib
import io
import os
import warnings
from collections.abc import Iterator
from typing import Literal

import numpy as np
from PIL import Image, ImageOps

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")
MAX_PIXELS = 2**27  # 11585 x 11585, half a gigabyte once decoded
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
WHITE = (255, 255, 255, 255)

Crop = Literal["center", "pad"]


def read_image(content: bytes, *, channels: int = 3, name: str = "image") -> np.ndarray:
    """The pixels of an image file as uint8 (channels, H, W).

    - The content, not the name, decides the format: PNG, JPEG, WebP, BMP, TIFF or GIF.
    - The EXIF orientation is applied. Colour profiles are ignored.
    - The first frame of an animation or first of several pages is taken.
    - Palettes are looked up. Transparency is laid over white; 4 channels keep it as alpha.
    - Gray is replicated to three channels; 1 channel is gray (luma of a colour image).
    - 16-bit gray is scaled by 1/257 and rounded; 16-bit colour keeps its high byte.
    - CMYK is converted without a profile. 32-bit pixels are refused: their range is unknown.
    - More than `MAX_PIXELS` pixels are refused before they are decoded.

    What cannot be decoded, also a file cut short, is a ValueError naming the file and the cause.
    """
    with quiet_decoding():
        return planes(decode(content, channels=channels, name=name))


def is_image(name: str) -> bool:
    """Whether the name ends like that of an image."""
    return os.path.splitext(name)[1].lower() in EXTENSIONS


@contextlib.contextmanager
def quiet_decoding() -> Iterator[None]:
    """Silence Pillow's remarks on odd metadata: only whether the pixels can be read matters.

    Warning filters belong to the process, so this goes around threads, not inside them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MAX_PIXELS decides
        yield


def decode(content: bytes, *, channels: int = 3, name: str = "image") -> Image.Image:
    """The image as Pillow mode L, RGB or RGBA, by the policy of `read_image`."""
    return normalize(open_image(content, name), channels=channels, name=name)


def open_image(content: bytes, name: str = "image") -> Image.Image:
    """The decoded first frame in its own mode and orientation."""
    if not content:
        raise ValueError(f"{name}: the file is empty")
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:
            size = f"{image.width}x{image.height}"
            raise ValueError(f"{size} pixels are more than the limit of {MAX_PIXELS}")
        image.load()
    except Image.UnidentifiedImageError:
        formats = ", ".join(FORMATS[:-1])
        raise ValueError(f"{name}: not a {formats} or {FORMATS[-1]} image, or damaged") from None
    except Exception as error:  # a damaged file can raise nearly anything in a decoder
        raise ValueError(f"{name}: {error or type(error).__name__}") from error
    return image


def normalize(image: Image.Image, *, channels: int, name: str = "image") -> Image.Image:
    """Orientation applied and brought to the mode of `channels`: L, RGB or RGBA."""
    if channels not in MODES:
        raise ValueError(f"images have 1, 3 or 4 channels, not {channels}")
    if image.mode in ("I", "F"):
        raise ValueError(f"{name}: 32-bit pixels have no known range; save it with 8 or 16 bits")
    try:
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16"):
            image = _gray_from_16_bit(image)
        if image.has_transparency_data or channels == 4:
            image = image.convert("RGBA")
        if image.mode == "RGBA" and channels != 4:
            image = Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image)
        return image if image.mode == MODES[channels] else image.convert(MODES[channels])
    except Exception as error:  # broken orientation or palette, a mode without conversion
        raise ValueError(f"{name}: {error or type(error).__name__}") from error


def _gray_from_16_bit(image: Image.Image) -> Image.Image:
    values = np.asarray(image).astype(np.float32)
    gray = Image.fromarray(np.rint(values / 257).astype(np.uint8))
    transparent = image.info.get("transparency")  # PNG: one gray value that is not drawn
    if isinstance(transparent, int):
        gray.putalpha(Image.fromarray(np.where(values == transparent, 0, 255).astype(np.uint8)))
    return gray


def planes(image: Image.Image) -> np.ndarray:
    """Mode L, RGB or RGBA as uint8 (C, H, W)."""
    pixels = np.asarray(image).reshape(image.height, image.width, -1)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def native_size(width: int, height: int, crop: Crop) -> int:
    """The resolution that an image has to offer: the side of the square it fills."""
    return min(width, height) if crop == "center" else min(width, height * 4 // 3)


def active_rows(resolution: int, crop: Crop) -> tuple[int, int]:
    """First row and end of the part of a square that shows the picture, not the padding."""
    if crop == "center":
        return 0, resolution
    height = resolution * 3 // 4
    top = (resolution - height) // 2
    return top, top + height


def fit_square(image: Image.Image, resolution: int, crop: Crop) -> Image.Image:
    """The image brought to (resolution, resolution); see `native_size` for what that needs.

    `center`: the largest centred square. `pad`: the largest centred 4:3 rectangle, scaled to the
    full width and centred in black, as the official LSUN cars (512x384 in 512x512).
    """
    if crop == "center" and image.size == (resolution, resolution):
        return image
    top, bottom = active_rows(resolution, crop)
    size = native_size(image.width, image.height, crop)
    width, height = size, size * (bottom - top) / resolution
    left, upper = (image.width - width) // 2, (image.height - height) // 2
    box = (left, upper, left + width, upper + height)
    picture = image.resize((resolution, bottom - top), Image.Resampling.LANCZOS, box=box)
    if crop == "center":
        return picture
    black = (0, 0, 0, 255) if image.mode == "RGBA" else 0
    canvas = Image.new(image.mode, (resolution, resolution), black)
    canvas.paste(picture, (0, top))
    return canvas
