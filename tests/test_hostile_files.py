"""Pickles that attack, alone and inside checkpoints: refused by name, none of them executed."""

import dataclasses
import io
import resource
import time
import zipfile

import pytest
import torch

from stylegan.files import checkpoint
from stylegan.files.loading import load_source
from stylegan.interop import load_official
from stylegan.networks import NetworkConfig


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
