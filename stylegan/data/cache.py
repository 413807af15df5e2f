"""Any data a user names, as a store: opened if it is one, else prepared once and kept."""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .images import Crop
from .prepare import Progress, prepare, reasons_of, validate_settings
from .sources import open_source
from .store import VERSION, Store, is_store


def default_cache_dir() -> Path:
    """`$STYLEGAN_CACHE`, or the platform's folder for files that can be made again."""
    if chosen := os.environ.get("STYLEGAN_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "stylegan"


def cached_store(
    data: str | Path,
    *,
    resolution: int | None = None,
    crop: Crop = "center",
    channels: int = 3,
    include: Sequence[str] = (),
    strict: bool = False,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Store:
    """The store of a folder or zip, made on first use and again only when its files change.

    `data` may be a store itself; then its settings must be the ones asked for, except that a
    higher resolution serves a lower one, since it holds all below. Processes that prepare the
    same data at the same time do not disturb each other: the first to finish is used by all.
    """
    validate_settings(resolution, crop, channels)
    if is_store(data):
        return _matching(Store(data), resolution, crop, channels, include, strict)
    source = open_source(data, include=include)
    settings = repr((source.fingerprint(), VERSION, resolution, crop, channels))
    key = hashlib.sha256(settings.encode()).hexdigest()[:16]
    out = (
        Path(cache_dir or default_cache_dir()) / f"{source.path.stem}-{resolution or 'auto'}-{key}"
    )
    if not is_store(out):
        try:
            prepare(
                source,
                out,
                resolution=resolution,
                crop=crop,
                channels=channels,
                strict=strict,
                workers=workers,
                progress=progress,
            )
        except OSError:
            if not is_store(out):  # else another process was faster
                raise
    return _allowed(Store(out), strict)


def _matching(
    store: Store,
    resolution: int | None,
    crop: Crop,
    channels: int,
    include: Sequence[str],
    strict: bool,
) -> Store:
    """The store, if it was prepared as asked."""
    problem = None
    if resolution is not None and resolution > store.resolution:
        problem = f"has resolution {store.resolution}, {resolution} is asked for"
    elif channels != store.channels:
        problem = f"has {store.channels} channels, {channels} are asked for"
    elif crop != store.meta.crop:
        problem = f"was prepared with crop {store.meta.crop}, {crop} is asked for"
    elif include:
        problem = f"is prepared already; sub-folders ({', '.join(include)}) are chosen before that"
    if problem:
        raise ValueError(f"the store {store.path} {problem}; prepare the images again")
    return _allowed(store, strict)


def _allowed(store: Store, strict: bool) -> Store:
    if strict and store.skipped:
        raise ValueError(
            f"{len(store.skipped)} images of {store.meta.source} could not be used, "
            f"and strict allows none: {reasons_of(store.skipped)}"
        )
    return store
