"""Self-describing files of plain tensors and plain Python, written atomically."""

import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

FORMAT = "stylegan"
VERSION = 1
Kind = Literal["state", "generator", "discriminator"]
NETWORKS = {  # fields of a file that hold the weights of a network
    "state": ("generator", "discriminator", "generator_ema"),
    "generator": ("weights",),
    "discriminator": ("weights",),
}


def save(path: Path, kind: Kind, payload: Mapping[str, Any]) -> None:
    """Write so that `path` is, at every moment, absent, the old file or the new one."""
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        torch.save({"format": FORMAT, "version": VERSION, "kind": kind, **payload}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def load(path: Path, *, map_location: str | torch.device = "cpu") -> dict[str, Any]:
    """The payload of one of our files, loaded without running code from it."""
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint file {path}")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a checkpoint of this project, or a truncated one")
    try:
        payload = torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:  # its message advises to load it unsafely
        raise ValueError(
            f"{path} is not a checkpoint of this project: it holds objects that only running code "
            "from the file would restore, so it was refused"
        ) from error
    except Exception as error:  # a damaged file can raise almost anything
        reason = str(error).split("\n")[0]
        raise ValueError(
            f"{path} is damaged or not a checkpoint of this project: {reason}"
        ) from error
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        raise ValueError(f"{path} is a PyTorch file, but not a checkpoint of this project")
    version, kind = payload.get("version"), payload.get("kind")
    if type(version) is not int:
        raise ValueError(f"{path} is damaged: its version is {version!r}, not a whole number")
    if version > VERSION:
        raise ValueError(f"{path} has version {version}; this program reads up to {VERSION}")
    if not isinstance(kind, str) or kind not in NETWORKS:
        known = ", ".join(NETWORKS)
        raise ValueError(f"{path} is damaged: its kind is {kind!r}, not one of {known}")
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


def load_kind(
    path: Path, kind: Kind, *, map_location: str | torch.device = "cpu"
) -> dict[str, Any]:
    """As `load`, and an error if the file is of another kind."""
    payload = load(path, map_location=map_location)
    if payload["kind"] != kind:
        raise ValueError(f"{path} is a {payload['kind']} file; a {kind} file is needed here")
    return payload


def load_weights(
    module: nn.Module, weights: Mapping[str, Tensor], *, strict: bool = True
) -> list[str]:
    """Copy `weights` into `module`; a `module.` prefix (DataParallel's, DDP's) is dropped.

    Returns the names that could not be copied, each with its reason; with `strict` they are an
    error and nothing is copied.
    """
    given = {name.removeprefix("module."): value for name, value in weights.items()}
    wanted = module.state_dict()
    problems = [f"{name}: missing" for name in wanted if name not in given]
    problems += [f"{name}: surplus" for name in given if name not in wanted]
    problems += [
        f"{name}: shape {tuple(given[name].shape)}, not {tuple(wanted[name].shape)}"
        for name in wanted
        if name in given and given[name].shape != wanted[name].shape
    ]
    if problems and strict:
        raise ValueError(f"the weights do not fit the network; {'; '.join(problems)}")
    refused = {problem.split(":")[0] for problem in problems}
    fitting = {name: value for name, value in given.items() if name not in refused}
    module.load_state_dict(fitting, strict=False)
    return problems


def numbered(folder: Path, prefix: str) -> list[Path]:
    """`prefix-<images>.pt` files of a run, oldest first."""
    pattern = re.compile(rf"{prefix}-(\d+)\.pt")
    found = [
        (int(m[1]), p) for p in folder.glob(f"{prefix}-*.pt") if (m := pattern.fullmatch(p.name))
    ]
    return [path for _, path in sorted(found)]


def retain(folder: Path, prefix: str, keep: int) -> None:
    """Delete all but the newest `keep` files."""
    for path in numbered(folder, prefix)[:-keep]:
        path.unlink()


def write_text(path: Path, text: str) -> None:
    """Write text as `save` writes tensors: `path` is never half a file."""
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
