"""One stated policy for turning any image file into 8-bit pixels."""

import contextlib
import functools
import io
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import IO, Literal

import numpy as np
from PIL import ExifTags, Image, ImageCms, ImageOps, PngImagePlugin, TiffImagePlugin, features

from stylegan.machine.disk import errors_name, is_of_system, what_begins_with
from stylegan.machine.messages import readable, reason_of
from stylegan.schedule import check_resolution

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")  # as Pillow names them
HEIC_NAMES = (".heic", ".heics", ".heif", ".heifs", ".hif")
# After the size of the first box of a file: HEIF's brands, as ISO/IEC 23008-12 lists them.
HEIC_START = re.compile(rb"....ftyp(heic|heix|heim|heis|hevc|hevx|mif1|msf1)", re.DOTALL)
DECODER_ERROR = re.compile(r"decoder error -?\d+$")  # all that Pillow says of what libtiff refuses
SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that exchange width and height
MAX_PIXELS = 2**27  # 11585 x 11585, half a gigabyte once decoded
OF_8_BITS = ("1", "L", "RGB")  # raw modes of PNGs whose transparent color Pillow finds
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
FIRST_TO = {"La": "LA", "LAB": "RGB"}  # modes that Pillow does not convert to all of them
WHITE = (255, 255, 255, 255)
# Of any color, in gray levels: profiles that differ less from sRGB are sRGB written differently.
SAME_COLORS = 2
LEVELS = np.linspace(0, 255, 6).astype(np.uint8)  # of each channel, where profiles are compared

# How a picture becomes a square: center | stretch | pad | "pad 3:4"; see `Fit`
Crop = str
CROPS = ("center", "pad", "stretch")
SLIMMEST = 16  # aspect
USUAL_ASPECTS = ((4, 3), (3, 4), (3, 2), (2, 3), (16, 9), (9, 16))  # of films and photographs


def read_image(content: bytes, *, channels: int = 3, name: str = "image") -> np.ndarray:
    """Read the pixels of an image file as uint8 (channels, H, W).

    - The content, not the name, decides the format: PNG, JPEG, WebP, BMP, TIFF or GIF; AVIF where
      Pillow was built with it, HEIC with pillow-heif. The first frame or page is taken.
    - The EXIF orientation is applied, and colors of an embedded profile are converted to sRGB.
      Orientations and profiles that are damaged are ignored: the pixels are sound.
    - Palettes are looked up. Transparency is laid over white; 4 channels keep it as alpha.
    - Gray is replicated to three channels; 1 channel is gray (luma of a color image).
    - 16-bit gray is scaled by 1/257 and rounded; 16-bit color keeps its high byte.

    A ValueError names the file and the cause: what Pillow cannot decode, also a file cut short;
    what it misreads (`check_pixels`); more than `MAX_PIXELS` pixels, before they are decoded.
    """
    with quiet_decoding():
        return planes(decode(content, channels=channels, name=name))


@functools.cache
def formats() -> tuple[str, ...]:
    """Return the formats that can be read here."""
    readable_here = [*FORMATS, *(["AVIF"] if features.check("avif") else [])]
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return tuple(readable_here)
    register_heif_opener()
    return (*readable_here, "HEIF")


@functools.cache
def extensions() -> tuple[str, ...]:
    """Return the endings of the names of images: those that Pillow knows of the formats, and of
    HEIC, so that such a picture is left out with a reason where it cannot be read."""
    kinds = formats()  # first: it may register one
    kinds = (*kinds, "MPO")  # JPEG with a second picture behind it, as stereo cameras write
    of_kinds = [end for end, kind in Image.registered_extensions().items() if kind in kinds]
    return tuple(dict.fromkeys([*of_kinds, *HEIC_NAMES]))


def is_image(name: str) -> bool:
    """Return True if the name ends like an image's."""
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
    """Turn whatever a damaged file raises into a ValueError with its name. Errors of the system
    stay, with the name."""
    try:
        with errors_name(name):
            yield
    except MemoryError as error:
        raise MemoryError(f"{name}: no memory is left to read it") from error
    except Exception as error:
        if is_of_system(error):
            raise
        reason = DECODER_ERROR.sub(r"\g<0>: damaged, or compressed in a rare way", reason_of(error))
        raise ValueError(f"{name}: {reason}") from error


def open_image(file: IO[bytes], name: str) -> Image.Image:
    """Open the image in a file; its pixels are not decoded yet."""
    with reading(name):
        start = file.read(512)
        if what := what_begins_with(start):
            raise ValueError(f"the file is {what}")
        file.seek(0)
        try:
            image = Image.open(file, formats=list(formats()))
        except Image.UnidentifiedImageError as error:
            if HEIC_START.match(start):
                raise ValueError("a HEIC picture; pip install pillow-heif to read it") from error
            *others, last = formats()
            raise ValueError(
                f"not a {', '.join(others)} or {last} image, a damaged one, or one of a rare kind "
                "that cannot be read"
            ) from error
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise ValueError(f"{width}x{height} pixels are more than the limit of {MAX_PIXELS}")
        return image


def check_pixels(image: Image.Image) -> None:
    """Raise ValueError for pixels that cannot be brought to 8 bits, or that Pillow misreads."""
    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels have no known range; save it with 8 or 16 bits")
    if isinstance(image, PngImagePlugin.PngImageFile) and misses_transparency(image):
        raise ValueError(
            "a transparent color of other than 8 bits; save it with 8, or with an alpha channel"
        )
    if isinstance(image, TiffImagePlugin.TiffImageFile) and misread_by_pillow(image):
        raise ValueError(
            "a TIFF that Pillow misreads (other than 1, 2, 4, 8 or 16 unsigned bits; 16 bits in "
            "separate planes or with 0 as white; an 8-bit palette); save it as 8-bit RGB"
        )


def misses_transparency(image: PngImagePlugin.PngImageFile) -> bool:
    """Whether the transparent color of a PNG is not found: Pillow compares that of the file with
    the pixels as it has scaled them."""
    clear = image.info.get("transparency")
    if clear is None or image.mode == "P":
        return False
    stored = image.tile[0].args if image.tile else image.mode  # which is loaded already
    return stored not in OF_8_BITS or np.max(clear) > 255


def misread_by_pillow(image: TiffImagePlugin.TiffImageFile) -> bool:
    """Whether Pillow reads a TIFF against the standard or most programs."""
    tags = image.tag_v2
    bits = np.max(tags.get(TiffImagePlugin.BITSPERSAMPLE, 1))
    if bits == 16:  # with fewer, Pillow heeds both tags
        if tags.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == 0:
            return True
        if tags.get(TiffImagePlugin.PLANAR_CONFIGURATION) == 2 and len(image.getbands()) > 1:
            return True
    signed = 2 in np.ravel(tags.get(TiffImagePlugin.SAMPLEFORMAT, 1))
    palette = tags.get(TiffImagePlugin.COLORMAP, (0,)) if image.mode == "P" else (0,)
    return signed or bits not in (1, 2, 4, 8, 16) or 0 < max(palette) < 256


def head(file: IO[bytes], name: str = "image") -> tuple[int, int, str]:
    """Read upright width and height, and Pillow's mode, from the head of the file alone."""
    image = open_image(file, name)
    with reading(name):
        check_pixels(image)
    width, height = image.size
    if orientation_of(image) in SIDEWAYS and image.format != "TIFF":  # whose size is upright
        width, height = height, width
    return width, height, image.mode


def orientation_of(image: Image.Image) -> int | None:
    """Return the EXIF orientation; None if there is none, or EXIF that is damaged."""
    try:
        orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation)
    except Exception:  # damaged EXIF can raise almost anything
        return None
    return orientation if isinstance(orientation, int) else None


def decode(content: bytes, *, channels: int = 3, name: str = "image") -> Image.Image:
    """Decode the image to Pillow's mode L, RGB or RGBA, by the policy of `read_image`."""
    return normalize(open_image(io.BytesIO(content), name), channels=channels, name=name)


def normalize(image: Image.Image, *, channels: int, name: str = "image") -> Image.Image:
    """Decode an image, upright and in sRGB, to the mode of `channels`: L, RGB or RGBA."""
    with reading(name):  # damage, a broken palette, a mode without conversion
        check_pixels(image)
        profile = image.info.get("icc_profile")
        image.load()
        # a TIFF is upright once it is loaded
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
    """Number of channels of a mode. Raises ValueError unless it is "auto", "L", "RGB" or "RGBA"."""
    if mode.upper() == "AUTO":
        return "auto"
    for channels, name in MODES.items():
        if name == mode.upper():
            return channels
    raise ValueError(f"{readable(mode, 40)} is not auto, L, RGB or RGBA")


def to_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    """Convert the colors of an image from `profile`, unless that is damaged, does not fit, or is
    sRGB."""
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
    """Return the transform for images of Pillow's `mode`; None if none is needed."""
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


def planes(image: Image.Image) -> np.ndarray:
    """Return an image of mode L, RGB or RGBA as uint8 (C, H, W)."""
    pixels = np.asarray(image).reshape(image.height, image.width, -1)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def premultiplied(pixels: np.ndarray) -> np.ndarray:
    """Multiply the colors of pixels uint8 (4, H, W) by alpha, rounded."""
    product = pixels[:3].astype(np.uint16) * pixels[3]
    return np.concatenate([((product + 127) // 255).astype(np.uint8), pixels[3:]])


def unpremultiply(pixels: np.ndarray) -> np.ndarray:
    """Undo `premultiplied`, for pixels uint8 (..., 4, H, W), as nearly as 8 bits allow."""
    alpha = np.maximum(pixels[..., 3:, :, :], 1).astype(np.uint16)
    colors = (pixels[..., :3, :, :] * np.uint16(255) + alpha // 2) // alpha
    colors = np.minimum(colors, 255).astype(np.uint8)
    return np.concatenate([colors, pixels[..., 3:, :, :]], axis=-3)


def from_array(pixels: np.ndarray) -> Image.Image:
    """Make an image of pixels uint8 (H, W), or (H, W, C) with 1, 3 or 4 channels."""
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or pixels.shape[2:] in ((3,), (4,))):
        wanted = "uint8 (height, width) or (height, width, 1, 3 or 4)"
        raise ValueError(f"an array of an image is {wanted}, not {pixels.dtype} {pixels.shape}")
    return Image.fromarray(np.ascontiguousarray(pixels))


@dataclass(frozen=True)
class Fit:
    """The meaning of a `Crop`: how pictures are brought to a square of the resolution.

    - `center`: the largest centered square.
    - `pad`: the largest centered part of the aspect (width to height, 4:3 unless one is given as in
      `pad 3:4`) between black bars, as the official LSUN cars (512x384 in 512x512).
    - `stretch`: the whole picture, squeezed along its longer side.
    """

    kind: Literal["center", "pad", "stretch"] = "center"
    aspect: tuple[int, int] = (1, 1)  # width, height

    @classmethod
    def of(cls, crop: Crop) -> "Fit":
        """Parse a `Crop`; raise ValueError for any other text."""
        if crop in CROPS:
            return cls(crop, (4, 3) if crop == "pad" else (1, 1))  # type: ignore[arg-type]
        if ratio := re.fullmatch(r"pad (\d{1,5}):(\d{1,5})", crop, re.ASCII):
            width = int(ratio[1])
            height = int(ratio[2])
            if 0 < max(width, height) <= SLIMMEST * min(width, height):
                return cls("pad", Fraction(width, height).as_integer_ratio())
        known = f"{', '.join(CROPS)} or 'pad W:H' (up to {SLIMMEST}:1)"
        raise ValueError(f"crop must be {known}, not {readable(repr(crop), 60)}")

    @classmethod
    def of_rectangle(cls, rectangle: Sequence[int]) -> "Fit":
        """Return the padding with this active rectangle: of all aspects that have it, as it is made
        of whole pixels, a usual one, or that of the smallest numbers. 64x42 of 64x64 are 3:2."""
        top, bottom, left, right = rectangle
        resolution = max(bottom, right)
        sums = range(2, 2 * SLIMMEST + 1)
        others = ((width, total - width) for total in sums for width in range(1, total))
        paddings = (cls("pad", aspect) for aspect in itertools.chain(USUAL_ASPECTS, others))
        alike = (fit for fit in paddings if fit.active_rectangle(resolution) == (*rectangle,))
        return next(alike, None) or cls.of(f"pad {right - left}:{bottom - top}")

    def __str__(self) -> str:
        if self.kind == "pad" and self.aspect != (4, 3):
            return "pad {}:{}".format(*self.aspect)
        return self.kind

    def native_size(self, width: int, height: int) -> int:
        """Return a picture's native resolution: the side of the square it fills. It also fills the
        next power of two if it has the whole pixels of that one's active rectangle."""
        across, down = self.aspect
        if across >= down:
            size = min(width, height * across // down)
        else:
            size = min(height, width * down // across)
        larger = 1 << size.bit_length()
        top, bottom, left, right = self.active_rectangle(larger) or (0, larger) * 2
        return larger if right - left <= width and bottom - top <= height else size

    def active_rectangle(self, resolution: int) -> tuple[int, int, int, int] | None:
        """Return top, bottom, left, right of a square without its padding; None: all of it."""
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
        """Bring the image to (resolution, resolution); see `native_size` for what that needs."""
        top, bottom, left, right = self.active_rectangle(resolution) or (0, resolution) * 2
        width, height = map(float, image.size)
        if self.kind != "stretch":
            size = self.native_size(*image.size)
            width = min(width, size * (right - left) / resolution)  # a small picture is enlarged
            height = min(height, size * (bottom - top) / resolution)
        x = (image.width - width) // 2
        y = (image.height - height) // 2
        box = (x, y, x + width, y + height)
        picture = image.resize((right - left, bottom - top), Image.Resampling.LANCZOS, box=box)
        if self.kind != "pad":
            return picture
        black = (0, 0, 0, 255) if image.mode == "RGBA" else 0
        canvas = Image.new(image.mode, (resolution, resolution), black)
        canvas.paste(picture, (left, top))
        return canvas


@dataclass(frozen=True)
class Preparation:
    """Size, form and channels of the squares of a store, by which pictures become one."""

    resolution: int | None = None  # None: the largest that the first usable picture offers
    crop: Crop = "center"
    channels: int = 3
    premultiplied: bool = False  # colors are multiplied by alpha, so that averages are right
    include: tuple[str, ...] = ()  # first-level sub-folders to use; none: all

    def __post_init__(self) -> None:
        if self.resolution is not None:
            check_resolution(self.resolution)
        Fit.of(self.crop)
        if self.channels not in MODES:
            raise ValueError(f"images have 1, 3 or 4 channels, not {self.channels}")
        if self.premultiplied and self.channels != 4:
            raise ValueError(
                f"images of {self.channels} channels have no alpha to multiply colors by"
            )

    @property
    def fit(self) -> Fit:
        return Fit.of(self.crop)

    def key(self) -> list[object]:
        """Return the part of a cached store's name that does not depend on the files."""
        shape: list[object] = [self.resolution, self.crop, self.channels]
        return [*shape, "premultiplied"] if self.premultiplied else shape
