"""The train command with a fault inside the saving of its files.

Wraps the calls to the system that files/checkpoint.py makes for a file of the run folder: open,
write, fsync and rename of the file, open and fsync of the folder, unlink of an old file.

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
from pathlib import Path
from typing import Any, Literal

Place = Literal["before", "middle", "after"]
KINDS = ("config", "state", "generator")
PARTIAL = ".partial"


@dataclass(frozen=True, order=True)
class Point:
    """A moment of a save: of which kind of file, at which call, before or after it. Only a write
    has a middle, when half of its bytes are in the file."""

    file: str  # one of KINDS: the name up to its number
    call: str
    place: Place

    def __str__(self) -> str:
        return f"{self.place} {self.call} ({self.file})"


@dataclass(frozen=True)
class Fault:
    """What to do at the points of the saves in `folder`."""

    folder: str
    record: str = ""  # append each point to this file
    kill_at: Point | None = None
    number: int = 1  # die when `kill_at` is reached for the n-th time
    full_while: str = ""  # the disk counts as full while this file exists

    @classmethod
    def from_json(cls, text: str) -> "Fault":
        values = json.loads(text)
        kill_at = values.get("kill_at")
        return cls(**{**values, "kill_at": Point(**kill_at) if kill_at else None})

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Visitor:
    """Commits the fault when its time has come."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.reached = 0

    def __call__(self, file: str, call: str, place: Place) -> None:
        fault, point = self.fault, Point(file, call, place)
        if fault.record:
            with open(fault.record, "a") as record:
                record.write(json.dumps(asdict(point)) + "\n")
        if point == fault.kill_at:
            self.reached += 1
            if self.reached == fault.number:
                os.kill(os.getpid(), signal.SIGKILL)
        full = fault.full_while and os.path.exists(fault.full_while)
        if full and place != "after" and call in ("write", "fsync"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class SavedFile(io.FileIO):
    """An unbuffered file that visits each of its writes, which it makes in two halves."""

    def __init__(self, path: str | Path, visit: Callable[[str, Place], None]) -> None:
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


def kind_of(path: Path) -> str:
    """`state` of `state-000600000.pt`; empty for files that nothing depends on, as pictures."""
    kind = path.name.removeprefix(".").partition("-")[0].partition(".")[0]  # "." begins a partial
    return kind if kind in KINDS else ""


def wrap_calls(folder: Path, visit: Visitor) -> None:
    """From now on, visit before and after the calls that concern files saved in `folder`."""
    real_open, real_fsync, real_replace = builtins.open, os.fsync, os.replace
    real_os_open, real_unlink = os.open, os.unlink
    saving = ""  # kind of the file that is, or was last, being saved

    def ours(path: Any) -> bool:
        return isinstance(path, str | Path) and Path(path).parent.absolute() == folder

    def around(file: str, call: str, act: Callable[[], Any]) -> Any:
        visit(file, call, "before")
        result = act()
        visit(file, call, "after")
        return result

    def open_file(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        nonlocal saving
        if not (isinstance(path, str | Path) and Path(path).suffix == PARTIAL and mode == "xb"):
            return real_open(path, mode, *args, **options)
        kind = saving = kind_of(Path(path)) if ours(path) else ""
        if not kind:
            return real_open(path, mode, *args, **options)

        def make() -> SavedFile:
            return SavedFile(path, lambda call, place: visit(kind, call, place))

        return io.BufferedWriter(around(kind, "open", make))

    def open_folder(path: Any, *args: Any, **options: Any) -> int:
        if isinstance(path, str | Path) and Path(path).absolute() == folder and saving:
            return around(saving, "open folder", lambda: real_os_open(path, *args, **options))
        return real_os_open(path, *args, **options)

    def fsync(descriptor: int) -> Any:
        if not saving:
            return real_fsync(descriptor)
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        call = "fsync folder" if is_folder else "fsync"
        return around(saving, call, lambda: real_fsync(descriptor))

    def replace(source: Any, target: Any, **options: Any) -> Any:
        kind = kind_of(Path(target)) if ours(target) else ""
        if not kind:
            return real_replace(source, target, **options)
        return around(kind, "rename", lambda: real_replace(source, target, **options))

    def unlink(path: Any, **options: Any) -> Any:
        kind = kind_of(Path(path)) if ours(path) and Path(path).suffix != PARTIAL else ""
        if not kind:
            return real_unlink(path, **options)
        return around(kind, "unlink", lambda: real_unlink(path, **options))

    changed: list[tuple[Any, str, Any]] = [
        (builtins, "open", open_file),
        (os, "open", open_folder),
        (os, "fsync", fsync),
        (os, "replace", replace),
        (os, "unlink", unlink),
    ]
    for module, name, function in changed:
        setattr(module, name, function)


if __name__ == "__main__":
    asked = Fault.from_json(sys.argv[1])
    wrap_calls(Path(asked.folder).absolute(), Visitor(asked))
    from stylegan.cli import main

    main(sys.argv[2:], prog_name="stylegan")
