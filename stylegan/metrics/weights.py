"""Files with the weights of public networks: where they are, and reading them safely."""

import hashlib
import io
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from stylegan.agreement import in_all
from stylegan.files import checkpoint, download
from stylegan.messages import readable


class Weights(NamedTuple):
    """What a file holds, and its SHA-256."""

    tensors: dict[str, Tensor]
    sha256: str


def public_weights(url: str, given: Path | None) -> Weights:
    """Of the file at an https address that ends in `-<digits of its SHA-256>.<ending>`.

    Taken from `given`, the file itself or a folder that has it, else from
    $TORCH_HOME/hub/checkpoints, else downloaded to there. A file given by its own path may be any
    that fits the network; all others must have the SHA-256. In all processes; ValueError or
    OSError in all of them.
    """
    return in_all(lambda: read_weights(weights_file(url, given)))


def in_hub_cache(url: str) -> bool:
    """Whether the file has been downloaded, or put there by hand."""
    return (download.hub_cache() / url.rpartition("/")[2]).is_file()


def weights_file(url: str, given: Path | None) -> Path:
    """Where the file is. OSError that says where it should be."""
    name = url.rpartition("/")[2]
    digits = download.hash_prefix(name)
    assert digits is not None, url
    if given is not None and not given.exists():
        raise FileNotFoundError(f"there is no file or folder {given} with weights of networks")
    if given is not None and given.is_file():
        return given
    if given is not None and (given / name).exists():
        return download.verified(given / name, digits)
    try:
        return download.downloaded(url)
    except OSError as error:
        path = download.hub_cache() / name
        reason = error.__cause__ or error
        raise OSError(
            f"the weights of a network are missing and could not be downloaded ({reason}): get "
            f"{url}, whose SHA-256 begins with {digits}, elsewhere and put it at {path}, or give "
            "its path as --weights"
        ) from error


def read_weights(path: Path) -> Weights:
    """Tensors by name; ValueError for a file of anything else. Nothing in it is executed."""
    content = path.read_bytes()
    try:
        if checkpoint.is_zip(path):
            checkpoint.check_entries(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's remarks on what no good file contains
            tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if not (isinstance(tensors, dict) and all(isinstance(t, Tensor) for t in tensors.values())):
            raise ValueError("it is no mapping of names to tensors")
    except Exception as error:  # a damaged file can raise almost anything
        reason = readable(str(error).split("\n")[0] or type(error).__name__)
        raise ValueError(f"{path} holds no weights that can be read safely: {reason}") from error
    return Weights(dict(tensors), hashlib.sha256(content).hexdigest())
