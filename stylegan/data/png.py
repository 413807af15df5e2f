"""PNG files without what is not their pixels."""

import struct

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")  # chunks that decide what is seen


def without_metadata(content: bytes) -> bytes:
    """The PNG with the chunks of its pixels alone: texts, profiles and EXIF may be of any size.

    ValueError if it is not a PNG, or cut short.
    """
    if not content.startswith(SIGNATURE):
        raise ValueError("not a PNG")
    parts = [SIGNATURE]
    at = len(SIGNATURE)
    while at + 12 <= len(content):  # length, kind, data, checksum
        (length,) = struct.unpack_from(">I", content, at)
        end = at + 12 + length
        if content[at + 4 : at + 8] in PIXELS:
            parts.append(content[at:end])
        at = end
    return b"".join(parts)
