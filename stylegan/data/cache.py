"""Any data a user names, as a store: opened if it is one, else prepared once and kept."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stylegan import distributed
from stylegan.disk import write_text
from stylegan.distributed import on_all_ranks
from stylegan.messages import count, listed, readable

from .images import HEIF, Crop, Fit
from .prepare import (
    ProgressCallback,
    check_settings,
    mib,
    offered_resolution,
    prepare,
    store_bytes,
)
from .sources import Source, open_source, reasons_of
from .store import (
    META,
    ORIGIN,
    VERSION,
    OtherVersion,
    Store,
    StoreMeta,
    in_utf8,
    is_store,
    remove_files,
)

NAME = re.compile(r"[\w.-]+-(auto|\d+)-[0-9a-f]{16}")  # of a cached store
UNUSED_DAYS = 30  # a cached store that nobody will ask for is kept so long after its last use


def default_cache_dir() -> Path:
    """`$STYLEGAN_CACHE`, or the user's folder for files that can be made again."""
    if chosen := os.environ.get("STYLEGAN_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stylegan"


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
    settings = (source.fingerprint(names), VERSION, resolution, crop, channels, *alpha)
    key = hashlib.sha256(repr(settings).encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", in_utf8(source.path.resolve().stem))[:40].lstrip(".-")
    return folder / f"{name or 'data'}-{resolution or 'auto'}-{key}"


def cost(source: Source, path: Path, resolution: int | None, crop: Crop, channels: int) -> str:
    """What preparing a source takes, for a user."""
    images, resolution = len(source.names), resolution or offered_resolution(source, crop)
    existing = next(folder for folder in path.absolute().parents if folder.is_dir())
    free = mib(shutil.disk_usage(existing).free)
    what = f"{count(images, 'image')} of {readable(source.path.resolve().name)}"
    size = mib(store_bytes(images, resolution, channels))
    return f"{what} at {resolution}x{resolution}: {size} in {readable(path)} ({free} free)"


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
    higher resolution serves a lower one, since it holds all below. The first process calls `tell`
    with what a user should know: files that are not taken, and what is written where. `labels`
    refuses, before any work, files whose labels cannot be read. With `begun`, HEIC pictures
    that could not be read when a run began stay left out.

    All processes call it. The first of each machine prepares, and the first of all shows its
    progress. Of programs that prepare the same data at the same time, the first to finish is used
    by all. A damaged store is made anew.
    """
    check_settings(resolution, crop, channels, premultiply)
    asked: dict[str, Any] = {"resolution": resolution, "crop": crop, "channels": channels}
    if premultiply:
        asked["premultiply"] = True
    first = distributed.rank() == 0
    say = tell if first else lambda text: None

    def prepared() -> Store:
        source = open_source(data, include=include)
        if labels and source.labels is None:
            raise ValueError(f"labels were asked for, but {source.why_no_labels()}")
        for note in source.notes():
            say(note)
        folder = Path(cache_dir or default_cache_dir())
        path = path_of(source, folder, **asked)
        origin = {"source": in_utf8(str(source.path.resolve())), "include": list(include), **asked}
        store = sound_store(path)
        if begun and store is None:
            heic = HEIF["HEIF"]
            others = [name for name in source.names if not name.lower().endswith(heic)]
            older = path_of(source, folder, **asked, names=others)
            if (store := sound_store(older)) is not None:
                say("HEIC pictures stay left out, as they were when the run began")
                path = older
        if store is None:
            say(f"preparing {cost(source, path, resolution, crop, channels)}")
            settings = asked | {"workers": workers, "progress": progress if first else None}
            try:
                store = prepare(source, path, strict=strict, **settings)
            except (OSError, ValueError):
                store = sound_store(path)  # if another program was faster
                if store is None:
                    raise
            for old in remove(outdated(path, origin)):
                say(f"removed {readable(old)}, not used for {UNUSED_DAYS} days")
        remember(path, origin)
        store.why_no_labels = source.why_no_labels()
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


def sound_store(path: Path) -> Store | None:
    """The cached store; None if it must be made, for which a damaged one is removed."""
    if not path.is_dir():
        return None
    try:
        return Store(path)
    except (FileNotFoundError, ValueError) as error:
        if isinstance(error.__cause__, OtherVersion):
            raise
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
                old, new = (
                    dict(
                        zip(one.names, map(bytes, one.images(min(16, one.resolution))), strict=True)
                    )
                    for one in (before, store)
                )
                groups = {
                    "added": [name for name in new if name not in old],
                    "removed": [name for name in old if name not in new],
                    "changed": [name for name in new if new[name] != old.get(name, new[name])],
                }
                return "; ".join(
                    f"{what}: {listed(list(map(readable, names)), 3, ', ')}"
                    for what, names in groups.items()
                    if names
                )
    return ""


def remember(path: Path, origin: dict[str, Any]) -> None:
    """Note what the cached store is of, and that it is in use now."""
    with contextlib.suppress(OSError):  # a cache that belongs to somebody else
        if (path / ORIGIN).is_file():
            os.utime(path / ORIGIN)
        else:
            write_text(path / ORIGIN, json.dumps(origin) + "\n")


@dataclass(frozen=True)
class Cached:
    """A store in the cache."""

    path: Path
    source: str  # its path; its name only if the note is damaged
    settings: dict[str, Any]  # resolution, crop, channels, include; empty likewise
    meta: StoreMeta | None  # None: damaged
    size_bytes: int
    last_used: float  # seconds since 1970

    @property
    def gone(self) -> bool:
        """Whether its source no longer exists."""
        return bool(self.settings) and not Path(self.source).exists()


def cached_stores(cache_dir: str | Path | None = None) -> list[Cached]:
    """All stores in the cache, those used last first."""
    folder = Path(cache_dir or default_cache_dir())
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            if is_cached(path):
                found.append(cached(path))
    return sorted(found, key=lambda store: store.last_used, reverse=True)


def is_cached(path: Path) -> bool:
    """Whether the cache made this folder: a store of a user's may lie beside it, or a link."""
    return bool(NAME.fullmatch(path.name)) and not path.is_symlink() and (path / ORIGIN).is_file()


def cached(path: Path) -> Cached:
    """What is known of a store; FileNotFoundError if it is gone."""
    used = (path / ORIGIN).stat().st_mtime
    try:
        meta = StoreMeta.read(path / META)
    except (OSError, ValueError):
        meta = None
    try:
        settings = json.loads((path / ORIGIN).read_text(encoding="utf-8"))
        source = str(settings.pop("source"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        settings, source = {}, meta.source if meta else "unknown"
    size = 0
    for file in path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # somebody else's note, complete by now
            size += file.stat().st_size
    return Cached(path, source, settings, meta, size, used)


def outdated(path: Path, origin: dict[str, Any]) -> list[Path]:
    """Other cached stores that nobody has used for long and nobody will ask for: of the same source
    with the same settings, and of sources that are gone."""
    old = time.time() - UNUSED_DAYS * 24 * 60 * 60
    return [
        one.path
        for one in cached_stores(path.parent)
        if one.path != path
        and one.last_used < old
        and (one.gone or {"source": one.source, **one.settings} == origin)
    ]


def remove(paths: Sequence[Path]) -> list[Path]:
    """Remove these cached stores; those that could be removed. Whoever has one open on this machine
    keeps what he has."""
    removed = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            remove_files(path)
            removed.append(path)
    return removed


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
