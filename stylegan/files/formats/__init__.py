"""Every format of a file of weights: which files are of it, how they are read and written."""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from stylegan.destination import check_file
from stylegan.files import checkpoint
from stylegan.files.download import BUNDLED_LICENCE, bundled_name
from stylegan.files.formats import genforce, huangzh13, lernapparat, mmgeneration, rosinality
from stylegan.files.formats.npz import is_npz, load_npz, save_npz
from stylegan.files.formats.official import load_official
from stylegan.files.formats.own import snapshot_of
from stylegan.files.formats.safetensors import is_safetensors, load_safetensors, save_safetensors
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.lineage import source_of
from stylegan.networks import NetworkConfig

SHARED = "model.safetensors"  # the weights in a folder of the Hugging Face Hub
# of other PyTorch programs; lernapparat before huangzh13, whose names begin alike
LAYOUTS = (rosinality, genforce, lernapparat, huangzh13, mmgeneration)
NoiseInput = Literal["input", "const", "none"]


def save_onnx(path: Path, loaded: LoadedGenerator, **options: Any) -> float | None:
    from stylegan.files.formats.onnx import save_onnx as save

    return save(path, loaded, **options)


def save_program(path: Path, loaded: LoadedGenerator, **options: Any) -> None:
    from stylegan.files.formats.program import save_program as save

    save(path, loaded, **options)


def is_pickle(path: Path) -> bool:
    """Whether the file is a bare pickle, as official snapshots are, or is called one; ours are zip
    archives."""
    with open(path, "rb") as file:
        first = file.read(1)
    pickled = first == b"\x80" or (path.suffix == ".pkl" and not checkpoint.is_zip(path))
    return pickled and not checkpoint.is_old(path)


def load_torch(path: Path) -> Snapshot:
    """One of our own files, or of another PyTorch program."""
    content = checkpoint.read(path)
    if checkpoint.is_own(content):
        snapshot, name = snapshot_of(checkpoint.checked(content, path), path), bundled_name(path)
        if name is None:
            return snapshot
        return dataclasses.replace(snapshot, lineage=(source_of(path, BUNDLED_LICENCE, name=name),))
    try:
        return dataclasses.replace(import_weights(content), lineage=(source_of(path),))
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error


def import_weights(content: object) -> Snapshot:
    """The networks of a file of another PyTorch program, from its `content`, safely loaded.

    ValueError says what does not fit, or that no layout known here has such names; what it says
    goes on from the name of the file.
    """
    if isinstance(content, Mapping) and all(isinstance(name, str) for name in content):
        for layout in LAYOUTS:
            if layout.recognised(content):
                try:
                    return layout.read(content)
                except ValueError as error:
                    raise ValueError(f"looks like a {layout.LAYOUT}, but {error}") from error
    raise ValueError(
        "is a PyTorch file, but not a checkpoint of this project, nor of one of "
        + ", ".join(layout.LAYOUT.removeprefix("checkpoint of ") for layout in LAYOUTS)
    )


def save_layout(
    path: Path,
    loaded: LoadedGenerator,
    *,
    content_of: Callable[[LoadedGenerator], Mapping[str, Any]],
) -> None:
    """Write a checkpoint of another program."""
    if loaded.active_rectangle is not None:
        full = loaded.generator.config.resolution
        raise ValueError(
            f"a {path.suffix} file cannot say which part of the images is padding; make a copy "
            f"that does not: stylegan convert SOURCE COPY.pt --active {full}x{full}"
        )
    checkpoint.write(path, content_of(loaded))


@dataclass(frozen=True)
class Format:
    """A kind of file. It is recognised by its content, and written by its ending."""

    endings: str
    recognised: Callable[[Path], bool] | None = None
    read: Callable[[Path], Snapshot] | None = None
    write: Callable[..., float | None] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of `write`, with their defaults
    package: str | None = None  # that writing it needs
    own_networks: bool = True  # whether it holds networks of a user's own class
    program: str = ""  # the one whose files these are; they say less than ours: `note`
    note: str = ""


FORMATS = (
    Format(
        ".safetensors",
        is_safetensors,
        load_safetensors,
        save_safetensors,
        {"half": False},
        "safetensors",
    ),
    Format(".npz", is_npz, load_npz, save_npz, own_networks=False),
    Format(".pkl", is_pickle, load_official),
    Format(
        ".onnx",
        write=save_onnx,
        options={"noise": "input", "check": False},
        package="onnx",
        own_networks=False,
    ),
    Format(".pt2", write=save_program, options={"noise": "const"}),
    *(
        Format(
            ending,
            read=load_torch,
            write=partial(save_layout, content_of=layout.content_of),
            own_networks=False,
            program=layout.PROGRAM,
            note=layout.NOTE,
        )
        for ending, layout in ((".pth", genforce), (".model", rosinality))
    ),
    Format(".pt .pth .model", lambda path: True, load_torch),  # the last: whatever is left
)
WRITTEN = {kind.endings: kind for kind in FORMATS if kind.write}


def read(path: Path) -> Snapshot:
    """The networks of a file of any format. ValueError, naming it, if it is none."""
    if path.suffix in WRITTEN and WRITTEN[path.suffix].read is None:
        raise ValueError(
            f"{path} is a program, as `stylegan export` writes it to be run elsewhere; it cannot "
            "be read back: use the file that it was made from"
        )
    if not path.is_file():  # a pipe or a device would be read for ever
        raise ValueError(f"{path} is neither a file nor a folder")
    for kind in FORMATS:
        if kind.recognised and kind.read and kind.recognised(path):
            return kind.read(path)
    raise AssertionError


def export(
    loaded: LoadedGenerator,
    path: Path,
    *,
    noise: NoiseInput | None = None,
    half: bool = False,
    check: bool = False,
    overwrite: bool = False,
) -> float | None:
    """Write a generator in the format that the ending of `path` names.

    .safetensors: the weights, with all else as JSON in the metadata; `half` rounds them to
    float16. .npz: variables under their official names. .pth, .model: checkpoints of
    genforce/genforce and rosinality/style-based-gan-pytorch. .onnx and .pt2 (torch.export) compute
    images, without padding, from z, psi and, where there are any, labels, for any number of
    images; truncation reaches the layers that the file of the generator says. Their `noise`:
    "input" takes the maps, "const" holds the stored ones, "none" leaves noise out; None chooses
    "input" for ONNX, whose maps have the stored ones as defaults, and "const" for .pt2.

    `check`: what is written as ONNX is run before, in ONNX Runtime. Returned is the largest
    difference of its images from the generator's in float32; ValueError if rounding does not
    explain it.
    """
    kind = check_request(path, noise=noise, half=half, overwrite=overwrite)
    network = loaded.generator.config.generator
    if network != NetworkConfig.generator and not kind.own_networks:
        raise ValueError(
            f"a {path.suffix} file holds the paper's generator, not one of your own ({network}); "
            "write .safetensors, or .pt2, which runs without its code"
        )
    if loaded.centers is not None and (kind.read is None or kind.program):
        raise ValueError(
            f"a {path.suffix} file truncates toward the average, and {loaded.origin} has "
            f"{len(loaded.centers)} centres; write .safetensors or .npz, or convert it with "
            "--centers none"
        )
    given = {"noise": noise, "half": half, "check": check}
    options = {
        name: default if given[name] is None else given[name]
        for name, default in kind.options.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    assert kind.write is not None
    return kind.write(path, loaded, **options)


def check_request(path: Path, *, noise: NoiseInput | None, half: bool, overwrite: bool) -> Format:
    """The format of `path`, if it has what is chosen and no file would be lost."""
    check_file(path, overwrite=overwrite, endings=WRITTEN)
    kind = WRITTEN[path.suffix.lower()]
    if noise is not None and "noise" not in kind.options:
        raise ValueError(f"a {path.suffix} file holds weights, for every noise; leave noise out")
    if noise is not None and noise not in get_args(NoiseInput):
        raise ValueError(f"noise is {', '.join(get_args(NoiseInput))}, not {noise!r}")
    if half and "half" not in kind.options:
        raise ValueError(f"half precision is for .safetensors files, not for {path.suffix}")
    if kind.package and importlib.util.find_spec(kind.package) is None:
        raise ValueError(
            f"writing {path.suffix} files needs {kind.package}: pip install 'stylegan[export]'"
        )
    return kind
