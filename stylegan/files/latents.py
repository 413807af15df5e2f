"""Latents in files: NumPy's `.npz` with the styles of pictures and, if there are, their noise.

A file has the styles in one of three forms, N pictures each, and perhaps maps of noise:

- `ws` (N, num_styles, w_dim): a w for every layer
- `w` (N, w_dim): one w for all layers
- `z` (N, z_dim): latents that the mapping network turns into w
- `noise_0`, `noise_1`, ... (1 or N, 1, r, r): the map that enters each layer, from the coarsest on

An `.npy` has `ws` alone. All of them are floating-point numbers; styles are as the mapping network
gives them, not truncated.
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
from stylegan.machine.disk import KEEPING, Outputs
from stylegan.machine.messages import listed, readable
from stylegan.networks import Generator, NetworkConfig
from stylegan.sampling import mapped
from stylegan.schedule import resolutions

DIRECTIONS = "stylegan-directions"  # the format in a file of directions, .npz too
FORMS = "ws (N, layers, w_dim), w (N, w_dim) or z (N, z_dim)"
NOISE = re.compile(r"noise_(0|[1-9]\d*)")


class Latents(NamedTuple):
    """The styles and noise of a file's pictures: float32 on the CPU."""

    ws: Tensor  # (N, num_styles, w_dim), not truncated
    noise: list[Tensor] | None  # (1 or N, 1, r, r) for each layer up to some resolution


def write_latents(
    path: Path, ws: Tensor, noise: Sequence[Tensor] | None = None, *, outputs: Outputs = KEEPING
) -> None:
    """Write untruncated styles `ws` (N, num_styles, w_dim) and the noise maps of their pictures."""
    maps = {f"noise_{i}": noise_map for i, noise_map in enumerate(noise or ())}
    arrays = {name: t.detach().cpu().float().numpy() for name, t in {"ws": ws, **maps}.items()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    outputs.content(path, buffer.getvalue())


def read_latents(path: Path, generator: Generator, labels: Tensor | None = None) -> Latents:
    """Read the styles and noise maps in a file, for `generator`. Raise ValueError, naming the file,
    if they do not fit it. `labels` (1, label_dim) are for latents `z` of a network with labels."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} with latents")
    try:
        arrays = {"ws": npy_array(path)} if is_npy(path) else npz_arrays(path)
    except ValueError as error:
        raise ValueError(f"{error}; latents are arrays that numpy.savez has written") from error
    try:
        if is_npy(path) and arrays["ws"].ndim != 3:
            shape = arrays["ws"].shape
            raise ValueError(
                f"an .npy file holds ws (N, layers, w_dim), not {shape}; write w or z by "
                'numpy.savez("latents.npz", w=array)'
            )
        if DIRECTIONS in str(arrays.get("meta", "")):
            raise ValueError("it holds directions, not latents; --edit takes them")
        numbers = {name: checked_numbers(name, array) for name, array in arrays.items()}
        kind = kind_of(numbers, generator.config)
        noise = noise_of(numbers, generator.config, len(numbers[kind]))
        if kind == "z" and generator.config.label_dim and labels is None:
            raise ValueError("it holds z latents and this network has classes: pass --class")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    ws = numbers[kind]
    if kind == "z":
        ws = mapped(generator, ws, labels).cpu().float()
    if kind != "ws":
        ws = generator.broadcast(ws).clone()
    return Latents(ws, noise)


def has_styles(path: Path) -> bool:
    """Return true if a file of latents holds ws or w, which no label changes."""
    return is_npy(path) or "z" not in npz_arrays(path)


def checked_numbers(name: str, array: np.ndarray) -> Tensor:
    """Return the array as float32. Raise ValueError unless it holds finite floats."""
    if array.dtype.kind != "f":
        raise ValueError(f"{name} holds {array.dtype}, not floating-point numbers")
    with np.errstate(over="ignore"):  # infinite numbers are refused below
        numbers = torch.from_numpy(array.astype(np.float32))
    if not torch.isfinite(numbers).all():
        raise ValueError(f"{name} has numbers that are not finite in float32")
    return numbers


def kind_of(arrays: Mapping[str, Tensor], config: NetworkConfig) -> str:
    """Return the one form of styles that is there. Raise ValueError if it does not fit."""
    names = [name for name in arrays if not NOISE.fullmatch(name)]
    rows = {"ws": (config.num_styles(), config.w_dim), "w": (config.w_dim,), "z": (config.z_dim,)}
    if len(names) != 1 or names[0] not in rows:
        there = listed(list(map(readable, names)), 4, ", ") or "none"
        raise ValueError(f"one array of styles is needed, found {there}: {FORMS}")
    kind = names[0]
    shape = tuple(arrays[kind].shape)
    if not shape or shape[0] == 0 or shape[1:] != rows[kind]:
        expected = ", ".join(map(str, ("N", *rows[kind])))
        raise ValueError(
            f"{kind} is {shape}, but this network of {config.resolution}x{config.resolution} needs "
            f"({expected}) with N from 1; are the latents of another one?"
        )
    return kind


def noise_of(arrays: Mapping[str, Tensor], config: NetworkConfig, n: int) -> list[Tensor] | None:
    """Return the noise maps in the order of layers, two for each resolution, or None."""
    count = len(arrays) - 1  # all but the styles
    if not count:
        return None
    if not config.noise:
        raise ValueError("it has maps of noise, but this network has no noise inputs")
    sides = [r for r in resolutions(config.resolution) for _ in range(2)]
    names = [f"noise_{i}" for i in range(count)]
    if not arrays.keys() >= set(names) or count % 2 or count > len(sides):
        raise ValueError(
            f"maps of noise are for layers 0 to 1, 3, 5 ... or {len(sides) - 1}, found {count}"
        )
    for name, side in zip(names, sides, strict=False):
        if arrays[name].shape not in ((1, 1, side, side), (n, 1, side, side)):
            expected = f"({n} or 1, 1, {side}, {side})" if n > 1 else f"(1, 1, {side}, {side})"
            raise ValueError(f"{name} is {tuple(arrays[name].shape)}, not {expected}")
    return [arrays[name] for name in names]
