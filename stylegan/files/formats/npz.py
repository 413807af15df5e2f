"""`.npz`: official variables under their names, `static_kwargs` and, of ours, `meta`."""

import dataclasses
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stylegan.atomic import replacing
from stylegan.files import checkpoint
from stylegan.files.formats.correspondence import (
    TRANSLATED,
    config_from_official,
    truncation_defaults,
)
from stylegan.files.formats.metadata import HEAD, about, from_json, to_json
from stylegan.files.formats.official import (
    LODS,
    generator_from_official,
    official_settings,
    official_variables,
    reached,
)
from stylegan.files.formats.own import snapshot_of
from stylegan.files.limits import Refused, entries
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.lineage import source_of, to_plain
from stylegan.messages import readable
from stylegan.networks import NetworkConfig


def is_npz(path: Path) -> bool:
    """Whether the file is an archive of NumPy arrays and nothing else."""
    if not checkpoint.is_zip(path):
        return False
    try:
        names = [entry.filename for entry in entries(path)]
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False  # `load_torch` says why
    return bool(names) and all(name.endswith(".npy") for name in names)


def save_npz(path: Path, loaded: LoadedGenerator) -> None:
    """Write a generator as official variables, with the static arguments of the official program
    as JSON; what it has no word for is JSON in `meta`."""
    config = loaded.generator.config
    settings, discriminator = official_settings(config)
    arrays = official_variables(loaded.generator, settings)
    meta = about(loaded, discriminator_kwargs=discriminator)
    lod, truncation = said_officially(meta, config)
    del meta["config"]
    arrays |= {name: np.array(lod) for name in LODS}
    arrays["static_kwargs"] = np.array(to_json(settings | truncation))
    arrays["meta"] = np.array(to_json(meta))
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def said_officially(
    said: Mapping[str, Any], config: NetworkConfig
) -> tuple[np.float32, dict[str, Any]]:
    """The level of detail and the arguments of truncation that say the same officially."""
    lod = np.float32(math.log2(config.resolution / said["resolution"]) + 1 - said["alpha"])
    cutoff = config.num_styles() if said["cutoff"] is None else said["cutoff"]
    return lod, {"truncation_psi": said["psi"], "truncation_cutoff": cutoff}


def load_npz(path: Path) -> Snapshot:
    """The generator of a file of official variables, with `static_kwargs`. Without our `meta`
    resolution and truncation are those of the variables and arguments."""
    arrays = npz_arrays(path)
    entries = {name: arrays.pop(name, None) for name in ("static_kwargs", "meta")}
    texts = {name: "" if entry is None else str(entry) for name, entry in entries.items()}
    if not texts["static_kwargs"]:
        raise ValueError(
            f"{path} has no entry static_kwargs, the JSON of the official generator's arguments, "
            "which specify the network that the variables are of"
        )
    settings = from_json(texts["static_kwargs"], path, "static_kwargs")
    meta = from_json(texts["meta"], path, "meta") if texts["meta"] else {}
    discriminator = meta.pop("discriminator_kwargs", {})
    try:
        config = config_from_official(settings | discriminator, TRANSLATED)
        generator = generator_from_official(arrays, settings)
        if meta:
            check_meta(meta, arrays, settings, config)
        said = meta or said_by_officials(arrays, settings, config.resolution)
        said = said if meta else said | {"lineage": to_plain([source_of(path)])}
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from error
    payload = HEAD | {"config": dataclasses.asdict(config), "weights": generator.state_dict()}
    return snapshot_of(checkpoint.checked(payload | said, path), path)


def check_meta(
    meta: Mapping[str, Any],
    variables: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
    config: NetworkConfig,
) -> None:
    """ValueError if our `meta` says another thing than the variables and arguments."""
    missing = {"resolution", "alpha", "psi", "cutoff"} - meta.keys()
    if missing:
        raise ValueError(f"{' and '.join(sorted(missing))} is missing in its meta")
    lod, truncation = said_officially(meta, config)
    reached(variables, config.resolution)  # the levels are one each, and agree
    found = {name: variables[name].item() for name in LODS if name in variables}
    found |= {name: settings[name] for name in truncation if name in settings}
    for name, value in found.items():
        meant = truncation.get(name, lod)
        if value != meant:
            raise ValueError(f"{name} is {readable(str(value))}, but {meant} by its meta")


def said_by_officials(
    variables: Mapping[str, np.ndarray], settings: Mapping[str, Any], full: int
) -> dict[str, Any]:
    """What a generator file says, from official variables and arguments."""
    psi, cutoff = truncation_defaults(settings)
    resolution, alpha = reached(variables, full)
    growth = {"resolution": resolution, "alpha": alpha}
    return {"images_seen": None, **growth, "psi": psi, "cutoff": cutoff}


def npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of the file, by name."""
    try:
        entries(path)
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
        others = [name for name, value in found.items() if not isinstance(value, np.ndarray)]
        if others:  # NumPy gives the bytes of what does not begin as its files do
            raise ValueError(f"its entry {readable(others[0])} is no array")
        return found
    except Refused as error:
        raise ValueError(f"{path} {error}") from error
    except Exception as error:  # a damaged file can raise almost anything
        reason = readable(str(error).split("\n")[0] or type(error).__name__)
        raise ValueError(f"{path} is damaged or no file of plain arrays: {reason}") from error
