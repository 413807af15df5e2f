"""From any image file to 8-bit pixels."""

import contextlib
import functools
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import IO, Literal

import numpy as np
from PIL import ExifTags, Image, ImageCms, ImageOps, PngImagePlugin, TiffImagePlugin, features

from stylegan.schedule import check_resolution
from stylegan.utils.filesystem import attach_filename, is_of_system, what_begins_with
from stylegan.utils.text import error_reason, sanitize

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")  # as Pillow names them
HEIC_NAMES = (".heic", ".heics", ".heif", ".heifs", ".hif")
# After the size of the first box of a file: HEIF's brands, as ISO/IEC 23008-12 lists them.
HEIC_START = re.compile(rb"....ftyp(heic|heix|heim|heis|hevc|hevx|mif1|msf1)", re.DOTALL)
DECODER_ERROR = re.compile(r"decoder error -?\d+$")  # of libtiff: Pillow gives no other reason
SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height
MAX_PIXELS = 2**27  # 11585 x 11585, half a gigabyte when decoded
OF_8_BITS = ("1", "L", "RGB")  # raw modes of PNG for which Pillow matches the transparent color
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
FIRST_TO = {"La": "LA", "LAB": "RGB"}  # an intermediate mode, as Pillow has no direct conversion
WHITE = (255, 255, 255, 255)
# Largest difference of any color from sRGB, in gray levels, of profiles that mean sRGB.
SAME_COLORS = 2
LEVELS = np.linspace(0, 255, 6).astype(np.uint8)  # of each channel, to compare profiles at

# How an image becomes a square: center | stretch | pad | "pad 3:4"; see `Fit`
Crop = str
CROPS = ("center", "pad", "stretch")
SLIMMEST = 16  # largest ratio of the sides of an aspect


def read_image(content: bytes, *, channels: int = 3, name: str = "image") -> np.ndarray:
    """Read the pixels of an image file as uint8 (channels, H, W).

    - The format is detected from the content: PNG, JPEG, WebP, BMP, TIFF or GIF; AVIF if Pillow was
      built with it, HEIC with pillow-heif. Of several frames or pages, the first is read.
    - The EXIF orientation is applied, and colors are converted from an embedded profile to sRGB.
      A damaged orientation or profile is ignored.
    - Palettes are looked up. Transparency is composited over white; 4 channels keep it as alpha.
    - Gray is replicated to three channels; 1 channel is gray (luma of a color image).
    - 16-bit gray is scaled by 1/257 and rounded; 16-bit color keeps its high byte.

    Raises ValueError, with the name and the cause, if Pillow cannot decode the file or misreads it
    (`check_pixels`), or if it has more than `MAX_PIXELS` pixels.
    """
    with quiet_decoding():
        return to_chw(decode(content, channels=channels, name=name))


@functools.cache
def formats() -> tuple[str, ...]:
    """Pillow's names of the formats that can be read on this machine."""
    readable_here = [*FORMATS, *(["AVIF"] if features.check("avif") else [])]
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return tuple(readable_here)
    register_heif_opener()
    return (*readable_here, "HEIF")


@functools.cache
def extensions() -> tuple[str, ...]:
    """Extensions of image files, including HEIC, which is skipped with a reason if unreadable."""
    kinds = formats()  # first: it may register one
    kinds = (*kinds, "MPO")  # JPEG with a second image after it, as stereo cameras write
    of_kinds = [end for end, kind in Image.registered_extensions().items() if kind in kinds]
    return tuple(dict.fromkeys([*of_kinds, *HEIC_NAMES]))


def is_image(name: str) -> bool:
    """Whether the name has the extension of an image."""
    return name.lower().endswith(extensions())


@contextlib.contextmanager
def quiet_decoding() -> Iterator[None]:
    """Silence Pillow's warnings about metadata, which say nothing about the pixels."""
    with warnings.catch_warnings():  # global to the process: enter it outside of threads
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MAX_PIXELS decides
        yield


@contextlib.contextmanager
def image_errors(name: str) -> Iterator[None]:
    """Turn errors of a damaged file into a ValueError with its name; name those of the system."""
    try:
        with attach_filename(name):
            yield
    except MemoryError as error:
        raise MemoryError(f"{name}: not enough memory to read it") from error
    except Exception as error:
        if is_of_system(error):
            raise
        reason = DECODER_ERROR.sub(r"\g<0>: damaged, or a rare compression", error_reason(error))
        raise ValueError(f"{name}: {reason}") from error


def open_image(file: IO[bytes], name: str) -> Image.Image:
    """Open an image file without decoding its pixels."""
    with image_errors(name):
        start = file.read(512)
        if what := what_begins_with(start):
            raise ValueError(f"the file is {what}")
        file.seek(0)
        try:
            image = Image.open(file, formats=list(formats()))
        except Image.UnidentifiedImageError as error:
            if HEIC_START.match(start):
                raise ValueError("a HEIC image; pip install pillow-heif to read it") from error
            *others, last = formats()
            raise ValueError(
                f"not a {', '.join(others)} or {last} image, or a damaged or unsupported one"
            ) from error
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise ValueError(f"image must have at most {MAX_PIXELS} pixels, got {width}x{height}")
        return image


def check_pixels(image: Image.Image) -> None:
    """Raise ValueError if the pixels have no 8-bit range, or if Pillow misreads them."""
    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels have no defined range; save it with 8 or 16 bits")
    if isinstance(image, PngImagePlugin.PngImageFile) and misses_transparency(image):
        raise ValueError(
            "the transparent color must have 8 bits; save it with 8, or with an alpha channel"
        )
    if isinstance(image, TiffImagePlugin.TiffImageFile) and misread_by_pillow(image):
        raise ValueError(
            "a TIFF that Pillow misreads (other than 1, 2, 4, 8 or 16 unsigned bits; 16 bits in "
            "separate planes or with 0 as white; an 8-bit palette); save it as 8-bit RGB"
        )


def misses_transparency(image: PngImagePlugin.PngImageFile) -> bool:
    """Whether Pillow misses the transparent color: it scales the pixels, but not that color."""
    clear = image.info.get("transparency")
    if clear is None or image.mode == "P":
        return False
    stored = image.tile[0].args if image.tile else image.mode  # already loaded
    return stored not in OF_8_BITS or np.max(clear) > 255


def misread_by_pillow(image: TiffImagePlugin.TiffImageFile) -> bool:
    """Whether Pillow decodes a TIFF differently from the standard or from most programs."""
    tags = image.tag_v2
    bits = np.max(tags.get(TiffImagePlugin.BITSPERSAMPLE, 1))
    if bits == 16:  # at fewer bits, Pillow respects both tags
        if tags.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == 0:
            return True
        if tags.get(TiffImagePlugin.PLANAR_CONFIGURATION) == 2 and len(image.getbands()) > 1:
            return True
    signed = 2 in np.ravel(tags.get(TiffImagePlugin.SAMPLEFORMAT, 1))
    palette = tags.get(TiffImagePlugin.COLORMAP, (0,)) if image.mode == "P" else (0,)
    return signed or bits not in (1, 2, 4, 8, 16) or 0 < max(palette) < 256


def read_header(file: IO[bytes], name: str = "image") -> tuple[int, int, str]:
    """Read upright width and height, and Pillow's mode, from the header alone."""
    image = open_image(file, name)
    with image_errors(name):
        check_pixels(image)
    width, height = image.size
    if orientation_of(image) in SIDEWAYS and image.format != "TIFF":  # its size is upright already
        width, height = height, width
    return width, height, image.mode


def orientation_of(image: Image.Image) -> int | None:
    """EXIF orientation. Returns None if there is none, or if EXIF is damaged."""
    try:
        orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation)
    except Exception:  # damaged EXIF can raise almost anything
        return None
    return orientation if isinstance(orientation, int) else None


def decode(content: bytes, *, channels: int = 3, name: str = "image") -> Image.Image:
    """Decode a file to Pillow's mode L, RGB or RGBA; see `read_image`."""
    return normalize(open_image(io.BytesIO(content), name), channels=channels, name=name)


def normalize(image: Image.Image, *, channels: int, name: str = "image") -> Image.Image:
    """Decode an opened image, upright and in sRGB, to mode L, RGB or RGBA."""
    with image_errors(name):  # damage, a broken palette, a mode without conversion
        check_pixels(image)
        profile = image.info.get("icc_profile")
        image.load()
        # Pillow turns a TIFF upright when it loads it
        if image.format != "TIFF" and orientation_of(image) is not None:
            image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16"):
            image = Image.fromarray(np.rint(np.asarray(image, np.float32) / 257).astype(np.uint8))
        if profile:
            image = to_srgb(image, profile)
        if image.mode in FIRST_TO:
            image = image.convert(FIRST_TO[image.mode])
        if image.has_transparency_data or channels == 4:
            image = image.convert("RGBA")
        if image.mode == "RGBA" and channels != 4:
            image = Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image)
        return image.convert(MODES[channels])


def channels_of(mode: str) -> int | Literal["auto"]:
    """Number of channels of "L", "RGB" or "RGBA", in any case; "auto" stays as it is."""
    if mode.upper() == "AUTO":
        return "auto"
    for channels, name in MODES.items():
        if name == mode.upper():
            return channels
    raise ValueError(f"channels must be auto, L, RGB or RGBA, got {sanitize(mode, 40)}")


def to_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    """Convert colors from `profile`, unless it is damaged, of another mode, or sRGB itself."""
    color = image.convert("RGB") if image.mode in ("P", "1") else image
    mode = {"LA": "L", "RGBA": "RGB"}.get(color.mode, color.mode)
    transform = transform_to_srgb(profile, mode)
    if transform is None:
        return image
    alpha = image.convert("RGBA").getchannel("A") if image.has_transparency_data else None
    converted: Image.Image = transform.apply(color.convert(mode))
    if mode == "L":
        converted = converted.getchannel("G")  # all three are equal
    if alpha is not None:
        converted.putalpha(alpha)
    return converted


@functools.lru_cache(maxsize=64)
def transform_to_srgb(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Color transform for images of Pillow's `mode`. Returns None if none is needed or possible."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        target = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        transform = ImageCms.ImageCmsTransform(source, target, mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, KeyError, TypeError):
        return None
    channels = len(Image.new(mode, (1, 1)).getbands())
    samples = np.stack(np.meshgrid(*[LEVELS] * channels, indexing="ij"), axis=-1)
    colors = Image.frombytes(mode, (samples.size // channels, 1), samples.tobytes())
    before = np.asarray(colors.convert("RGB"), np.int16)
    after = np.asarray(transform.apply(colors), np.int16)
    return None if np.abs(before - after).max() <= SAME_COLORS else transform


def to_chw(image: Image.Image) -> np.ndarray:
    """Pixels of an image of mode L, RGB or RGBA, uint8 (C, H, W)."""
    pixels = np.asarray(image).reshape(image.height, image.width, -1)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def premultiply(pixels: np.ndarray) -> np.ndarray:
    """Multiply colors by alpha, rounded: uint8 (4, H, W) -> uint8 (4, H, W)."""
    product = pixels[:3].astype(np.uint16) * pixels[3]
    return np.concatenate([((product + 127) // 255).astype(np.uint8), pixels[3:]])


def unpremultiply(pixels: np.ndarray) -> np.ndarray:
    """Undo `premultiply` as closely as 8 bits allow: uint8 (..., 4, H, W) -> the same shape."""
    alpha = np.maximum(pixels[..., 3:, :, :], 1).astype(np.uint16)
    colors = (pixels[..., :3, :, :] * np.uint16(255) + alpha // 2) // alpha
    colors = np.minimum(colors, 255).astype(np.uint8)
    return np.concatenate([colors, pixels[..., 3:, :, :]], axis=-3)


def to_pil(pixels: np.ndarray) -> Image.Image:
    """Make an image from uint8 (H, W), or (H, W, C) with 1, 3 or 4 channels."""
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or pixels.shape[2:] in ((3,), (4,))):
        wanted = "uint8 (height, width) or (height, width, 1, 3 or 4)"
        raise ValueError(f"image array must be {wanted}, got {pixels.dtype} {pixels.shape}")
    return Image.fromarray(np.ascontiguousarray(pixels))


@dataclass(frozen=True)
class Fit:
    """A parsed `Crop`: how images become squares.

    - `center`: the largest centered square.
    - `pad`: the largest centered part of this aspect (width to height; 4:3 by default, else as in
      `pad 3:4`) between black bars, like the official LSUN cars (512x384 in 512x512).
    - `stretch`: the whole image, squeezed along its longer side.
    """

    kind: Literal["center", "pad", "stretch"] = "center"
    aspect: tuple[int, int] = (1, 1)  # width, height

    @classmethod
    def parse(cls, crop: Crop) -> "Fit":
        """Parse a `Crop`. Raises ValueError for any other text."""
        if crop in CROPS:
            return cls(crop, (4, 3) if crop == "pad" else (1, 1))  # type: ignore[arg-type]
        if ratio := re.fullmatch(r"pad (\d{1,5}):(\d{1,5})", crop, re.ASCII):
            width = int(ratio[1])
            height = int(ratio[2])
            if 0 < max(width, height) <= SLIMMEST * min(width, height):
                return cls("pad", Fraction(width, height).as_integer_ratio())
        known = f"{', '.join(CROPS)} or 'pad W:H' (up to {SLIMMEST}:1)"
        raise ValueError(f"crop must be {known}, got {sanitize(repr(crop), 60)}")

    @classmethod
    def of_rectangle(cls, rectangle: Sequence[int]) -> "Fit":
        """The padding with this active rectangle (top, bottom, left, right)."""
        top, bottom, left, right = rectangle
        return cls.parse(f"pad {right - left}:{bottom - top}")

    def __str__(self) -> str:
        if self.kind == "pad" and self.aspect != (4, 3):
            return "pad {}:{}".format(*self.aspect)
        return self.kind

    def native_size(self, width: int, height: int) -> int:
        """Native resolution of an image: the side of the square that it fills."""
        across, down = self.aspect
        if across >= down:
            size = min(width, height * across // down)
        else:
            size = min(height, width * down // across)
        larger = 1 << size.bit_length()  # filled if its rectangle, of whole pixels, is
        top, bottom, left, right = self.active_rectangle(larger) or (0, larger) * 2
        return larger if right - left <= width and bottom - top <= height else size

    def active_rectangle(self, resolution: int) -> tuple[int, int, int, int] | None:
        """Top, bottom, left, right of the square without its padding. None: the whole square."""
        across, down = self.aspect
        if across == down:
            return None
        short = resolution * min(across, down) // max(across, down)
        short = max(short - short % 2, 2)  # even, so that both margins are equal
        start = (resolution - short) // 2
        if across > down:
            return start, start + short, 0, resolution
        return 0, resolution, start, start + short

    def square(self, image: Image.Image, resolution: int) -> Image.Image:
        """Resize and crop or pad an image to (resolution, resolution)."""
        top, bottom, left, right = self.active_rectangle(resolution) or (0, resolution) * 2
        width, height = map(float, image.size)
        if self.kind != "stretch":
            size = self.native_size(*image.size)
            width = min(width, size * (right - left) / resolution)  # a smaller image is enlarged
            height = min(height, size * (bottom - top) / resolution)
        x = (image.width - width) // 2
        y = (image.height - height) // 2
        box = (x, y, x + width, y + height)
        resized = image.resize((right - left, bottom - top), Image.Resampling.LANCZOS, box=box)
        if self.kind != "pad":
            return resized
        black = (0, 0, 0, 255) if image.mode == "RGBA" else 0
        canvas = Image.new(image.mode, (resolution, resolution), black)
        canvas.paste(resized, (left, top))
        return canvas


@dataclass(frozen=True)
class Preparation:
    """How images become the squares of a store."""

    resolution: int | None = None  # None: the largest that the first usable image fills
    crop: Crop = "center"
    channels: int = 3
    premultiplied: bool = False  # colors times alpha, so that averages ignore transparent pixels
    include: tuple[str, ...] = ()  # first-level sub-folders to use; empty: all

    def __post_init__(self) -> None:
        if self.resolution is not None:
            check_resolution(self.resolution)
        Fit.parse(self.crop)
        if self.channels not in MODES:
            raise ValueError(f"channels must be 1, 3 or 4, got {self.channels}")
        if self.premultiplied and self.channels != 4:
            raise ValueError(f"premultiplied needs 4 channels, got {self.channels}")

    @property
    def fit(self) -> Fit:
        return Fit.parse(self.crop)

    def key(self) -> list[object]:
        """The part of a cached store's name that does not depend on the files."""
        shape: list[object] = [self.resolution, self.crop, self.channels]
        return [*shape, "premultiplied"] if self.premultiplied else shape
