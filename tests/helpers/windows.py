"""Runs commands of `stylegan` in a process without what Windows lacks.

    python tests/helpers/windows.py '[["generate", "mine.pt", "--seeds", "0"]]'

Our code finds no modules and signals of POSIX; no file that is open is moved, replaced or removed,
no folder is opened, and what is open for reading is not synchronized. The libraries are those of
this system: their own paths, locks and threads are not tried.
"""

import builtins
import fcntl
import json
import os
import signal
import sys
from pathlib import Path

import psutil  # noqa: F401
import torch  # noqa: F401  libraries first: they need what is hidden here

MODULES = {"fcntl", "grp", "posix", "pwd", "resource", "syslog", "termios"}
SIGNALS = ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def without_posix(usual):
    def imported(name, globals=None, *more, **options):
        if name in MODULES and str((globals or {}).get("__name__")).startswith("stylegan"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return usual(name, globals, *more, **options)

    return imported


def ours():
    """Whether our code calls the function that asks, maybe through pathlib or shutil."""
    frame = sys._getframe(2)
    while frame.f_globals["__name__"].partition(".")[0] in ("pathlib", "shutil"):
        frame = frame.f_back
    return frame.f_globals["__name__"].startswith("stylegan")


def unless_open(usual):
    """`os.replace` and its kin, refused while this process has the file, or one in the folder."""

    def moved(path, *more, **options):
        if ours():
            files = {Path(os.path.realpath(fd)) for fd in Path("/proc/self/fd").iterdir()}
            taken = files.union(*(file.parents for file in files))
            for moving in (path, *more):
                if Path(os.path.realpath(moving)) in taken:
                    raise PermissionError(13, "it is being used by another process", str(moving))
        return usual(path, *more, **options)

    return moved


def files_only(usual):
    def opened(path, flags, *more, **options):
        if ours() and "dir_fd" not in options and os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, flags, *more, **options)

    return opened


def writable_only(usual):
    def synced(descriptor):
        if ours() and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(9, "Bad file descriptor")
        usual(descriptor)

    return synced


def hide_posix():
    builtins.__import__ = without_posix(builtins.__import__)
    for name in ("rename", "replace", "remove", "unlink"):
        setattr(os, name, unless_open(getattr(os, name)))
    os.open, os.fsync = files_only(os.open), writable_only(os.fsync)
    del os.O_DIRECTORY
    for name in SIGNALS:
        delattr(signal, name)


if __name__ == "__main__":
    hide_posix()
    import stylegan

    assert stylegan.load_generator
    from stylegan.cli import main

    for arguments in json.loads(sys.argv[1]):
        main(arguments, standalone_mode=False)
