"""Self-describing files of plain tensors and plain Python, written atomically."""

import io
import mmap
import pickle
import re
import reprlib
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from stylegan.machine.disk import KEEPING, Outputs, errors_name, refuse_mistaken, refusing
from stylegan.machine.messages import count, listed, readable

FORMAT = "stylegan"
VERSION = 1
Kind = Literal["state", "generator", "discriminator"]
FLOATS = torch.float64, torch.float32, torch.float16, torch.bfloat16  # types of weights
OLD_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # begins what torch 1.5 wrote
# In a pickle, names a function that makes gigabytes of a number, and that torch lets a file call.
BYTEARRAY = b"\nbytearray\n"
LARGEST_UNPACKED = 2**30  # bytes of arrays that were compressed
# Tensors may take this many bytes for each byte of their file, as two may share their numbers.
# A view that repeats one number a billion times is refused.
MOST_BYTES_PER_BYTE = 16


def save(
    path: Path, kind: Kind, payload: Mapping[str, object], *, outputs: Outputs = KEEPING
) -> None:
    """Write one of our files; readers see the old file or the complete new one."""
    content = io.BytesIO()  # an error of a full disk within torch's writer would end the process
    torch.save({"format": FORMAT, "version": VERSION, "kind": kind, **payload}, content)
    with outputs.file(path) as file:
        file.write(content.getbuffer())


def is_zip(path: Path) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:  # one that claims to lie on several disks
        return False


def is_old(path: Path) -> bool:
    """Return true if torch.save before version 1.6 wrote the file, which is no archive."""
    with open(path, "rb") as file:
        return file.read(len(OLD_MAGIC)) == OLD_MAGIC


def load(path: Path, kind: Kind | None = None) -> dict[str, object]:
    """Return the payload of one of our files, on the CPU, loaded without running code from it.
    Raise ValueError if it is not of the `kind` that is needed."""
    payload = checked(read_torch(path), path)
    if kind is not None and payload["kind"] != kind:
        raise ValueError(f"{path} is a {payload['kind']} file; a {kind} file is needed here")
    return payload


class HoldsObjects(ValueError):
    """A file holds objects of classes, which plain tensors and Python's own values are not."""


class Inert(list[object]):
    """A stand-in for an object of a class that is not looked up: takes all and does nothing."""

    def __init__(self, *args: object) -> None:
        super().__init__()

    def __setstate__(self, state: object) -> None: ...

    __hash__ = object.__hash__  # type: ignore[assignment]  # it may be a key


class InertMapping:
    """The same for a class of dictionaries: torch fills those of one exact type only."""

    def __new__(cls, *args: object) -> OrderedDict[object, object]:  # type: ignore[misc]
        return OrderedDict()


def load_inert(path: Path) -> object:
    """Read an archive of torch.save, with an inert stand-in for each object."""
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    classes: dict[str, type] = {name: type(name, (Inert,), {}) for name in names}
    while True:
        stand_ins: list[Callable[..., object] | tuple[Callable[..., object], str]] = [
            (kind, name) for name, kind in classes.items()
        ]
        try:
            with torch.serialization.safe_globals(stand_ins):
                return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            filled = re.search(
                r"SETITEM.*got <class '(?:stylegan.files.checkpoint\.)?(\S+)'>", str(error)
            )
            if not filled or classes.get(filled[1], InertMapping) is InertMapping:
                raise
            classes[filled[1]] = InertMapping


def read_torch(path: Path, *, inert: bool = False) -> object:
    """Read a file of torch.save, ours or not, without running code from it. `inert`: with inert
    stand-ins for objects of classes, which are a `HoldsObjects` otherwise."""
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint file {path}")
    refuse_mistaken(path)
    old = is_old(path)
    if not old and not is_zip(path):
        raise ValueError(f"{path} is not a checkpoint of this project, or a truncated one")
    try:
        with refusing(path, "is damaged or not a checkpoint of this project"):
            if not old:
                check_entries(path)
            check_calls(path, old=old)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's remarks on odd content
                if inert:
                    content = load_inert(path)
                else:
                    content = torch.load(path, map_location="cpu", weights_only=True)
            check_tensors(content, path.stat().st_size)
    except ValueError as error:
        cause = error.__cause__
        refused = re.search(r"(?:GLOBAL|class|function) (\S+) (?:was not|whose)", str(cause))
        if not (refused and isinstance(cause, pickle.UnpicklingError)):
            raise
        raise HoldsObjects(
            f"{path} is not a checkpoint of this project: it holds objects "
            f"({refused[1]}) that only running code from the file would restore, so it was refused"
        ) from error
    return content


def is_npz(path: Path) -> bool:
    """Return true if the file is an archive of NumPy arrays and nothing else."""
    try:
        with errors_name(path), zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False  # if it should be one, `read_torch` says why not
    return bool(names) and all(name.endswith(".npy") for name in names)


def is_npy(path: Path) -> bool:
    with errors_name(path), open(path, "rb") as file:
        return file.read(6) == b"\x93NUMPY"


def npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read every array of a file that `numpy.savez` or `savez_compressed` has written, by name."""
    refuse_mistaken(path)
    with refusing(path, "is damaged or no file of plain arrays"):
        check_entries(path, unpacked=LARGEST_UNPACKED)
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        others = [name for name, value in arrays.items() if not isinstance(value, np.ndarray)]
        if others:  # NumPy gives the bytes of what does not begin as its files do
            raise ValueError(f"its entry {others[0]} is no array")
    return arrays


def npy_array(path: Path) -> np.ndarray:
    """Read the one array of a file that `numpy.save` has written."""
    with refusing(path, "is damaged or no plain array"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)  # fails if cut short
    return np.array(array)


def check_entries(path: Path, *, unpacked: int = 0) -> None:
    """Raise ValueError unless the entries of a zip archive are undamaged and together not larger
    than the file, or `unpacked` bytes if that is more."""
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
        if size > max(path.stat().st_size, unpacked):
            raise ValueError("its entries are larger than the file")
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"its entry {damaged} does not have the CRC-32 that it was written with")


def check_calls(path: Path, *, old: bool) -> None:
    """Raise ValueError if a pickle in the file names `bytearray`."""
    if old:
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            found = content.find(BYTEARRAY) >= 0
    else:
        with zipfile.ZipFile(path) as archive:
            entries = (e for e in archive.infolist() if e.filename.lower().endswith(".pkl"))
            found = any(BYTEARRAY in archive.read(entry) for entry in entries)
    if found:
        raise ValueError("it holds a bytearray, which no weights need")


def check_tensors(content: object, size: int) -> None:
    """Raise ValueError unless the tensors of a file of `size` bytes are plain and fit into it."""
    left = MOST_BYTES_PER_BYTE * size + 2**20
    waiting = [content]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            if value.is_meta or value.layout != torch.strided:
                raise ValueError("it holds a tensor that is not a plain one with numbers")
            left -= value.nbytes
            if left < 0:
                raise ValueError("its tensors are larger than the file: they share their numbers")
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))  # lists may lie in one another, twice in each: 2**40 values
            waiting += value.values() if isinstance(value, dict) else value


def checked(payload: object, path: Path) -> dict[str, object]:
    """Return the content of `path`. Raise ValueError unless this version can use it."""
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        raise ValueError(f"{path} is a PyTorch file, but not a checkpoint of this project")
    version = payload.get("version")
    kind = payload.get("kind")
    if type(version) is not int:
        raise ValueError(
            f"{path} is damaged: its version is {reprlib.repr(version)}, not a whole number"
        )
    if version > VERSION:
        raise ValueError(f"{path} has version {version}; this program reads up to {VERSION}")
    if not isinstance(kind, str) or kind not in get_args(Kind):
        known = ", ".join(get_args(Kind))
        raise ValueError(f"{path} is damaged: its kind is {reprlib.repr(kind)}, not one of {known}")
    return payload


def check_weights(weights: object) -> dict[str, Tensor]:
    """Return the weights. Raise ValueError unless they are a dictionary from names to tensors."""
    if not isinstance(weights, Mapping):
        raise ValueError(f"weights must be tensors by name, not {type(weights).__name__}")
    for name, value in weights.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise ValueError(f"weights must be tensors by name; {name!r}: {type(value).__name__}")
    return dict(weights)


def match_state_dict(wanted: Mapping[str, Tensor], weights: object) -> dict[str, Tensor]:
    """Return weights without the prefix `module.`. Raise ValueError unless they are tensors by
    name, finite, and each one fits a tensor of `wanted`."""
    tensors = {name.removeprefix("module."): t for name, t in check_weights(weights).items()}
    problems = misfits(wanted, tensors)
    if problems:
        texts = [f"{readable(name)} {reason}" for name, reason in problems.items()]
        raise ValueError(f"the weights do not fit the network: {listed(texts)}")
    for name, tensor in tensors.items():
        is_broken = ~tensor.isfinite()
        if is_broken.any():
            raise ValueError(
                f"{name} holds {count(int(is_broken.sum()), 'number')} of "
                f"{tensor.numel():,} that are NaN or infinite; take a file from before training "
                "broke down"
            )
    return tensors


def misfits(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the reason by name for tensors that are missing, surplus or not like `wanted`."""
    problems = {name: "is missing" for name in wanted if name not in tensors}
    for name, tensor in tensors.items():
        if name not in wanted:
            problems[name] = "is not a tensor of this network"
        elif tensor.shape != wanted[name].shape:
            expected = tuple(wanted[name].shape)
            problems[name] = f"has shape {tuple(tensor.shape)} instead of {expected}"
        elif tensor.dtype not in FLOATS and wanted[name].dtype in FLOATS:
            problems[name] = f"holds {tensor.dtype}, not plain real numbers"
    return problems
