"""Edits: moves of styles along directions of w, in some layers, after truncation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from stylegan.messages import readable
from stylegan.networks import NetworkConfig

LARGEST_STRENGTH = 1000.0
FORM = "pca:2=+3@0-3: a direction, how far, and the layers"
SHAPE = re.compile(
    r"((?P<vector>.+?\.npy)|((?P<file>.+?\.npz):)?(?P<method>[a-z]+):(?P<name>.+?))"
    r"(=(?P<strength>[^=@]*))?(@(?P<layers>[^=@]*))?",
    re.S,
)


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


class EditText(NamedTuple):
    """The parts of `[FILE:]METHOD:NAME[=STRENGTH][@LAYERS]`, or of `VECTOR[=STRENGTH][@LAYERS]`."""

    method: str  # "" with a vector
    name: str
    strength: float = 1.0
    layers: range | None = None  # None: those of the direction
    file: Path | None = None
    vector: Path | None = None  # an .npy file


def check_layers(layers: range, config: NetworkConfig) -> range:
    """`layers`; ValueError unless they are neighboring layers of the network."""
    rows = range(config.num_styles())
    if not layers or layers.step != 1 or layers[0] not in rows or layers[-1] not in rows:
        asked = f"{layers.start} to {layers.stop - 1}"
        raise ValueError(f"the network has layers 0 to {rows[-1]}; {asked} is not a range of them")
    return layers


def total_move(edits: Sequence[Edit], config: NetworkConfig) -> Tensor | None:
    """What all edits add to styles: float32 (num_styles, w_dim) on the CPU; None without edits."""
    if not edits:
        return None
    # summed in float64, so that the order of the edits does not matter
    move = torch.zeros(config.num_styles(), config.w_dim, dtype=torch.float64)
    for edit in edits:
        if len(edit.direction) != config.w_dim:
            numbers = f"{len(edit.direction)} numbers"
            raise ValueError(f"an edit of {numbers} does not fit w of {config.w_dim}")
        rows = range(len(move)) if edit.layers is None else check_layers(edit.layers, config)
        move[rows.start : rows.stop] += edit.strength * edit.direction.cpu().double()
    return move.float()


def edited(ws: Tensor, edits: Sequence[Edit], config: NetworkConfig) -> Tensor:
    """Truncated styles ws (N, num_styles, w_dim), moved by the edits."""
    move = total_move(edits, config)
    return ws if move is None else ws + move.to(ws)


def parsed(text: str) -> EditText:
    """The parts of the text of an edit; ValueError if it is malformed."""
    parts = SHAPE.fullmatch(text.strip())
    try:
        if parts is None:
            raise ValueError("it names no direction")
        strength = 1.0 if parts["strength"] is None else float(parts["strength"])
        first, dash, last = (parts["layers"] or "").partition("-")
        last = last if dash else first
        layers = None if parts["layers"] is None else range(int(first), int(last) + 1)
        if layers == range(0):
            raise ValueError("it names no layer")
    except ValueError as error:
        raise ValueError(f"{readable(text, 60)} is not an edit like {FORM}") from error
    file = Path(parts["file"]) if parts["file"] else None
    vector = Path(parts["vector"]) if parts["vector"] else None
    name = (parts["name"] or "").strip()
    return EditText(parts["method"] or "", name, strength, layers, file, vector)
