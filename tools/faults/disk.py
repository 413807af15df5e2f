"""A disk that can be filled and freed."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from injection import Fault
from runs import Run


@dataclass(frozen=True)
class Disk:
    """A small file system, or a folder whose saves fail as if it were full."""

    folder: Path
    real: bool

    @property
    def ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self, leave: int = 0) -> None:
        """Take all the room that there is now, but `leave` bytes."""
        with open(self.ballast, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while self.real:
                file.write(bytes(2**16))
        with open(self.ballast, "ab") as file:
            file.truncate(max(file.tell() - leave, 0))

    def free(self) -> None:
        self.ballast.unlink()

    def fault(self, run: Run) -> Fault | None:
        """What makes the run find the disk full, unless it is."""
        return None if self.real else Fault(str(run.out), full_while=str(self.ballast))


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Disk]:
    """A tmpfs of `size` bytes at `folder`, where that is allowed (root on Linux)."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    real = shutil.which("mount") is not None
    real = real and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield Disk(folder, real)
    finally:
        if real:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
