"""Networks that turn images into features. Their files are data; nothing in them is executed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class FeatureNetwork:
    """Images to features, and what a result must say of that."""

    name: str
    sha256: str  # of its weights
    dim: int
    resize: str  # how images are brought to its size, in words
    extract: Callable[[Tensor], Tensor] = field(repr=False)  # uint8 (n, C, r, r) -> (n, dim)

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        with in_float32():
            return self.extract(images)

    def about(self) -> dict[str, str]:
        return {"network": self.name, "sha256": self.sha256, "resize": self.resize}


class Measured(NamedTuple):
    """What a family of metrics found."""

    values: dict[str, dict[str, float]]  # of each kind, named numbers
    about: dict[str, Any]  # what defines them, for the result
    of_kinds: Mapping[str, dict[str, Any]] = MappingProxyType({})  # what defines one alone


@dataclass(frozen=True)
class Tools:
    """What measuring needs beside the generator and the data."""

    cache: Path  # folder of what can be made again: statistics of reals, our own networks
    weights: Path | None = None  # of feature networks: a file or a folder
    classifiers: tuple[Path, ...] = ()  # TorchScript files, images -> logits
    tell: Callable[[str], None] = lambda text: None  # hears what a user should know
    crop_faces: bool = False  # path length of the faces alone, as officially of FFHQ and CelebA-HQ


@contextmanager
def in_float32() -> Iterator[None]:
    """Without tf32, which is the default of cuDNN and may be that of a training run."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, False
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield
    finally:
        matmul.allow_tf32 = before


def as_rgb(images: Tensor) -> Tensor:
    """(n, 3, r, r), which is what public networks look at; gray is repeated."""
    channels = images.shape[1]
    if channels == 4:
        raise ValueError(
            "the images have transparency (4 channels), and there is no agreed way to show them to "
            "a network that looks at RGB; measure with swd, own-fd or own-pr"
        )
    return images.expand(-1, 3, -1, -1) if channels == 1 else images
