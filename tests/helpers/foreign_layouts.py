"""Small networks of other programs, rebuilt from names and shapes, and what they computed.

`foreign/*.npz` holds for each variant the names and shapes of the tensors, how to fill them, and
outputs of the publisher's own program in float64. The weights are drawn here: `RandomState(i)`
for the i-th tensor.
"""

import json
from pathlib import Path

import numpy as np
import torch

FOLDER = Path(__file__).parent.parent / "foreign"
PIXELS = np.r_[0:4, 7:120:8, 124:128]  # rows and columns kept of images of 128x128


def load(layout):
    """Variant -> its tensors' descriptions; and all arrays."""
    with np.load(FOLDER / f"{layout}.npz") as file:
        arrays = dict(file)
    return json.loads(str(arrays.pop("meta"))), arrays


def random_tensor(index, shape, std=1.0):
    return torch.from_numpy(np.asarray(np.random.RandomState(index).randn(*shape) * std))


def weights(description, dtype=torch.float32):
    """name -> tensor; `description` has (name, shape, "blur" or the standard deviation)."""
    tensors = {}
    row = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    for index, (name, shape, fill) in enumerate(description):
        if fill == "blur":
            tensor = (torch.outer(row, row) / 16).expand(*shape).clone()
        else:
            tensor = random_tensor(index, shape, fill).float().double()
        tensors[name] = tensor.to(dtype)
    return tensors


def noise_maps(resolution, each=2):
    """`each` maps per resolution from 4x4 on."""
    sizes = [r for r in (4, 8, 16, 32, 64, 128) if r <= resolution]
    return [random_tensor(1000 + 10 * r + i, (1, 1, r, r)) for r in sizes for i in range(each)]


def latents(n, size):
    return random_tensor(999, (n, size))


def kept(images):
    """The pixels of images that the files hold."""
    if images.shape[-1] < 128:
        return images.detach().numpy()
    return images.detach().numpy()[:, :, PIXELS][..., PIXELS]
