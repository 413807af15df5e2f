"""Latents in `.npz` files of NumPy: the styles of N images and, optionally, their noise maps.

A file contains the styles in one of three forms, and may contain noise maps:

- `ws` (N, num_ws, w_dim): a w for every layer
- `w` (N, w_dim): one w for all layers
- `z` (N, z_dim): inputs of the mapping network
- `noise_0`, `noise_1`, ... (1 or N, 1, r, r): the map of each layer, coarsest first

An `.npy` file contains `ws` alone. All are floating-point; styles are not truncated.
"""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stylegan.files.checkpoint import is_npy, npy_array, npz_arrays
from stylegan.networks import Generator, NetworkConfig
from stylegan.sampling import map_latents
from stylegan.schedule import resolutions
from stylegan.utils.filesystem import KEEP_EXISTING, OutputWriter
from stylegan.utils.text import join_truncated, sanitize

MAX_BYTES = 2**33  # of ws
DIRECTIONS = "stylegan-directions"  # `format` of a file of directions, which is .npz too
FORMS = "ws (N, layers, w_dim), w (N, w_dim) or z (N, z_dim)"
NOISE = re.compile(r"noise_(0|[1-9]\d*)")


class Latents(NamedTuple):
    """Styles and noise maps of the images in a file: float32 on the CPU."""

    ws: Tensor  # (N, num_ws, w_dim), not truncated
    noise: list[Tensor] | None  # (1 or N, 1, r, r) per layer, up to some resolution


def write_latents(
    path: Path,
    ws: Tensor,
    noise: Sequence[Tensor] | None = None,
    *,
    outputs: OutputWriter = KEEP_EXISTING,
) -> None:
    """Write untruncated styles `ws` (N, num_ws, w_dim) and noise maps."""
    maps = {f"noise_{i}": noise_map for i, noise_map in enumerate(noise or ())}
    arrays = {name: t.detach().cpu().float().numpy() for name, t in {"ws": ws, **maps}.items()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    outputs.content(path, buffer.getvalue())


def read_latents(path: Path, generator: Generator, labels: Tensor | None = None) -> Latents:
    """Read styles and noise that fit `generator`; z may need `labels` (1, label_dim)."""
    if not path.is_file():
        raise FileNotFoundError(f"latents file {path} does not exist")
    try:
        arrays = {"ws": npy_array(path)} if is_npy(path) else npz_arrays(path)
    except ValueError as error:
        raise ValueError(f"{error}; latents are files of numpy.savez") from error
    try:
        if is_npy(path) and arrays["ws"].ndim != 3:
            shape = arrays["ws"].shape
            raise ValueError(
                f"an .npy file must contain ws (N, layers, w_dim), got {shape}; write w or z by "
                'numpy.savez("latents.npz", w=array)'
            )
        if DIRECTIONS in str(arrays.get("meta", "")):
            raise ValueError("it contains directions, not latents; pass it to --edit")
        numbers = {name: checked_numbers(name, array) for name, array in arrays.items()}
        kind = latent_kind(numbers, generator.config)
        size = 4 * len(numbers[kind]) * generator.config.num_ws() * generator.config.w_dim
        if size > MAX_BYTES:
            raise ValueError(f"its ws take {size:,} bytes, at most {MAX_BYTES:,} are read")
        noise = noise_of(numbers, generator.config, len(numbers[kind]))
        if kind == "z" and generator.config.label_dim and labels is None:
            raise ValueError("it contains z, and the network has classes; pass --class")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    ws = numbers[kind]
    if kind == "z":
        ws = map_latents(generator, ws, labels).cpu().float()
    if kind != "ws":
        ws = generator.broadcast(ws).clone()
    return Latents(ws, noise)


def has_styles(path: Path) -> bool:
    """Whether a file contains ws or w, which do not depend on labels."""
    return is_npy(path) or "z" not in npz_arrays(path)


def checked_numbers(name: str, array: np.ndarray) -> Tensor:
    """Convert an array to float32; ValueError unless it contains finite floats."""
    if array.dtype.kind != "f":
        raise ValueError(f"{name} must be floating-point, got {array.dtype}")
    with np.errstate(over="ignore"):  # infinity is rejected below
        numbers = torch.from_numpy(array.astype(np.float32))
    if not torch.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite in float32")
    return numbers


def latent_kind(arrays: Mapping[str, Tensor], config: NetworkConfig) -> str:
    """Form of the styles, "ws", "w" or "z"; ValueError if they do not fit the network."""
    names = [name for name in arrays if not NOISE.fullmatch(name)]
    rows = {"ws": (config.num_ws(), config.w_dim), "w": (config.w_dim,), "z": (config.z_dim,)}
    if len(names) != 1 or names[0] not in rows:
        there = join_truncated(list(map(sanitize, names)), 4, ", ") or "none"
        raise ValueError(f"expected one array of styles, {FORMS}, got {there}")
    kind = names[0]
    shape = tuple(arrays[kind].shape)
    if not shape or shape[0] == 0 or shape[1:] != rows[kind]:
        expected = ", ".join(map(str, ("N", *rows[kind])))
        raise ValueError(
            f"{kind} must be ({expected}) for this network, got {shape}; use latents of this one"
        )
    return kind


def noise_of(arrays: Mapping[str, Tensor], config: NetworkConfig, n: int) -> list[Tensor] | None:
    """Noise maps in the order of layers, two per resolution; None if there are none."""
    count = len(arrays) - 1  # all except the styles
    if not count:
        return None
    if not config.noise:
        raise ValueError("it contains noise maps, but this network has no noise inputs")
    sides = [r for r in resolutions(config.resolution) for _ in range(2)]
    names = [f"noise_{i}" for i in range(count)]
    if not arrays.keys() >= set(names) or count % 2 or count > len(sides):
        raise ValueError(
            f"noise maps must be those of layers 0 to 1, 3, 5, ... or {len(sides) - 1}, got {count}"
        )
    for name, side in zip(names, sides, strict=False):
        if arrays[name].shape not in ((1, 1, side, side), (n, 1, side, side)):
            expected = f"({n} or 1, 1, {side}, {side})" if n > 1 else f"(1, 1, {side}, {side})"
            raise ValueError(f"{name} must be {expected}, got {tuple(arrays[name].shape)}")
    return [arrays[name] for name in names]
