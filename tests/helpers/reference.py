"""Numbers that the official program computed, see tests/reference/README.md.

With TEST_DEVICE=cuda ours are computed there, in full precision.
"""

import json
import os
from pathlib import Path

import numpy as np
import torch

DEVICE = torch.device(os.environ.get("TEST_DEVICE", "cpu"))
# By how much images (or w) and scores may differ: in float64 so far, in float32 relative to the
# largest number, if that is above 1. Round-off of a processor leads to a quarter of it, products
# that are off by 1e-6 (PERTURB_PRODUCTS) to a half.
IMAGES = {torch.float64: 1e-9, torch.float32: 2e-5}
SCORES = {torch.float64: 1e-9, torch.float32: 1e-5}
# of the limits in float32, which are those of a CPU; kernels of a GPU have not been measured
SLACK = {torch.float64: 1, torch.float32: 1 if DEVICE.type == "cpu" else 10}
if DEVICE.type == "cuda":
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cudnn.conv.fp32_precision = "ieee"

REFERENCE = Path(__file__).parents[1] / "reference"


def load(name):
    """The arrays of a file by their names, and its description, empty if there is none."""
    with np.load(REFERENCE / f"{name}.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    return arrays, json.loads(str(arrays.pop("meta", "{}")))


def there(array, dtype=None):
    """The numbers of an array where ours are computed."""
    return torch.from_numpy(array).to(DEVICE, dtype)


def limit_of(limits, official, dtype):
    """The largest difference of ours from these official numbers."""
    scale = max(1.0, np.abs(official).max()) if dtype == torch.float32 else 1.0
    return limits[dtype] * SLACK[dtype] * scale


def under(prefix, arrays):
    """The entries below `prefix`, relative to it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
