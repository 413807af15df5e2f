"""TFRecords of the official program, read without TensorFlow.

A file holds the images at one resolution as records: length, its checksum, data and their checksum.
The data are a protobuf `Example` with the features `shape` (channels, height, width) and `data`,
the pixels. Checksums are skipped: lengths must add up to that of the file, shapes to that of data.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stylegan.machine.disk import errors_name

from .images import MODES

HEAD = 12  # bytes before the data
TAIL = 4  # and behind it
VARINT = 0  # a wire type of protobuf
BYTES = 2  # another


def records(path: Path) -> Iterator[tuple[int, int]]:
    """Yield the start and length of each record's data."""
    size = path.stat().st_size
    offset = 0
    with errors_name(path), open(path, "rb") as file:
        while offset < size:
            file.seek(offset)
            length = int.from_bytes(file.read(8).ljust(8, b"\xff"), "little")
            yield offset + HEAD, length
            offset += HEAD + length + TAIL
    if offset > size:
        raise ValueError(f"{path} is cut short, or not a TFRecord file")


def pixels(path: Path, begin: int, length: int) -> np.ndarray:
    """Return the image of a record, uint8 (C, H, W). Raise ValueError for another kind."""
    with errors_name(path), open(path, "rb") as file:
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
        raise ValueError(f"{name} is not an image with shape and data") from None
    if len(shape) != 3 or shape[0] not in MODES or not 0 < math.prod(shape) == len(data):
        raise ValueError(f"{name} has {len(data)} bytes of shape {tuple(shape)}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def parts(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the fields of a protobuf message by their numbers: bytes, or a number's own bytes."""
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
            raise ValueError(f"wire type {key & 7}, or cut short")


def varint(message: memoryview) -> tuple[int, memoryview]:
    """Return the whole number at the beginning, and the rest."""
    value = 0
    for i, byte in enumerate(message[:10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, message[i + 1 :]
    raise ValueError("not a number")
