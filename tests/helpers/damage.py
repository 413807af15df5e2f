"""Hypothesis strategies that damage good files.

`edited` knows no format. The others take a format apart, change some parts and put it together
again with right lengths and checksums, so that the code behind the checks is reached.
"""

import copy
import io
import itertools
import json
import pickletools
import warnings
import zipfile

from hypothesis import strategies as st

MOST_BYTES = 2**24
EDGES = (0, 1, 0x7F, 0x80, 0xFF, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
NUMBERS = sorted(
    {
        (n % 2 ** (8 * size)).to_bytes(size, order)
        for n, size, order in itertools.product(EDGES, (1, 2, 4, 8), ("little", "big"))
    }
)


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
    """Whole instructions of a pickle exchanged, and foreign ones added."""
    found = [(code.name, at) for code, _, at in pickletools.genops(data)]
    ends = [at for _, at in found[1:]] + [len(data)]
    pairs = zip(found, ends, strict=True)
    codes = [data[at:end] for (name, at), end in pairs if name != "FRAME"]

    def others(code):
        renumbered = st.sampled_from(EDGES).map(lambda n: [b"\x8a\x09" + n.to_bytes(9, "little")])
        arguments = edited(code[1:], most=1).map(lambda found: [code[:1] + found])
        return renumbered | arguments | hostile_instructions().map(lambda new: [new, code])

    return spliced(codes[1:], others).map(lambda found: codes[0] + b"".join(found))


@st.composite
def hostile_instructions(draw):
    """Calls, extensions, claims of size, references and nesting that no good file contains."""
    names = (
        b"os system",
        b"builtins eval",
        b"numpy load",
        b"torch load",
        b"copyreg _reconstructor",
        b"_codecs encode",
        b"collections OrderedDict",
    )
    module, name = draw(st.sampled_from(names)).split()
    text, found = b"X\4\0\0\0true", b"c%b\n%b\n" % (module, name)
    place, size = draw(st.sampled_from(NUMBERS)), (2**62).to_bytes(8, "little")
    calls = (found, found + text + b"\x85R", found + text + b"\x85\x81", b"(" + found + text + b"o")
    claims = (b"r" + place, b"j" + place, b"B" + place, b"\x8e" + size, b"\x8d" + size)
    nesting = (b"]" + b"\x85" * 100_000, b"]q\x002" + b"h\0h\0\x86q\0" * 60, b"(" * 10_000)
    rest = (b"\x82\1", b"\x84" + place, b"Q", b"Pname\n", b"]q\1h\1a", b"I" + b"9" * 5_000 + b"\n")
    return draw(st.sampled_from((*calls, *claims, *nesting, *rest)))


NAMES = (  # of files inside archives
    "../outside.png", "/tmp/outside.png", "C:\\outside.png", "a/../../outside.png", "a\0b.png",
    "a\nb.png", "a\x1b[2Jb.png", "a" * 65_000, "a" * 300 + ".png", "/".join("a" * 30_000), ".png",
    "", "/", "meta.json",
)  # fmt: skip


def archives(data, inner=edited):
    """Entries exchanged, renamed, emptied, filled, or damaged by `inner`; checksums are right."""

    def others(entry):
        name, content = entry
        contents = inner(content) | st.sampled_from((b"", bytes(MOST_BYTES + 1)))
        names = st.sampled_from(NAMES)
        return contents.map(lambda new: [(name, new)]) | names.map(lambda new: [(new, content)])

    return spliced(unpacked(data), others, often=3).map(packed)


def entry_of_archives(suffix, inner):
    """The strategy that damages only the entry whose name ends with `suffix`."""

    def strategy(data):
        entries = dict(unpacked(data))
        (name,) = (name for name in entries if name.endswith(suffix))
        return inner(entries[name]).map(lambda new: packed((entries | {name: new}).items()))

    return strategy


def unpacked(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def packed(entries):
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore", UserWarning)  # two entries of one name
        for i, (name, content) in enumerate(entries):
            info = zipfile.ZipInfo("x")  # of one fixed date
            info.filename = name[:65_000]  # which ZipInfo's own checks do not touch
            archive.writestr(info, content, zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED)
    return file.getvalue()


TEXT = st.text(st.characters(exclude_categories=()), max_size=20)  # surrogates and controls too
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=4,
) | st.sampled_from((10**400, 2**63, "x" * 100_000, [0] * 10_000, "../../etc", "DEEP", "LONG")).map(
    copy.copy  # what is drawn may be changed
)


@st.composite
def json_values(draw, data):
    """Values of a JSON document replaced, dropped, doubled or renamed."""
    root = {"": json.loads(data)}
    for _ in range(draw(st.integers(1, 2))):
        place, key = root, ""
        while place[key] and isinstance(place[key], dict | list) and draw(st.integers(0, 3)):
            place = place[key]
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = draw(st.sampled_from(keys))
        action = draw(st.sampled_from(("value", "value", "double", "drop", "rename")))
        if action == "double":
            place[key] = [place[key], place[key]]
        elif action == "value" or place is root or isinstance(place, list):
            place[key] = draw(JSON)
        else:
            value = place.pop(key)
            place |= {draw(TEXT): value} if action == "rename" else {}
    text = json.dumps(root[""]).replace('"DEEP"', "[" * 100_000 + "]" * 100_000)
    return text.replace('"LONG"', "9" * 5_000).encode(draw(ENCODINGS))


def safetensors_header(data):
    """Values of the header of a safetensors file, of the right length, or of our metadata in it."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    ours = header["__metadata__"]["stylegan"]

    def build(text):
        return len(text).to_bytes(8, "little") + text + data[end:]

    def with_ours(text):
        header["__metadata__"]["stylegan"] = text.decode(errors="replace")
        return json.dumps(header).encode()

    return (json_values(data[8:end]) | json_values(ours).map(with_ours)).map(build)


ENCODINGS = st.sampled_from(("utf-8",) * 8 + ("utf-16", "utf-8-sig"))
TOML_VALUES = (
    "inf", "-inf", "nan", "1e400", "1" * 5_000, "0x" + "f" * 5_000, "1_" * 3_000 + "1", "''",
    '"\\ud800"', '"""' + "\n" * 1_000 + '"""', "[1, 'a']", "{ 4 = 8 }", "{ 4 = 'a' }", "{ a = 1 }",
    "{ 4 = 0 }", "{ -4 = 1 }", "{ 1_000_000_007 = 1 }", "1979-05-27", "07:32:00", "[" * 3_000,
    "[" * 5_000 + "]" * 5_000, "{a=" * 2_000 + "1" + "}" * 2_000, "[" * 90 + "]" * 90, "",
)  # fmt: skip
TOML_LINES = (
    "[network]", "[schedule]", "[x]", "[[data]]", "[data.a]", ".".join("a" * 5_000) + " = 1",
    "[" + ".".join("a" * 5_000) + "]", "\0", "\x1b", "x\r", "\ufeff",
)  # fmt: skip


def toml_lines(data):
    """Values and names of a TOML document replaced; lines dropped, repeated, moved, added."""

    def others(line):
        name, _, value = line.partition(" = ")
        names = st.sampled_from((name + "s", "x", name + ".a", ".", "\u00e9", "[x"))
        values = st.sampled_from(TOML_VALUES) | JSON.map(json.dumps)
        added = st.sampled_from(TOML_LINES)
        return (
            values.map(lambda new: [f"{name} = {new}"])
            | names.map(lambda new: [f"{new} = {value}"])
            | added.map(lambda new: [new, line])
        )

    lines = spliced(data.decode().splitlines(), others)
    return st.tuples(lines, ENCODINGS).map(lambda drawn: "\n".join(drawn[0]).encode(drawn[1]))
