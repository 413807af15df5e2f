"""Edits: moves of styles along directions of w, in some layers, after truncation."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST_STRENGTH = 1000.0


@dataclass(frozen=True, eq=False)
class Edit:
    """A move of the styles of `layers` by `strength` times `direction`."""

    direction: Tensor  # (w_dim,); as found by stylegan.directions: one standard deviation of w
    strength: float = 1.0
    layers: range | None = None  # rows of ws; None: all

    def __post_init__(self) -> None:
        if self.direction.ndim != 1 or not self.direction.isfinite().all():
            raise ValueError("a direction is a row of finite numbers")
        if not abs(self.strength) <= LARGEST_STRENGTH:
            limit = f"{LARGEST_STRENGTH:g}"
            raise ValueError(f"strengths are numbers from -{limit} to {limit}, not {self.strength}")


def check_layers(layers: range, num_styles: int) -> range:
    """Return `layers`. Raise ValueError unless they are neighboring layers of so many styles."""
    rows = range(num_styles)
    if not layers or layers.step != 1 or layers[0] not in rows or layers[-1] not in rows:
        asked = f"{layers.start} to {layers.stop - 1}"
        raise ValueError(f"the network has layers 0 to {rows[-1]}; {asked} is not a range of them")
    return layers


def total_move(edits: Sequence[Edit], num_styles: int, w_dim: int) -> Tensor:
    """Return the sum of all edits of styles: float32 (num_styles, w_dim) on the CPU."""
    # summed in float64, so that the order of the edits does not matter
    move = torch.zeros(num_styles, w_dim, dtype=torch.float64)
    for edit in edits:
        if len(edit.direction) != w_dim:
            numbers = f"{len(edit.direction)} numbers"
            raise ValueError(f"an edit of {numbers} does not fit w of {w_dim}")
        rows = range(num_styles)
        if edit.layers is not None:
            rows = check_layers(edit.layers, num_styles)
        move[rows.start : rows.stop] += edit.strength * edit.direction.cpu().double()
    return move.float()


def edited(ws: Tensor, edits: Sequence[Edit]) -> Tensor:
    """Return truncated styles ws (N, num_styles, w_dim), moved by the edits."""
    return ws + total_move(edits, *ws.shape[1:]).to(ws) if edits else ws
