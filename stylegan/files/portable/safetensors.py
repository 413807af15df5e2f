"""safetensors: the length of the header (8 bytes), the header (JSON), then all numbers."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from stylegan.atomic import replacing
from stylegan.files import checkpoint
from stylegan.files.portable.fields import OURS, Payload, about, from_json, to_json
from stylegan.messages import readable

TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
LARGEST_HEADER = 100_000_000  # bytes, as the format says


def is_safetensors(path: Path) -> bool:
    """Whether the file begins as safetensors files do."""
    with open(path, "rb") as file:
        start = file.read(9)
    length = int.from_bytes(start[:8], "little")
    return start[8:] == b"{" and length <= min(LARGEST_HEADER, path.stat().st_size - 8)


def save_safetensors(path: Path, payload: Payload, *, half: bool = False) -> None:
    """Write a generator's payload; what is not weights is JSON in the metadata.

    `half`: every number is rounded to the nearest float16, half the size. ValueError if one is
    too large for that.
    """
    weights = {name: halved(name, t) if half else t for name, t in payload["weights"].items()}
    names = {dtype: name for name, dtype in TYPES.items()}
    header: dict[str, Any] = {}
    digest, end = hashlib.sha256(), 0
    for name, tensor in weights.items():
        if tensor.dtype not in names:
            raise ValueError(f"{name} holds {tensor.dtype}; safetensors are written of floats")
        numbers = raw(tensor)
        digest.update(numbers)
        start, end = end, end + len(numbers)
        shape = list(tensor.shape)
        header[name] = {"dtype": names[tensor.dtype], "shape": shape, "data_offsets": [start, end]}
    ours = to_json(about(payload) | {"sha256": digest.hexdigest()})
    text = json.dumps({"__metadata__": {"format": "pt", OURS: ours}, **header}).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in weights.values():
            file.write(raw(tensor))


def halved(name: str, tensor: Tensor) -> Tensor:
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{name} has numbers that are NaN or infinite: the network is broken")
    rounded = tensor.to(torch.float16)
    if not torch.isfinite(rounded).all():
        raise ValueError(f"{name} has numbers beyond 65504, too large for half precision")
    return rounded


def raw(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, without a copy where it is contiguous and on the CPU."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def load_safetensors(path: Path) -> dict[str, Any]:
    """The payload that `save_safetensors` wrote; numbers of half precision come as float32."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            text = file.read(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is damaged: its header is no text") from error
        header = from_json(text, path, "header")
        metadata = header.pop("__metadata__", None)
        if not isinstance(metadata, dict) or not isinstance(metadata.get(OURS), str):
            raise ValueError(
                f"{path} is a safetensors file without the metadata of this project, which tells "
                "the network that the weights are of; `stylegan export` writes it"
            )
        payload = from_json(metadata[OURS], path, "metadata")
        promised, digest = payload.pop("sha256", None), hashlib.sha256()
        size = path.stat().st_size - 8 - length
        weights = dict(tensors(file, header, size, digest, path))
    if promised is not None and promised != digest.hexdigest():
        raise ValueError(
            f"{path} is damaged: its weights do not have the SHA-256 that it was written with"
        )
    half = torch.float16, torch.bfloat16
    wide = {name: t.float() if t.dtype in half else t for name, t in weights.items()}
    return checkpoint.checked(payload | {"weights": wide}, path)


def tensors(
    file: BinaryIO, header: Mapping[str, Any], size: int, digest: Any, path: Path
) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of each entry of the header, in the order of the numbers, which must fill
    the `size` bytes that are left; `digest` sees them all."""
    begins: dict[str, int] = {}
    for name, entry in header.items():
        match entry:
            case {"dtype": str(), "shape": list(), "data_offsets": [int(start), int(_)]}:
                begins[name] = start
            case _:
                raise ValueError(f"{path} is damaged: its tensor {readable(name)} is ill described")
    position = 0
    for name in sorted(begins, key=lambda name: begins[name]):
        dtype, shape = TYPES.get(header[name]["dtype"]), header[name]["shape"]
        start, end = header[name]["data_offsets"]
        if dtype is None:
            found = readable(header[name]["dtype"])
            raise ValueError(
                f"{path}: {readable(name)} holds {found}, not one of {', '.join(TYPES)}"
            )
        plain = all(type(length) is int and length > 0 for length in shape)
        if not plain or start != position or end - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(
                f"{path} is damaged: its tensor {readable(name)} of shape {readable(str(shape))} "
                f"is at bytes {start} to {end}"
            )
        if end > size:
            raise ValueError(f"{path} is truncated: {readable(name)} ends beyond the file")
        numbers = torch.empty(end - start, dtype=torch.uint8)
        file.readinto(numbers.numpy())  # type: ignore[attr-defined]
        digest.update(numbers.numpy())
        yield name, numbers.view(dtype).reshape(shape)
        position = end
    if position != size:
        raise ValueError(f"{path} is damaged: {size - position} bytes belong to no tensor")
