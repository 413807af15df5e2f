"""Any data a user names, as a store: opened if it is one, else prepared once and kept."""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stylegan import distributed
from stylegan.agreement import in_all

from .images import Crop
from .prepare import ProgressCallback, check_settings, prepare, reasons_of
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
    progress: ProgressCallback | None = None,
) -> Store:
    """The store of a folder or zip, made on first use and again only when its files change.

    `data` may be a store itself; then its settings must be the ones asked for, except that a
    higher resolution serves a lower one, since it holds all below.

    All processes call it. The first of each machine prepares, and the first of all shows its
    progress. Programs that prepare the same data at the same time do not disturb each other: the
    first to finish is used by all.
    """
    check_settings(resolution, crop, channels)
    asked: dict[str, Any] = {"resolution": resolution, "crop": crop, "channels": channels}

    def open_or_prepare() -> Store:
        if is_store(data):
            store = Store(data)
            check_matching(store, include=include, **asked)
        else:
            source = open_source(data, include=include)
            settings = repr((source.fingerprint(), VERSION, resolution, crop, channels))
            key = hashlib.sha256(settings.encode()).hexdigest()[:16]
            name = f"{source.path.stem}-{resolution or 'auto'}-{key}"
            out = Path(cache_dir or default_cache_dir()) / name
            if not is_store(out):
                visible = progress if distributed.rank() == 0 else None
                try:
                    prepare(source, out, **asked, strict=strict, workers=workers, progress=visible)
                except (OSError, ValueError):
                    if not is_store(out):  # else another program was faster
                        raise
            store = Store(out)
        if strict and store.skipped:
            raise ValueError(
                f"{len(store.skipped)} images of {store.meta.source} could not be used, "
                f"and strict allows none: {reasons_of(store.skipped)}"
            )
        store.origin = Path(data)
        return store

    return in_all(open_or_prepare)


def check_matching(
    store: Store, *, resolution: int | None, crop: Crop, channels: int, include: Sequence[str]
) -> None:
    """ValueError unless the store was prepared as asked."""
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
