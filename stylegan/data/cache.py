"""Any data a user names, as a store: opened if it is one, else prepared once and kept."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stylegan import distributed
from stylegan.disk import write_text
from stylegan.distributed import on_all_ranks
from stylegan.messages import listed, readable

from .images import HEIF, Crop, Fit
from .prepare import ProgressCallback, check_settings, offered_resolution, prepare, space_for
from .sources import Source, open_source, reasons_of
from .store import META, ORIGIN, Store, StoreMeta, is_store, remove_files

NAME = re.compile(r"[\w.-]+-(auto|\d+)-[0-9a-f]{16}")  # of a cached store


def default_cache_dir() -> Path:
    """`$STYLEGAN_CACHE`, or the user's folder for files that can be made again."""
    if chosen := os.environ.get("STYLEGAN_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stylegan"


def cached_store(
    data: str | Path,
    *,
    resolution: int | None = None,
    crop: Crop = "center",
    channels: int = 3,
    premultiply: bool = False,
    include: Sequence[str] = (),
    strict: bool = False,
    labels: bool = False,
    begun: bool = False,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Store:
    """The store of a folder or zip, made on first use and again only when its files change.

    `data` may be a store itself; then its settings must be the ones asked for, except that a
    higher resolution serves a lower one, since it holds all below. `labels` refuses, before any
    work, files whose labels cannot be read. With `begun`, HEIC pictures that could not be read when
    a run began stay left out.

    All processes call it; the first of each machine prepares. The first of all shows its progress,
    and calls `tell` with files that are not taken and with what is written where. Of programs that
    prepare the same data at the same time, the first to finish is used by all. A damaged store is
    made anew.
    """
    check_settings(resolution, crop, channels, premultiply)
    asked: dict[str, Any] = {"resolution": resolution, "crop": crop, "channels": channels}
    asked |= {"premultiply": True} if premultiply else {}
    first = distributed.rank() == 0

    def prepared() -> Store:
        source = open_source(data, include=include)
        if labels and source.labels is None:
            raise ValueError(f"labels were asked for, but {source.why_no_labels()}")
        if first:
            for note in source.notes():
                tell(note)
        folder = Path(cache_dir or default_cache_dir())
        path = path_of(source, folder, **asked)
        store = sound_store(path)
        if begun and store is None:
            others = [n for n in source.names if not n.lower().endswith(HEIF["HEIF"])]
            before = path_of(source, folder, **asked, names=others)
            if (store := sound_store(before)) is not None:
                path = before
                if first:
                    tell("HEIC pictures stay left out, as they were when the run began")
        if store is None:
            if first:
                full = resolution or offered_resolution(source, crop)
                tell(f"preparing {space_for(path, len(source.names), full, channels)}")
            settings = asked | {"workers": workers, "progress": progress if first else None}
            try:
                store = prepare(source, path, strict=strict, **settings)
            except (OSError, ValueError):
                store = sound_store(path)  # if another program was faster
                if store is None:
                    raise
        remember(path, source, include)
        return store

    def open_or_prepare() -> Store:
        if is_store(data):
            store = Store(data)
            check_matching(store, include=include, **asked)
        else:
            store = prepared()
        if strict and store.skipped:
            raise ValueError(
                f"{len(store.skipped)} images of {store.meta.source} could not be used, "
                f"and strict allows none: {reasons_of(store.skipped)}"
            )
        store.origin = Path(data)
        return store

    return on_all_ranks(open_or_prepare)


def path_of(
    source: Source,
    folder: Path,
    resolution: int | None,
    crop: Crop,
    channels: int,
    premultiply: bool = False,
    names: Sequence[str] | None = None,
) -> Path:
    """Where the store of a source, or of `names` alone, is in the cache, or will be."""
    alpha = ("premultiplied",) if premultiply else ()  # the names of other stores stay
    settings = (source.fingerprint(names), 1, resolution, crop, channels, *alpha)
    key = hashlib.sha256(repr(settings).encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", source.path.resolve().stem)[:40].lstrip(".-")
    return folder / f"{name or 'data'}-{resolution or 'auto'}-{key}"


def sound_store(path: Path) -> Store | None:
    """The cached store; None if it must be made, for which a damaged one is removed."""
    try:
        return Store(path) if path.is_dir() else None
    except (FileNotFoundError, ValueError):
        if not path.is_symlink():
            remove_files(path)
        return None


def changes_since(store: Store, known: str, resolution: int, *, labels: bool) -> str:
    """Which images of `store` are others than those of the cached store that training knows as
    `known`; empty if that is there no more."""
    for one in cached_stores(store.path.parent):
        with contextlib.suppress(OSError, ValueError):
            before = Store(one.path)
            if before.training_identity(resolution, labels=labels) == known:
                small = [s.images(min(16, s.resolution)) for s in (before, store)]
                old = dict(zip(before.names, map(bytes, small[0]), strict=True))
                new = dict(zip(store.names, map(bytes, small[1]), strict=True))
                groups = {
                    "added": new.keys() - old.keys(),
                    "removed": old.keys() - new.keys(),
                    "changed": {name for name in new.keys() & old.keys() if new[name] != old[name]},
                }
                return "; ".join(
                    f"{what}: {listed([*map(readable, sorted(names))], 3, ', ')}"
                    for what, names in groups.items()
                    if names
                )
    return ""


def check_matching(
    store: Store,
    *,
    resolution: int | None,
    crop: Crop,
    channels: int,
    include: Sequence[str],
    premultiply: bool = False,
) -> None:
    """ValueError unless the store was prepared as asked."""
    problem = None
    if resolution is not None and resolution > store.resolution:
        problem = f"has resolution {store.resolution}, {resolution} is asked for"
    elif channels != store.channels:
        problem = f"has {store.channels} channels, {channels} are asked for"
    elif premultiply != store.meta.premultiplied:
        has = "has colours that are" + ("" if store.meta.premultiplied else " not")
        problem = f"{has} multiplied by alpha, --channels RGBA multiplies them"
    elif Fit.of(crop) != Fit.of(store.meta.crop):
        problem = f"was prepared with crop {store.meta.crop}, {crop} is asked for"
    elif include:
        problem = f"is prepared already; sub-folders ({', '.join(include)}) are chosen before that"
    if problem:
        raise ValueError(f"the store {readable(store.path)} {problem}; prepare the images again")


def remember(path: Path, source: Source, include: Sequence[str]) -> None:
    """Note what the cached store is of, and that it is in use now."""
    with contextlib.suppress(OSError):  # a cache that belongs to somebody else
        if (path / ORIGIN).is_file():
            os.utime(path / ORIGIN)
        else:
            origin = {"source": str(source.path.resolve()), "include": list(include)}
            write_text(path / ORIGIN, json.dumps(origin) + "\n")


@dataclass(frozen=True)
class Cached:
    """A store in the cache."""

    path: Path
    source: str  # its path
    meta: StoreMeta | None  # None: damaged
    size_bytes: int
    last_used: float  # seconds since 1970


def cached_stores(cache_dir: str | Path | None = None) -> list[Cached]:
    """All stores in the cache, those used last first. Other folders there, and links, are not the
    cache's."""
    folder = Path(cache_dir or default_cache_dir())
    stores = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if NAME.fullmatch(path.name) and not path.is_symlink() and (path / ORIGIN).is_file():
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                stores.append(cached(path))
    return sorted(stores, key=lambda store: store.last_used, reverse=True)


def cached(path: Path) -> Cached:
    """What is known of a store; FileNotFoundError if it is gone."""
    meta = None
    with contextlib.suppress(OSError, ValueError):
        meta = StoreMeta.read(path / META)
    try:
        source = str(json.loads((path / ORIGIN).read_text(encoding="utf-8"))["source"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # damaged
        source = "unknown"
    size = sum(file.stat().st_size for file in path.iterdir())
    return Cached(path, source, meta, size, (path / ORIGIN).stat().st_mtime)
