"""Formats of files of weights: recognition, reading and writing."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from stylegan.files import checkpoint
from stylegan.files.download import BUNDLED_LICENSE, bundled_name
from stylegan.files.formats import native
from stylegan.files.formats.foreign import UnknownLayout, import_weights
from stylegan.files.formats.official import load_official
from stylegan.files.formats.program import save_onnx, save_program
from stylegan.files.weights import Weights
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.filesystem import KEEP_EXISTING, OutputWriter, check_not_placeholder
from stylegan.utils.lineage import LineageEntry, lineage_entry

SHARED = "model.safetensors"  # weights in a folder for the Hugging Face Hub
PROGRAMS = (".onnx", ".pt2")  # cannot be read back
WRITTEN = (".safetensors", *PROGRAMS)
NoiseInput = Literal["input", "const", "none"]


def read_weights(path: Path, *, name: str = "") -> Weights:
    """Read a file of any format, called `name` in its lineage; ValueError if it is unknown."""
    if path.suffix.lower() in PROGRAMS:
        raise ValueError(
            f"{path} is an exported program, which cannot be read back; pass the file it was "
            "exported from"
        )
    if not path.is_file():  # reading a pipe or device may never end
        raise ValueError(f"{path} is neither a file nor a folder")
    check_not_placeholder(path)
    if native.is_safetensors(path):
        return native.load_safetensors(path, name=name)
    with open(path, "rb") as file:  # 0x80: a pickle, of the official program or old torch
        pickled = file.read(1) == b"\x80" or (path.suffix == ".pkl" and not checkpoint.is_zip(path))
    if pickled and not checkpoint.is_old(path):
        return load_official(path, name=name)
    refusal = None
    try:
        content = checkpoint.read_torch(path)
    except checkpoint.PickledObjectsError as error:  # which other programs save next to the weights
        refusal = error
        content = checkpoint.read_torch(path, inert=not checkpoint.is_old(path))
    if isinstance(content, dict) and content.get("format") == checkpoint.FORMAT and not refusal:
        weights = native.weights_of(content, path, name=name)
        entry = weights.lineage_entry
        # a bundled file is its own origin, also a copy of it
        if entry and (bundled := bundled_name(path, entry.sha256)):
            return weights.with_lineage_of(LineageEntry(bundled, entry.sha256, BUNDLED_LICENSE))
        return weights
    try:
        weights = import_weights(content, path)
    except UnknownLayout as error:
        raise refusal or error from None
    return weights.with_lineage_of(lineage_entry(path, name=name))


def export(
    loaded: Pretrained,
    path: Path,
    *,
    noise: NoiseInput | None = None,
    outputs: OutputWriter = KEEP_EXISTING,
    sources: Iterable[Path] = (),
) -> None:
    """Write a generator in the format of the file extension; none of the `sources` is replaced.

    .safetensors: the weights, with the description as JSON in the metadata. .onnx and .pt2
    (torch.export): a program that computes images, without padding, from z, psi and labels, if any.
    Its `noise` is "const" (default) for the stored maps, "input" for maps as inputs, or "none".
    """
    outputs.check(path, endings=WRITTEN, sources=sources)
    ending = path.suffix.lower()
    if noise is not None and ending not in PROGRAMS:
        raise ValueError(f"{ending} holds weights only; --noise is for .onnx and .pt2")
    if ending in PROGRAMS and loaded.settings.centers is not None:
        raise ValueError(
            f"{ending} files truncate toward w_avg, but {loaded.origin} has centers; write "
            ".safetensors, or convert it with --centers none"
        )
    if ending == ".safetensors":
        native.save_safetensors(path, loaded, outputs=outputs)
        return
    write = save_onnx if ending == ".onnx" else save_program
    write(path, loaded, noise or "const", outputs)
