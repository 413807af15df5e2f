"""Files of pictures that Pillow cannot write: TIFF of any tags, color profiles, long metadata."""

import struct
import zlib

import numpy as np

ADOBE_RGB = {  # primaries in XYZ under D50, as its profile has them; gamma 2.2
    "r": (0.60974, 0.31111, 0.01947),
    "g": (0.20528, 0.62567, 0.06087),
    "b": (0.14919, 0.06322, 0.74457),
}
WHITE_D50 = (0.9642, 1.0, 0.8249)


def fixed(number):
    """A number of a profile: 16 bits before the point and 16 behind it."""
    return round(number * 65536) & 0xFFFFFFFF


def profile(primaries=ADOBE_RGB, gamma=2.2):
    """An ICC profile (version 2) of these primaries, each with the same curve."""
    curve = struct.pack(">4sIIHH", b"curv", 0, 1, round(gamma * 256), 0)
    tags = {b"wtpt": xyz(WHITE_D50), b"cprt": b"text" + bytes(4) + b"CC0\0"}
    tags[b"desc"] = b"desc" + bytes(4) + struct.pack(">I", 5) + b"test\0" + bytes(79)
    for color, point in primaries.items():
        tags[f"{color}XYZ".encode()] = xyz(point)
        tags[f"{color}TRC".encode()] = curve
    at, table, body = 128 + 4 + 12 * len(tags), b"", b""
    for name, content in tags.items():
        table += struct.pack(">4sII", name, at + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    size = at + len(body)
    head = struct.pack(">I4sI4s4s4s", size, bytes(4), 0x02100000, b"mntr", b"RGB ", b"XYZ ")
    head += struct.pack(">6H4s", 2026, 1, 1, 0, 0, 0, b"acsp") + bytes(28)
    head += struct.pack(">3I", *map(fixed, WHITE_D50)) + bytes(48)
    return head + struct.pack(">I", len(tags)) + table + body


def xyz(point):
    return struct.pack(">4sI3I", b"XYZ ", 0, *map(fixed, point))


def tiff(pixels, tags):
    """An uncompressed TIFF with the bytes of `pixels` and these tags: lists of 16-bit numbers."""
    strip = np.ascontiguousarray(pixels).tobytes()
    entries, outside = b"", b""
    start = 8 + len(strip)
    tags = {273: [8], 278: [0xFFFF], 279: [len(strip)], 259: [1], **tags}
    behind = start + 2 + 12 * len(tags) + 4
    for tag, numbers in sorted(tags.items()):
        value = struct.pack(f"<{len(numbers)}H", *numbers)
        if len(value) > 4:
            outside += value
            value = struct.pack("<I", behind + len(outside) - len(value))
        entries += struct.pack("<HHI", tag, 3, len(numbers)) + value.ljust(4, b"\0")
    head = struct.pack("<2sHI", b"II", 42, start)
    return head + strip + struct.pack("<H", len(tags)) + entries + bytes(4) + outside


def png(samples, bits, clear=None):
    """A PNG of `samples` (H, W) or (H, W, 3) with so many bits, where the color `clear` is
    transparent."""
    height, width = samples.shape[:2]
    kind = 0 if samples.ndim == 2 else 2
    if bits == 16:
        rows = [row.astype(">u2").tobytes() for row in samples]
    else:  # the bits of each sample, the highest first
        flags = np.unpackbits(samples.reshape(height, -1, 1).astype(np.uint8), axis=2)[..., -bits:]
        rows = [np.packbits(row).tobytes() for row in flags]
    lines = b"".join(b"\0" + row for row in rows)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
    transparent = b""
    if clear is not None:
        transparent = chunk(b"tRNS", np.array(clear, ">u2").tobytes())
    body = chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + transparent + body


def chunk(kind, content):
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def with_chunk(png, kind, content):
    """The PNG with one more chunk behind its head."""
    return png[:33] + chunk(kind, content) + png[33:]
