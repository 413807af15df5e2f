"""How many channels pictures need: what is seen in some of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stylegan.messages import count

from .images import MODES, normalize, quiet_decoding
from .prepare import ordered_map
from .sources import open_source
from .store import Store, is_store

LOOKED_AT = 256  # pictures


def chosen(data: str | Path, include: Sequence[str] = ()) -> tuple[int, str]:
    """4 if at least half of the pictures have transparent pixels, 1 if all are gray, else 3; and a
    line that says so. Of many pictures 256 are looked at, evenly chosen; of a store, none."""
    if is_store(data):
        channels = Store(data).channels
        return channels, f"channels: {MODES[channels]}, as the store has"
    source = open_source(data, include=include)

    def look(name: str) -> str:
        try:
            pixels = np.asarray(normalize(source.picture(name), channels=4, name=name))
        except (OSError, ValueError):
            return "unreadable"
        if pixels[..., 3].min() < 255:
            return "transparent"
        return "gray" if (pixels[..., :2] == pixels[..., 1:3]).all() else "coloured"

    with quiet_decoding():
        kinds = list(ordered_map(look, source.names[:: -(-len(source.names) // LOOKED_AT)], None))
    clear, gray = kinds.count("transparent"), kinds.count("gray")
    total = clear + gray + kinds.count("coloured")
    channels = 3 if not total else 4 if 2 * clear >= total else 1 if gray == total else 3
    return channels, (
        f"channels: {MODES[channels]}: of {count(total, 'picture')} looked at, {clear} have "
        f"transparent pixels, {gray} are gray"
    )
