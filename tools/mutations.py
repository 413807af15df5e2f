"""Damage for files: pure functions from good bytes and a random number generator to bad bytes.

`anything` knows no format. The others take a format apart, change a part and put it together
again with correct lengths and checksums, so that the code behind the checks is reached.
"""

import copy
import functools
import io
import json
import pickletools
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, -1, -2)
BOMB = zlib.compress(bytes(2**26), 9)
NAMES = (  # of files inside archives
    "../outside.png",
    "/tmp/outside.png",
    "C:\\outside.png",
    "a/../../outside.png",
    "\\\\host\\share\\outside.png",
    "a\x00b.png",
    "a\nb.png",
    "a\x1b[2Jb.png",
    "a" * 65_000 + ".png",
    "a" * 300 + ".png",
    "/".join("a" * 40_000) + ".png",
    "CON.png",
    ".png",
    "",
    "/",
    "meta.json",
)
GLOBALS = (  # that no file may name
    "os system",
    "posix system",
    "builtins eval",
    "builtins exec",
    "builtins getattr",
    "builtins __import__",
    "subprocess Popen",
    "numpy.os system",
    "numpy load",
    "numpy dtype.__class__",
    "collections OrderedDict.__init__.__globals__",
    "torch load",
    "torch.storage _load_from_bytes",
    "functools partial",
    "copyreg _reconstructor",
)
VALUES: tuple[Any, ...] = (  # of JSON
    None, True, False, 0, 1, -1, 3, 4, 2**31, 2**63, 2**64, 10**400, -(10**400), 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "4", "a\nb", "\x00\x1b[2J", "\ud800", "x" * 100_000, [], [[]],
    [1, 2, 3, 4], [0] * 10_000, ["a", "b"], [["a"]], [["a", "b", "c"]], {}, {"a": 1}, "../../etc",
)  # fmt: skip
TOML_VALUES = (
    "0", "-1", "1", "3", "0.5", "inf", "-inf", "nan", "1e400", "9223372036854775808", "1" * 5_000,
    "0x" + "f" * 5_000, "1_" * 3_000 + "1", "''", '"text"', '"a\\u001b[2J"', '"a\\nb"',
    '"\\ud800"', '"""' + "\n" * 1_000 + '"""', "true", "false", "[]", "[1, 'a']", "{}", "{ 4 = 8 }",
    "{ 4 = 'a' }", "{ a = 1 }", "{ 4 = 0 }", "{ -4 = 1 }", "{ 1_000_000_007 = 1 }", "1979-05-27",
    "07:32:00", "1979-05-27T07:32:00Z", "[" * 3_000, "[" * 5_000 + "]" * 5_000,
    "{a=" * 2_000 + "1" + "}" * 2_000, "[" * 90 + "]" * 90, "[" + "0," * 50_000 + "]", "",
)  # fmt: skip
NPY_HEADERS = (
    ("|u1", "|O"), ("|u1", "<f8"), ("|u1", "|V1"), ("|u1", "|S0"), ("|u1", "<U2147483647"),
    ("'|u1'", "[('a', '|u1')]"), ("'|u1'", "[('a', '|O')]"), ("'|u1'", "0"), ("'|u1'", "'u1, O'"),
    ("'|u1'", "__import__('os').system('true')"), ("'|u1'", "('|u1', (2**40,))"),
    ("<i8", "|O"), ("<i8", ">i8"), ("<i8", "<u8"), ("<i8", "<M8[s]"), ("<i8", "<c16"),
    ("False", "True"), ("False", "1"), ("False", "None"), ("False", "[]"),
    ("(", "(-1, "), ("(", "(0, "), ("(", "(1, "), ("(", "(9223372036854775807, "),
    ("(", "(18446744073709551616, "), ("(", "(1e3, "), ("(", "(None, "), ("(", "("),
    ("(", "(4611686018427387904, 4, "), ("(", "(2147483648, "), ("(", "('a', "), ("(", "[("),
    ("shape", "shapes"), ("}", ", 'more': 1}"), ("}", "}" + " " * 60_000), ("{", "{" * 500),
    ("}", "} + " + "(" * 300), ("{", "["), ("descr", "\x00"), ("descr", "d\u00e9scr"),
)  # fmt: skip


def anything(data: bytes, rng: Random, most: int = 4) -> bytes:
    """One to `most` changes that know nothing of the format."""
    for _ in range(rng.randint(1, most)):
        data = rng.choice(SIMPLE)(data, rng)
    return data


def span(data: bytes, rng: Random) -> tuple[int, int]:
    """The ends of a random part, mostly a short one."""
    start = rng.randrange(len(data) + 1)
    return start, min(start + rng.choice((1, 4, 16, 256, len(data) // 2 + 1)), len(data))


def flip_bits(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8, 64)) if data else 0):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def replace(data: bytes, rng: Random) -> bytes:
    a, b = span(data, rng)
    return data[:a] + rng.randbytes(b - a) + data[b:]


def delete(data: bytes, rng: Random) -> bytes:
    a, b = span(data, rng)
    return data[:a] + data[b:]


def insert(data: bytes, rng: Random) -> bytes:
    a, b = span(data, rng)
    return data[:a] + rng.choice((rng.randbytes(b - a), bytes(b - a))) + data[a:]


def duplicate(data: bytes, rng: Random) -> bytes:
    a, b = span(data, rng)
    return data[:a] + data[a:b] * rng.choice((2, 3, 100)) + data[b:]


def truncate(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def swap(data: bytes, rng: Random) -> bytes:
    """Two neighbouring parts change places."""
    a, b, c = sorted(rng.randrange(len(data) + 1) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def set_number(data: bytes, rng: Random) -> bytes:
    size, order = rng.choice((1, 2, 4, 8)), rng.choice(("<", ">"))
    number = rng.choice(INTERESTING) % 2 ** (8 * size)
    at = rng.randrange(len(data) + 1)
    return data[:at] + struct.pack(order + "xBHxIxxxQ"[size], number) + data[at + size :]


SIMPLE: tuple[Mutation, ...] = (
    flip_bits, replace, delete, insert, duplicate, truncate, swap, set_number
)  # fmt: skip


def one_change(data: bytes, rng: Random) -> bytes:
    """A single change that knows nothing of the format."""
    return anything(data, rng, most=1)


def any_of(*mutations: Mutation) -> Mutation:
    """Chooses one of several for each file."""
    return lambda data, rng: rng.choice(mutations)(data, rng)


# Pickles


@functools.cache
def instructions(data: bytes) -> tuple[bytes, ...]:
    """A pickle in its instructions, without the frames around them."""
    found = [(code.name, at or 0) for code, _, at in pickletools.genops(data)]
    ends = [at for _, at in found[1:]] + [len(data)]
    pairs = zip(found, ends, strict=True)
    return tuple(data[at:end] for (name, at), end in pairs if name != "FRAME")


def pickle_program(data: bytes, rng: Random) -> bytes:
    """Whole instructions of a pickle removed, repeated, moved, renumbered; foreign ones added."""
    codes = list(instructions(data))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(1, len(codes))
        match rng.randrange(7):
            case 0:
                del codes[at]
            case 1:
                codes.insert(at, codes[at] * rng.choice((1, 2, 1000)))
            case 2:
                codes.insert(at, codes[rng.randrange(1, len(codes))])
            case 3:
                codes[at] = codes[rng.randrange(1, len(codes))]
            case 4:
                codes[at] = codes[at][:1] + anything(codes[at][1:], rng, most=1)
            case 5:
                codes.insert(at, rng.choice(hostile_instructions(rng)))
            case _:
                numbers = [i for i, code in enumerate(codes) if code[:1] in b"KMJ"]
                if numbers:
                    number = rng.choice(INTERESTING) % 2**64
                    codes[rng.choice(numbers)] = b"\x8a\x09" + number.to_bytes(9, "little")
    return b"".join(codes)


def hostile_instructions(rng: Random) -> list[bytes]:
    """Calls, extensions, claims of size, references and nesting that no good file contains."""
    module, name = rng.choice(GLOBALS).encode().split()
    text = b"X%b%b" % (len(b"true").to_bytes(4, "little"), b"true")
    place = rng.choice(INTERESTING) % 2**32
    return [
        b"c%b\n%b\n" % (module, name),
        b"c%b\n%b\n%b\x85R" % (module, name, text),
        b"\x8c%c%b\x8c%c%b\x93%b\x85R" % (len(module), module, len(name), name, text),
        b"(%bi%b\n%b\n" % (text, module, name),
        b"(c%b\n%b\n%bo" % (module, name, text),
        b"c%b\n%b\n%b\x85\x81" % (module, name, text),
        b"c%b\n%b\n%b\x85}\x92" % (module, name, text),
        b"\x82\x01",
        b"\x84" + rng.randbytes(4),
        b"}X\x01\x00\x00\x00asb",
        b"q%c" % (place % 256),
        b"r" + place.to_bytes(4, "little"),
        b"j" + place.to_bytes(4, "little"),
        b"B" + place.to_bytes(4, "little"),
        b"\x8e" + (5 * 2**30).to_bytes(8, "little"),
        b"\x8d" + (2**63 - 1).to_bytes(8, "little"),
        b"\x95" + (2**62).to_bytes(8, "little"),
        b"\x8b" + (2**31 - 1).to_bytes(4, "little"),
        b"]" + b"\x85" * 100_000,
        b"]q\x002" + b"h\x00h\x00\x86q\x00" * 60,
        b"(" * 10_000,
        b"]q\x01h\x01a",
        b"Q",
        b"Pname\n",
        b"I" + b"9" * 5_000 + b"\n",
        b"\x8a\xff" + b"\x7f" * 255,
        b"\x97\x98",
        b"\x96" + (2**40).to_bytes(8, "little"),
    ]


# Archives


def unpacked(data: bytes) -> list[tuple[zipfile.ZipInfo, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(info, archive.read(info)) for info in archive.infolist()]


def packed(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # two entries of one name
        with zipfile.ZipFile(file, "w") as archive:
            for info, content in entries:
                info = renamed(info, info.filename)  # with sizes and position of its own
                archive.writestr(info, content, compress_type=info.compress_type)
    return file.getvalue()


def renamed(info: zipfile.ZipInfo, name: str) -> zipfile.ZipInfo:
    """The entry under another name, which ZipInfo's own checks do not touch."""
    other = zipfile.ZipInfo("x")
    other.filename = name[:65_000]
    other.compress_type, other.external_attr = info.compress_type, info.external_attr
    return other


def without_comment(data: bytes, rng: Random) -> bytes:
    """A checkpoint without its seal, damaged anywhere."""
    return anything(packed(unpacked(data)), rng)


def inside_archive(inner: Mutation) -> Mutation:
    """One entry of an archive damaged, all checksums right."""

    def mutate(data: bytes, rng: Random) -> bytes:
        entries = unpacked(data)
        programs = [i for i, (info, _) in enumerate(entries) if info.filename.endswith(".pkl")]
        at = rng.choice(programs or range(len(entries)))
        entries[at] = entries[at][0], inner(entries[at][1], rng)
        return packed(entries)

    return mutate


def entries_of_archive(data: bytes, rng: Random) -> bytes:
    """Entries dropped, repeated, renamed, exchanged, emptied, cut or filled."""
    entries = unpacked(data)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(entries))
        info, content = entries[at]
        other = rng.choice(entries)
        changed = {
            "drop": [],
            "repeat": [entries[at], entries[at]],
            "rename": [(renamed(info, rng.choice(NAMES)), content)],
            "as another": [(renamed(info, other[0].filename), content)],
            "exchange": [(info, other[1])],
            "damage": [(info, anything(content, rng))],
            "empty": [(info, b"")],
            "fill": [(info, bytes(2**24 + 1))],
        }
        entries[at : at + 1] = changed[rng.choice(list(changed))]
        if not entries:
            break
    return packed(entries)


def fields_of_archive(data: bytes, rng: Random) -> bytes:
    """Fields of local and central headers, of the end record: the same in both, or in one."""
    changed = bytearray(data)
    fields = {  # signature -> offset and size of: version, flags, method, CRC, sizes, lengths
        b"PK\x03\x04": [(4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)],
        b"PK\x01\x02": [
            (6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2),
            (38, 4), (42, 4),
        ],
        b"PK\x05\x06": [(4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)],
    }  # fmt: skip
    for _ in range(rng.randint(1, 3)):
        signature = rng.choice(list(fields))
        places = [at for at in range(len(data) - 3) if data[at : at + 4] == signature]
        offset, size = rng.choice(fields[signature])
        small = (rng.randrange(20), 1, 8, 9, 12, 14, 93, 99, 2**11, 2**24)
        number = rng.choice((*INTERESTING, *small)) % 2 ** (8 * size)
        for at in rng.sample(places, rng.choice((1, len(places)))):
            end = at + offset + size
            changed[at + offset : end] = number.to_bytes(size, "little")
    return bytes(changed)


# Images


def png_chunks(data: bytes, rng: Random) -> bytes:
    """Chunks dropped, repeated, moved, damaged, added; every checksum is right."""
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(chunks))
        kind, content = chunks[at]
        changed: dict[str, list[tuple[bytes, bytes]]] = {
            "drop": [],
            "repeat": [chunks[at]] * rng.choice((2, 2000)),
            "damage": [(kind, anything(content, rng))],
            "number": [(kind, set_number(content, rng))],
            "number too": [(kind, set_number(content, rng))],
            "pixels": [(kind, zlib.compress(anything(inflated(content), rng)))],
            "add": [chunks[at], png_extra(rng)],
            "first": [png_extra(rng), chunks[at]],
        }
        chunks[at : at + 1] = changed[rng.choice(list(changed))]
        if rng.random() < 0.1:
            rng.shuffle(chunks)
        if not chunks:
            break
    parts = [
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    ]
    return data[:8] + b"".join(parts)


def inflated(content: bytes) -> bytes:
    try:
        return zlib.decompress(content)
    except zlib.error:
        return content


def png_extra(rng: Random) -> tuple[bytes, bytes]:
    """A chunk that the image did not have: text and profiles, some of them bombs; animation."""
    return rng.choice((
        (b"tEXt", b"a\0" + rng.randbytes(20)),
        (b"zTXt", b"a\0\0" + BOMB),
        (b"iTXt", b"a\0\1\0\0\0" + BOMB),
        (b"iCCP", b"a\0\0" + BOMB),
        (b"iCCP", b"a\0\0" + rng.randbytes(20)),
        (b"eXIf", exif(rng)),
        (b"eXIf", rng.randbytes(rng.choice((0, 3, 8, 200)))),
        (b"tRNS", rng.randbytes(rng.choice((0, 1, 2, 6, 256, 1000)))),
        (b"PLTE", rng.randbytes(rng.choice((0, 1, 3, 768, 3000)))),
        (b"acTL", struct.pack(">II", rng.choice((0, 1, 2**31)), 0)),
        (b"fcTL", struct.pack(">IIIIIHHBB", 0, 2**31 - 1, 9, 0, 0, 0, 0, rng.randrange(4), 1)),
        (b"fdAT", rng.randbytes(12)),
        (b"gAMA", rng.randbytes(rng.choice((0, 4)))),
        (b"cHRM", rng.randbytes(rng.choice((0, 32)))),
        (b"pHYs", rng.randbytes(rng.choice((0, 9)))),
        (b"sRGB", rng.randbytes(rng.choice((0, 1)))),
        (bytes(rng.randrange(256) for _ in range(4)), rng.randbytes(9)),
    ))  # fmt: skip


def exif(rng: Random) -> bytes:
    """An EXIF directory of a few random tags, orientation among them."""
    tags = [0x0112, 0x8769, 0x8825, 0x0100, rng.randrange(2**16)]
    entries = b"".join(
        struct.pack(
            "<HHII", tag, rng.randrange(14), rng.choice((0, 1, 2, 2**31)), rng.randrange(12)
        )
        for tag in tags
    )
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4)


def jpeg_segments(data: bytes, rng: Random) -> bytes:
    """Segments dropped, repeated, moved, damaged, added, with right lengths; scans damaged."""
    segments, at = [], 2
    while data[at + 1] != 0xDA:
        (length,) = struct.unpack_from(">H", data, at + 2)
        segments.append((data[at + 1], data[at + 4 : at + 2 + length]))
        at += 2 + length
    scan = data[at:]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(segments))
        kind, content = segments[at]
        changed: dict[str, list[tuple[int, bytes]]] = {
            "drop": [],
            "repeat": [segments[at]] * rng.choice((2, 500)),
            "damage": [(kind, anything(content, rng)[:65_000])],
            "number": [(kind, set_number(content, rng)[:65_000])],
            "number too": [(kind, set_number(content, rng)[:65_000])],
            "kind": [(rng.randrange(0xC0, 0xFF), content)],
            "exif": [(0xE1, b"Exif\0\0" + exif(rng)), segments[at]],
            "pictures": [(0xE2, b"MPF\0" + exif(rng)), segments[at]],
            "profile": [(0xE2, b"ICC_PROFILE\0" + rng.randbytes(20)), segments[at]],
            "adobe": [(0xEE, b"Adobe" + rng.randbytes(7)), segments[at]],
            "restart": [(0xDD, rng.randbytes(2)), segments[at]],
            "photoshop": [(0xED, b"Photoshop 3.0\0" + rng.randbytes(30)), segments[at]],
        }
        segments[at : at + 1] = changed[rng.choice(list(changed))]
        if not segments:
            break
    scan = anything(scan, rng) if rng.random() < 0.3 else scan
    parts = [b"\xff%c%b%b" % (k, struct.pack(">H", len(c) + 2), c) for k, c in segments]
    return data[:2] + b"".join(parts) + scan * rng.choice((1, 1, 1, 50))


# Arrays and text


def npy_header(data: bytes, rng: Random) -> bytes:
    """Another header text, of the right length, or another version or length."""
    (length,) = struct.unpack_from("<H", data, 8)
    text, pixels = data[10 : 10 + length].decode("latin1"), data[10 + length :]
    for _ in range(rng.randint(1, 2)):
        old, new = rng.choice(NPY_HEADERS)
        text = text.replace(old, new)
    if rng.random() < 0.3:
        text = anything(text.encode("latin1", "replace"), rng).decode("latin1")
    content = text.encode("latin1")[:65_000].ljust(length)
    version = rng.choice((b"\1\0", b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\0\0", b"\xff\xff"))
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(content))
    return data[:6] + version + size + content + rng.choice((pixels, pixels, b"", pixels * 2))


def json_values(data: bytes, rng: Random) -> bytes:
    """Values, names or depths of a JSON document replaced."""
    document = json.loads(data)
    for _ in range(rng.randint(1, 2)):
        if not isinstance(document, dict) or not document:
            break
        place: Any = document
        key: Any = rng.choice(list(document))
        while isinstance(place[key], dict | list) and place[key] and rng.random() < 0.6:
            place = place[key]
            key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        match rng.randrange(8):
            case 0 if isinstance(place, dict):
                del place[key]
            case 1 if isinstance(place, dict):
                place[rng.choice(("", "extra", key * 2, "__class__"))] = place.pop(key)
            case 2:
                place[key] = [place[key], place[key]]
            case 3:
                document = copy.deepcopy(rng.choice(VALUES))
            case _:
                place[key] = copy.deepcopy(rng.choice(VALUES))
    text = json.dumps(document)
    if rng.random() < 0.1:
        depth = rng.choice((50, 900, 100_000))
        text = text.replace(": 0", ": " + "[" * depth + "]" * depth, 1)
    if rng.random() < 0.05:
        text = text.replace(": 0", ": " + "9" * 5_000, 1)
    return text.encode(rng.choice(("utf-8",) * 8 + ("utf-16", "utf-8-sig")))


def toml_lines(data: bytes, rng: Random) -> bytes:
    """Values and names of a TOML document replaced, lines dropped, repeated, moved, added."""
    lines = data.decode().splitlines()
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        name, _, _ = lines[at].partition(" = ")
        value = rng.choice(TOML_VALUES)
        changed = {
            "value": [f"{name} = {value}"],
            "value too": [f"{name} = {value}"],
            "drop": [],
            "repeat": [lines[at], lines[at]],
            "rename": [f"{rng.choice((name + 's', 'x', name + '.a', '.', 'é', '[x'))} = {value}"],
            "section": [f"[{rng.choice(('network', 'schedule', 'x', '[data]', 'data.a'))}]"],
            "deep": [".".join("a" * rng.choice((100, 5_000))) + " = 1", lines[at]],
            "deep section": ["[" + ".".join("a" * rng.choice((100, 5_000))) + "]", lines[at]],
            "another": [rng.choice(lines), lines[at]],
            "control": [lines[at] + rng.choice(("\x00", "\x1b", "\r", "\x7f", "\ufeff"))],
        }
        lines[at : at + 1] = changed[rng.choice(list(changed))]
        if not lines:
            break
    return "\n".join(lines).encode(rng.choice(("utf-8",) * 8 + ("utf-16", "utf-8-sig")))
