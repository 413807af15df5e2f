"""Pickles that attack, alone and inside checkpoints: refused by name, none of them executed."""

import dataclasses
import io
import json
import os
import resource
import subprocess
import sys
import time
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from tiny_generators import TINY, random_generator

from stylegan.files import checkpoint
from stylegan.files.formats import save_npz, save_safetensors
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.loading import load_source
from stylegan.interop import load_official
from stylegan.networks import Generator, NetworkConfig


def text(value):
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def name(full):
    """The instruction that looks up `module.name`."""
    module, _, name = full.rpartition(".")
    return b"c%b\n%b\n" % (module.encode(), name.encode())


def stacked(module, name):
    """The same with both parts taken from the memo."""
    return text(module) + b"q\x07" + text(name) + b"q\x0800h\x07h\x08\x93"


MORE = (
    "numpy.load",
    "numpy.fromfile",
    "numpy.core.multiarray.fromfile",
    "numpy._core.multiarray._reconstruct",  # as NumPy 2 calls it: no official file does
)


def calls(canary):
    """Name that a message must contain -> instructions that would touch `canary`."""
    command, code = text(f"touch {canary}"), text(f"open({str(canary)!r}, 'w')")
    return {
        "os.system": name("os.system") + command + b"\x85R",
        "posix.system": name("posix.system") + command + b"\x85R",
        "nt.system": name("nt.system") + command + b"\x85R",
        "builtins.eval": name("builtins.eval") + code + b"\x85R",
        "builtins.exec": name("builtins.exec") + code + b"\x85R",
        "__builtin__.eval": name("__builtin__.eval") + code + b"\x85R",
        "subprocess.Popen": name("subprocess.Popen") + b"]" + text("touch") + b"a\x85R",
        "subprocess.call": b"(" + command + b"i" + name("subprocess.call")[1:],
        "os.popen": b"(" + name("os.popen") + command + b"o",
        "os.execl": name("os.execl") + command + b"\x85\x81",
        "os.remove": name("os.remove") + command + b"\x85}\x92",
        "builtins.getattr": (
            name("builtins.getattr")
            + name("builtins.__import__")
            + text("os")
            + b"\x85R"
            + text("system")
            + b"\x86R"
            + command
            + b"\x85R"
        ),
        "os.spawnl": stacked("os", "spawnl") + command + b"\x85R",
        "numpy.os.system": stacked("numpy", "os.system") + command + b"\x85R",
        "numpy.dtype.__class__": stacked("numpy", "dtype.__class__") + command + b"\x85R",
        "dnnlib.tflib.network.Network.__init__.__globals__": (
            stacked("dnnlib.tflib.network", "Network.__init__.__globals__") + command + b"\x85R"
        ),
        "copyreg._reconstructor": name("copyreg._reconstructor") + command + b"\x85R",
        "copyreg.add_extension": name("copyreg.add_extension") + command + b"\x85R",
        "functools.partial": name("functools.partial") + name("os.system") + command + b"\x86R",
        "torch.load": name("torch.load") + command + b"\x85R",
        "torch.storage._load_from_bytes": (name("torch.storage._load_from_bytes") + b"C\x01a\x85R"),
        "pickle.loads": name("pickle.loads") + b"C\x02N.\x85R",
        "types.CodeType": name("types.CodeType") + b"}b",
        **{full: name(full) + command + b"\x85R" for full in MORE},
    }


STACK_GLOBAL = b"\x93"
NAMES = list(calls("canary"))
TRICKS = {
    "a registered extension": b"\x82\x01",
    "a long registered extension": b"\x84\x01\x00\x00\x00",
    "a persistent object": b"Pname\n",
    "a claim of 5 GB": b"\x8e" + (5 * 2**30).to_bytes(8, "little") + b"abc",
    "a memo of 2**31 places": b"Nr" + (2**31 - 1).to_bytes(4, "little"),
    "deep nesting": b"N" + b"\x85" * 100_000,
    "a billion laughs": b"]q\x00" + b"0h\x00h\x00\x86q\x00" * 40,
    "a list in itself": b"]q\x00h\x00a",
    "a tuple in itself": b"(]q\x00h\x00a",
    "a state for what has none": b"N}X\x01\x00\x00\x00aNsb",
    "a number of 5,000 digits": b"I" + b"9" * 5000 + b"\n",
    "marks alone": b"(" * 100_000,
}


def hostile_pickle(path, program):
    path.write_bytes(b"\x80\x04" + program + b".")
    return path


def hostile_checkpoint(path, program):
    """A file of torch.save whose pickle is replaced, all checksums right."""
    good = io.BytesIO()
    torch.save({"format": checkpoint.FORMAT}, good)
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(path, "w") as out:
        for info in source.infolist():
            is_pickle = info.filename.endswith("data.pkl")
            content = b"\x80\x02" + program + b"." if is_pickle else source.read(info)
            out.writestr(info.filename, content)
    return path


def refusal(load, path):
    """The message of the refusal: one printable line that names the file, within seconds."""
    start = time.process_time()
    with pytest.raises(ValueError) as error:
        load(path)
    assert time.process_time() - start < 5
    message = str(error.value)
    assert path.name in message
    assert message.isprintable()
    assert len(message) < 2000
    return message


@pytest.mark.parametrize("named", NAMES)
def test_an_official_pickle_that_names_more_is_refused_by_name(tmp_path, named):
    canary = tmp_path / "canary"
    message = refusal(load_official, hostile_pickle(tmp_path / "a.pkl", calls(canary)[named]))
    assert f"names {named}, which was not looked up or executed" in message
    assert not canary.exists()


@pytest.mark.parametrize("named", NAMES)
def test_a_checkpoint_that_names_more_is_refused_by_name(tmp_path, named):
    canary = tmp_path / "canary"
    program = calls(canary)[named]
    message = refusal(checkpoint.load, hostile_checkpoint(tmp_path / "a.pt", program))
    unknown_to_torch = STACK_GLOBAL in program or program.startswith(b"(")  # not even looked at
    assert unknown_to_torch or named.replace("__builtin__.", "").replace("builtins.", "") in message
    assert not canary.exists()


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_without_a_name_are_refused_at_once(tmp_path, trick):
    refusal(load_official, hostile_pickle(tmp_path / "a.pkl", TRICKS[trick]))
    refusal(checkpoint.load, hostile_checkpoint(tmp_path / "a.pt", TRICKS[trick]))


@pytest.mark.parametrize("size", [20_000, 10**6, 2**40, 2**63, -1])
def test_a_checkpoint_of_an_absurd_network_is_refused_before_it_costs_memory(tmp_path, size):
    config = dataclasses.asdict(NetworkConfig(resolution=8)) | {"z_dim": size, "w_dim": size}
    path = tmp_path / "a.pt"
    known = {"images_seen": 0, "resolution": 8, "alpha": 1.0, "psi": 1.0, "cutoff": None}
    weights = {"w_avg": torch.zeros(4)}
    checkpoint.save(path, "generator", {"config": config, "weights": weights, **known})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusal(load_source, path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_a_snapshot_may_name_five_globals():
    from stylegan.files.formats.pickles import ALLOWED

    assert set(ALLOWED) == {
        ("dnnlib.tflib.network", "Network"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
    }


# Files that ask for much time or memory, or are not what they seem: read by one process with limits

READER = """
import json, resource, sys
from pathlib import Path
import safetensors.torch
from stylegan.files.loading import load_source
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**30,) * 2)
for path in sys.argv[1:]:
    print(path, "is read", file=sys.stderr, flush=True)
    try:
        load_source(path)
        found = ""
    except (OSError, ValueError) as error:
        found = str(error)
    print(json.dumps([path, found]))
"""
FIELDS = {"images_seen": 0, "resolution": 16, "alpha": 1.0, "psi": 1.0, "cutoff": None}
HEAD = {"format": "stylegan", "version": 1, "kind": "generator", **FIELDS}
COLLIDING = [k * (2**61 - 1) for k in range(200_000)]  # whole numbers of one hash


def saved(change=lambda payload: payload, config=TINY, **fields):
    """Makes a checkpoint of a generator whose payload is changed."""

    def write(path):
        weights = random_generator().state_dict()
        payload = HEAD | {"config": dataclasses.asdict(config), "weights": weights} | fields
        torch.save(change(payload), path)

    return write


def with_weights(change, config=TINY):
    """... whose weights are made from tensors of their shapes."""

    def changed(payload):
        with torch.device("meta"):
            sizes = Generator(config).state_dict()
        return payload | {"weights": {name: change(like) for name, like in sizes.items()}}

    return saved(changed, config)


def with_misleading_attributes(path):
    def change(payload):
        for name in ("weights", "config"):
            payload[name] = OrderedDict(payload[name])
            payload[name].__dict__.update(ITEMS=1, GET="words", KEYS=[])
        return payload

    saved(change)(path)  # while they cannot mislead pickle itself
    with zipfile.ZipFile(path) as source:
        entries = {entry: source.read(entry) for entry in source.namelist()}
    with zipfile.ZipFile(path, "w") as out:
        for entry, content in entries.items():
            for attribute in (b"ITEMS", b"GET", b"KEYS"):
                content = content.replace(attribute, attribute.lower())
            out.writestr(entry, content)


def laughs(depth):
    """Lists of lists, each in the next one twice."""
    inner = []
    for _ in range(depth):
        inner = [inner, inner]
    return inner


def packed(program):
    """A file of torch.save with this program, or of an official snapshot."""

    def write(path):
        (hostile_pickle if path.suffix == ".pkl" else hostile_checkpoint)(path, program)

    return write


def in_capitals(program):
    """... under a name that torch takes for the other."""

    def write(path):
        hostile_checkpoint(path, program)
        path.write_bytes(path.read_bytes().replace(b"/data.pkl", b"/DATA.PKL"))

    return write


def dictionary(keys):
    """Instructions that make a dictionary with these keys."""
    return b"}(" + b"".join(key + b"N" for key in keys) + b"u"


def number(n):
    data = n.to_bytes(10, "little")
    return b"\x8a\x0a" + data


def archive(entries, repeats=1):
    def write(path):
        with zipfile.ZipFile(path, "w") as out:
            for name in entries:
                out.writestr(name, bytes(2**16 if repeats > 1 else 0))
            out.filelist *= repeats  # entries that lie on one another

    return write


def tensors(header, metadata="{}"):
    """A safetensors file with a header of our own making."""
    text = json.dumps({"__metadata__": {"stylegan": metadata}, **header}).encode()
    return lambda path: path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))


def exported(save, **said):
    loaded = LoadedGenerator(random_generator(), "memory", resolution=16)
    return lambda path: save(path, dataclasses.replace(loaded, **said))


def with_infinity(path):
    exported(save_safetensors, psi=123.25)(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"123.25", b" 1e999"))


def with_complex_numbers(path):
    exported(save_npz)(path)
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"dlatent_avg": arrays["dlatent_avg"] + 0j})


def pipe_in_a_run(path):
    path.mkdir()
    os.mkfifo(path / "generator-000000004.pt")


NUMBERS = torch.arange(2.0**12)
EMPTY = {"dtype": "F32", "shape": [0], "data_offsets": [4, 4]}
WIDE = NetworkConfig(resolution=1024, z_dim=4096, w_dim=4096, mapping_width=4096, max_channels=2048)
FILES = {  # name -> what writes it, what the refusal says; "" = it is read
    "attributes.pt": (with_misleading_attributes, ""),
    "tied.pt": (with_weights(lambda like: NUMBERS[: like.numel()].view(like.shape)), ""),
    "expanded.pt": (
        with_weights(lambda like: torch.zeros(1).expand(like.shape), WIDE),
        "larger than the file: they share",
    ),
    "complex.pt": (with_weights(lambda like: torch.zeros(like.shape) * 1j), "torch.complex64"),
    "float8.pt": (
        with_weights(lambda like: torch.zeros(like.shape, dtype=torch.float8_e4m3fn)),
        "holds torch.float8_e4m3fn",
    ),
    "whole.pt": (with_weights(lambda like: torch.zeros(like.shape).long()), "holds torch.int64"),
    "deep.pt": (packed(b"N" + b"\x85" * 900), "50 in one another"),
    "laughs.pt": (saved(version=laughs(40)), "more than 100,000 values"),
    "long.pt": (saved(more=[0] * 150_000), "more than 100,000 values"),
    "colliding.pt": (packed(dictionary(map(number, COLLIDING))), "more than 64 bits"),
    "colliding.pkl": (packed(dictionary(map(number, COLLIDING))), "more than 64 bits"),
    "tuples.pt": (packed(dictionary([b"K\x01\x85"])), "neither a text nor a number"),
    "tuples.pkl": (packed(dictionary([b"K\x01\x85"])), "neither a text nor a number"),
    "pairs.pt": (packed(name("collections.OrderedDict") + b"]\x85R"), "of something else"),
    "pairs-set.pt": (packed(name("collections.OrderedDict") + b")R]b"), "of something else"),
    "instructions.pt": (packed(b"N0" * 150_000 + b"N"), "more than 200,000 pickle instructions"),
    "codec.pt": (
        packed(name("_codecs.encode") + text("\u00e9" * 10**6) + text("punycode") + b"\x86R"),
        "holds objects (_codecs.encode)",
    ),
    "capitals.pt": (
        in_capitals(name("builtins.bytearray") + b"K\x09\x85R"),
        "holds objects (builtins.bytearray)",
    ),
    "entries.npz": (archive(["0" * 9_000 + ".npy"], 300), "too many entries"),
    "overlapping.npz": (archive(["a.npy"], 100), "larger than the file"),
    "complex.npz": (with_complex_numbers, "holds complex"),
    "infinite.safetensors": (with_infinity, "1e999 is not a finite number"),
    "shape.safetensors": (tensors({"a": EMPTY | {"shape": [1] * 10**6}}), "not a tensor of real"),
    "count.safetensors": (tensors({f"{i}": EMPTY for i in range(20_000)}), "holds 20,000 tensors"),
    "header.safetensors": (tensors({"a" * 2**23: EMPTY}), "has a header of 8,3"),
    "pipe.pt": (os.mkfifo, "neither a file nor a folder"),
    "zero.pt": (lambda path: path.symlink_to("/dev/zero"), "neither a file nor a folder"),
    "run": (pipe_in_a_run, "neither a file nor a folder"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What became of each of FILES: the message of the refusal, or nothing."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, (write, _) in FILES.items():
        write(folder / name)
    command = [sys.executable, "-c", READER, *(str(folder / name) for name in FILES)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)  # seconds
    assert found.returncode == 0, found.stderr[-2000:]
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    return {path.rpartition("/")[2]: (path, message) for path, message in lines}


@pytest.mark.parametrize("name", FILES)
def test_what_asks_for_much_or_deceives_is_read_as_it_is_or_refused_with_a_reason(outcomes, name):
    path, message = outcomes[name]
    expected = FILES[name][1]
    assert (expected in message and path in message) if expected else not message
    assert message.isprintable()
    assert len(message) < 2000


def test_tensors_that_share_numbers_in_a_file_are_apart_when_loaded(tmp_path):
    FILES["tied.pt"][0](tmp_path / "tied.pt")
    state = load_source(tmp_path / "tied.pt").generator.state_dict()
    for tensor in state.values():
        assert torch.equal(tensor.flatten(), NUMBERS[: tensor.numel()])
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)
