"""Any data a user names, as a store: opened if it is one, else prepared once and kept."""

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path

from stylegan.machine import distributed
from stylegan.machine.caches import Kind
from stylegan.machine.console import SILENT, Console
from stylegan.machine.disk import REPLACING

from .check import Findings
from .images import Preparation, formats
from .prepare import ANY, prepare, refuse_skipped
from .sources import SequenceSource, Source, open_source, reasons_of
from .store import META, ORIGIN, Store, StoreMeta, is_store, remove_files


def default_cache_dir() -> Path:
    """Return `$STYLEGAN_CACHE`, or the user's folder for files that can be made again."""
    try:
        if cache := os.environ.get("STYLEGAN_CACHE"):
            return Path(cache).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stylegan"
    except RuntimeError as error:  # the user has no home, as in some containers
        raise ValueError(f"{error} Set STYLEGAN_CACHE to a folder for files to keep.") from error


def cached_store(
    data: str | Path | Source | Store,
    preparation: Preparation = ANY,
    *,
    strict: bool = False,
    labels: bool = False,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    console: Console = SILENT,
) -> Store:
    """Return the store of a folder or zip, made on first use, and again if files change or those of
    the store do not have their sizes. `Store.verify` finds all other damage.

    `data` may be a store of the settings asked for, or of a higher resolution. `strict` refuses
    images that cannot be used, `labels`, before any work, files whose labels cannot be read.

    All processes call it; the first of each machine prepares, and the first of all tells the
    console.
    """
    console = console if distributed.rank() == 0 else SILENT

    def of_files(source: Source) -> Store:
        if labels and source.labels is None:
            raise ValueError(f"labels were asked for, but {source.why_no_labels}")
        for note in source.notes():
            console.tell(note)
        path = path_of(Path(cache_dir or default_cache_dir()), source, preparation)
        store = sound_store(path)
        if store is None:
            try:
                store = prepare(
                    source, path, preparation, strict=strict, workers=workers, console=console
                )
            except ValueError:
                store = sound_store(path)  # of another process that was faster
                if store is None:
                    raise
        mark_used(store, source, preparation)
        store.origin = source.path
        return store

    def opened() -> Store:
        if isinstance(data, Store) or (not isinstance(data, Source) and is_store(data)):
            store = data if isinstance(data, Store) else Store(data)
            store.check_fits(preparation)
            if preparation.resolution not in (None, store.resolution):  # of its origin is another
                store.origin = store.path
        else:
            store = of_files(open_source(data, include=preparation.include))
        if strict:
            refuse_skipped(store.skipped, store.num_images, store.meta.source)
        return store

    return distributed.on_all_ranks(opened)


def mark_used(store: Store, source: Source, preparation: Preparation) -> None:
    """Keep where the images of a cached store came from, and that it is in use now."""
    with contextlib.suppress(OSError):  # a cache that belongs to somebody else
        if (origin := store.path / ORIGIN).is_file():
            os.utime(origin)  # the time of the last use
        else:
            origins = {"source": str(source.path.resolve()), "include": list(preparation.include)}
            REPLACING.text(origin, json.dumps(origins) + "\n")


def path_of(folder: Path, source: Source, preparation: Preparation) -> Path:
    """Return the path of a source's store in the cache, present or not. Formats that not every
    machine reads are part of the name: with one more, more pictures may be usable. Raise ValueError
    for images without files: others would have the same name."""
    if isinstance(source, SequenceSource):
        raise ValueError(
            "images that a program holds have no files by which to know them again; give the store "
            "that stylegan.data.prepare_images makes of them"
        )
    key = repr((source.fingerprint(), StoreMeta.version, formats(), *preparation.key()))
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", source.path.resolve().stem)[:40].lstrip(".-")
    return folder / f"{name or 'data'}-{preparation.resolution or 'auto'}-{digest}"


def sound_store(path: Path) -> Store | None:
    """Return the cached store; None if it must be made. One that cannot be opened is removed."""
    if not path.is_dir():
        return None
    try:
        return Store(path)
    except (FileNotFoundError, ValueError):
        if not path.is_symlink():
            remove_files(path)
        return None


def refuse_other_images(
    trained_on: object,
    data: Store | Findings,
    run: Path,
    resolution: int,
    *,
    labels: bool,
    advice: str,
) -> None:
    """Raise ValueError, which ends with `advice`, unless a run up to `resolution` that was
    `trained_on` images of this identity has seen those of the data."""
    if trained_on == data.training_identity(resolution, labels=labels):
        return
    unusable = f" (cannot be used: {reasons_of(data.skipped)})" if data.skipped else ""
    source = data.meta.source if isinstance(data, Store) else data.path.name
    raise ValueError(
        f"{run} was trained on other images or classes than {source} holds now{unusable}; {advice}"
    )


def about(store: Path) -> tuple[str, str, str]:
    """Images, resolution and source of a cached store."""
    numbers = "damaged", ""
    source = "unknown"
    with contextlib.suppress(OSError, ValueError):
        meta = StoreMeta.read(store / META)
        numbers = f"{meta.num_images:,}", f"{meta.resolution}"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        source = str(json.loads((store / ORIGIN).read_text(encoding="utf-8"))["source"])
    return *numbers, source + ("" if Path(source).exists() else " (gone)")


STORES = Kind(re.compile(r"[\w.-]+-(auto|\d+)-[0-9a-f]{16}"), about, remove_files, used=ORIGIN)
