"""Files of directions: NumPy's `.npz`, beside the generator that they are of."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan.atomic import replacing
from stylegan.directions.finding import KNOWN, METHODS, Directions
from stylegan.edits import check_layers
from stylegan.files.download import BUNDLED
from stylegan.files.formats.metadata import from_json
from stylegan.files.formats.npz import npz_arrays
from stylegan.files.latents import checked_numbers
from stylegan.files.loaded import fits, hashes
from stylegan.messages import readable
from stylegan.networks import Generator, NetworkConfig

FORMAT, VERSION = "stylegan-directions", 1
PARTS = ("vectors", "deviations", "eigenvalues", "accuracies")
LONGEST_NAME = 100


def beside(source: str | Path, ending: str) -> Path:
    """Where what belongs to a source is kept: in a run folder, beside a file, or, of a bundled
    name or an address, in the current folder. `directions.npz` or `NAME.directions.npz`."""
    path = Path(source)
    if path.is_dir() and str(source) not in BUNDLED:
        return path / ending
    if path.is_file() and str(source) not in BUNDLED:
        return path.with_suffix(f".{ending}")
    return Path(f"{PurePosixPath(str(source).partition('#')[0]).stem}.{ending}")


def default_path(source: str | Path) -> Path:
    """The file of the directions of a source: see `beside`."""
    return beside(source, "directions.npz")


def save_directions(path: Path, found: Sequence[Directions], generator: Generator) -> None:
    """Write directions as arrays and JSON, with hashes of the generator's weights.

    `path` is at every moment absent, the old file or the new one.
    """
    about = {
        "format": FORMAT,
        "version": VERSION,
        **hashes(generator),
        "methods": {
            d.method: {"layers": [d.layers.start, d.layers.stop], "samples": d.samples}
            | ({"names": list(d.names)} if d.names else {})
            for d in found
        },
    }
    arrays = {"meta": np.array(json.dumps(about))}
    for d in found:
        for name in PARTS:
            if (numbers := getattr(d, name)) is not None:
                arrays[f"{d.method}_{name}"] = numbers.numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_directions(path: Path, generator: Generator) -> list[Directions]:
    """What `save_directions` wrote for this generator.

    ValueError if the file is another one, damaged, or was made for other weights. Nothing in it is
    executed.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} with directions")
    arrays = npz_arrays(path)
    about = from_json(str(arrays.get("meta", "{}")), path, "meta")
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise ValueError(
            f"{path} does not hold directions of version {VERSION}; stylegan directions makes them"
        )
    if not fits(about, generator):
        raise ValueError(
            f"{path} has directions of other weights; stylegan directions makes those of this "
            "generator"
        )
    try:
        return [
            directions_of(method, entry, arrays, generator.config)
            for method, entry in about["methods"].items()
        ]
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is damaged: {readable(reason, 1000)}") from error


def directions_of(
    method: Any, entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray], config: NetworkConfig
) -> Directions:
    """The directions of one method of a file."""
    if method not in KNOWN:
        raise ValueError(f"unknown method {readable(repr(method))}")
    supervised = method not in METHODS
    parts = ("vectors", "deviations", "accuracies" if supervised else "eigenvalues")
    numbers = {
        part: checked_numbers(name, arrays[name])
        for part, name in ((part, f"{method}_{part}") for part in parts)
    }
    count = len(numbers["vectors"])
    shapes = {tuple(numbers[part].shape) for part in parts[1:]}
    if numbers["vectors"].shape != (count, config.w_dim) or shapes != {(count,)}:
        raise ValueError(f"{count} directions {method} do not fit w of {config.w_dim} numbers")
    names = entry["names"] if supervised else []
    if supervised and not (all(map(is_name, names)) and len(set(names)) == count):
        raise ValueError(f"the names of its {count} directions {method} are not as many texts")
    layers = check_layers(range(*map(int, entry["layers"])), config)
    return Directions(method, layers, int(entry["samples"]), **numbers, names=tuple(names))


def is_name(value: Any) -> bool:
    """Whether it is a text that can be the name of a direction, which a file holds."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME


def updated(kept: Sequence[Directions], found: Sequence[Directions]) -> list[Directions]:
    """The directions of a file with new ones: methods are replaced, but of "svm" what has another
    name stays."""
    new = {d.method: d for d in found}
    for old in kept:
        if old.method == "svm" and "svm" in new:
            new["svm"] = joined(old, new["svm"])
        else:
            new.setdefault(old.method, old)
    return [new[method] for method in KNOWN if method in new]


def joined(old: Directions, new: Directions) -> Directions:
    """Supervised directions, of which those of the same name are the new ones."""
    rows = [i for i, name in enumerate(old.names) if name not in new.names]

    def both(part: str) -> Tensor:
        return torch.cat([getattr(old, part)[rows], getattr(new, part)])

    return dataclasses.replace(
        new,
        vectors=both("vectors"),
        deviations=both("deviations"),
        accuracies=both("accuracies"),
        names=(*(old.names[i] for i in rows), *new.names),
    )
