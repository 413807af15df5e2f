"""Hypothesis strategies that damage good files, an object that none should make, and limits.

`edited` knows no format. The others take a format apart, change some parts and put it together
again with right lengths and checksums, so that the code behind the checks is reached.
"""

import contextlib
import io
import itertools
import pickletools
import resource
import time
import warnings
import zipfile
from pathlib import Path

from hypothesis import strategies as st

MAX_SECONDS = 5  # of the processor, for one file
MAX_BYTES = 2**30  # of address space that one file may take; threads reserve some of it
MOST_BYTES = 2**24
EDGES = (0, 1, 0x7F, 0x80, 0xFF, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
NUMBERS = sorted(
    {
        (n % 2 ** (8 * size)).to_bytes(size, order)
        for n, size, order in itertools.product(EDGES, (1, 2, 4, 8), ("little", "big"))
    }
)


@contextlib.contextmanager
def limited():
    """Limits of memory and of the processor's time."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = time.process_time()
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MAX_BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert time.process_time() - before < MAX_SECONDS


class Runs:
    """Calls a function where it is unpickled."""

    def __init__(self, function=print, argument="executed"):
        self.call = function, (argument,)

    def __reduce__(self):
        return self.call


@st.composite
def edited(draw, data, most=4):
    """One to `most` parts removed, repeated, emptied, reversed, or replaced by other bytes."""
    for _ in range(draw(st.integers(1, most))):
        start = draw(st.integers(0, len(data)))
        part = data[start : start + draw(st.sampled_from((0, 1, 4, 16, 256, len(data))))]
        flipped = bytes([part[0] ^ 1 << draw(st.integers(0, 7))]) + part[1:] if part else b""
        variants = (b"", part * 2, part * 100, bytes(len(part)), part[::-1], flipped)
        new = draw(st.sampled_from(variants) | st.sampled_from(NUMBERS) | st.binary(max_size=16))
        data = data[:start] + new + data[start + len(part) :]
    return data[:MOST_BYTES]


@st.composite
def spliced(draw, parts, others, often=1000):
    """One to three parts dropped, repeated, moved, or replaced by what `others(part)` draws."""
    parts = list(parts)
    for _ in range(draw(st.integers(1, 3))):
        if parts:
            at = draw(st.integers(0, len(parts) - 1))
            part, other = parts[at], draw(st.sampled_from(parts))
            variants = ([], [part] * 2, [part] * often, [other], [other, part])
            parts[at : at + 1] = draw(st.sampled_from(variants) | others(part))
    return parts


def pickles(data):
    """Whole instructions of a pickle exchanged, and their arguments changed."""
    found = [(code.name, at) for code, _, at in pickletools.genops(data)]
    ends = [at for _, at in found[1:]] + [len(data)]
    pairs = zip(found, ends, strict=True)
    codes = [data[at:end] for (name, at), end in pairs if name != "FRAME"]

    def others(code):
        numbers = st.sampled_from(EDGES).map(lambda n: [b"\x8a\x09" + n.to_bytes(9, "little")])
        return numbers | edited(code[1:], most=1).map(lambda found: [code[:1] + found])

    return spliced(codes[1:], others).map(lambda found: codes[0] + b"".join(found))


NAMES = (  # of files inside archives
    "../outside.png", "/tmp/outside.png", "a\0b.png", "a\x1b[2J\nb.png", "a" * 65_000, "", "/",
    "meta.json",
)  # fmt: skip


def archives(data, inner=edited):
    """Entries exchanged, renamed, emptied, filled, or damaged by `inner`; checksums are right."""

    def others(entry):
        name, content = entry
        contents = inner(content) | st.sampled_from((b"", bytes(MOST_BYTES + 1)))
        names = st.sampled_from(NAMES)
        return contents.map(lambda new: [(name, new)]) | names.map(lambda new: [(new, content)])

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [(info.filename, archive.read(info)) for info in archive.infolist()]
    return spliced(entries, others, often=3).map(packed)


def packed(entries):
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore", UserWarning)  # two entries of one name
        for i, (name, content) in enumerate(entries):
            info = zipfile.ZipInfo("x")  # of one fixed date
            info.filename = name[:65_000]  # which ZipInfo's own checks do not touch
            archive.writestr(info, content, zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED)
    return file.getvalue()
