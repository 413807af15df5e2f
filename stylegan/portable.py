"""Generators in files that others read: safetensors, and NumPy's `.npz` with official names.

Both hold what a generator file holds, its payload. Nothing in them is ever executed. They are read
and written with torch and NumPy alone.
"""

import dataclasses
import hashlib
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from stylegan import checkpoint, interop
from stylegan.interop.correspondence import TRANSLATED, config_from_official
from stylegan.interop.outward import official_settings, official_variables
from stylegan.messages import readable
from stylegan.networks import Generator

Payload = Mapping[str, Any]

SHARED = "model.safetensors"  # the weights in a folder of the Hugging Face Hub
OURS = "stylegan"  # the entry of the metadata that is ours
TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
LARGEST_HEADER = 100_000_000  # bytes, as the format says
FIELDS: dict[str, tuple[type, ...]] = {  # of a payload, beside config and weights
    "images_seen": (int, type(None)),
    "resolution": (int,),
    "alpha": (int, float),
    "psi": (int, float),
    "cutoff": (int, type(None)),
    "label_names": (list,),
    "active_rectangle": (list, type(None)),
}


def about(payload: Payload) -> dict[str, Any]:
    """What a payload tells beside its weights, as JSON: format, version, kind, config, ..."""
    told = {name: value for name, value in payload.items() if name != "weights"}
    head = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "kind": "generator"}
    return head | told


def from_json(text: str, path: Path, what: str) -> dict[str, Any]:
    """A JSON object that a file holds as its `what`."""
    try:
        found = json.loads(text, parse_constant=lambda name: int(name))  # NaN is no JSON
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: its {what} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: its {what} is no JSON object")
    return found


def check_fields(payload: Payload, path: Path) -> None:
    """ValueError unless every field of FIELDS is there and of its type."""
    for name, kinds in FIELDS.items():
        if name not in payload:
            raise ValueError(f"{path} is damaged: {name} is missing in its metadata")
        value = payload[name]
        if type(value) not in kinds:
            raise ValueError(f"{path} is damaged: its {name} is {readable(repr(value))}")
    if not all(isinstance(name, str) for name in payload["label_names"]):
        raise ValueError(f"{path} is damaged: its label_names are not all text")
    edges = payload["active_rectangle"]
    if edges is not None and [type(edge) for edge in edges] != [int] * 4:
        raise ValueError(f"{path} is damaged: its active_rectangle is {readable(repr(edges))}")


# safetensors: the length of the header (8 bytes), the header (JSON), the numbers of all tensors


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
    ours = json.dumps(about(payload) | {"sha256": digest.hexdigest()})
    text = json.dumps({"__metadata__": {"format": "pt", OURS: ours}, **header}).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    with checkpoint.replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in weights.values():
            file.write(raw(tensor))


def halved(name: str, tensor: Tensor) -> Tensor:
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
    loaded = checkpoint.checked(payload | {"weights": wide}, path)
    check_fields(loaded, path)
    return loaded


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


# .npz: official variables under their names, `static_kwargs` and, of ours, `meta`


def is_npz(path: Path) -> bool:
    """Whether the file is an archive of NumPy arrays and nothing else."""
    if not checkpoint.is_zip(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False
    return bool(names) and all(name.endswith(".npy") for name in names)


def save_npz(path: Path, payload: Payload, generator: Generator) -> None:
    """Write the generator of a payload as official variables, with the static arguments of the
    official program as JSON; what it has no word for is JSON in `meta`."""
    settings, discriminator = official_settings(generator.config)
    arrays = official_variables(generator, settings)
    steps = generator.config.resolution // payload["resolution"]
    lod = np.float32(math.log2(steps) + 1 - payload["alpha"])
    cutoff = generator.config.num_styles() if payload["cutoff"] is None else payload["cutoff"]
    truncation = {"truncation_psi": payload["psi"], "truncation_cutoff": cutoff}
    meta = {name: value for name, value in about(payload).items() if name != "config"}
    arrays |= {"lod": np.array(lod), "G_synthesis/lod": np.array(lod)}
    arrays["static_kwargs"] = np.array(json.dumps(settings | truncation))
    arrays["meta"] = np.array(json.dumps(meta | {"discriminator_kwargs": discriminator}))
    with checkpoint.replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_npz(path: Path) -> dict[str, Any]:
    """The payload of a file of official variables, with `static_kwargs`. Without our `meta`
    resolution and truncation are those of the variables and arguments."""
    arrays = npz_arrays(path)
    entries = {name: arrays.pop(name, None) for name in ("static_kwargs", "meta")}
    texts = {name: "" if entry is None else str(entry) for name, entry in entries.items()}
    if not texts["static_kwargs"]:
        raise ValueError(
            f"{path} has no entry static_kwargs, the JSON of the official generator's arguments, "
            "which tell the network that the variables are of"
        )
    settings = from_json(texts["static_kwargs"], path, "static_kwargs")
    meta = from_json(texts["meta"], path, "meta") if texts["meta"] else {}
    discriminator = meta.pop("discriminator_kwargs", {})
    try:
        config = config_from_official(settings | discriminator, TRANSLATED)
        with torch.random.fork_rng(devices=[]):  # it is made with random weights first
            generator = interop.generator_from_official(arrays, settings)
        told = meta or told_officially(arrays, settings, config.resolution)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from error
    fields = about({"config": dataclasses.asdict(config), **told}) | {
        "weights": generator.state_dict()
    }
    loaded = checkpoint.checked(fields, path)
    check_fields(loaded, path)
    return loaded


def told_officially(
    variables: Mapping[str, np.ndarray], settings: Mapping[str, Any], full: int
) -> dict[str, Any]:
    """The FIELDS of a generator, from its official variables and arguments."""
    psi, cutoff = interop.truncation_defaults(settings)
    resolution, alpha = interop.reached(variables, full)
    nothing: dict[str, Any] = {"images_seen": None, "label_names": [], "active_rectangle": None}
    return {"resolution": resolution, "alpha": alpha, "psi": psi, "cutoff": cutoff, **nothing}


def npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of the file, by name."""
    try:
        checkpoint.check_entries(path)
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # a damaged file can raise almost anything
        reason = readable(str(error).split("\n")[0] or type(error).__name__)
        raise ValueError(f"{path} is damaged or no file of plain arrays: {reason}") from error


READERS = ((is_safetensors, load_safetensors), (is_npz, load_npz))
