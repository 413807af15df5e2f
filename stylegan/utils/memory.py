"""Reuse of freed CPU memory, and recognition of out-of-memory errors."""

import ctypes
import os
import sys

M_TRIM_THRESHOLD = -1  # of <malloc.h>
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")
MAX_BLOCKS = (2**30, 2**25)  # bytes to keep; some versions of glibc refuse the first


def keep_memory() -> None:
    """Tune glibc's malloc to reuse freed blocks instead of returning them to the kernel.

    Blocks that go back are zeroed page by page when they are allocated again. Does nothing on other
    systems, or if the user has set MALLOC_*, GLIBC_TUNABLES or LD_PRELOAD.
    """
    if sys.platform != "linux" or any(
        name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")) for name in os.environ
    ):
        return
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read by torch at the first big tensor
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and any(mallopt(M_MMAP_THRESHOLD, size) for size in MAX_BLOCKS):
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_TOP_PAD, 2**26)


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device ran out of memory; libraries have no common exception for it."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and any(sign in str(error).lower() for sign in OUT_OF_MEMORY)
    )
