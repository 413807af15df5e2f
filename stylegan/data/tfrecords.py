"""TFRecords of the official program, read without TensorFlow.

A file holds the images at one resolution as records: length, its checksum, data and their checksum.
The data are a protobuf `Example` with the features `shape` (channels, height, width) and `data`,
the pixels. Checksums are skipped: lengths must add up to that of the file, shapes to that of data.
"""

import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stylegan.messages import readable

from .images import MODES
from .labels import Labels, of_classes, of_vectors

LENGTH = struct.Struct("<Q")
HEAD, TAIL = 12, 4  # bytes before and behind the data
BYTES, VARINT = 2, 0  # wire types of protobuf


def records(path: Path) -> Iterator[tuple[int, int]]:
    """Where the data of each record begin, and their length."""
    size, offset = path.stat().st_size, 0
    with open(path, "rb") as file:
        while offset < size:
            file.seek(offset)
            (length,) = LENGTH.unpack(file.read(LENGTH.size).ljust(LENGTH.size, b"\xff"))
            following = offset + HEAD + length + TAIL
            if following > size:
                raise ValueError(f"{readable(path)} is cut short, or not a TFRecord file")
            yield offset + HEAD, length
            offset = following


def pixels(path: Path, begin: int, length: int) -> np.ndarray:
    """The image of a record, uint8 (C, H, W); ValueError for another kind of record."""
    with open(path, "rb") as file:
        file.seek(begin)
        record = memoryview(file.read(length))
    try:
        features = {}
        for _, entry in parts(dict(parts(record))[1]):  # Example.features.feature
            pair = dict(parts(entry))
            features[bytes(pair[1])] = pair[2]
        shape = numbers(dict(parts(features[b"shape"]))[3])
        data = dict(parts(dict(parts(features[b"data"]))[1]))[1]
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValueError("its record is not an image with shape and data") from None
    if len(shape) != 3 or shape[0] not in MODES or not 0 < math.prod(shape) == len(data):
        raise ValueError(f"its record has {len(data)} bytes of shape {readable(tuple(shape))}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def parts(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields of a protobuf message by their numbers: bytes, or a number's own bytes."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == BYTES:
            length, at = varint(message, at)
            end = at + length
        elif key & 7 == VARINT:
            _, end = varint(message, at)
        else:
            raise ValueError(f"wire type {key & 7}")
        if end > len(message):
            raise ValueError("cut short")
        yield key >> 3, message[at:end]
        at = end


def numbers(message: memoryview) -> list[int]:
    """The values of a list of whole numbers, packed or one by one."""
    found, packed = [], b"".join(value for _, value in parts(message))
    at = 0
    while at < len(packed):
        value, at = varint(memoryview(packed), at)
        found.append(value)
    return found


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """A whole number, and where it ends."""
    value = 0
    for bits in range(0, 64, 7):
        byte = message[at]
        value |= (byte & 127) << bits
        at += 1
        if byte < 128:
            return value, at
    raise ValueError("not a number")


def read_labels(path: Path, num_images: int) -> Labels:
    """The labels in a `.labels` file, one-hot or other numbers: a NumPy array."""
    try:
        rows = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{readable(path.name)} holds no labels: {readable(error)}") from error
    if rows.ndim != 2 or len(rows) != num_images or not np.isfinite(rows).all():
        raise ValueError(
            f"{readable(path.name)} does not hold finite numbers for {num_images} images"
        )
    return of_vectors(rows.astype(np.float32)) if rows.size else of_classes([None] * num_images)
