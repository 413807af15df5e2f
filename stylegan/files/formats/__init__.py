"""Every format of a file of weights: which files are of it, how they are read and written."""

import importlib.util
from pathlib import Path
from typing import Literal

from stylegan.disk import check_file
from stylegan.files import checkpoint
from stylegan.files.download import BUNDLED_LICENCE, bundled_name
from stylegan.files.formats import own
from stylegan.files.formats.foreign import import_weights
from stylegan.files.formats.official import load_npz, load_official
from stylegan.files.loaded import LoadedGenerator, Snapshot
from stylegan.lineage import source_of, to_plain

SHARED = "model.safetensors"  # the weights in a folder of the Hugging Face Hub
PROGRAMS = (".onnx", ".pt2")  # run elsewhere; they cannot be read back
WRITTEN = (".safetensors", *PROGRAMS)
NEEDED = {".safetensors": "safetensors", ".onnx": "onnxscript"}  # packages to write them
NoiseInput = Literal["input", "const", "none"]


def read_snapshot(path: Path) -> Snapshot:
    """The networks of a file of any format. ValueError, naming it, if it is none."""
    if path.suffix in PROGRAMS:
        what = f"{path} is a program, as `stylegan export` writes it to be run elsewhere"
        raise ValueError(f"{what}; it cannot be read back: use the file that it was made from")
    if not path.is_file():  # a pipe or a device would be read for ever
        raise ValueError(f"{path} is neither a file nor a folder")
    if own.is_safetensors(path):
        return own.load_safetensors(path)
    if checkpoint.is_npz(path):
        return load_npz(path)
    with open(path, "rb") as file:  # 0x80: a pickle, as official files and those of old torch are
        pickled = file.read(1) == b"\x80" or (path.suffix == ".pkl" and not checkpoint.is_zip(path))
    if pickled and not checkpoint.is_old(path):
        return load_official(path)
    content = checkpoint.read_torch(path)
    if isinstance(content, dict) and content.get("format") == checkpoint.FORMAT:
        if name := bundled_name(path):
            content["lineage"] = to_plain([source_of(path, BUNDLED_LICENCE, name=name)])
        return own.snapshot_of(content, path)
    try:
        return import_weights(content).of_file(path, source_of(path))
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error


def export(
    loaded: LoadedGenerator, path: Path, *, noise: NoiseInput | None = None, overwrite: bool = False
) -> float | None:
    """Write a generator in the format that the ending of `path` names.

    .safetensors: the weights, with all else as JSON in the metadata. .onnx and .pt2 (torch.export)
    compute images, without padding, from z, psi and, where there are any, labels. Their `noise`:
    "const" (default) holds the stored maps, "input" takes them, "none" leaves noise out. Returns
    what `save_onnx` does.
    """
    check_request(path, noise=noise, overwrite=overwrite)
    ending = path.suffix.lower()
    if ending in PROGRAMS and loaded.centers is not None:
        raise ValueError(
            f"a {ending} file truncates toward the average, and {loaded.origin} has "
            f"{len(loaded.centers)} centres; write .safetensors, or convert it with --centers none"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if ending == ".safetensors":
        own.save_safetensors(path, loaded)
        return None
    from stylegan.files.formats.program import save_onnx, save_program

    write = save_onnx if ending == ".onnx" else save_program
    return write(path, loaded, noise or "const")


def check_request(path: Path, *, noise: NoiseInput | None, overwrite: bool) -> None:
    """ValueError unless the format of `path` has what is chosen and no file would be lost."""
    check_file(path, overwrite=overwrite, endings=WRITTEN)
    ending = path.suffix.lower()
    if noise is not None and ending not in PROGRAMS:
        raise ValueError(f"a {ending} file holds weights, for every noise; leave noise out")
    needed = NEEDED.get(ending)
    if needed and importlib.util.find_spec(needed) is None:
        raise ValueError(f'writing {ending} files needs {needed}: pip install -e ".[export]"')
