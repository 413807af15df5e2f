"""Entries of a folder that can be made again: listed, removed, limited in their sum of sizes."""

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Kind:
    """A kind of entries: files, or folders of files."""

    name: re.Pattern[str]
    about: Callable[[Path], tuple[str, str, str]]  # images, pixels a side, source, as texts
    remove: Callable[[Path], None]
    used: str = ""  # the file within whose time is that of the last use


@dataclass(frozen=True)
class Entry:
    kind: Kind
    path: Path
    size_bytes: int
    last_used: float  # seconds since 1970


def entries(folder: Path, kind: Kind) -> list[Entry]:
    """All entries of a kind in a folder, those used last first; no links."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if kind.name.fullmatch(path.name) and not path.is_symlink():
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile, or another's
                last_used = (path / kind.used).stat().st_mtime
                files = path.iterdir() if path.is_dir() else [path]
                size = sum(file.stat().st_size for file in files)
                found.append(Entry(kind, path, size, last_used))
    return sorted(found, key=lambda entry: entry.last_used, reverse=True)


def evict(found: Iterable[Entry], most_bytes: int, keep: Path) -> None:
    """Remove entries, those at the end first, until their sizes sum to `most_bytes`; not `keep`."""
    total = 0
    for entry in found:
        total += entry.size_bytes
        if total > most_bytes and entry.path != keep:
            entry.kind.remove(entry.path)
