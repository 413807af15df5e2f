"""Any data a user names, as a store: opened if it is one, else prepared once and kept."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stylegan import distributed
from stylegan.disk import write_text
from stylegan.messages import listed, readable

from .images import HEIC, Crop, Fit
from .prepare import ProgressCallback, check_settings, prepare, refuse_skipped
from .sources import Source, open_source
from .store import META, ORIGIN, Store, StoreMeta, is_store, remove_files

NAME = re.compile(r"[\w.-]+-(auto|\d+)-[0-9a-f]{16}")  # of a cached store


def default_cache_dir() -> Path:
    """`$STYLEGAN_CACHE`, or the user's folder for files that can be made again."""
    try:
        if chosen := os.environ.get("STYLEGAN_CACHE"):
            return Path(chosen).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stylegan"
    except RuntimeError as error:  # the user has no home, as in some containers
        raise ValueError(f"{error} Set STYLEGAN_CACHE to a folder for files to keep.") from error


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
    """The store of a folder or zip, made on first use and again if it is damaged or files change.

    `data` may be a store of the settings asked for, or of a higher resolution. `labels` refuses,
    before any work, files whose labels cannot be read. With `begun`, HEIC pictures that could not
    be read when a run began stay left out.

    All processes call it; the first of each machine prepares, the first of all shows its progress
    and tells what is not taken and written. Of programs that prepare at once, the fastest is used.
    """
    check_settings(resolution, crop, channels, premultiply)
    asked: dict[str, Any] = {"resolution": resolution, "crop": crop, "channels": channels}
    named = [*asked.values(), *["premultiplied"] * premultiply]  # decide the store's name
    asked["premultiply"] = premultiply
    first = distributed.rank() == 0
    say = tell if first else lambda text: None
    folder = Path(cache_dir or default_cache_dir())

    def find_or_prepare() -> Store:
        if is_store(data):
            store = Store(data)
            check_matching(store, asked, include)
            return store
        source = open_source(data, include=include)
        if labels and source.labels is None:
            raise ValueError(f"labels were asked for, but {source.why_no_labels}")
        for note in source.notes():
            say(note)
        path = path_of(folder, source, source.names, named)
        found = sound_store(path)
        if begun and found is None:
            others = [name for name in source.names if not name.lower().endswith(HEIC)]
            found = sound_store(path_of(folder, source, others, named))
            if found is not None:
                say("HEIC pictures stay left out, as they were when the run began")
        if found is None:
            how = asked | {"workers": workers, "progress": progress if first else None}
            try:
                found = prepare(source, path, strict=strict, tell=say, **how)
            except (OSError, ValueError):
                found = sound_store(path)  # if another program was faster
                if found is None:
                    raise
        with contextlib.suppress(OSError):  # a cache that belongs to somebody else
            if (origin := found.path / ORIGIN).is_file():
                os.utime(origin)  # the time of the last use
            else:
                about = {"source": str(source.path.resolve()), "include": list(include)}
                write_text(origin, json.dumps(about) + "\n")
        return found

    def opened() -> Store:
        store = find_or_prepare()
        if strict:
            refuse_skipped(store.skipped, store.num_images, readable(store.meta.source))
        store.origin = Path(data)
        return store

    return distributed.on_all_ranks(opened)


def path_of(folder: Path, source: Source, names: Sequence[str], settings: Sequence[Any]) -> Path:
    """Where the store of these files of a source is in the cache, or will be."""
    key = repr((source.fingerprint(names), 1, *settings))
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", source.path.resolve().stem)[:40].lstrip(".-")
    return folder / f"{name or 'data'}-{settings[0] or 'auto'}-{digest}"


def sound_store(path: Path) -> Store | None:
    """The cached store; None if it must be made, for which a damaged one is removed."""
    try:
        return Store(path) if path.is_dir() else None
    except (FileNotFoundError, ValueError):
        if not path.is_symlink():
            remove_files(path)
        return None


def changes_since(store: Store, known: str, resolution: int, *, labels: bool) -> str:
    """Which images of `store` differ from those of the cached one with the training identity
    `known`; empty if that is there no more."""
    for one in cached_stores(store.path.parent):
        with contextlib.suppress(OSError, ValueError):
            before = Store(one.path)
            if before.training_identity(resolution, labels=labels) != known:
                continue
            old, new = (
                dict(zip(s.names, map(bytes, s.images(min(16, s.resolution))), strict=True))
                for s in (before, store)
            )
            groups = {"added": new.keys() - old.keys(), "removed": old.keys() - new.keys()}
            groups["changed"] = {name for name in new.keys() & old.keys() if new[name] != old[name]}
            some = {k: listed([*map(readable, sorted(v))], 3, ", ") for k, v in groups.items() if v}
            return "; ".join(f"{what}: {names}" for what, names in some.items())
    return ""


def check_matching(store: Store, asked: Mapping[str, Any], include: Sequence[str]) -> None:
    """ValueError unless the store was prepared as asked."""
    meta, problem = store.meta, None
    resolution, crop, channels = asked["resolution"], asked["crop"], asked["channels"]
    if (resolution or 0) > meta.resolution:
        problem = f"has resolution {meta.resolution}, {resolution} is asked for"
    elif channels != meta.channels:
        problem = f"has {meta.channels} channels, {channels} are asked for"
    elif asked["premultiply"] != meta.premultiplied:
        has = "has colours that are" + ("" if meta.premultiplied else " not")
        problem = f"{has} multiplied by alpha, --channels RGBA multiplies them"
    elif Fit.of(crop) != Fit.of(meta.crop):
        problem = f"was prepared with crop {meta.crop}, {crop} is asked for"
    elif include:
        problem = f"is prepared already; sub-folders ({', '.join(include)}) are chosen before that"
    if problem:
        raise ValueError(f"the store {readable(store.path)} {problem}; prepare the images again")


@dataclass(frozen=True)
class Cached:
    """A store in the cache."""

    path: Path
    source: str  # its path
    meta: StoreMeta | None  # None: damaged
    size_bytes: int
    last_used: float  # seconds since 1970


def cached_stores(cache_dir: str | Path | None = None) -> list[Cached]:
    """All stores in the cache, those used last first; no other folders there, and no links."""
    folder = Path(cache_dir or default_cache_dir())
    stores = []
    for path in folder.iterdir() if folder.is_dir() else ():
        origin, meta, source = path / ORIGIN, None, "unknown"
        if not NAME.fullmatch(path.name) or path.is_symlink() or not origin.is_file():
            continue
        with contextlib.suppress(OSError, ValueError):
            meta = StoreMeta.read(path / META)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            source = str(json.loads(origin.read_text(encoding="utf-8"))["source"])
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            size = sum(file.stat().st_size for file in path.iterdir())
            stores.append(Cached(path, source, meta, size, origin.stat().st_mtime))
    return sorted(stores, key=lambda store: store.last_used, reverse=True)
