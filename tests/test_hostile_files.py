"""Files that attack, in one corpus: refused by name, none of them executed."""

import dataclasses
import io
import os
import pickle
import sys
import warnings
import zipfile

import pytest
import torch
from helpers.damage import Runs, limited
from helpers.tiny_generators import TINY, random_generator

from stylegan import load_generator
from stylegan.files import checkpoint
from stylegan.networks import Generator, NetworkConfig
from stylegan.utils.text import sanitize_message


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


def calls(canary):
    """Name that a message must contain -> instructions that would touch `canary`."""
    command, code = text(f"touch {canary}"), text(f"open({str(canary)!r}, 'w')")
    return {
        "os.system": name("os.system") + command + b"\x85R",
        "builtins.eval": name("builtins.eval") + code + b"\x85R",
        "os.execl": name("os.execl") + command + b"\x85\x81",
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
        "numpy.os.system": stacked("numpy", "os.system") + command + b"\x85R",
        "numpy.dtype.__class__": stacked("numpy", "dtype.__class__") + command + b"\x85R",
        "dnnlib.tflib.network.Network.__init__.__globals__": (
            stacked("dnnlib.tflib.network", "Network.__init__.__globals__") + command + b"\x85R"
        ),
        "types.CodeType": name("types.CodeType") + b"}b",
        "numpy._core.multiarray._reconstruct": (  # as NumPy 2 calls it: no official file does
            name("numpy._core.multiarray._reconstruct") + command + b"\x85R"
        ),
    }


TRICKS = {
    "a registered extension": b"\x82\x01",
    "a claim of 5 GB": b"\x8e" + (5 * 2**30).to_bytes(8, "little") + b"abc",
    "a memo of 2**31 places": b"Nr" + (2**31 - 1).to_bytes(4, "little"),
    "deep nesting": b"N" + b"\x85" * 100_000,
    "a billion laughs": b"]q\x00" + b"0h\x00h\x00\x86q\x00" * 40,
    "a list in itself": b"]q\x00h\x00a",
    "a number of 5,000 digits": b"I" + b"9" * 5000 + b"\n",
}


# Instructions that torch allows, and that would take gigabytes -> what the refusal says.
ENCODER = b"c_codecs\nencode\nq\0"
GROWING = {
    "codec": (
        ENCODER
        + text("ab")
        + text("latin1")
        + b"\x86Rq\1"
        + (b"h\0h\1" + text("hex") + b"\x86Rq\1") * 33,
        "encodes something other than a text",
    ),
    "text": (
        text("a" * 2**20)
        + b"q\1"
        + ENCODER
        + b"]("
        + (b"h\0h\1" + text("latin1") + b"\x86R") * 8192
        + b"e",
        "encodes something other than a text",
    ),
    "again": (  # the function under another number of the memo
        ENCODER
        + b"q\2"
        + text("ab")
        + text("latin1")
        + b"\x86Rq\1"
        + (b"h\2h\1" + text("hex") + b"\x86Rq\1") * 33,
        "encodes something other than a text",
    ),
    "tensor": (
        b"ctorch\nTensor\nq\0K\0q\1" + b"](h\1h\1eq\1" * 32 + b"h\0h\1\x85R",
        "calls torch.Tensor",
    ),
    "storage": (
        name("torch.storage.UntypedStorage") + b"J" + b"\xff\xff\xff\x7f" + b"\x85R",
        "calls torch.storage.UntypedStorage",
    ),
    "names": (b"".join(name(f"of.name{i}") + b"0" for i in range(300)) + b"N", "names 300 classes"),
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


# One corpus of files of all kinds, read with limits of memory and time

FIELDS = {"images_seen": 0, "resolution": 16, "alpha": 1.0, "psi": 1.0, "cutoff": None}
HEAD = {"format": "stylegan", "version": 1, "kind": "generator", **FIELDS}
WIDE = NetworkConfig(resolution=1024, z_dim=4096, w_dim=4096, mapping_width=4096, max_channels=2048)


def saved(config=TINY, **changes):
    """Makes a checkpoint of a generator with changed fields."""

    def write(path):
        weights = random_generator().state_dict()
        torch.save(
            {**HEAD, "config": dataclasses.asdict(config), "weights": weights, **changes}, path
        )

    return write


def with_weights(change, config=TINY):
    """... whose weights are made from tensors of their shapes."""
    with torch.device("meta"):
        sizes = Generator(config).state_dict()
    return saved(config, weights={name: change(like) for name, like in sizes.items()})


def laughs(depth):
    """Lists of lists, each in the next one twice."""
    inner = []
    for _ in range(depth):
        inner = [inner, inner]
    return inner


def twice(path):
    """An archive with two pickles of one name; which is read depends on the reader."""
    hostile_checkpoint(path, GROWING["tensor"][0])
    with zipfile.ZipFile(path) as source:
        entries = [(info.filename, source.read(info)) for info in source.infolist()]
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w") as out:
        for name, content in entries:
            out.writestr(name, content)
            if name.endswith("data.pkl"):
                out.writestr(name, b"\x80\x02}.")


def two_formats(path):
    """An old file of torch to torch, which reads the start, a zip to others, which read the end."""
    hostile_checkpoint(path, b"}")
    old = io.BytesIO()
    torch.save({"a": LARGE}, old, pickle, 2, False)
    path.write_bytes(old.getvalue().removeprefix(b"\x80\x02") + path.read_bytes())


LARGE = Runs(bytearray, 4 << 30)  # takes as much memory as it says, in a file of a kilobyte


def packed(path):
    """The same, compressed."""
    torch.save({"a": LARGE}, path)
    with zipfile.ZipFile(path) as source:
        entries = [(info.filename, source.read(info)) for info in source.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in entries:
            out.writestr(name.upper() if name.endswith("pkl") else name, content)


def overlapping(path):
    """A zip archive whose entries lie on one another."""
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("a.npy", bytes(2**20))
        out.filelist *= 2**10 + 1  # more than the file has


FILES = {  # name -> what writes it, what the refusal says; "" = it is read
    "absurd.pt": (saved(dataclasses.replace(WIDE, max_channels=2**15)), "do not fit the network"),
    "expanded.pt": (
        with_weights(lambda like: torch.zeros(1).expand(like.shape), WIDE),
        "larger than the file: they share",
    ),
    "meta.pt": (with_weights(lambda like: like), "not dense"),
    "laughs.pt": (saved(more=laughs(40)), ""),
    "overlapping.pt": (overlapping, "larger than the file"),
    "centers.pt": (saved(centers=[[0.0] * 3000] * 3000), "centers must be rows of numbers"),
    **{  # lists of 2**40 places
        f"{field}.pt": (saved(**{field: laughs(40)}), f"{field}.pt")
        for field in ("version", "kind", "label_names", "lineage", "psi")
    },
    "bytes.pt": (lambda path: torch.save({"a": LARGE}, path), "calls bytearray"),
    "bytes.pth": (
        lambda path: torch.save({"a": LARGE}, path, pickle, 2, False),
        "calls bytearray",
    ),
    "twice.pt": (twice, "calls torch.Tensor"),
    "formats.pt": (two_formats, "formats.pt"),
    "packed.pt": (packed, "calls bytearray"),
}


def corpus(folder):
    """Writes all files; name -> what their refusal says."""
    expected = {name: says for name, (_, says) in FILES.items()}
    for name, (write, _) in FILES.items():
        write(folder / name)
    for i, (named, program) in enumerate(calls(folder / "canary").items()):
        hostile_pickle(folder / f"call{i}.pkl", program)
        expected[f"call{i}.pkl"] = f"names {named}, which was not looked up or executed"
        hostile_checkpoint(folder / f"call{i}.pt", program)
        expected[f"call{i}.pt"] = f"call{i}.pt"
    for growing, (program, says) in GROWING.items():
        hostile_checkpoint(folder / f"{growing}.pt", program)
        expected[f"{growing}.pt"] = says
    for i, program in enumerate(TRICKS.values()):
        for write, ending in ((hostile_pickle, "pkl"), (hostile_checkpoint, "pt")):
            write(folder / f"trick{i}.{ending}", program)
            expected[f"trick{i}.{ending}"] = f"trick{i}.{ending}"
    return expected


def test_load_generator_rejects_hostile_files_without_running_them(tmp_path):
    for name, says in corpus(tmp_path).items():
        path, line = tmp_path / name, ""
        print(path, "is read", file=sys.stderr, flush=True)  # in case that it ends the process
        with limited():
            try:
                load_generator(path)
            except (OSError, ValueError) as error:
                line = sanitize_message(str(error))
        assert (says in line and str(path) in line) if says else not line, (name, line)
        assert line.isprintable() and len(line) <= 2000
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("function", [print, os.system])
def test_load_generator_names_the_objects_in_a_checkpoint(tmp_path, capfd, function, new):
    """With no advice to run the code of a file that would start a program."""
    path = tmp_path / "evil.pth"
    torch.save({"thing": Runs(function, "echo executed")}, path, pickle, 2, new)
    end = "only running code" if function is print else "would restore$"
    with pytest.raises(ValueError, match=rf"holds objects \(\S*{function.__name__}\).*{end}"):
        load_generator(path)
    assert "executed" not in capfd.readouterr().out
