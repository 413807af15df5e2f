"""What a generator file says beside its weights, as JSON."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stylegan.files import checkpoint
from stylegan.files.loaded import LoadedGenerator
from stylegan.messages import readable

OURS = "stylegan"  # the entry of the metadata of a file that is ours
HEAD = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "kind": "generator"}


def about(loaded: LoadedGenerator, **more: Any) -> dict[str, Any]:
    """What a generator file says beside its weights: format, version, kind, config, ..."""
    return HEAD | loaded.description() | more


def to_json(fields: Mapping[str, Any]) -> str:
    """ValueError for what JSON cannot hold, such as NaN."""
    try:
        return json.dumps(fields, allow_nan=False)
    except ValueError as error:
        raise ValueError(f"what the generator says cannot be written: {error}") from error


def from_json(text: str, path: Path, what: str) -> dict[str, Any]:
    """A JSON object that a file holds as its `what`."""
    try:
        found = json.loads(text, parse_constant=finite, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: its {what} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: its {what} is not a JSON object")
    return found


def finite(text: str) -> float:
    """A number; ValueError for NaN, which is not JSON, and for what is infinite, such as 1e999."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{readable(text)} is not a finite number")
    return number
