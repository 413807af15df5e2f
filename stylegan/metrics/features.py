"""Networks that turn images into features, and files of their weights: data, never executed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan.distributed import on_all_ranks
from stylegan.files import checkpoint, download
from stylegan.lineage import sha256_of
from stylegan.ops import in_float32

LARGEST = 256  # pixels a side that VGG16 and the attribute classifiers see at most, officially


@dataclass(frozen=True, eq=False)
class FeatureNetwork:
    """A function from images to features, and what a result must say of it."""

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
    """What one measurement of some kinds of metrics gives."""

    values: Mapping[str, Mapping[str, float]]  # named numbers of each kind
    about: Mapping[str, Any]  # what defines them, for the result
    of_kinds: Mapping[str, Mapping[str, Any]] = {}  # what defines one kind alone
    refused: Mapping[str, str] = {}  # kinds that could not be measured, and why


@dataclass(frozen=True)
class Tools:
    """What measuring needs beside the generator and the data."""

    cache: Path  # folder for features of reals and for rows that wait
    weights: Path | None = None  # of feature networks: a file or a folder
    classifiers: tuple[Path, ...] = ()  # TorchScript files, images -> logits
    tell: Callable[[str], None] = lambda text: None  # called with messages for the user


def as_rgb(images: Tensor) -> Tensor:
    """(n, 3, r, r) from 0 to 255 for public networks: gray repeated, transparency over white."""
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
    """The tensors in a file, and its SHA-256."""

    tensors: dict[str, Tensor]
    sha256: str


def public_weights(url: str, given: Path | None) -> Weights:
    """Weights from the file at an https address that ends in `-<digits of its SHA-256>.<ending>`.

    Taken from `given`, the file itself or a folder that has it, else from
    $TORCH_HOME/hub/checkpoints, else downloaded to there. A file given by its own path may be any
    that fits the network; all others must have the SHA-256. A ValueError or OSError of one process
    is raised in all.
    """
    return on_all_ranks(lambda: read_weights(weights_file(url, given)))


def in_hub_cache(url: str) -> bool:
    """Whether the file has been downloaded, or put there by hand."""
    return (download.hub_cache() / url.rpartition("/")[2]).is_file()


def weights_file(url: str, given: Path | None) -> Path:
    """The path of the file; OSError with the place where it should be if there is none."""
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
        tensors = checkpoint.read_torch(path)
        checkpoint.check_weights(tensors)
    except ValueError as error:
        raise ValueError(f"{path} holds no weights that can be read safely: {error}") from error
    return Weights(dict(tensors), sha256_of(path))  # type: ignore[call-overload]
