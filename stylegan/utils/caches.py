"""Cache folders: list their entries, and evict those used longest ago."""

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Kind:
    """One kind of entry: a file, or a folder of files."""

    name: re.Pattern[str]
    about: Callable[[Path], tuple[str, str, str]]  # number of images, resolution, source
    remove: Callable[[Path], None]
    used: str = ""  # file inside the entry whose modification time is the last use


@dataclass(frozen=True)
class Entry:
    kind: Kind
    path: Path
    size_bytes: int
    last_used: float  # seconds since 1970


def entries(folder: Path, kind: Kind) -> list[Entry]:
    """Entries of a kind in a folder, most recently used first; symbolic links are left out."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if kind.name.fullmatch(path.name) and not path.is_symlink():
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile, or of another program
                last_used = (path / kind.used).stat().st_mtime
                files = path.iterdir() if path.is_dir() else [path]
                size = sum(file.stat().st_size for file in files)
                found.append(Entry(kind, path, size, last_used))
    return sorted(found, key=lambda entry: entry.last_used, reverse=True)


def evict(found: Iterable[Entry], most_bytes: int, keep: Path) -> None:
    """Remove the last of the entries, except `keep`, until `most_bytes` remain."""
    total = 0
    for entry in found:
        total += entry.size_bytes
        if total > most_bytes and entry.path != keep:
            entry.kind.remove(entry.path)
