"""Locks of files and folders; each ends with the process that holds it."""

import errno
import fcntl
import os
from pathlib import Path

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EINVAL)  # of NFS, too


def lock(path: Path) -> int | None:
    """A descriptor that holds `path` until it is closed; None where there are no locks.

    BlockingIOError if somebody holds it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in NO_LOCKS:
            return None
        raise
    return descriptor


def release(descriptor: int | None) -> None:
    """End a lock."""
    if descriptor is not None:
        os.close(descriptor)


def is_of(descriptor: int | None, path: Path) -> bool:
    """Whether `path` is still what was locked, not another that has taken its name."""
    try:
        return descriptor is None or os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
