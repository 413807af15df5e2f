"""`.safetensors`: weights, and all else as JSON in the metadata."""

import hashlib
import io
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from stylegan.atomic import replacing
from stylegan.files import checkpoint
from stylegan.files.formats.metadata import OURS, about, from_json, to_json
from stylegan.files.formats.own import snapshot_of, weights_on_cpu
from stylegan.files.limits import FLOATS
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.messages import readable

LARGEST_HEADER = 100_000_000  # bytes, as the format says
MOST_HEADER, MOST_TENSORS, MOST_DIMENSIONS = 2**23, 10_000, 8  # of what is read here
TYPES = ["F64", "F32", "F16", "BF16"]  # the FLOATS of other files
HALF = torch.float16, torch.bfloat16


def is_safetensors(path: Path) -> bool:
    """Whether the file begins as safetensors files do."""
    with open(path, "rb") as file:
        start = file.read(9)
    length = int.from_bytes(start[:8], "little")
    return start[8:] == b"{" and length <= min(LARGEST_HEADER, path.stat().st_size - 8)


def library() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ValueError(
            ".safetensors files need safetensors: pip install 'stylegan[export]'"
        ) from error
    return safetensors


def save_safetensors(path: Path, loaded: LoadedGenerator, *, half: bool = False) -> None:
    """Write a generator; what is not weights is JSON in the metadata.

    `half`: every number is rounded to the nearest float16, half the size. ValueError if one is
    too large for that.
    """
    save = library().torch.save
    weights = weights_on_cpu(loaded.generator)
    weights = {n: (halved(n, t) if half else t).contiguous() for n, t in weights.items()}
    for name, tensor in weights.items():
        if tensor.dtype not in FLOATS:
            raise ValueError(f"{name} holds {tensor.dtype}; safetensors are written of floats")
    digest = digest_of(io.BytesIO(save(weights)))
    metadata = {"format": "pt", OURS: to_json(about(loaded, sha256=digest))}
    with replacing(path) as file:
        file.write(save(weights, metadata))


def halved(name: str, tensor: Tensor) -> Tensor:
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{name} has numbers that are NaN or infinite: the network is broken")
    rounded = tensor.to(torch.float16)
    if not torch.isfinite(rounded).all():
        raise ValueError(f"{name} has numbers beyond 65504, too large for half precision")
    return rounded


def digest_of(file: BinaryIO) -> str:
    """SHA-256 of what follows the header, whose length is in the first 8 bytes."""
    file.seek(int.from_bytes(file.read(8), "little"), io.SEEK_CUR)
    digest = hashlib.sha256()
    while data := file.read(2**20):
        digest.update(data)
    return digest.hexdigest()


def check_header(path: Path) -> str:
    """Our metadata. ValueError if there are none, or for tensors that no network of ours has."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MOST_HEADER:
            raise ValueError(f"{path} has a header of {length:,} bytes, more than {MOST_HEADER:,}")
        header = from_json(file.read(length).decode(errors="replace"), path, "header")
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or not isinstance(metadata.get(OURS), str):
        raise ValueError(
            f"{path} is a safetensors file without the metadata of this project, which "
            "specifies the network that the weights are of; `stylegan export` writes it"
        )
    if len(header) > MOST_TENSORS:
        raise ValueError(f"{path} holds {len(header):,} tensors, more than {MOST_TENSORS:,}")
    for name, entry in header.items():
        match entry:
            case {"dtype": kind, "shape": list(shape)} if (
                kind in TYPES and len(shape) <= MOST_DIMENSIONS
            ):
                pass
            case _:
                raise ValueError(
                    f"{path} is damaged: {readable(name)} is not a tensor of real numbers"
                )
    return metadata[OURS]


def load_safetensors(path: Path) -> Snapshot:
    """The generator that `save_safetensors` wrote; numbers of half precision come as float32."""
    safetensors = library()
    about_it = check_header(path)
    try:
        with safetensors.safe_open(path, framework="pt") as file:  # sizes agree with the file's
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged: {readable(str(error))}") from error
    payload = from_json(about_it, path, "metadata")
    with open(path, "rb") as content:
        digest = digest_of(content)
    if payload.pop("sha256", None) not in (None, digest):
        raise ValueError(
            f"{path} is damaged: its weights do not have the SHA-256 that it was written with"
        )
    # copies: what the library gives may be the file itself, mapped into memory
    wide = {n: t.float() if t.dtype in HALF else t.clone() for n, t in weights.items()}
    return snapshot_of(checkpoint.checked(payload | {"weights": wide}, path), path)
