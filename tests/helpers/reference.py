"""Numbers that the official program computed, see CONTRIBUTING.md.

With TEST_DEVICE=cuda ours are computed there, in full precision.
"""

import json
import os
from pathlib import Path

import numpy as np
import torch

DEVICE = torch.device(os.environ.get("TEST_DEVICE", "cpu"))
# of the limits in float32, which are those of CPUs; kernels of a GPU have not been measured. With
# PERTURB_PRODUCTS, noise of eight roundings in every product takes up to half of it.
OF_A_CPU = DEVICE.type == "cpu" and not int(os.environ.get("PERTURB_PRODUCTS", "0"))
SLACK = {torch.float64: 1, torch.float32: 1 if OF_A_CPU else 10}
if DEVICE.type == "cuda":
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cudnn.conv.fp32_precision = "ieee"

REFERENCE = Path(__file__).parents[1] / "reference"
SNAPSHOT = REFERENCE / "official_snapshot.pkl"


def load(name):
    """The arrays of a file by their names, and its description, empty if there is none."""
    with np.load(REFERENCE / f"{name}.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    return arrays, json.loads(str(arrays.pop("meta", "{}")))


def to_test_device(array, dtype=None):
    """The numbers of an array where ours are computed."""
    return torch.from_numpy(array).to(DEVICE, dtype)


def under(prefix, arrays):
    """The entries below `prefix`, relative to it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
