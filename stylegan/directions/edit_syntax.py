"""Syntax of `--edit`: which direction, how far, and in which layers."""

import re
from pathlib import Path
from typing import NamedTuple

from stylegan.utils.text import sanitize

FORM = "pca:2=+3@0-3: a direction, how far, and the layers"
SHAPE = re.compile(
    r"((?P<vector>.+?\.npy)|((?P<file>.+?\.npz):)?(?P<method>[a-z]+):(?P<name>.+?))"
    r"(=(?P<strength>[^=@]*))?(@(?P<layers>[^=@]*))?",
    re.S,
)


class EditText(NamedTuple):
    """The parts of `[FILE:]METHOD:NAME[=STRENGTH][@LAYERS]`, or of `VECTOR[=STRENGTH][@LAYERS]`."""

    method: str  # "" with a vector
    name: str
    strength: float = 1.0
    layers: range | None = None  # None: those of the direction
    file: Path | None = None
    vector: Path | None = None  # an .npy file

    def __str__(self) -> str:
        """The text without strength and folders, as the latter may be private."""
        file = self.vector or self.file
        named = [file.name if file else "", f"{self.method}:{self.name}" if self.method else ""]
        layers = f"@{self.layers[0]}-{self.layers[-1]}" if self.layers else ""
        return ":".join(filter(None, named)) + layers


def parsed(text: str) -> EditText:
    """Parse the text of an edit. Raises ValueError if it is malformed."""
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
        raise ValueError(f"{sanitize(text, 60)} is not an edit like {FORM}") from error
    file = Path(parts["file"]) if parts["file"] else None
    vector = Path(parts["vector"]) if parts["vector"] else None
    name = (parts["name"] or "").strip()
    return EditText(parts["method"] or "", name, strength, layers, file, vector)
