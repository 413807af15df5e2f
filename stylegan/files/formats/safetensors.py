"""`.safetensors`: weights, and all else as JSON in the metadata."""

from pathlib import Path

import torch

from stylegan.disk import atomic_file
from stylegan.files import checkpoint
from stylegan.files.formats.own import about, from_json, snapshot_of, weights_on_cpu
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.messages import readable

LARGEST_HEADER = 2**23  # bytes; a generator at 1024x1024 has about 20,000
HALF = torch.float16, torch.bfloat16


def is_safetensors(path: Path) -> bool:
    """Whether the file begins as safetensors files do."""
    with open(path, "rb") as file:
        start = file.read(9)
    length = int.from_bytes(start[:8], "little")
    return start[8:] == b"{" and length <= min(LARGEST_HEADER, path.stat().st_size - 8)


def save_safetensors(path: Path, loaded: LoadedGenerator) -> None:
    """Write a generator; what is not weights is JSON in the metadata."""
    from safetensors.torch import save

    weights = {name: t.contiguous() for name, t in weights_on_cpu(loaded.generator).items()}
    metadata = {"format": "pt", checkpoint.FORMAT: about(loaded)}
    with atomic_file(path) as file:
        file.write(save(weights, metadata))


def load_safetensors(path: Path) -> Snapshot:
    """The generator that `save_safetensors` wrote; numbers of half precision come as float32."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ValueError(
            '.safetensors files need safetensors: pip install -e ".[export]"'
        ) from error
    try:
        with safe_open(path, framework="pt") as file:  # sizes agree with the file's
            text = (file.metadata() or {}).get(checkpoint.FORMAT)
            # copies: what the library gives may be the file itself, mapped into memory
            weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {readable(str(error))}") from error
    if text is None:
        raise ValueError(
            f"{path} is a safetensors file without the metadata of this project, which "
            "specifies the network that the weights are of; `stylegan export` writes it"
        )
    payload = from_json(text, path, "metadata")
    wide = {name: t.float() if t.dtype in HALF else t for name, t in weights.items()}
    return snapshot_of(checkpoint.checked(payload | {"weights": wide}, path), path)
