"""What the files of a store hold, and which of them have changed since they were last read."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stylegan.machine.disk import REPLACING, errors_name

STAMPS = "read.json"  # size and time of each file as it was when it was last read whole
BLOCK = 2**22  # bytes that are read at a time


@dataclass(frozen=True)
class Digest:
    """The SHA-256 of every file of a folder, which says what it holds and shows damage."""

    folder: Path
    hashes: Mapping[str, str]  # of files by name
    starts: Mapping[str, int]  # of the bytes that count, behind a header; others count whole

    def unread(self, names: Iterable[str]) -> list[str]:
        """The files that are gone, or whose size or time differs from when they were last read."""
        known = self.known_stamps()
        return [name for name in names if self.stamp(name) != known.get(name, [])]

    def verify(self, names: Iterable[str], seen: Callable[[int], None]) -> None:
        """Read files, and keep their stamps. ValueError or OSError for one that holds something
        else; `seen` is called with the size of each block."""
        stamps = {name: self.stamp(name) for name in names}  # first: a file may change meanwhile
        for name in stamps:
            if self.sha256(name, seen) != self.hashes[name]:
                raise ValueError(f"{name} has changed")
        if stamps:
            self.keep(stamps)

    def sha256(self, name: str, seen: Callable[[int], None]) -> str:
        """Return the SHA-256 of a file's present content."""
        path = self.folder / name
        if not path.is_file():  # reading a pipe or a device might never end
            raise ValueError(f"{name}: it is {'not a regular file' if path.exists() else 'gone'}")
        digest = hashlib.sha256()
        block = memoryview(bytearray(BLOCK))
        with errors_name(path), open(path, "rb", buffering=0) as file:
            file.seek(self.starts.get(name, 0))
            while size := file.readinto(block):
                digest.update(block[:size])
                seen(size)
        return digest.hexdigest()

    def size(self, name: str) -> int:
        """Return the number of bytes that count."""
        stamp = self.stamp(name)
        return stamp[0] - self.starts.get(name, 0) if stamp else 0

    def stamp(self, name: str) -> list[int] | None:
        """Size and time of a file; None where there is none."""
        try:
            status = (self.folder / name).stat()
        except OSError:
            return None
        return [status.st_size, status.st_mtime_ns]

    def known_stamps(self) -> dict[str, object]:
        """Return the stamps of files at their last reading; none for a store older than these."""
        try:
            stamps = json.loads((self.folder / STAMPS).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return stamps if isinstance(stamps, dict) else {}

    def keep(self, stamps: Mapping[str, object]) -> None:
        """Write stamps for the next start, unless the folder belongs to somebody else."""
        with contextlib.suppress(OSError):
            text = json.dumps({**self.known_stamps(), **stamps})
            REPLACING.text(self.folder / STAMPS, text + "\n")
