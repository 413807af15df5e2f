"""Any data a user names, as a store: opened if it is one, else prepared once and kept."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stylegan import distributed, locks
from stylegan.atomic import write_text
from stylegan.distributed import on_all_ranks
from stylegan.messages import count, readable

from .images import Crop, Fit
from .prepare import (
    ORIGIN,
    ProgressCallback,
    check_settings,
    mib,
    offered_resolution,
    prepare,
    remove_unfinished,
    store_bytes,
)
from .sources import Source, open_source, reasons_of
from .store import META, VERSION, OtherVersion, Store, StoreMeta, in_utf8, is_store, remove_files

NAME = re.compile(r"[\w.-]+-(auto|\d+)-[0-9a-f]{16}")  # of a cached store
GONE_DAYS = 30  # a cached store whose source is gone goes too, if it was not used for so long
MAY_PASS = {os.strerror(number) for number in errno.errorcode}  # reasons that are no image's fault
DAY_SECONDS = 24 * 60 * 60


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


@dataclass(frozen=True)
class Place:
    """Where the store of a source is in the cache, or will be."""

    source: Source
    path: Path
    resolution: int | None  # None: what the first image offers
    crop: Crop
    channels: int
    premultiply: bool = False

    @property
    def exists(self) -> bool:
        return is_store(self.path)

    def __str__(self) -> str:
        """What preparing it takes, for a user."""
        most = len(self.source.names) * Fit.of(self.crop).tiles
        images = count(most, "image")
        resolution = self.resolution or offered_resolution(self.source, self.crop)
        size = mib(store_bytes(most, resolution, self.channels))
        free = mib(shutil.disk_usage(existing(self.path)).free)
        name = readable(self.source.path.resolve().name)
        what = f"{images} of {name} at {resolution}x{resolution}"
        return f"{what}: {size} in {readable(self.path)} ({free} free)"


def existing(path: Path) -> Path:
    """The nearest folder that exists."""
    return next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())


def place_of(
    data: str | Path | Source,
    *,
    resolution: int | None = None,
    crop: Crop = "center",
    channels: int = 3,
    premultiply: bool = False,
    include: Sequence[str] = (),
    cache_dir: str | Path | None = None,
) -> Place:
    """Where `cached_store` keeps the store of a folder or zip; nothing is written."""
    check_settings(resolution, crop, channels, premultiply)
    source = data if isinstance(data, Source) else open_source(data, include=include)
    alpha = ("premultiplied",) if premultiply else ()  # the names of other stores stay
    settings = (source.fingerprint(), VERSION, resolution, crop, channels, *alpha)
    key = hashlib.sha256(repr(settings).encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", in_utf8(source.path.resolve().stem))[:40].lstrip(".-")
    path = Path(cache_dir or default_cache_dir()) / f"{name or 'data'}-{resolution or 'auto'}-{key}"
    return Place(source, path, resolution, crop, channels, premultiply)


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
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Store:
    """The store of a folder or zip, made on first use and again only when its files change.

    `data` may be a store itself; then its settings must be the ones asked for, except that a
    higher resolution serves a lower one, since it holds all below. The first process calls `tell`
    with what a user should know: files that are not taken, and what is written where. `labels`
    refuses, before any work, files whose labels cannot be read.

    All processes call it. The first of each machine prepares, and the first of all shows its
    progress. Programs that prepare the same data at the same time do not disturb each other: the
    first to finish is used by all. A damaged store is made anew. One of older files of the same
    source, made alike, is removed unless somebody uses it.
    """
    check_settings(resolution, crop, channels, premultiply)
    asked: dict[str, Any] = {"resolution": resolution, "crop": crop, "channels": channels}
    if premultiply:
        asked["premultiply"] = True
    say = tell if distributed.rank() == 0 else lambda text: None

    def prepared() -> Store:
        source = open_source(data, include=include)
        if labels and source.labels is None:
            raise ValueError(f"labels were asked for, but {source.why_no_labels()}")
        for note in source.notes():
            say(note)
        place = place_of(source, **asked, cache_dir=cache_dir)
        origin = {"source": in_utf8(str(source.path.resolve())), "include": list(include), **asked}
        store = held_store(place.path, source)
        if store is None:
            if place.path.parent.is_dir():
                remove_unfinished(place.path.parent)
            say(f"preparing {place}")
            visible = progress if distributed.rank() == 0 else None
            settings = asked | {"strict": strict, "workers": workers, "progress": visible}
            try:
                prepare(source, place.path, **settings)
            except (OSError, ValueError):
                if not is_store(place.path):  # else another program was faster
                    raise
            store = held_store(place.path) or Store(place.path)
            for path in remove(outdated(place.path, origin), sure=True):
                say(f"removed {readable(path)}, of what was at its source before")
        remember(place.path, origin)
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


def held_store(path: Path, source: Source | None = None) -> Store | None:
    """The cached store, which nobody removes while it is in use; None if it must be made.

    So it is if it is damaged, or if it lacks images of `source` that can be read by now.
    """
    try:
        held = locks.lock(path, shared=True)
    except (FileNotFoundError, BlockingIOError):  # the latter: it is being removed
        return None
    try:
        store = Store(path)
        check_untouched(store)
        sound = locks.is_of(held, path) and not (source and readable_by_now(store, source))
    except FileNotFoundError:
        sound = False
    except ValueError as error:
        if isinstance(error.__cause__, OtherVersion):
            raise
        sound = False
    if sound:
        weakref.finalize(store, locks.release, held)
        return store
    if locks.is_of(held, path):
        remove_files(path, [ORIGIN])  # whoever has it open keeps what he has
    locks.release(held)
    return None


def check_untouched(store: Store) -> None:
    """ValueError if a file was written after the store was complete and holds other pixels now."""
    meta = store.path / META
    complete = meta.stat().st_mtime_ns
    if any(path.stat().st_mtime_ns > complete for path in store.path.glob("*.npy")):
        store.verify()
        with contextlib.suppress(OSError):  # a cache that belongs to somebody else
            os.utime(meta)


def readable_by_now(store: Store, source: Source) -> bool:
    """Whether an image can be read that the system, not its content, kept out of the store."""
    for name in (name for name, reason in store.skipped if reason in MAY_PASS):
        with contextlib.suppress(OSError, ValueError):
            source.read(name)
            return True
    return False


def remember(path: Path, origin: dict[str, Any]) -> None:
    """Note what the cached store is of, and that it is in use now."""
    with contextlib.suppress(OSError):  # a cache that belongs to somebody else
        if (path / ORIGIN).is_file():
            os.utime(path / ORIGIN)
        else:
            write_text(path / ORIGIN, json.dumps(origin) + "\n")


@dataclass(frozen=True)
class Cached:
    """A store in the cache. The time of its note `origin.json` is that of its last use."""

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
        origin = json.loads((path / ORIGIN).read_text(encoding="utf-8"))
        source = str(origin.pop("source"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        origin, source = {}, meta.source if meta else "unknown"
    size = 0
    for file in path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # somebody else's note, complete by now
            size += file.stat().st_size
    return Cached(path, source, origin, meta, size, used)


def outdated(path: Path, origin: dict[str, Any]) -> list[Path]:
    """Other cached stores that nobody will ask for: of the same source with the same settings, and
    of sources that are gone for long."""
    settings = dict(origin)
    source = settings.pop("source")
    old = time.time() - GONE_DAYS * DAY_SECONDS
    return [
        one.path
        for one in cached_stores(path.parent)
        if one.path != path
        and ((one.source, one.settings) == (source, settings) or (one.gone and one.last_used < old))
    ]


def remove(paths: Sequence[Path], *, sure: bool = False) -> list[Path]:
    """Remove these cached stores but those that somebody uses; the removed ones. Where there are no
    locks to tell that by, they are removed unless this must be `sure`."""
    removed = []
    for path in paths:
        with contextlib.suppress(BlockingIOError, FileNotFoundError, PermissionError):
            held = locks.lock(path)
            if held is None and sure:
                continue
            remove_files(path, [ORIGIN])
            locks.release(held)
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
