"""Networks that turn images into features, and files of their weights: data, never executed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan.distributed import on_all_ranks
from stylegan.files import checkpoint, download
from stylegan.lineage import sha256_of
from stylegan.ops import in_float32

FEW_NEIGHBOURS = ", since among 50 they differ by 0.2 between draws of the same data"
LARGEST = 256  # pixels of images that VGG16 and the attribute classifiers look at, officially


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
    refused: Mapping[str, str] = MappingProxyType({})  # kinds that were not measured, and why


def too_few(
    kinds: Iterable[str], least: Mapping[str, int], images: int, reals: int
) -> dict[str, str]:
    """Kinds that need at least `least` images of each sort and have fewer, and why that is so."""
    return {
        kind: f"found {images:,} samples and {reals:,} real images, at least {least[kind]:,} of "
        f"each are needed{FEW_NEIGHBOURS if kind.endswith('pr') else ''}"
        for kind in kinds
        if min(images, reals) < least[kind]
    }


@dataclass(frozen=True)
class Tools:
    """What measuring needs beside the generator and the data."""

    cache: Path  # folder of what can be made again: statistics of reals
    weights: Path | None = None  # of feature networks: a file or a folder
    classifiers: tuple[Path, ...] = ()  # TorchScript files, images -> logits
    tell: Callable[[str], None] = lambda text: None  # called with what a user should know
    crop_faces: bool = False  # path length of the faces alone, as officially of FFHQ and CelebA-HQ


def as_rgb(images: Tensor) -> Tensor:
    """(n, 3, r, r) from 0 to 255, which is what public networks look at; gray is repeated, and what
    is transparent shows white."""
    channels = images.shape[1]
    if channels == 4:
        colours, alpha = images[:, :3].float(), images[:, 3:].float() / 255
        return (colours * alpha + 255 * (1 - alpha)).round().to(images.dtype)
    return images.expand(-1, 3, -1, -1) if channels == 1 else images


def averaged_down(images: Tensor, largest: int = LARGEST) -> Tensor:
    """Images reduced by box averages to `largest` pixels a side, if they have more."""
    factor = images.shape[2] // largest
    return F.avg_pool2d(images, factor) if factor > 1 else images


class Weights(NamedTuple):
    """What a file holds, and its SHA-256."""

    tensors: dict[str, Tensor]
    sha256: str


def public_weights(url: str, given: Path | None) -> Weights:
    """Weights from the file at an https address that ends in `-<digits of its SHA-256>.<ending>`.

    Taken from `given`, the file itself or a folder that has it, else from
    $TORCH_HOME/hub/checkpoints, else downloaded to there. A file given by its own path may be any
    that fits the network; all others must have the SHA-256. In all processes; ValueError or
    OSError in all of them.
    """
    return on_all_ranks(lambda: read_weights(weights_file(url, given)))


def in_hub_cache(url: str) -> bool:
    """Whether the file has been downloaded, or put there by hand."""
    return (download.hub_cache() / url.rpartition("/")[2]).is_file()


def weights_file(url: str, given: Path | None) -> Path:
    """The file; else an OSError that says where it should be."""
    name = url.rpartition("/")[2]
    digits = str(download.hash_prefix(name))
    if given is not None and not given.exists():
        raise FileNotFoundError(f"there is no file or folder {given} with weights of networks")
    if given is not None and given.is_file():
        return given
    if given is not None and (given / name).exists():
        return download.verified(given / name, digits)
    try:
        return download.downloaded(url)
    except OSError as error:
        reason = error.__cause__ or error
        raise OSError(
            f"the weights of a network are missing and could not be downloaded ({reason}): get "
            f"{url}, whose SHA-256 begins with {digits}, elsewhere and put it at "
            f"{download.hub_cache() / name}, or give its path as --weights"
        ) from error


def read_weights(path: Path) -> Weights:
    """Tensors by name; ValueError for a file of anything else."""
    try:
        tensors = checkpoint.read(path)
        checkpoint.check_weights(tensors)
    except ValueError as error:
        raise ValueError(f"{path} holds no weights that can be read safely: {error}") from error
    return Weights(dict(tensors), sha256_of(path))  # type: ignore[call-overload]
