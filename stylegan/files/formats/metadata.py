"""What a generator file says beside its weights, as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stylegan.files import checkpoint
from stylegan.files.loaded import LoadedGenerator

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
        found = json.loads(text, parse_constant=lambda name: int(name))  # NaN is not JSON
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: its {what} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: its {what} is not a JSON object")
    return found
