"""A picture as a generator could have made it."""

from pathlib import Path

import torch
from torch import Tensor

from stylegan.data.images import Crop, Fit, decode, planes, premultiplied, quiet_decoding


def read_target(
    path: Path,
    *,
    resolution: int,
    channels: int,
    premultiply: bool = False,
    crop: Crop = "center",
) -> Tensor:
    """The picture of a file as an image (1, channels, resolution, resolution) in [-1, 1].

    Read and cropped as training data are (see `stylegan.data.read_image`), but smaller pictures are
    enlarged. ValueError or FileNotFoundError, naming the file, if it cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no image file {path}")
    content = path.read_bytes()
    return target_of(
        content,
        resolution=resolution,
        channels=channels,
        premultiply=premultiply,
        crop=crop,
        name=str(path),
    )


def target_of(
    content: bytes,
    *,
    resolution: int,
    channels: int,
    premultiply: bool = False,
    crop: Crop = "center",
    name: str = "image",
) -> Tensor:
    """The same of what a file holds; `name` is what errors call it."""
    with quiet_decoding():
        image = decode(content, channels=channels, name=name)
        pixels = planes(Fit.of(crop).square(image, resolution))
        pixels = premultiplied(pixels) if premultiply else pixels
    return torch.from_numpy(pixels.copy()).float()[None] / 127.5 - 1
