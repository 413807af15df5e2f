"""Conversion of a file's tensors to ours, none missing and none left over."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stylegan.files.checkpoint import match_state_dict
from stylegan.schedule import resolutions

N = TypeVar("N", bound=nn.Module)
Shape = tuple[int, ...]

FUSED_FROM = 128  # resolution from which the official program fuses upsampling and convolution


@dataclass(frozen=True)
class Match:
    """One of our tensors, its name in a file, and how to convert it."""

    name: str
    path: str
    axes: tuple[int, ...] = ()  # permutation of the file's axes; () = none
    rotated: bool = False  # then rotated by 180 degrees in the last two axes
    factor: float = 1.0  # then multiplied
    change: Callable[[Tensor], Tensor] | None = None  # applied after axes and rotation
    # Shape in the file; () = ours, permuted. 0 stands for the length of our first axis:
    # (1, 0, 1, 1) means that our (C,) is (1, C, 1, 1) there.
    shape: Shape = ()

    def to_ours(self, theirs: Tensor) -> Tensor:
        ours = theirs.permute(self.axes) if self.axes else theirs
        ours = ours.flip(-2, -1) if self.rotated else ours
        ours = self.change(ours) if self.change else ours
        return ours if self.factor == 1 else ours.double() * self.factor

    def shape_in_file(self, ours: Shape) -> Shape:
        back = [self.axes.index(i) for i in range(len(self.axes))]
        return tuple(n or ours[0] for n in self.shape) or tuple(ours[i] for i in back) or ours


def numbers_in(name: str) -> dict[str, int]:
    """Numbers in one of our names: mapping layer i; or resolution r, block b and its layer j."""

    def number(before: str, otherwise: int) -> int:
        found = re.search(rf"(?:{before})\.?(\d+)", name)
        return int(found[1]) if found else otherwise

    i = number("layers", 0)
    r = number("blocks|_rgb", 4)
    b = r.bit_length() - 3
    j = number("conv|epilogue", 1)  # 1: `conv` of the input block
    return {
        "i": i, "i+1": i + 1, "2i+1": 2 * i + 1,
        "r": r, "b": b, "b-1": b - 1, "j": j, "j+1": j + 1, "2b+j": 2 * b + j,
    }  # fmt: skip


def network_from(
    make: Callable[[], N],
    matches: Callable[[Mapping[str, Tensor]], Iterable[Match]],
    tensors: Mapping[str, Tensor],
) -> N:
    """Build a network in eval mode from the `tensors` of a file.

    make: creates the network.
    matches: maps its state to matches; tensors without a match are 0.

    All are float64 if any matched tensor is, else float32. Raises ValueError if a tensor is
    missing, left over, of another shape or not finite.
    """
    with torch.device("meta"):  # shapes only: absurd sizes fail before they cost memory
        network = make()
        state = network.state_dict()
        table = list(matches(state))
        wanted = {
            m.path: state[m.name].new_empty(m.shape_in_file(tuple(state[m.name].shape)))
            for m in table
        }
    tensors = match_state_dict(wanted, tensors)
    exact = any(tensors[match.path].dtype == torch.float64 for match in table)
    dtype = torch.float64 if exact else torch.float32
    ours = {name: torch.zeros(like.shape, dtype=dtype) for name, like in state.items()}
    for match in table:
        ours[match.name].copy_(match.to_ours(tensors[match.path].detach()))
    network.load_state_dict(ours, assign=True)
    if any(buffer.is_meta for buffer in network.buffers()):  # of no file: as the constructor's
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            network = make().to(dtype)
        network.load_state_dict(ours, assign=True)
    return network.eval()


def growth(name: str, lod: object, full: int) -> tuple[int, float]:
    """Resolution and alpha at an official level of detail of a network of resolution `full`."""
    array = np.asarray(lod)
    levels = len(resolutions(full))
    if array.size != 1 or array.dtype.kind not in "fiu" or not 0 <= array.item() <= levels - 1:
        raise ValueError(f"{name} must be from 0 to {levels - 1} at {full}x{full}, got {lod}")
    level = float(array.item())
    return full >> math.floor(level), 1 - level % 1
