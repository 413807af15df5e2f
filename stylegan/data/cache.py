"""Any data as a store: opened if it is one, else prepared on first use and cached."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from stylegan.utils import distributed
from stylegan.utils.caches import Kind
from stylegan.utils.console import SILENT, Console
from stylegan.utils.filesystem import ALLOW_OVERWRITE

from .check import Findings
from .images import Preparation, formats
from .prepare import DEFAULT_PREPARATION, prepare, refuse_skipped
from .sources import SequenceSource, Source, open_source, summarize_skipped
from .store import META, ORIGIN, Store, StoreMeta, is_store, remove_files


def default_cache_dir() -> Path:
    """`$STYLEGAN_CACHE`, or a folder in the user's cache."""
    try:
        if cache := os.environ.get("STYLEGAN_CACHE"):
            return Path(cache).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stylegan"
    except RuntimeError as error:  # the user has no home, as in some containers
        raise ValueError(f"{error} Set STYLEGAN_CACHE to a folder.") from error


def cached_store(
    data: str | Path | Source | Store,
    preparation: Preparation = DEFAULT_PREPARATION,
    *,
    strict: bool = False,
    labels: bool = False,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    console: Console = SILENT,
) -> Store:
    """Open `data` as a store; prepare it on first use, and again if files change.

    A cached store whose files do not have their sizes is made again; `Store.verify` finds all other
    damage. `data` may itself be a store of these settings, or of a higher resolution. `strict`
    refuses data with unusable images; `labels` refuses, before any work, data without labels.

    Call it on all ranks: the first of each machine prepares, rank 0 reports.
    """
    console = console if distributed.rank() == 0 else SILENT

    def of_files(source: Source) -> Store:
        if labels and source.labels is None:
            raise ValueError(f"labels were asked for, but {source.why_no_labels}")
        for note in source.notes():
            console.info(note)
        path = store_path(Path(cache_dir or default_cache_dir()), source, preparation)
        store = load_if_intact(path)
        if store is None:
            try:
                store = prepare(
                    source, path, preparation, strict=strict, workers=workers, console=console
                )
            except ValueError:
                store = load_if_intact(path)  # made by another process meanwhile
                if store is None:
                    raise
        mark_used(store, source)
        store.origin = source.path
        return store

    def opened() -> Store:
        if isinstance(data, Store) or (not isinstance(data, Source) and is_store(data)):
            store = data if isinstance(data, Store) else Store(data)
            store.check_fits(preparation)
            if preparation.resolution not in (None, store.resolution):  # not that of its origin
                store.origin = store.path
        else:
            store = of_files(open_source(data, include=preparation.include))
        if strict:
            refuse_skipped(store.skipped, store.num_images, store.meta.source)
        return store

    return distributed.run_on_all_ranks(opened)


def mark_used(store: Store, source: Source) -> None:
    """Record the source of a cached store, and the time of its last use."""
    with contextlib.suppress(OSError, ValueError):  # the cache may be read-only
        if (origin := store.path / ORIGIN).is_file():
            os.utime(origin)
        else:
            ALLOW_OVERWRITE.text(origin, json.dumps({"source": str(source.path.resolve())}) + "\n")


def store_path(folder: Path, source: Source, preparation: Preparation) -> Path:
    """Path of a source's store in the cache, whether it exists or not."""
    if isinstance(source, SequenceSource):
        raise ValueError(
            "a sequence of images cannot be cached; give the store that "
            "stylegan.data.prepare_images makes of it"
        )
    # with more readable formats, more images may be usable
    key = repr((source.fingerprint(), StoreMeta.version, formats(), *preparation.key()))
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", source.path.resolve().stem)[:40].lstrip(".-")
    return folder / f"{name or 'data'}-{preparation.resolution or 'auto'}-{digest}"


def load_if_intact(path: Path) -> Store | None:
    """Open the cached store; remove it and return None if it is damaged."""
    if not path.is_dir():
        return None
    try:
        return Store(path)
    except (FileNotFoundError, ValueError):
        if not path.is_symlink():
            remove_files(path)
        return None


def check_same_images(
    state: Mapping[str, object],
    data: Store | Findings,
    run: Path,
    resolution: int,
    *,
    labels: bool,
    advice: str,
) -> None:
    """Raise ValueError (with `advice`) unless the `run` was trained on these images.

    Its `state` holds their `training_hash`, up to `resolution`, and their number.
    """
    if state.get("data") == data.training_hash(resolution, labels=labels):
        return
    source = data.meta.source if isinstance(data, Store) else data.path.name
    now = data.num_images if isinstance(data, Store) else data.num_usable
    stored = state.get("num_images")
    then = stored if isinstance(stored, int) else now  # older states do not tell
    details = [f"{then} images then, {now} now"] if then != now else []
    if data.skipped and then >= now:
        details.append(f"cannot be used: {summarize_skipped(data.skipped)}")
    found = f" ({'; '.join(details)})" if details else ""
    raise ValueError(
        f"{run} was trained on other images or classes than {source} holds now{found}; {advice}"
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
