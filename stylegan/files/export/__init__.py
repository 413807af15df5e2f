"""A generator as a file for other programs; the ending of the file's name chooses the format.

What another program runs instead of reading, ONNX and torch.export, is made in `graph.py` and
`program.py`; the formats that are read back are those of `stylegan.files.portable`.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from stylegan.files import portable
from stylegan.files.loading import LoadedGenerator, payload_of

__all__ = ["FORMATS", "NoiseInput", "check_request", "export"]

NoiseInput = Literal["input", "const", "none"]


@dataclass(frozen=True)
class Choices:
    """What can be chosen beside the format."""

    noise: NoiseInput
    half: bool
    check: bool


@dataclass(frozen=True)
class Format:
    """How one kind of file is written; what is found by running it, if it is run."""

    write: Callable[[Path, LoadedGenerator, Choices], float | None]
    noise: NoiseInput | None = None  # how noise enters unless told; None = not of this format
    half: bool = False  # whether it can hold numbers of half precision
    package: str | None = None  # that writing it needs


def write_safetensors(path: Path, loaded: LoadedGenerator, choices: Choices) -> None:
    portable.save_safetensors(path, payload_of(loaded), half=choices.half)


def write_npz(path: Path, loaded: LoadedGenerator, choices: Choices) -> None:
    portable.save_npz(path, payload_of(loaded), loaded.generator)


def write_onnx(path: Path, loaded: LoadedGenerator, choices: Choices) -> float | None:
    from stylegan.files.export.graph import save_onnx

    return save_onnx(path, loaded, choices.noise, check=choices.check)


def write_program(path: Path, loaded: LoadedGenerator, choices: Choices) -> None:
    from stylegan.files.export.program import save_program

    save_program(path, loaded, choices.noise)


FORMATS = {
    ".safetensors": Format(write_safetensors, half=True),
    ".npz": Format(write_npz),
    ".onnx": Format(write_onnx, noise="input", package="onnx"),
    ".pt2": Format(write_program, noise="const"),
}


def export(
    loaded: LoadedGenerator,
    path: Path,
    *,
    noise: NoiseInput | None = None,
    half: bool = False,
    check: bool = False,
    overwrite: bool = False,
) -> float | None:
    """Write a generator in the format that the ending of `path` names.

    .safetensors: the weights, with all else as JSON in the metadata; `half` rounds them to
    float16. .npz: variables under their official names. .onnx and .pt2 (torch.export) compute
    images, without padding, from z, psi and, where there are any, labels, for any number of
    images; truncation reaches the layers that the file of the generator says. Their `noise`:
    "input" takes the maps, "const" holds the stored ones, "none" leaves noise out; None chooses
    "input" for ONNX, whose maps have the stored ones as defaults, and "const" for .pt2.

    `check`: what is written as ONNX is run before, in ONNX Runtime. Returned is the largest
    difference of its images from the generator's in float32; ValueError if rounding does not
    explain it.
    """
    kind = check_request(path, noise=noise, half=half, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    return kind.write(path, loaded, Choices(noise or kind.noise or "const", half, check))


def check_request(path: Path, *, noise: NoiseInput | None, half: bool, overwrite: bool) -> Format:
    """The format of `path`, if it has what is chosen and no file would be lost."""
    kind = FORMATS.get(path.suffix)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of the file to write")
    if kind is None:
        raise ValueError(f"{path} ends in none of {', '.join(FORMATS)}, which choose the format")
    if noise is not None and kind.noise is None:
        raise ValueError(f"a {path.suffix} file holds weights, for every noise; leave noise out")
    if noise is not None and noise not in get_args(NoiseInput):
        raise ValueError(f"noise is {', '.join(get_args(NoiseInput))}, not {noise!r}")
    if half and not kind.half:
        raise ValueError(f"half precision is for .safetensors files, not for {path.suffix}")
    if kind.package and importlib.util.find_spec(kind.package) is None:
        raise ValueError(
            f"writing {path.suffix} files needs {kind.package}: pip install 'stylegan[export]'"
        )
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists; pass --overwrite (overwrite=True) or choose another name")
    return kind
