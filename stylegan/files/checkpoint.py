"""Self-describing files of plain tensors and plain Python, written atomically."""

import io
import pickle
import pickletools
import re
import reprlib
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from stylegan.utils.filesystem import (
    KEEP_EXISTING,
    OutputWriter,
    as_value_error,
    attach_filename,
    check_not_placeholder,
)
from stylegan.utils.text import join_truncated, pluralize, sanitize

FORMAT = "stylegan"
VERSION = 1
Kind = Literal["state", "generator", "discriminator"]
FLOATS = torch.float64, torch.float32, torch.float16, torch.bfloat16  # dtypes of weights
OLD_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # first bytes of files of torch < 1.6
# Names in a pickle that torch allows, and that take any amount of memory from a few bytes.
ALLOCATING = re.compile(
    r"bytearray|torch[\w.]* (\w*Tensor|(Unt|T)ypedStorage|_rebuild_device_tensor\w*)$"
)
MAX_NAMES = 200  # of classes and functions in a pickle: torch searches them one by one
OLD_PICKLES = 5  # at the start of a file of torch < 1.6
MAX_UNPACKED = 2**30  # bytes of compressed arrays
# Tensors may share storage, so they may take this many bytes per byte of their file; a view that
# repeats one number must not expand to gigabytes.
MAX_BYTES_PER_BYTE = 16


def save(
    path: Path, kind: Kind, payload: Mapping[str, object], *, outputs: OutputWriter = KEEP_EXISTING
) -> None:
    """Write a file atomically: readers see the old file or the complete new one."""
    content = io.BytesIO()  # torch's own writer aborts the process when the disk is full
    torch.save({"format": FORMAT, "version": VERSION, "kind": kind, **payload}, content)
    with outputs.file(path) as file:
        file.write(content.getbuffer())


def is_zip(path: Path) -> bool:
    """Whether both torch, which reads the start, and zipfile, which reads the end, find a zip."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"PK\3\4" and zipfile.is_zipfile(file)
    except zipfile.BadZipFile:  # claims to span several disks
        return False


def is_old(path: Path) -> bool:
    """Whether torch < 1.6 wrote the file, which is not an archive then."""
    with open(path, "rb") as file:
        return file.read(len(OLD_MAGIC)) == OLD_MAGIC


def load(path: Path, kind: Kind | None = None) -> dict[str, object]:
    """Load a checkpoint of ours, of this `kind`, on the CPU, without running code from it."""
    payload = checked(read_torch(path), path)
    if kind is not None and payload["kind"] != kind:
        raise ValueError(f"{path} must be a {kind} file, got a {payload['kind']} file")
    return payload


class PickledObjectsError(ValueError):
    """A file contains objects of classes, not only tensors and plain Python values."""


class InertListStub(list[object]):
    """Stands in for an object whose class is not looked up; ignores arguments and state."""

    def __init__(self, *args: object) -> None:
        super().__init__()

    def __setstate__(self, state: object) -> None: ...

    __hash__ = object.__hash__  # type: ignore[assignment]  # as it may be a key


class InertMapping:
    """Like `InertListStub`, for dict subclasses: torch fills only dicts of one exact type."""

    def __new__(cls, *args: object) -> OrderedDict[object, object]:  # type: ignore[misc]
        return OrderedDict()


def load_inert(path: Path) -> object:
    """Load an archive of torch.save, with an inert stand-in for each object."""
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    classes: dict[str, type] = {name: type(name, (InertListStub,), {}) for name in names}
    while True:
        try:
            with torch.serialization.safe_globals([(kind, name) for name, kind in classes.items()]):
                return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            filled = re.search(
                r"SETITEM.*got <class '(?:stylegan.files.checkpoint\.)?(\S+)'>", str(error)
            )
            if not filled or classes.get(filled[1], InertMapping) is InertMapping:
                raise
            classes[filled[1]] = InertMapping


def read_torch(path: Path, *, inert: bool = False) -> object:
    """Load any torch.save file without running code from it; `inert`: see `load_inert`."""
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint file {path}")
    check_not_placeholder(path)
    old = is_old(path)
    if not old and not is_zip(path):
        raise ValueError(f"{path} is not a checkpoint of this project, or a truncated one")
    try:
        with as_value_error(path, "is damaged or not a checkpoint of this project"):
            if not old:
                check_entries(path)
            check_calls(path, old=old)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch, about odd content
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
        raise PickledObjectsError(
            f"{path} is not a checkpoint of this project: it holds objects ({refused[1]}) that "
            "only running code from the file would restore"
        ) from error
    return content


def is_npy(path: Path) -> bool:
    with attach_filename(path), open(path, "rb") as file:
        return file.read(6) == b"\x93NUMPY"


def npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """Load the arrays of an .npz file by name, without pickle."""
    check_not_placeholder(path)
    with as_value_error(path, "is damaged or not a file of plain arrays"):
        check_entries(path, unpacked=MAX_UNPACKED)
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except MemoryError as error:
            if path.stat().st_size > MAX_UNPACKED:
                raise
            raise ValueError("it claims a larger array than it holds") from error
        others = [name for name, value in arrays.items() if not isinstance(value, np.ndarray)]
        if others:  # NumPy returns the bytes of entries in other formats
            raise ValueError(f"its entry {others[0]} is not an array")
    return arrays


def npy_array(path: Path) -> np.ndarray:
    """Load the array of an .npy file, without pickle."""
    with as_value_error(path, "is damaged or not a plain array"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)  # fails if truncated
    return np.array(array)


def check_entries(path: Path, *, unpacked: int = 0) -> None:
    """Raise ValueError if a zip entry is damaged, or all exceed both the file and `unpacked`."""
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
        if size > max(path.stat().st_size, unpacked):
            raise ValueError("its entries are larger than the file")
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the CRC-32 of its entry {damaged} is wrong")


def check_calls(path: Path, *, old: bool) -> None:
    """Raise ValueError if a pickle in the file names what could take any amount of memory."""
    if old:
        programs = [io.BytesIO(path.read_bytes())] * OLD_PICKLES
    else:
        with zipfile.ZipFile(path) as archive:
            # by entry: there may be several of one name
            entries = [e for e in archive.infolist() if e.filename.lower().endswith(".pkl")]
            programs = [io.BytesIO(archive.read(entry)) for entry in entries]
    for program in programs:
        check_names(program)


def check_names(program: BinaryIO) -> None:
    """Raise ValueError if a pickle could take far more memory than its size.

    `_codecs.encode`, by which protocol 2 stores bytes, must get a new text in each call: encoding a
    result again doubles it. Texts of one character are allowed, which Python has only once.
    """
    names = set()
    memo: dict[object, str] = {}
    top = ""  # what the last instruction has put on the stack: "encoder", "character", or others
    for opcode, argument, _ in pickletools.genops(program):
        if opcode.name.endswith("PUT"):
            memo[argument] = top
            continue
        before, top = top, ""
        is_text = opcode.name.endswith("UNICODE")
        if is_text and len(str(argument)) == 1:
            top = "character"
        elif opcode.name.endswith("GET"):
            top = memo.get(argument, "")
        elif opcode.name == "GLOBAL":
            top = "encoder" if argument == "_codecs encode" else ""
            names.add(argument)
            if found := ALLOCATING.search(str(argument)):
                raise ValueError(f"it calls {found[0].replace(' ', '.')}, which no weights need")
        if before == "encoder" and not is_text and top != "character":
            raise ValueError("it encodes something other than a text of its own")
    if len(names) > MAX_NAMES:
        raise ValueError(f"it names {len(names)} classes, at most {MAX_NAMES} are read")


def check_tensors(content: object, size: int) -> None:
    """Raise ValueError unless all tensors are dense and together fit a file of `size` bytes."""
    left = MAX_BYTES_PER_BYTE * size + 2**20
    waiting = [content]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            if value.is_meta or value.layout != torch.strided:
                raise ValueError("it holds a tensor that is not dense")
            left -= value.nbytes
            if left < 0:
                raise ValueError("its tensors are larger than the file: they share storage")
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))  # lists nested twice in one another are 2**40 values
            waiting += value.values() if isinstance(value, dict) else value


def checked(payload: object, path: Path) -> dict[str, object]:
    """Check the content of `path`: ValueError unless this version can use it."""
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        raise ValueError(f"{path} is a PyTorch file, but not a checkpoint of this project")
    version = payload.get("version")
    kind = payload.get("kind")
    if type(version) is not int:
        raise ValueError(
            f"{path} is damaged: version must be an integer, got {reprlib.repr(version)}"
        )
    if version > VERSION:
        raise ValueError(f"{path} has version {version}; this program reads up to {VERSION}")
    if not isinstance(kind, str) or kind not in get_args(Kind):
        known = ", ".join(get_args(Kind))
        raise ValueError(f"{path} is damaged: kind must be {known}, got {reprlib.repr(kind)}")
    return payload


def check_weights(weights: object) -> dict[str, Tensor]:
    """Check that `weights` map names to tensors; ValueError if not."""
    if not isinstance(weights, Mapping):
        raise ValueError(f"weights must be tensors by name, got {type(weights).__name__}")
    for name, value in weights.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise ValueError(f"weights must be tensors by name; {name!r} is {type(value).__name__}")
    return dict(weights)


def match_state_dict(wanted: Mapping[str, Tensor], weights: object) -> dict[str, Tensor]:
    """Strip `module.` from names; ValueError unless the tensors are finite and fit `wanted`."""
    tensors = {name.removeprefix("module."): t for name, t in check_weights(weights).items()}
    problems = mismatches(wanted, tensors)
    if problems:
        texts = [f"{sanitize(name)} {reason}" for name, reason in problems.items()]
        raise ValueError(f"the weights do not fit the network: {join_truncated(texts)}")
    for name, tensor in tensors.items():
        is_broken = ~tensor.isfinite()
        if is_broken.any():
            raise ValueError(
                f"{name} holds {pluralize(int(is_broken.sum()), 'number')} of {tensor.numel():,} "
                "that are NaN or infinite; use a file from before training diverged"
            )
    return tensors


def mismatches(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Reasons, by name, why tensors do not fit `wanted`; empty if all do."""
    problems = {name: "is missing" for name in wanted if name not in tensors}
    for name, tensor in tensors.items():
        if name not in wanted:
            problems[name] = "is not a tensor of this network"
        elif tensor.shape != wanted[name].shape:
            expected = tuple(wanted[name].shape)
            problems[name] = f"has shape {tuple(tensor.shape)} instead of {expected}"
        elif tensor.dtype not in FLOATS and wanted[name].dtype in FLOATS:
            problems[name] = f"has dtype {tensor.dtype} instead of a floating-point one"
    return problems
