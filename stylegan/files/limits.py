"""Checked of a file from anyone before time or memory is spent on it."""

import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from stylegan.messages import readable

MOST_INSTRUCTIONS = 200_000  # of a pickle; a state at 1024x1024 has about 30,000
MOST_DIRECTORY = 2**21  # bytes of the list of entries of a zip archive: about 20,000 of them
MOST_VALUES, MOST_DEPTH = 100_000, 50  # of what a file holds, and of what lies in one another
# What tensors may take for each byte of their file: two may share their numbers. Memory of the
# hundredfold, from views of the same number, is refused.
MOST_BYTES_PER_BYTE = 16
FLOATS = torch.float64, torch.float32, torch.float16, torch.bfloat16  # types of weights
KEYS = {  # instructions that make texts and whole numbers
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"),
}
CALLS = ("REDUCE", "NEWOBJ", "BUILD")  # with an object and what is given to it


class Refused(ValueError):
    """What no good file has; the message goes on from the name of the file."""


def instructions(
    data: bytes | IO[bytes],
) -> Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]]:
    """The instructions of a pickle with arguments and positions, which are not executed.

    Refused are what takes long to execute: too many of them, whole numbers beyond 64 bits, and
    keys of dictionaries that are neither texts nor whole numbers, as those can be made to collide.
    """
    stack = Stack()
    for number, (opcode, argument, position) in enumerate(pickletools.genops(data)):
        if number >= MOST_INSTRUCTIONS:
            raise Refused(f"has more than {MOST_INSTRUCTIONS:,} pickle instructions")
        if isinstance(argument, int) and not -(2**63) <= argument < 2**63:
            raise Refused("has a whole number of more than 64 bits")
        yield opcode, argument, position
        stack.follow(opcode, argument)


class Stack:
    """The instruction that made each value on an unpickler's stack, and each in its memo."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.memo: dict[int, str] = {}

    def follow(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        name = opcode.name
        if name == "MEMOIZE" or name.endswith("PUT"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.values[-1]
        elif name.endswith("GET"):
            self.values.append(self.memo[argument])
        elif name == "DUP":
            self.values.append(self.values[-1])
        elif name == "MARK":
            self.values.append(name)
        else:
            taken = self.take(opcode.stack_before)
            if name in ("SETITEM", "SETITEMS", "DICT") and not KEYS.issuperset(taken[1::2]):
                raise Refused("has a dictionary with a key that is neither a text nor a number")
            called = taken[1] if name in CALLS else ""
            if called.endswith("OrderedDict") and taken[0] not in ("EMPTY_TUPLE", "EMPTY_DICT"):
                raise Refused("makes a dictionary of something else")
            made = called or (f"{name} {argument}" if name == "GLOBAL" else name)
            self.values += [made] * len(opcode.stack_after)

    def take(self, kinds: list[pickletools.StackObject]) -> list[str]:
        """Remove what an instruction takes from the stack; the last first."""
        taken = []
        if pickletools.markobject in kinds:
            while (kind := self.values.pop()) != "MARK":
                taken.append(kind)
            kinds = kinds[: kinds.index(pickletools.markobject)]
        return taken + [self.values.pop() for _ in kinds]


def entries(path: Path) -> list[zipfile.ZipInfo]:
    """The entries of a zip archive, none of them compressed and none read. Refused are too many,
    and entries larger than the file."""
    if directory_size(path) > MOST_DIRECTORY:
        raise Refused("is a zip archive of too many entries")
    with zipfile.ZipFile(path) as archive:
        found = archive.infolist()
    for entry in found:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise Refused(f"has an entry {readable(entry.filename)} that is compressed")
    if sum(entry.file_size for entry in found) > path.stat().st_size:
        raise Refused("has entries that are larger than the file")
    return found


def directory_size(path: Path) -> int:
    """The bytes of the list of entries, as the end of the archive specifies it."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 2**16 - 100))
        tail = file.read()
    end = tail.rfind(b"PK\5\6")
    if tail[end - 20 : end - 16] == b"PK\6\7":  # in 64 bits
        return int.from_bytes(tail[end - 36 : end - 28], "little")
    return int.from_bytes(tail[end + 12 : end + 16], "little")


class Plain:
    """Turns what a file of `size` bytes holds into plain dictionaries, lists and tensors.

    Nothing keeps a class or attributes of the file's choice, and no two tensors share numbers.
    """

    def __init__(self, size: int) -> None:
        self.most_bytes = MOST_BYTES_PER_BYTE * size + 2**20
        self.values = self.bytes = 0
        self.storages: set[int] = set()

    def of(self, value: Any, name: str = "it", depth: int = 0) -> Any:
        self.values += 1
        if self.values > MOST_VALUES or depth > MOST_DEPTH:
            raise Refused(
                f"holds more than {MOST_VALUES:,} values, or more than {MOST_DEPTH} in one another"
            )
        if isinstance(value, Tensor):
            return self.tensor(value, name)
        if isinstance(value, dict):
            return {key: self.of(inner, str(key), depth + 1) for key, inner in dict.items(value)}
        if isinstance(value, list | tuple):
            inside = (self.of(inner, name, depth + 1) for inner in value)
            return tuple(inside) if isinstance(value, tuple) else list(inside)
        return value

    def tensor(self, value: Tensor, name: str) -> Tensor:
        tensor = Tensor.detach(value)
        if tensor.is_meta or tensor.layout != torch.strided:
            raise Refused(f"holds {readable(name)}, which is not a plain tensor with numbers")
        self.bytes += tensor.nbytes
        if self.bytes > self.most_bytes:
            raise Refused("holds tensors that are larger than the file: they share their numbers")
        storage = tensor.untyped_storage()
        shared = storage.data_ptr() in self.storages
        self.storages.add(storage.data_ptr())
        return tensor.clone(memory_format=torch.contiguous_format) if shared else tensor
