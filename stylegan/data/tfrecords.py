"""TFRecords of the official program, read without TensorFlow.

A file holds the images at one resolution: records of a length, its checksum, the data and their
checksum. The data are a protobuf `Example` with the features `shape` (channels, height, width) and
`data`, the bytes. The official program writes a file for each resolution, `NAME-r02.tfrecords` for
4x4 up to `NAME-r10.tfrecords` for 1024x1024, and labels, one-hot or other numbers, in
`NAME-rxx.labels`.
"""

import functools
import math
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stylegan.messages import listed, readable

from .images import MODES, from_array, tiff
from .labels import Labels, of_classes, of_vectors
from .sources import MAX_FILE_BYTES, Source, status_of
from .store import NPY_START, read_array

HEAD, TAIL = struct.Struct("<QI"), struct.Struct("<I")  # of a record: length, checksum; checksum
SET = re.compile(r"(.+)-r\d\d\.tfrecords")
CASTAGNOLI = 0x82F63B78  # polynomial of CRC-32C, the lowest bit first
MASK = 0xA282EAD8  # what TFRecords add to a checksum, after turning it
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types of protobuf
SHAPE = tuple[int, int, int]  # channels, height, width


class TFRecordSource(Source):
    """The images at the highest resolution; those of the others are their averages."""

    kind = "set of TFRecords"

    def __init__(self, path: Path, files: Sequence[Path], include: Sequence[str] = ()) -> None:
        shapes = {file: shape_of(record_at(file, 0)) for file in files}
        largest = max(shape[1] * shape[2] for shape in shapes.values())
        found = [f for f, shape in shapes.items() if shape[1] * shape[2] == largest]
        if len(found) > 1:
            several = listed([readable(file.name) for file in found], 3, ", ")
            raise ValueError(f"{readable(path)} holds several sets ({several}); give one file")
        self.file = found[0]
        self.offsets = list(offsets_of(self.file))
        self.shapes = {self.length(0): shapes[self.file]}  # by the length of a record
        super().__init__(path, (f"{i:09}.tif" for i in range(len(self.offsets))), include)
        if labels := labels_file_of(self.file):
            self.label_files = [str(labels)]

    @staticmethod
    def files_of(near: Sequence[Path]) -> list[Path]:
        return [file for file in near if file.suffix == ".tfrecords"]

    def length(self, i: int) -> int:
        with open(self.file, "rb") as file:
            file.seek(self.offsets[i])
            return int(HEAD.unpack(file.read(HEAD.size))[0])

    def read(self, name: str) -> bytes:
        """The image, uncompressed."""
        try:
            shape, data = example(record_at(self.file, self.offsets[position(name)]))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        return tiff(from_array(np.frombuffer(data, np.uint8).reshape(shape).transpose(1, 2, 0)))

    def head(self, name: str) -> tuple[int, int, str]:
        """Of records of one length only the first is read."""
        i = position(name)
        length = self.length(i)
        if length not in self.shapes:
            self.shapes[length] = shape_of(record_at(self.file, self.offsets[i]))
        channels, height, width = self.shapes[length]
        return width, height, MODES[channels]

    def read_labels(self) -> Labels:
        if not self.label_files:
            return of_classes([None] * len(self.names))
        path = Path(self.label_files[0])
        start = path.read_bytes()[: NPY_START.size]
        header = NPY_START.unpack(start)[1] if len(start) == NPY_START.size else 0
        numbers = (path.stat().st_size - NPY_START.size - header) // (4 * len(self.names))
        try:
            rows = np.array(read_array(path, "<f4", (len(self.names), max(numbers, 0))))
        except ValueError as error:
            raise ValueError(
                f"the labels in {readable(path.name)} are not float32 (images, numbers) of "
                f"{len(self.names)} images: {readable(error)}"
            ) from error
        if not rows.size:
            return of_classes([None] * len(self.names))
        if not np.isfinite(rows).all():
            raise ValueError(f"the labels in {readable(path.name)} are not all finite")
        return of_vectors(rows)

    def listing(self) -> Iterator[tuple[Any, ...]]:
        for file in (self.file, *map(Path, self.label_files)):
            yield file.name, *status_of(file)


def position(name: str) -> int:
    return int(name.removesuffix(".tif"))


def labels_file_of(file: Path) -> Path | None:
    """`NAME-rxx.labels`, or the only file of labels beside it."""
    named = SET.fullmatch(file.name)
    if named and (own := file.with_name(f"{named[1]}-rxx.labels")).is_file():
        return own
    others = list(file.parent.glob("*.labels"))
    return others[0] if len(others) == 1 else None


def offsets_of(path: Path) -> Iterator[int]:
    """Where the records begin; ValueError if the file is not made of records, or is cut short."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        offset = 0
        while offset < size:
            file.seek(offset)
            length = record_length(file, path, offset)
            if offset + HEAD.size + length + TAIL.size > size:
                raise ValueError(f"{readable(path)} is cut short; copy it again")
            yield offset
            offset += HEAD.size + length + TAIL.size


def record_length(file: BinaryIO, path: Path, offset: int) -> int:
    """The length of the data of the record that begins here."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        raise ValueError(f"{readable(path)} is cut short; copy it again")
    length, checksum = HEAD.unpack(head)
    if masked_crc(head[:8]) != checksum or length > MAX_FILE_BYTES:
        raise ValueError(f"{readable(path)} is damaged at byte {offset}, or not a TFRecord file")
    return int(length)


def record_at(path: Path, offset: int) -> bytes:
    """The data of a record; ValueError if they are not what was written."""
    with open(path, "rb") as file:
        file.seek(offset)
        length = record_length(file, path, offset)
        data, tail = file.read(length), file.read(TAIL.size)
    if len(data) < length or len(tail) < TAIL.size:
        raise ValueError(f"{readable(path)} is cut short; copy it again")
    if TAIL.unpack(tail)[0] != masked_crc(data):
        raise ValueError(f"the checksum of its record in {readable(path.name)} is wrong")
    return data


def masked_crc(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """CRC-32C, the checksum of TFRecords, of 4 bytes or more.

    It is linear, so words are combined in pairs, then pairs of words, and so on: the first one
    shifted by the length of the second, plus the second. Zeros in front change nothing, once the
    first 32 bits are inverted, which is how the checksum starts.
    """
    if len(data) < 4:
        raise ValueError(f"{len(data)} bytes are not a record")
    words = np.zeros(-(-len(data) // 4), "<u4")
    content = words.view(np.uint8)[-len(data) % 4 :]
    content[:] = np.frombuffer(data, np.uint8)
    content[:4] ^= 0xFF
    level = 0
    while len(words) > 1:
        words = np.concatenate((words[:1] * 0, words)) if len(words) % 2 else words
        words = shift(shift_tables(level), words[0::2]) ^ words[1::2]
        level += 1
    return int(shift(shift_tables(0), words)[0]) ^ 0xFFFFFFFF


@functools.cache
def shift_tables(level: int) -> np.ndarray:
    """What 2**level words of zeros make of each byte of a checksum: uint32 (4, 256)."""
    if level:
        half = shift_tables(level - 1)
        return shift(half, half)
    tables = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
    for _ in range(32):
        tables = tables >> np.uint32(1) ^ (tables & np.uint32(1)) * np.uint32(CASTAGNOLI)
    return tables


def shift(tables: np.ndarray, crcs: np.ndarray) -> np.ndarray:
    first, second, third, fourth = tables
    low = first[crcs & 255] ^ second[crcs >> 8 & 255]
    return low ^ third[crcs >> 16 & 255] ^ fourth[crcs >> 24]


def shape_of(record: bytes) -> SHAPE:
    return example(record)[0]


def example(record: bytes) -> tuple[SHAPE, memoryview]:
    """Shape and pixels of an image; ValueError for another kind of record."""
    features = {}
    try:
        for entry in fields(next(fields(memoryview(record), 1)), 1):  # Example.features.feature
            key, value = next(fields(entry, 1)), next(fields(entry, 2))
            features[bytes(key)] = value
        sizes = next(fields(next(fields(features[b"shape"], 3)), 1, numbers=True))
        data = next(fields(next(fields(features[b"data"], 1)), 1))
    except (StopIteration, KeyError, IndexError, ValueError):
        raise ValueError("its record is not an image with shape and data") from None
    if len(sizes) != 3 or sizes[0] not in MODES or math.prod(sizes) != len(data) or not len(data):
        raise ValueError(f"its record has {len(data)} bytes of shape {readable(tuple(sizes))}")
    return (sizes[0], sizes[1], sizes[2]), data


def fields(message: memoryview, wanted: int, *, numbers: bool = False) -> Iterator[Any]:
    """The parts of a protobuf message with this number; whole numbers, packed or not, as one
    list."""
    found, at = list[int](), 0
    while at < len(message):
        key, at = varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == BYTES:
            length, at = varint(message, at)
            part, at = message[at : at + length], at + length
            if at > len(message):
                raise ValueError("cut short")
            if number == wanted and not numbers:
                yield part
            elif number == wanted:
                begin = 0
                while begin < len(part):
                    value, begin = varint(part, begin)
                    found.append(value)
        elif wire == VARINT:
            value, at = varint(message, at)
            found += [value] if number == wanted else []
        elif wire in (FIXED64, FIXED32):
            at += 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
    if numbers:
        yield found


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
