"""Edits: moves of styles along directions of w, in some layers, after truncation."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stylegan.messages import readable
from stylegan.networks import NetworkConfig

LARGEST_STRENGTH = 1000.0
FORM = "pca:2=+3@0-3: a direction, how far, and the layers"
SHAPE = re.compile(r"(?P<name>.+?)(=(?P<strength>[^=@]*))?(@(?P<layers>[^=@]*))?", re.S)


@dataclass(frozen=True, eq=False)
class Edit:
    """A move of the styles of `layers` by `strength` times `direction`."""

    direction: Tensor  # (w_dim,); as found by stylegan.directions: one standard deviation of w
    strength: float = 1.0
    layers: range | None = None  # rows of ws; None: all

    def __post_init__(self) -> None:
        if self.direction.ndim != 1 or not self.direction.isfinite().all():
            raise ValueError(
                f"a direction is a row of finite numbers, not {tuple(self.direction.shape)}"
            )
        if not abs(self.strength) <= LARGEST_STRENGTH:
            raise ValueError(
                f"the strength of an edit is a number from -{LARGEST_STRENGTH:g} to "
                f"{LARGEST_STRENGTH:g}, not {self.strength}"
            )


class EditText(NamedTuple):
    """The parts of `[FILE:]METHOD:NAME[=STRENGTH][@LAYERS]`."""

    name: str  # `pca:2`, or `FILE:pca:2`
    strength: float = 1.0
    layers: range | None = None  # None: those of the direction


def check_layers(layers: range, config: NetworkConfig) -> range:
    """`layers`; ValueError unless they are neighbouring layers of the network."""
    rows = range(config.num_styles())
    if not layers or layers.step != 1 or layers[0] not in rows or layers[-1] not in rows:
        found = f"{layers.start} to {layers.stop - 1}"
        raise ValueError(f"the network has layers 0 to {rows[-1]}; {found} is not a range of them")
    return layers


def total_move(edits: Sequence[Edit], config: NetworkConfig) -> Tensor | None:
    """What all edits add to styles: float32 (num_styles, w_dim) on the CPU; None without edits."""
    if not edits:
        return None
    # summed in float64, so that the order of the edits does not matter
    move = torch.zeros(config.num_styles(), config.w_dim, dtype=torch.float64)
    for edit in edits:
        if len(edit.direction) != config.w_dim:
            raise ValueError(
                f"an edit of {len(edit.direction)} numbers does not fit w of {config.w_dim}"
            )
        rows = range(len(move)) if edit.layers is None else check_layers(edit.layers, config)
        move[rows.start : rows.stop] += edit.strength * edit.direction.cpu().double()
    return move.float()


def edited(ws: Tensor, edits: Sequence[Edit], config: NetworkConfig) -> Tensor:
    """Truncated styles ws (N, num_styles, w_dim), moved by the edits."""
    move = total_move(edits, config)
    return ws if move is None else ws + move.to(ws)


def parsed(text: str) -> EditText:
    """The parts of the text of an edit; ValueError if it is malformed."""
    found = SHAPE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"an edit is like {FORM}; it is empty")
    try:
        strength = 1.0 if found["strength"] is None else strength_of(found["strength"])
        layers = None if found["layers"] is None else layers_of(found["layers"])
    except ValueError as error:
        raise ValueError(f"{readable(text, 60)}: {error}; an edit is like {FORM}") from error
    return EditText(found["name"].strip(), strength, layers)


def strength_of(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not abs(found) <= LARGEST_STRENGTH:
        most = f"{LARGEST_STRENGTH:g}"
        raise ValueError(f"{readable(text, 20)} is not a strength, a number from -{most} to {most}")
    return found


def layers_of(text: str) -> range:
    found = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", text.strip(), re.ASCII)
    if not found or int(found[2] or found[1]) < int(found[1]):
        raise ValueError(f"{readable(text, 20)} is not a layer or a range like 0-3")
    return range(int(found[1]), int(found[2] or found[1]) + 1)


def text_of(edit: EditText) -> str:
    """The inverse of `parsed`."""
    layers = "" if edit.layers is None else f"@{edit.layers.start}-{edit.layers.stop - 1}"
    return f"{edit.name}={edit.strength:+}".removesuffix(".0") + layers
