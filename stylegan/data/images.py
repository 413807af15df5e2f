"""One stated policy for turning any image file into 8-bit pixels."""

import contextlib
import functools
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import IO, Literal

import numpy as np
from PIL import ExifTags, Image, ImageOps, features

from stylegan.messages import readable, reason_of

FORMATS = {  # as Pillow names them, with their endings
    "PNG": (".png",),
    "JPEG": (".jpg", ".jpeg"),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "GIF": (".gif",),
}
HEIC = (".heic", ".heif")  # not read by every installation
SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that exchange width and height
MAX_PIXELS = 2**27  # 11585 x 11585, half a gigabyte once decoded
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
WHITE = (255, 255, 255, 255)

# How a picture becomes a square: center | stretch | pad | "pad 3:4"; see `Fit`
Crop = str
CROPS = ("center", "pad", "stretch")
SLIMMEST = 16  # aspect


def read_image(content: bytes, *, channels: int = 3, name: str = "image") -> np.ndarray:
    """The pixels of an image file as uint8 (channels, H, W).

    - The content, not the name, decides the format: PNG, JPEG, WebP, BMP, TIFF or GIF; AVIF where
      Pillow was built with it, HEIC with pillow-heif. The first frame or page is taken.
    - The EXIF orientation is applied. Colour profiles are ignored, also for CMYK.
    - Palettes are looked up. Transparency is laid over white; 4 channels keep it as alpha.
    - Gray is replicated to three channels; 1 channel is gray (luma of a colour image).
    - 16-bit gray is scaled by 1/257 and rounded; 16-bit colour keeps its high byte.

    A ValueError names the file and the cause: what cannot be decoded, also a file cut short; 32-bit
    pixels, whose range is unknown; more than `MAX_PIXELS` pixels, before they are decoded.
    """
    with quiet_decoding():
        return planes(decode(content, channels=channels, name=name))


@functools.cache
def formats() -> dict[str, tuple[str, ...]]:
    """The formats that can be read here, with their endings."""
    found = FORMATS | ({"AVIF": (".avif",)} if features.check("avif") else {})
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return found
    register_heif_opener()
    return found | {"HEIF": HEIC}


def extensions() -> tuple[str, ...]:
    return sum(formats().values(), ())


def is_image(name: str) -> bool:
    """Whether the name ends like that of an image that can be read here."""
    return name.lower().endswith(extensions())


@contextlib.contextmanager
def quiet_decoding() -> Iterator[None]:
    """Silence Pillow's remarks on odd metadata: only whether the pixels can be read matters.
    Warning filters belong to the process, so this goes around threads, not inside them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MAX_PIXELS decides
        yield


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn whatever a damaged file raises into a ValueError with its name."""
    try:
        yield
    except Image.UnidentifiedImageError:
        *known, last = formats()
        what = f"not a {', '.join(known)} or {last} image, or damaged"
        raise ValueError(f"{name}: {what}") from None
    except Exception as error:
        raise ValueError(f"{name}: {reason_of(error)}") from error


def open_image(file: IO[bytes], name: str) -> Image.Image:
    """The image in a file; its pixels are not decoded yet."""
    with reading(name):
        if not file.read(1):
            raise ValueError("the file is empty")
        file.seek(0)
        image = Image.open(file, formats=list(formats()))
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise ValueError(f"{width}x{height} pixels are more than the limit of {MAX_PIXELS}")
        check_mode(image)
        return image


def check_mode(image: Image.Image) -> None:
    """ValueError for pixels that cannot be brought to 8 bits."""
    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels have no known range; save it with 8 or 16 bits")


def head(file: IO[bytes], name: str = "image") -> tuple[int, int, str]:
    """Upright width and height, and Pillow's mode, from the head of the file alone."""
    image = open_image(file, name)
    with reading(name):
        width, height = image.size
        orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation)
        if orientation in SIDEWAYS and image.format != "TIFF":  # whose size is upright
            width, height = height, width
    return width, height, image.mode


def decode(content: bytes, *, channels: int = 3, name: str = "image") -> Image.Image:
    """The image as Pillow mode L, RGB or RGBA, by the policy of `read_image`."""
    return normalize(open_image(io.BytesIO(content), name), channels=channels, name=name)


def normalize(image: Image.Image, *, channels: int, name: str = "image") -> Image.Image:
    """Decoded, upright, and brought to the mode of `channels`: L, RGB or RGBA."""
    with reading(name):  # damage, a broken orientation or palette, a mode without conversion
        check_mode(image)
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16"):
            scaled = np.asarray(image).astype(np.float32) / 257
            image = Image.fromarray(np.rint(scaled).astype(np.uint8))
        if image.has_transparency_data or channels == 4:
            image = image.convert("RGBA")
        if image.mode == "RGBA" and channels != 4:
            image = Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image)
        return image.convert(MODES[channels])


def planes(image: Image.Image) -> np.ndarray:
    """Mode L, RGB or RGBA as uint8 (C, H, W)."""
    pixels = np.asarray(image).reshape(image.height, image.width, -1)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def premultiplied(pixels: np.ndarray) -> np.ndarray:
    """Pixels uint8 (4, H, W) with their colours multiplied by alpha, rounded."""
    product = pixels[:3].astype(np.uint16) * pixels[3]
    return np.concatenate([((product + 127) // 255).astype(np.uint8), pixels[3:]])


def unpremultiply(pixels: np.ndarray) -> np.ndarray:
    """Undo `premultiplied`, for pixels uint8 (..., 4, H, W), as nearly as 8 bits allow."""
    alpha = np.maximum(pixels[..., 3:, :, :], 1).astype(np.uint16)
    colours = (pixels[..., :3, :, :] * np.uint16(255) + alpha // 2) // alpha
    colours = np.minimum(colours, 255).astype(np.uint8)
    return np.concatenate([colours, pixels[..., 3:, :, :]], axis=-3)


def from_array(pixels: np.ndarray) -> Image.Image:
    """Pixels uint8 (H, W), or (H, W, C) with 1, 3 or 4 channels, as an image."""
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or pixels.shape[2:] in ((3,), (4,))):
        wanted = "uint8 (height, width) or (height, width, 1, 3 or 4)"
        raise ValueError(f"an array of an image is {wanted}, not {pixels.dtype} {pixels.shape}")
    return Image.fromarray(np.ascontiguousarray(pixels))


@dataclass(frozen=True)
class Fit:
    """What a `Crop` says. Pictures are brought to a square of the resolution:

    - `center`: the largest centred square.
    - `pad`: the largest centred part of the aspect (width to height, 4:3 unless one is given as in
      `pad 3:4`) between black bars, as the official LSUN cars (512x384 in 512x512).
    - `stretch`: the whole picture, squeezed along its longer side.
    """

    kind: Literal["center", "pad", "stretch"] = "center"
    aspect: tuple[int, int] = (1, 1)  # width, height

    @classmethod
    def of(cls, crop: Crop) -> "Fit":
        """ValueError for a text that is not a `Crop`."""
        if crop in CROPS:
            return cls(crop, (4, 3) if crop == "pad" else (1, 1))  # type: ignore[arg-type]
        if found := re.fullmatch(r"pad (\d{1,5}):(\d{1,5})", crop, re.ASCII):
            width, height = int(found[1]), int(found[2])
            if 0 < max(width, height) <= SLIMMEST * min(width, height):
                return cls("pad", Fraction(width, height).as_integer_ratio())
        known = f"{', '.join(CROPS)} or 'pad W:H' (up to {SLIMMEST}:1)"
        raise ValueError(f"crop must be {known}, not {readable(repr(crop), 60)}")

    def __str__(self) -> str:
        if self.kind == "pad" and self.aspect != (4, 3):
            return "pad {}:{}".format(*self.aspect)
        return self.kind

    def native_size(self, width: int, height: int) -> int:
        """The resolution that a picture has to offer: the side of the square it fills."""
        across, down = self.aspect
        if across >= down:
            return min(width, height * across // down)
        return min(height, width * down // across)

    def active_rectangle(self, resolution: int) -> tuple[int, int, int, int] | None:
        """top, bottom, left, right of the part of a square that is not padding; None: all of it."""
        across, down = self.aspect
        if across == down:
            return None
        short = resolution * min(across, down) // max(across, down)
        short = max(short - short % 2, 2)  # both margins are equal
        start = (resolution - short) // 2
        if across > down:
            return start, start + short, 0, resolution
        return 0, resolution, start, start + short

    def square(self, image: Image.Image, resolution: int) -> Image.Image:
        """The image brought to (resolution, resolution); see `native_size` for what that needs."""
        top, bottom, left, right = self.active_rectangle(resolution) or (0, resolution) * 2
        width, height = map(float, image.size)
        if self.kind != "stretch":
            size = self.native_size(*image.size)
            width, height = size * (right - left) / resolution, size * (bottom - top) / resolution
        x, y = (image.width - width) // 2, (image.height - height) // 2
        box = (x, y, x + width, y + height)
        picture = image.resize((right - left, bottom - top), Image.Resampling.LANCZOS, box=box)
        if self.kind != "pad":
            return picture
        black = (0, 0, 0, 255) if image.mode == "RGBA" else 0
        canvas = Image.new(image.mode, (resolution, resolution), black)
        canvas.paste(picture, (left, top))
        return canvas
