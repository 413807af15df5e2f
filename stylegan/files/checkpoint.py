"""Self-describing files of plain tensors and plain Python, written atomically."""

import hashlib
import io
import os
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

import torch
from torch import Tensor, nn

from stylegan.atomic import replacing
from stylegan.files.limits import FLOATS, Plain, Refused, entries, instructions
from stylegan.messages import listed, readable

FORMAT = "stylegan"
VERSION = 1
Kind = Literal["state", "generator", "discriminator"]
NETWORKS = {  # fields of a file that hold the weights of a network
    "state": ("generator", "discriminator", "generator_ema"),
    "generator": ("weights",),
    "discriminator": ("weights",),
}

# All that a checkpoint of anyone's needs to name; torch itself lets more pass.
ALLOWED = re.compile(
    r"collections\.OrderedDict|torch\.(Size|device|\w+Storage|(float|bfloat|complex|u?int)[\w]+|bool)"
    r"|torch\.storage\.UntypedStorage|torch\._utils\._rebuild_(tensor(_v[23])?|parameter)"
)
OLD_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # begins what torch 1.5 wrote
OLD_PICKLES = 4  # that follow
SEAL = b"sha256:"  # begins the comment that ends a file; the digest follows


class Hashing:
    """A file that torch.save writes to: keeps the SHA-256 of what passes, and the first error.

    torch's writer, in C++, must not be left by an exception: it would end the process.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.digest = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        if self.error is None:
            try:
                self.file.write(data)
            except OSError as error:  # a full disk
                self.error = error
        return len(data)

    def flush(self) -> None:
        """Done at the end, by `replacing`."""


def save(path: Path, kind: Kind, payload: Mapping[str, Any]) -> None:
    """Write a file of ours."""
    write(path, {"format": FORMAT, "version": VERSION, "kind": kind, **payload})


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write so that `path` is, at every moment, absent, the old file or the new one.

    The last bytes, a comment of the zip archive that torch writes, hold the SHA-256 of the rest.
    """
    with replacing(path) as file:
        hashing = Hashing(file)
        torch.save(content, cast(BinaryIO, hashing))
        if hashing.error is not None:
            raise hashing.error
        comment = SEAL + hashing.digest.hexdigest().encode()
        file.seek(-2, os.SEEK_END)  # the length of the comment, zero so far
        file.write(len(comment).to_bytes(2, "little") + comment)


def check_seal(path: Path) -> None:
    """ValueError if the file is not what was written. A file without a seal, written by another
    program or an older version, passes."""
    try:
        entries(path)
        with zipfile.ZipFile(path) as archive:
            seal = archive.comment
    except Refused as error:
        raise ValueError(f"{path} {error}") from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not seal:
        return
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        left = path.stat().st_size - len(seal) - 2
        while left > 0 and (data := file.read(min(left, 2**20))):
            digest.update(data)
            left -= len(data)
        digest.update(bytes(2))  # the length of the comment was zero
        file.seek(2, os.SEEK_CUR)
        ends_with = file.read()
    if not seal == ends_with == SEAL + digest.hexdigest().encode():
        raise ValueError(
            f"{path} is damaged: its content does not have the SHA-256 that it was written with"
        )


def check_pickles(path: Path) -> None:
    """Refused if a pickle of the file names what no checkpoint needs, or takes long."""
    if is_old(path):
        with open(path, "rb") as file:
            file.seek(len(OLD_MAGIC))
            for _ in range(OLD_PICKLES):
                check_names(file)
    else:
        with zipfile.ZipFile(path) as archive:
            for entry in entries(path):
                if entry.filename.lower().endswith(".pkl"):  # torch does not mind the case
                    check_names(io.BytesIO(archive.read(entry)))


def check_names(pickled: IO[bytes]) -> None:
    """As `check_pickles`, of one."""
    for opcode, argument, _ in instructions(pickled):
        named = str(argument).replace(" ", ".")
        if opcode.name == "GLOBAL" and not ALLOWED.fullmatch(named):
            raise Refused(
                f"is not a checkpoint of this project: it holds objects ({readable(named)}) that "
                "only running code from the file would restore, so it was refused"
            )


def is_zip(path: Path) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:  # one that claims to lie on several disks
        return False


def load(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """The payload of one of our files, on the CPU, loaded without running code from it.

    `mapped` reads tensors from the file when they are looked at, and checks no checksums: for its
    other fields alone.
    """
    return checked(read(path, mapped=mapped), path)


def is_old(path: Path) -> bool:
    """Whether the file is of torch.save before version 1.6: not an archive."""
    with open(path, "rb") as file:
        return file.read(len(OLD_MAGIC)) == OLD_MAGIC


def read(path: Path, *, mapped: bool = False) -> object:
    """What a file of torch.save holds, ours or not: plain dictionaries, lists and tensors, loaded
    without running code from it; `mapped` as in `load`."""
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint file {path}")
    old = is_old(path)
    if not old and not is_zip(path):
        raise ValueError(f"{path} is not a checkpoint of this project, or a truncated one")
    if not old and not mapped:
        check_seal(path)
    try:
        check_pickles(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's remarks on what no good file contains
            content = torch.load(
                path, map_location="cpu", weights_only=True, mmap=mapped and not old
            )
        return Plain(path.stat().st_size).of(content)
    except Refused as error:
        raise ValueError(f"{path} {error}") from error
    except Exception as error:  # a damaged file can raise almost anything
        reason = readable(str(error).split("\n")[0] or type(error).__name__)
        raise ValueError(
            f"{path} is damaged or not a checkpoint of this project: {reason}"
        ) from error


def is_own(content: object) -> bool:
    """Whether what a file holds says that it is of this project."""
    return isinstance(content, dict) and content.get("format") == FORMAT


def checked(payload: object, path: Path) -> dict[str, Any]:
    """The content of `path` if it is a payload of ours that this version can use."""
    if not isinstance(payload, dict) or not is_own(payload):
        raise ValueError(f"{path} is a PyTorch file, but not a checkpoint of this project")
    version, kind = payload.get("version"), payload.get("kind")
    if type(version) is not int:
        raise ValueError(
            f"{path} is damaged: its version is {readable(repr(version))}, not a whole number"
        )
    if version > VERSION:
        raise ValueError(f"{path} has version {version}; this program reads up to {VERSION}")
    if not isinstance(kind, str) or kind not in NETWORKS:
        known = ", ".join(NETWORKS)
        raise ValueError(
            f"{path} is damaged: its kind is {readable(repr(kind))}, not one of {known}"
        )
    for name in NETWORKS[kind]:
        try:
            check_weights(payload.get(name))
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error} (field {name!r})") from error
    return payload


def check_weights(weights: object) -> None:
    """ValueError unless `weights` is a dictionary from names to tensors."""
    if not isinstance(weights, Mapping):
        raise ValueError(f"weights must be tensors by name, not {type(weights).__name__}")
    for name, value in weights.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise ValueError(f"weights must be tensors by name; {name!r}: {type(value).__name__}")


def load_kind(path: Path, kind: Kind) -> dict[str, Any]:
    """As `load`, and an error if the file is of another kind."""
    payload = load(path)
    if payload["kind"] != kind:
        raise ValueError(f"{path} is a {payload['kind']} file; a {kind} file is needed here")
    return payload


def is_sound(path: Path, kind: Kind) -> bool:
    """Whether the file is there, of this kind and not damaged."""
    try:
        load_kind(path, kind)
    except (ValueError, OSError):
        return False
    return True


def load_weights(
    module: nn.Module, weights: Mapping[str, Tensor], *, strict: bool = True
) -> list[str]:
    """Copy `weights` into `module`; a `module.` prefix (DataParallel's, DDP's) is dropped.

    Returns the names that could not be copied, each with its reason; with `strict` they are an
    error and nothing is copied.
    """
    given = without_prefix(weights)
    problems = misfits(module, given)
    if problems and strict:
        raise ValueError(f"the weights do not fit the network; {listed(problems)}")
    refused = {problem.split(":")[0] for problem in problems}
    fitting = {name: value for name, value in given.items() if name not in refused}
    module.load_state_dict(fitting, strict=False)
    return problems


def without_prefix(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("module."): value for name, value in weights.items()}


def misfits(module: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Names of `weights` that are missing, surplus or of another shape, each with its reason."""
    given, wanted = without_prefix(weights), module.state_dict()
    problems = [f"{name}: missing" for name in wanted if name not in given]
    problems += [f"{name}: surplus" for name in given if name not in wanted]
    for name in [name for name in wanted if name in given]:
        found, expected = given[name], wanted[name]
        if found.shape != expected.shape:
            problems.append(f"{name}: shape {tuple(found.shape)}, not {tuple(expected.shape)}")
        elif found.dtype not in FLOATS and expected.dtype in FLOATS:
            problems.append(f"{name}: holds {found.dtype}, not plain real numbers")
    return problems
