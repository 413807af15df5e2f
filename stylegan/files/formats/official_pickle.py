"""Reading of official network pickles without executing anything in them.

A pickle is a program. This reader resolves only names of an official snapshot, to inert records,
and then converts the checked records to arrays and settings.
"""

import io
import math
import pickle
import pickletools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stylegan.utils.text import error_reason


class OfficialFileError(ValueError):
    """The file is damaged or not an official snapshot."""


@dataclass(frozen=True)
class OfficialNetwork:
    """One network of a snapshot: explicit settings and variables."""

    settings: dict[str, object]
    variables: dict[str, np.ndarray]  # of components with prefix `G_synthesis/`, `G_mapping/`


class Inert:
    """Stands in for an object: keeps arguments and state, and does nothing."""

    args: tuple[object, ...] = ()
    state: object = None

    def __init__(self, *args: object) -> None:
        self.args = args

    def __setstate__(self, state: object) -> None:
        self.state = state


class InertNetwork(Inert):
    """`state`: attributes of the official network object."""


class InertArray(Inert):
    """`state`: version, shape, dtype, is Fortran order, bytes."""


class InertScalar(Inert):
    """`args`: dtype, bytes."""


class InertDtype(Inert):
    """`args`: kind and size, ...; `state`: version, byte order, ..."""


class InertType(Inert):
    """The array type, which the file passes as an argument."""


# The globals of an official snapshot, all of them.
ALLOWED: dict[tuple[str, str], type[Inert]] = {
    ("dnnlib.tflib.network", "Network"): InertNetwork,
    ("numpy", "ndarray"): InertType,
    ("numpy", "dtype"): InertDtype,
    ("numpy.core.multiarray", "_reconstruct"): InertArray,
    ("numpy.core.multiarray", "scalar"): InertScalar,
}
# Instructions that bypass `find_class`, and sets; no snapshot needs them.
REFUSED = {"PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER"}
REFUSED |= {"EMPTY_SET", "ADDITEMS", "FROZENSET"}
EXPECTED = "an official StyleGAN version 1 snapshot, a .pkl file with the networks (G, D, Gs)"
ORIGINS = {
    "tfutil": "a Progressive GAN snapshot (Karras et al. 2018), whose networks have no styles",
    "torch_utils": "a snapshot of StyleGAN2-ADA or StyleGAN3 for PyTorch",
    "torch": "a PyTorch file",
}
# Functions that build the networks of other programs.
BUILDERS = {
    "G_paper": "Progressive GAN",
    "D_paper": "Progressive GAN",
    "G_main": "StyleGAN2",
    "D_stylegan": "StyleGAN2",
    "D_stylegan2": "StyleGAN2",
}
MAX_INSTRUCTIONS = 200_000
MAX_DIMENSIONS = 32  # of an array


class SafeUnpickler(pickle.Unpickler):
    """Resolves allowed names to inert records and rejects all others."""

    def find_class(self, module: str, name: str) -> type[Inert]:
        try:
            return ALLOWED[module, name]
        except KeyError:
            origin = ORIGINS.get(module.split(".")[0], "not an official StyleGAN snapshot")
            raise OfficialFileError(
                f"names {module}.{name}, which was not looked up or executed: this is {origin}"
            ) from None


def read_networks(path: str | Path) -> tuple[OfficialNetwork, OfficialNetwork, OfficialNetwork]:
    """Read G, D and Gs of an official snapshot; OfficialFileError for anything else."""
    data = Path(path).read_bytes()
    try:
        check_opcodes(data)
        content = SafeUnpickler(io.BytesIO(data)).load()
        match content:
            case (InertNetwork() as g, InertNetwork() as d, InertNetwork() as ema):
                pass
            case _:
                raise OfficialFileError(f"holds {type(content).__name__}, not three networks")
        networks = (
            official_network(g, "G_style"),
            official_network(d, "D_basic"),
            official_network(ema, "G_style"),
        )
        # one array under many names costs the file nothing
        size = max(sum(v.nbytes for v in n.variables.values()) for n in networks)
        if size > len(data):
            raise OfficialFileError(f"has {size} bytes of variables in {len(data)} bytes")
    except OfficialFileError as error:
        raise OfficialFileError(f"{path} {error}; expected {EXPECTED}") from error
    except Exception as error:  # a damaged pickle can raise almost anything
        raise OfficialFileError(
            f"{path} is damaged or truncated ({error_reason(error)}); expected {EXPECTED}; "
            "download it again"
        ) from error
    return networks


def check_opcodes(data: bytes) -> None:
    """Reject other formats, unusual instructions and absurd sizes before loading."""
    if data[:4] == b"PK\x03\x04":
        raise OfficialFileError("is a zip archive, such as torch.save writes: use load_generator")
    if not data:
        raise OfficialFileError("is empty, which is not a pickle of protocol 2 to 4")
    # Snapshots have protocol 3 or 4; those of Progressive GAN, named below, have 2.
    if data[:1] != b"\x80" or data[1:2] not in (b"\x02", b"\x03", b"\x04"):
        raise OfficialFileError("is not a pickle of protocol 2 to 4")
    for number, (opcode, argument, position) in enumerate(pickletools.genops(data)):
        if number >= MAX_INSTRUCTIONS:
            raise OfficialFileError(f"has more than {MAX_INSTRUCTIONS:,} pickle instructions")
        if isinstance(argument, int) and not -(2**63) <= argument < 2**63:
            raise OfficialFileError("has an integer of more than 64 bits")
        if opcode.name in REFUSED:
            raise OfficialFileError(f"uses the pickle instruction {opcode.name}")
        memo_place = argument if opcode.name.endswith("PUT") else None
        if memo_place is not None and memo_place > (position or 0):
            raise OfficialFileError(f"requests {argument} memo places after {position} bytes")


def official_network(record: InertNetwork, builder: str) -> OfficialNetwork:
    """Settings and all variables of a network that `builder` must have built."""
    settings, variables, components = attributes(record, builder)
    for key, component in components.items():
        if not (isinstance(key, str) and isinstance(component, InertNetwork)):
            raise OfficialFileError("has a component that is not a network")
        _, inner, more = attributes(component, f"G_{key}")
        if more:
            raise OfficialFileError(f"has components in its component {key}")
        variables |= {f"G_{key}/{name}": array for name, array in inner.items()}
    return OfficialNetwork(settings, variables)


def attributes(
    record: InertNetwork, builder: str
) -> tuple[dict[str, object], dict[str, np.ndarray], dict[object, object]]:
    """Settings, own variables and components of a network."""
    match record.state:
        case {
            "build_func_name": str(actual),
            "static_kwargs": dict(settings),
            "components": dict(components),
            "variables": list(pairs),
        }:
            pass
        case _:
            raise OfficialFileError("holds a network object without the official attributes")
    if actual != builder:
        role = {"G_style": "generator", "D_basic": "discriminator"}.get(builder, "component")
        program = f", of {BUILDERS[actual]}" if actual in BUILDERS else ""
        built = f"built by {actual} instead of {builder}"
        raise OfficialFileError(f"has a {role} {built}{program}")
    for name, value in settings.items():
        if not isinstance(name, str) or not is_plain(value):
            raise OfficialFileError("has a setting that is not a plain value")
    return settings, named_variables(pairs), components


def is_plain(value: object) -> bool:
    """Whether a value is a number, text, None, or a short list of numbers."""
    if isinstance(value, (list, tuple)):
        return len(value) < 100 and all(isinstance(v, int | float) for v in value)
    return value is None or isinstance(value, str | int | float)


def named_variables(pairs: list[object]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for pair in pairs:
        match pair:
            case (str(name), Inert() as record) if name not in arrays:
                arrays[name] = numeric_array(name, record)
            case _:
                raise OfficialFileError(
                    "has a variable that is not a named array, or two of one name"
                )
    return arrays


def numeric_array(name: str, record: Inert) -> np.ndarray:
    """Array of a record; OfficialFileError unless its bytes fill the shape."""
    fortran: object = False
    shape: tuple[object, ...] = ()
    match record:
        case InertArray(state=(int(), tuple(shape), InertDtype() as dtype, fortran, data)):
            pass
        case InertScalar(args=(InertDtype() as dtype, data)):
            pass
        case _:
            raise OfficialFileError(f"has a variable {name} that is not a NumPy array")
    match dtype:
        case InertDtype(
            args=("f2" | "f4" | "f8" | "i4" | "i8" as code, *_),
            state=(int(), "<" | ">" as byte_order, None, None, None, *_),
        ):
            pass
        case _:
            raise OfficialFileError(f"has a variable {name} that does not hold plain numbers")
    size = int(code[1])
    sizes = [n for n in shape if isinstance(n, int) and n >= 0]
    is_plain_shape = len(sizes) == len(shape) <= MAX_DIMENSIONS
    if not isinstance(data, bytes) or not is_plain_shape:
        raise OfficialFileError(f"has a variable {name} without plain bytes and a shape")
    if math.prod(sizes) * size != len(data):
        claim = f"claims shape {shape} but holds {len(data)} bytes"
        raise OfficialFileError(f"has a variable {name} that {claim}")
    return np.frombuffer(data, byte_order + code).reshape(sizes, order="F" if fortran else "C")
