"""Edits: offsets of truncated styles along directions in W, in some layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_STRENGTH = 1000.0


@dataclass(frozen=True, eq=False)
class Edit:
    """Adds `strength` times `direction` to the styles of `layers`."""

    direction: Tensor  # (w_dim,); of stylegan.directions: one standard deviation of w
    strength: float = 1.0
    layers: range | None = None  # rows of ws; None: all

    def __post_init__(self) -> None:
        if self.direction.ndim != 1 or not self.direction.isfinite().all():
            raise ValueError("direction must be a vector of finite numbers")
        if not abs(self.strength) <= MAX_STRENGTH:
            limit = f"{MAX_STRENGTH:g}"
            raise ValueError(f"strength must be from -{limit} to {limit}, got {self.strength}")


def check_layers(layers: range, num_ws: int) -> range:
    """Return `layers`; ValueError unless it is a contiguous range of the layers."""
    rows = range(num_ws)
    if not layers or layers.step != 1 or layers[0] not in rows or layers[-1] not in rows:
        found = f"{layers.start} to {layers.stop - 1}"
        raise ValueError(f"layers must be a range from 0 to {rows[-1]}, got {found}")
    return layers


def total_offset(edits: Sequence[Edit], num_ws: int, w_dim: int) -> Tensor:
    """Sum of all edits: float32 (num_ws, w_dim) on the CPU."""
    # summed in float64, so that the order of the edits does not matter
    move = torch.zeros(num_ws, w_dim, dtype=torch.float64)
    for edit in edits:
        if len(edit.direction) != w_dim:
            raise ValueError(f"direction must have {w_dim} numbers, got {len(edit.direction)}")
        rows = range(num_ws)
        if edit.layers is not None:
            rows = check_layers(edit.layers, num_ws)
        move[rows.start : rows.stop] += edit.strength * edit.direction.cpu().double()
    return move.float()


def apply_edits(ws: Tensor, edits: Sequence[Edit]) -> Tensor:
    """Apply edits to truncated styles ws (N, num_ws, w_dim)."""
    return ws + total_offset(edits, *ws.shape[1:]).to(ws) if edits else ws
