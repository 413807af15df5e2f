"""A picture as a generator could have made it."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stylegan.data.images import Crop, Fit, decode, planes, premultiplied, quiet_decoding


def read_target(path: Path, **how: Any) -> Tensor:
    """The picture of a file as an image: see `target_of`.

    ValueError or FileNotFoundError, naming the file, if it cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no image file {path}")
    return target_of(path.read_bytes(), **how, name=str(path))


def target_of(
    content: bytes,
    *,
    resolution: int,
    channels: int,
    premultiply: bool = False,
    crop: Crop = "center",
    name: str = "image",
) -> Tensor:
    """The picture of an image file as (1, channels, resolution, resolution) in [-1, 1].

    It is read and cropped as training data are, but smaller pictures are enlarged. Errors call it
    `name`.
    """
    with quiet_decoding():
        image = decode(content, channels=channels, name=name)
        pixels = planes(Fit.of(crop).square(image, resolution))
        pixels = premultiplied(pixels) if premultiply else pixels
    return torch.from_numpy(pixels.copy()).float()[None] / 127.5 - 1
