"""Logs as lines of JSON, and the versions and hardware behind results."""

import errno
import json
import math
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from stylegan.utils.filesystem import attach_filename
from stylegan.utils.version import __version__

MAX_NUMBER = 1e40  # beyond float32: not a measurement, and too large to plot
LIBRARIES = ("torch-fidelity", "torchmetrics", "torchvision", "scikit-learn", "numpy")


def to_line(record: Mapping[str, object]) -> str:
    """Format as one line of JSON; NaN and infinity become null."""
    return json.dumps(replace_nonfinite(record))


def replace_nonfinite(value: object) -> object:
    """Replace NaN and infinity by None."""
    if isinstance(value, Mapping):
        return {str(name): replace_nonfinite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def append_line(path: Path, line: str) -> None:
    """Append a line to a text file; other processes may append at the same time.

    A partial last line, as a full disk leaves it, is kept and ended by a line break. A link is
    refused: in a run folder of somebody else it may lead to any file.
    """
    with attach_filename(path):
        if path.is_symlink():
            raise OSError(errno.ELOOP, "is a link, which is not followed")
        with open(path, "ab+") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            is_whole = file.read(1) in (b"", b"\n")
            file.write((b"" if is_whole else b"\n") + line.encode() + b"\n")


def read_lines(path: Path, name: str) -> tuple[list[dict[str, object]], int]:
    """JSON objects in a file that have text at `name`, and the number of other lines."""
    if not path.is_file():
        return [], 0
    records = []
    bad = 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):  # the last line of a killed run may be partial
                value = None
            if isinstance(value, dict) and isinstance(value.get(name), str):
                records.append(value)
            else:
                bad += 1
    return records, bad


def mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def finite_float(value: object) -> float | None:
    """Convert to a float that can be plotted, else None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER:
        return float(value)
    return None


def versions() -> dict[str, str]:
    """Versions of this program, Python and the libraries that results depend on."""
    known = {"stylegan": __version__, "torch": torch.__version__}
    known["python"] = platform.python_version()
    for library in LIBRARIES:
        with suppress(PackageNotFoundError):
            known[library] = version(library)
    return known


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
