"""Networks that map images to features, and files of their weights, from which no code runs."""

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
from stylegan.ops import without_tf32
from stylegan.utils.console import SILENT, Console
from stylegan.utils.distributed import run_on_all_ranks
from stylegan.utils.lineage import sha256_of
from stylegan.utils.text import error_reason

MAX_SIDE = 256  # pixels a side of the input of VGG16 and classifiers, as in the official code
AVERAGED_DOWN = f"box averages down to {MAX_SIDE}, none up"
INCEPTION = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)
FEATURES = 2048  # of Inception
LOGITS = 1008  # of Inception, without their bias, as in the official code


@dataclass(frozen=True, eq=False)
class FeatureNetwork:
    """A function from images to features, with its description for results."""

    name: str
    sha256: str  # of its weights
    dim: int
    resize: str  # how images are resized for it, in words
    extract: Callable[[Tensor], Tensor] = field(repr=False)  # uint8 (n, C, r, r) -> (n, dim+logits)
    logits: int = 0  # columns after the features
    prefix: str = "own"  # of the names of cached files

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        with without_tf32():
            return self.extract(images)

    def about(self) -> dict[str, str]:
        return {"network": self.name, "sha256": self.sha256, "resize": self.resize}


class Scores(NamedTuple):
    """Values of a metric, and its part of the protocol of a `Result`."""

    values: Mapping[str, float]
    protocol: Mapping[str, object]


@dataclass(frozen=True)
class Tools:
    """Where a measurement finds networks and keeps files."""

    cache: Path  # folder for features of reals and temporary files
    weights: Path | None = None  # file or folder with weights of feature networks
    classifiers: tuple[Path, ...] = ()  # TorchScript files, images -> logits
    console: Console = SILENT


def as_rgb(images: Tensor) -> Tensor:
    """Images (n, C, r, r) in [0, 255] as RGB: gray is repeated, RGBA composited over white."""
    if images.shape[1] == 4:
        colors = images[:, :3].float()
        alpha = images[:, 3:].float() / 255
        return (colors * alpha + 255 * (1 - alpha)).round().to(images.dtype)
    return repeat_gray(images)


def repeat_gray(images: Tensor) -> Tensor:
    """Images (n, 1, r, r) as RGB; those with more channels are returned unchanged."""
    return images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images


def averaged_down(images: Tensor) -> Tensor:
    """Box-average images (n, C, r, r) to at most MAX_SIDE pixels a side."""
    factor = images.shape[2] // MAX_SIDE
    return F.avg_pool2d(images, factor) if factor > 1 else images


def inception(tools: Tools, device: torch.device) -> FeatureNetwork:
    """Load torch-fidelity's port of the TensorFlow network, which computes features and logits."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    tensors, sha256 = public_weights(INCEPTION, tools.weights)
    copy = io.BytesIO()  # torch-fidelity unpickles: give it only what we have written
    torch.save(tensors, copy)
    copy.seek(0)
    weights = weights_errors("the Inception network", INCEPTION, tools.weights)
    with torch.random.fork_rng(devices=[]), weights:
        network = FeatureExtractorInceptionV3(  # initializes weights at random, then reads them
            "inception", ["2048", "logits_unbiased"], feature_extractor_weights_path=copy
        )
    network.to(device)  # outside: a lack of memory is no fault of the file
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
    """`read_weights` of the file at an https address `...-<digits of SHA-256>.pth`."""
    return run_on_all_ranks(lambda: read_weights(weights_file(url, place)))


def weights_file(url: str, place: Path | None) -> Path:
    """Find the file of an address: `place` itself, the file of that name in the folder `place`, or
    a download in torch.hub's cache. Raises OSError with the place where to put it."""
    if place is not None:
        if place.is_file():
            return place
        if not place.exists():
            raise FileNotFoundError(f"there is no file or folder {place} with weights of networks")
        file = place / hub_file(url).name
        if file.exists():
            return download.check_hash(file, str(download.hash_prefix(file.name)))
    try:
        return download.fetch(url)
    except OSError as error:
        raise OSError(f"{error} as --feature-weights") from error


def hub_file(url: str) -> Path:
    """Path of the file of an address in torch.hub's cache, whether it exists or not."""
    return download.hub_cache() / url.rpartition("/")[2]


@contextmanager
def weights_errors(network: str, url: str, place: Path | None) -> Iterator[None]:
    """Raise ValueError if weights that are loaded within do not fit the network."""
    try:
        yield
    except (KeyError, RuntimeError) as error:
        reason = error_reason(error, line=-1)
        raise ValueError(
            f"{place} does not hold the weights of {network} ({reason}); the file is {url}"
        ) from error


def read_weights(path: Path) -> tuple[dict[str, Tensor], str]:
    """Read tensors by name, with the SHA-256 of the file. Raises ValueError for anything else."""
    try:
        tensors = checkpoint.check_weights(checkpoint.read_torch(path))
    except ValueError as error:
        raise ValueError(f"{path} holds no weights that can be read safely: {error}") from error
    return tensors, sha256_of(path)
