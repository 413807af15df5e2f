"""The train command with a fault inside the saving of its files.

Wraps the calls to the system that atomic.py makes for a file of the run folder: open, write, fsync
and rename of the file, open and fsync of the folder, unlink of an old file. A point of a save is a
text: kind of file, call, and before or after it; "middle" of a write is when half of it is done.

    python tools/faults/injection.py '{"folder": "runs/a", ...}' train --out runs/a ...
"""

import builtins
import errno
import io
import json
import os
import signal
import stat
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

KINDS = ("config", "state", "generator")
PARTIAL = ".partial"


@dataclass(frozen=True)
class Fault:
    """What to do at the points of the saves in `folder`."""

    folder: str
    record: str = ""  # append each point to this file
    kill_at: str = ""  # point
    number: int = 1  # die when `kill_at` is reached for the n-th time
    full: bool = False  # whether the disk is

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Injector:
    """Wraps the calls in this process, and commits the fault when its time has come."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.folder = Path(fault.folder).absolute()
        self.reached = 0
        self.saving = ""  # kind of the file that is, or was last, being saved
        self.open, self.open_folder = builtins.open, os.open
        self.fsync, self.replace, self.unlink = os.fsync, os.replace, os.unlink

    def install(self) -> None:
        changed: list[tuple[Any, str, Any]] = [
            (builtins, "open", self.opening),
            (os, "open", self.opening_folder),
            (os, "fsync", self.syncing),
            (os, "replace", self.replacing),
            (os, "unlink", self.unlinking),
        ]
        for module, name, function in changed:
            setattr(module, name, function)

    def visit(self, kind: str, call: str, place: str) -> None:
        fault, point = self.fault, f"{kind} {call} {place}"
        if fault.record:
            with self.open(fault.record, "a") as record:
                record.write(f"{point}\n")
        if point == fault.kill_at:
            self.reached += 1
            if self.reached == fault.number:
                os.kill(os.getpid(), signal.SIGKILL)
        if fault.full and place != "after" and call in ("write", "fsync"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def around(self, kind: str, call: str, act: Callable[[], Any]) -> Any:
        """The result of a call that concerns a file of this kind; "" is nobody's."""
        if not kind:
            return act()
        self.visit(kind, call, "before")
        result = act()
        self.visit(kind, call, "after")
        return result

    def kind_of(self, path: Any) -> str:
        """`state` of `state-000600000.pt` in the folder; "" for what nothing depends on."""
        if not isinstance(path, str | Path) or Path(path).parent.absolute() != self.folder:
            return ""
        kind = Path(path).name.removeprefix(".").partition("-")[0].partition(".")[0]
        return kind if kind in KINDS else ""

    def opening(self, path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if mode != "xb" or not str(path).endswith(PARTIAL):
            return self.open(path, mode, *args, **options)
        self.saving = kind = self.kind_of(path)
        if not kind:
            return self.open(path, mode, *args, **options)
        file = self.around(kind, "open", lambda: SavedFile(path, partial(self.visit, kind)))
        return io.BufferedWriter(file)

    def opening_folder(self, path: Any, *args: Any, **options: Any) -> Any:
        ours = isinstance(path, str | Path) and Path(path).absolute() == self.folder
        kind = self.saving if ours else ""
        return self.around(kind, "open-folder", lambda: self.open_folder(path, *args, **options))

    def syncing(self, descriptor: int) -> Any:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        call = "fsync-folder" if is_folder else "fsync"
        return self.around(self.saving, call, lambda: self.fsync(descriptor))

    def replacing(self, source: Any, target: Any, **options: Any) -> Any:
        act = partial(self.replace, source, target, **options)
        return self.around(self.kind_of(target), "rename", act)

    def unlinking(self, path: Any, **options: Any) -> Any:
        kind = "" if str(path).endswith(PARTIAL) else self.kind_of(path)
        return self.around(kind, "unlink", partial(self.unlink, path, **options))


class SavedFile(io.FileIO):
    """An unbuffered file that visits each of its writes, which it makes in two halves."""

    def __init__(self, path: str | Path, visit: Callable[[str, str], None]) -> None:
        super().__init__(path, "xb")
        self.visit = visit

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.visit("write", "before")
        done = super().write(view[: len(view) // 2])
        self.visit("write", "middle")
        done += super().write(view[done:])
        self.visit("write", "after")
        return done


if __name__ == "__main__":
    Injector(Fault(**json.loads(sys.argv[1]))).install()
    from stylegan.cli import main

    main(sys.argv[2:], prog_name="stylegan")
