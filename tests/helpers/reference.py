"""Numbers that the official program computed, see tests/reference/README.md."""

import json
from pathlib import Path

import numpy as np

REFERENCE = Path(__file__).parents[1] / "reference"


def load(name):
    """The arrays of a file by their names, and its description, empty if there is none."""
    with np.load(REFERENCE / f"{name}.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    return arrays, json.loads(str(arrays.pop("meta", "{}")))


def under(prefix, arrays):
    """The entries below `prefix`, relative to it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
