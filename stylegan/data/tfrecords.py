"""TFRecords of the official code, read without TensorFlow.

A file contains the images of one resolution as records: length, its checksum, data, their checksum.
The data are a protobuf `Example` with the features `shape` (channels, height, width) and `data`,
the pixels. Checksums are not verified: the sizes of file, records and pixels must match.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stylegan.utils.filesystem import attach_filename

from .images import MODES

HEAD = 12  # bytes before the data
TAIL = 4  # bytes after them
VARINT = 0  # wire types of protobuf
BYTES = 2


def records(path: Path) -> Iterator[tuple[int, int]]:
    """Start and length of each record's data."""
    size = path.stat().st_size
    offset = 0
    with attach_filename(path), open(path, "rb") as file:
        while offset < size:
            file.seek(offset)
            length = int.from_bytes(file.read(8).ljust(8, b"\xff"), "little")
            yield offset + HEAD, length
            offset += HEAD + length + TAIL
    if offset > size:
        raise ValueError(f"{path} is truncated, or not a TFRecord file")


def pixels(path: Path, begin: int, length: int) -> np.ndarray:
    """The image of a record, uint8 (C, H, W). Raises ValueError if it is none."""
    with attach_filename(path), open(path, "rb") as file:
        file.seek(begin)
        record = memoryview(file.read(length))
    name = f"a record of {path}"
    try:
        features = {}
        for _, entry in parts(dict(parts(record))[1]):  # Example.features.feature
            pair = dict(parts(entry))
            features[bytes(pair[1])] = pair[2]
        packed = memoryview(b"".join(v for _, v in parts(dict(parts(features[b"shape"]))[3])))
        shape = []
        while packed:
            number, packed = varint(packed)
            shape.append(number)
        data = dict(parts(dict(parts(features[b"data"]))[1]))[1]
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValueError(f"{name} must be an image with shape and data") from None
    if len(shape) != 3 or shape[0] not in MODES or not 0 < math.prod(shape) == len(data):
        raise ValueError(f"{name} has shape {tuple(shape)}, but {len(data)} bytes")
    return np.frombuffer(data, np.uint8).reshape(shape)


def parts(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of each field of a protobuf message; an integer stays encoded."""
    while message:
        key, message = varint(message)
        number, rest = varint(message)
        if key & 7 == BYTES and number <= len(rest):
            yield key >> 3, rest[:number]
            message = rest[number:]
        elif key & 7 == VARINT:
            yield key >> 3, message[: len(message) - len(rest)]
            message = rest
        else:
            raise ValueError(f"wire type {key & 7}, or truncated")


def varint(message: memoryview) -> tuple[int, memoryview]:
    """Decode the integer at the start. Returns it and the rest of the message."""
    value = 0
    for i, byte in enumerate(message[:10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, message[i + 1 :]
    raise ValueError("not a number")
