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
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.messages import readable

LARGEST_HEADER = 2**23  # bytes; a generator at 1024x1024 has about 20,000
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
            '.safetensors files need safetensors: pip install -e ".[export]"'
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
        if tensor.dtype not in checkpoint.FLOATS:
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


def our_metadata(file: Any, path: Path) -> str:
    """What an open file says beside its weights. ValueError if it is not ours."""
    metadata = file.metadata() or {}
    if OURS not in metadata:
        raise ValueError(
            f"{path} is a safetensors file without the metadata of this project, which "
            "specifies the network that the weights are of; `stylegan export` writes it"
        )
    return str(metadata[OURS])


def load_safetensors(path: Path) -> Snapshot:
    """The generator that `save_safetensors` wrote; numbers of half precision come as float32."""
    safetensors = library()
    try:
        with safetensors.safe_open(path, framework="pt") as file:  # sizes agree with the file's
            text = our_metadata(file, path)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged: {readable(str(error))}") from error
    payload = from_json(text, path, "metadata")
    with open(path, "rb") as content:
        digest = digest_of(content)
    if payload.pop("sha256", None) not in (None, digest):
        raise ValueError(
            f"{path} is damaged: its weights do not have the SHA-256 that it was written with"
        )
    # copies: what the library gives may be the file itself, mapped into memory
    wide = {n: t.float() if t.dtype in HALF else t.clone() for n, t in weights.items()}
    return snapshot_of(checkpoint.checked(payload | {"weights": wide}, path), path)
