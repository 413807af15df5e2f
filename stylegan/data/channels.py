"""How many channels pictures need: what is seen in some of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stylegan.messages import count

from .images import MODES, normalize, quiet_decoding
from .prepare import ordered_map
from .sources import Source, open_source
from .store import Store, is_store

LOOKED_AT = 256  # pictures


def chosen(data: str | Path | Source, include: Sequence[str] = ()) -> tuple[int, str]:
    """4 if at least half of the pictures have transparent pixels, 1 if all are gray, else 3; and a
    line that says so. Of many pictures 256 are looked at, evenly chosen; of a store, none."""
    if not isinstance(data, Source) and is_store(data):
        channels = Store(data).channels
        return channels, f"channels: {MODES[channels]}, as the store has"
    source = data if isinstance(data, Source) else open_source(data, include=include)
    names = source.names[:: -(-len(source.names) // LOOKED_AT)]
    with quiet_decoding():
        found = list(ordered_map(lambda name: seen(source, name), names, None))
    total, gray, clear = (found.count(kind) for kind in ("", "gray", "transparent"))
    total += gray + clear
    if not total:
        return 3, "channels: RGB, as none of the pictures can be read"
    looked = count(total, "picture") + " looked at"
    if 2 * clear >= total:
        return 4, f"channels: RGBA, as {clear} of {looked} have transparent pixels"
    if gray == total:
        return 1, f"channels: L, as all of {looked} are gray"
    laid = f"; {clear} with transparent pixels are laid over white" if clear else ""
    return 3, f"channels: RGB, as {total - gray - clear} of {looked} are opaque and coloured{laid}"


def seen(source: Source, name: str) -> str | None:
    """Whether a picture is transparent somewhere, gray, or neither (""); None: unreadable."""
    try:
        pixels = np.asarray(normalize(source.picture(name), channels=4, name=name))
    except (OSError, ValueError):
        return None
    if pixels[..., 3].min() < 255:
        return "transparent"
    colours = pixels[..., :3]
    return "gray" if (colours == colours[..., :1]).all() else ""
