"""Embedded color profiles (ICC): colors of a picture as sRGB, which screens and networks expect."""

import functools
import io

import numpy as np
from PIL import Image, ImageCms

# Of any color, in gray levels: profiles that differ less from sRGB are sRGB written differently.
SAME_COLORS = 2
LEVELS = np.linspace(0, 255, 6).astype(np.uint8)  # of each channel, where profiles are compared


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
