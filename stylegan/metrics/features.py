"""Networks that turn images into features, and files of their weights: data, never executed."""

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan.files import checkpoint, download
from stylegan.machine.console import SILENT, Console
from stylegan.machine.distributed import on_all_ranks
from stylegan.machine.lineage import sha256_of
from stylegan.machine.messages import reason_of
from stylegan.ops import in_float32

LARGEST = 256  # pixels a side that VGG16 and the attribute classifiers see at most, officially
AVERAGED_DOWN = f"box averages down to {LARGEST}, none up"
INCEPTION = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)
FEATURES = 2048  # of Inception
LOGITS = 1008  # of Inception, without their bias, as officially


@dataclass(frozen=True, eq=False)
class FeatureNetwork:
    """A function from images to features, and its description in a result."""

    name: str
    sha256: str  # of its weights
    dim: int
    resize: str  # the way in which images get its size, in words
    extract: Callable[[Tensor], Tensor] = field(repr=False)  # uint8 (n, C, r, r) -> (n, dim+logits)
    logits: int = 0  # columns after the features
    prefix: str = "own"  # of files of features

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        with in_float32():
            return self.extract(images)

    def about(self) -> dict[str, str]:
        return {"network": self.name, "sha256": self.sha256, "resize": self.resize}


class Scores(NamedTuple):
    """One metric's numbers, and what defines them beside the source: parts of a `Result`."""

    values: Mapping[str, float]
    protocol: Mapping[str, object]


@dataclass(frozen=True)
class Tools:
    """The tools of a measurement, beside the generator and the data."""

    cache: Path  # folder for features of reals and for rows that wait
    weights: Path | None = None  # of feature networks: a file or a folder
    classifiers: tuple[Path, ...] = ()  # TorchScript files, images -> logits
    console: Console = SILENT


def as_rgb(images: Tensor) -> Tensor:
    """(n, 3, r, r) from 0 to 255: gray repeated, transparency over white."""
    channels = images.shape[1]
    if channels == 4:
        colors = images[:, :3].float()
        alpha = images[:, 3:].float() / 255
        return (colors * alpha + 255 * (1 - alpha)).round().to(images.dtype)
    return images.expand(-1, 3, -1, -1) if channels == 1 else images


def averaged_down(images: Tensor) -> Tensor:
    """Reduce images by box averages to LARGEST pixels a side, if they have more."""
    factor = images.shape[2] // LARGEST
    return F.avg_pool2d(images, factor) if factor > 1 else images


def inception(tools: Tools, device: torch.device) -> FeatureNetwork:
    """Load torch-fidelity's port of the TensorFlow network: features and logits."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    tensors, sha256 = public_weights(INCEPTION, tools.weights)
    copy = io.BytesIO()  # torch-fidelity reads with weights_only=False: only what we have written
    torch.save(tensors, copy)
    copy.seek(0)
    weights = weights_errors("the Inception network", INCEPTION, tools.weights)
    with torch.random.fork_rng(devices=[]), weights:
        network = FeatureExtractorInceptionV3(  # draws weights, then reads them
            "inception", ["2048", "logits_unbiased"], feature_extractor_weights_path=copy
        ).to(device)
    published = sha256.startswith(str(download.hash_prefix(INCEPTION)))
    return FeatureNetwork(
        f"Inception v3 {'of 2015-12-05' if published else 'of your own'}, torch-fidelity",
        sha256,
        FEATURES,
        "bilinear to 299x299 as TensorFlow 1, without antialiasing",
        lambda images: torch.cat(network(as_rgb(images).to(device)), dim=1),
        LOGITS,
        "inception",
    )


def public_weights(url: str, place: Path | None) -> tuple[dict[str, Tensor], str]:
    """Read the file at an https address `...-<digits of SHA-256>.pth`, as `read_weights` does."""
    return on_all_ranks(lambda: read_weights(weights_file(url, place)))


def weights_file(url: str, place: Path | None) -> Path:
    """Return `place`, if it is a file of such weights, or that of the address in this folder, or
    else in the cache of torch.hub, to which it is downloaded. OSError says where to put it."""
    if place is not None:
        if place.is_file():
            return place
        if not place.exists():
            raise FileNotFoundError(f"there is no file or folder {place} with weights of networks")
        file = place / hub_file(url).name
        if file.exists():
            return download.verified(file, str(download.hash_prefix(file.name)))
    try:
        return download.downloaded(url)
    except OSError as error:
        raise OSError(f"{error} as --feature-weights") from error


def hub_file(url: str) -> Path:
    """Where the file at an address is, downloaded or put there by hand."""
    return download.hub_cache() / url.rpartition("/")[2]


@contextmanager
def weights_errors(network: str, url: str, place: Path | None) -> Iterator[None]:
    """Raise ValueError if weights that are loaded inside do not fit the network."""
    try:
        yield
    except (KeyError, RuntimeError) as error:
        reason = reason_of(error, line=-1)
        raise ValueError(
            f"{place} does not hold the weights of {network} ({reason}); the file is {url}"
        ) from error


def read_weights(path: Path) -> tuple[dict[str, Tensor], str]:
    """Read tensors by name, and the SHA-256 of their file. Raise ValueError for anything else."""
    try:
        tensors = checkpoint.check_weights(checkpoint.read_torch(path))
    except ValueError as error:
        raise ValueError(f"{path} holds no weights that can be read safely: {error}") from error
    return tensors, sha256_of(path)
