"""`.npz`: official variables under their names, `static_kwargs` and, of ours, `meta`."""

import dataclasses
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stylegan.atomic import replacing
from stylegan.files import checkpoint, interop
from stylegan.files.portable.fields import Payload, about, from_json, to_json
from stylegan.messages import readable
from stylegan.networks import Generator, NetworkConfig


def is_npz(path: Path) -> bool:
    """Whether the file is an archive of NumPy arrays and nothing else."""
    if not checkpoint.is_zip(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False
    return bool(names) and all(name.endswith(".npy") for name in names)


def save_npz(path: Path, payload: Payload, generator: Generator) -> None:
    """Write the generator of a payload as official variables, with the static arguments of the
    official program as JSON; what it has no word for is JSON in `meta`."""
    config = generator.config
    settings, discriminator = interop.official_settings(config)
    arrays = interop.official_variables(generator, settings)
    lod, truncation = told_to_officials(payload, config)
    meta = {name: value for name, value in about(payload).items() if name != "config"}
    arrays |= {name: np.array(lod) for name in interop.LODS}
    arrays["static_kwargs"] = np.array(to_json(settings | truncation))
    arrays["meta"] = np.array(to_json(meta | {"discriminator_kwargs": discriminator}))
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def told_to_officials(
    told: Mapping[str, Any], config: NetworkConfig
) -> tuple[np.float32, dict[str, Any]]:
    """The level of detail and the arguments of truncation that say the same officially."""
    lod = np.float32(math.log2(config.resolution / told["resolution"]) + 1 - told["alpha"])
    cutoff = config.num_styles() if told["cutoff"] is None else told["cutoff"]
    return lod, {"truncation_psi": told["psi"], "truncation_cutoff": cutoff}


def load_npz(path: Path) -> dict[str, Any]:
    """The payload of a file of official variables, with `static_kwargs`. Without our `meta`
    resolution and truncation are those of the variables and arguments."""
    arrays = npz_arrays(path)
    entries = {name: arrays.pop(name, None) for name in ("static_kwargs", "meta")}
    texts = {name: "" if entry is None else str(entry) for name, entry in entries.items()}
    if not texts["static_kwargs"]:
        raise ValueError(
            f"{path} has no entry static_kwargs, the JSON of the official generator's arguments, "
            "which tell the network that the variables are of"
        )
    settings = from_json(texts["static_kwargs"], path, "static_kwargs")
    meta = from_json(texts["meta"], path, "meta") if texts["meta"] else {}
    discriminator = meta.pop("discriminator_kwargs", {})
    try:
        config = interop.config_from_official(settings | discriminator, interop.TRANSLATED)
        generator = interop.generator_from_official(arrays, settings)
        if meta:
            check_meta(meta, arrays, settings, config)
        told = meta or told_officially(arrays, settings, config.resolution)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from error
    fields = about({"config": dataclasses.asdict(config), **told})
    return checkpoint.checked(fields | {"weights": generator.state_dict()}, path)


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
    lod, truncation = told_to_officials(meta, config)
    interop.reached(variables, config.resolution)  # the levels are one each, and agree
    found = {name: variables[name].item() for name in interop.LODS if name in variables}
    found |= {name: settings[name] for name in truncation if name in settings}
    for name, value in found.items():
        meant = truncation.get(name, lod)
        if value != meant:
            raise ValueError(f"{name} is {readable(str(value))}, but {meant} by its meta")


def told_officially(
    variables: Mapping[str, np.ndarray], settings: Mapping[str, Any], full: int
) -> dict[str, Any]:
    """What a generator file tells, from official variables and arguments."""
    psi, cutoff = interop.truncation_defaults(settings)
    resolution, alpha = interop.reached(variables, full)
    told = {"resolution": resolution, "alpha": alpha, "psi": psi, "cutoff": cutoff}
    return {"images_seen": None, "label_names": [], "active_rectangle": None, **told}


def npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of the file, by name."""
    try:
        checkpoint.check_entries(path)
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # a damaged file can raise almost anything
        reason = readable(str(error).split("\n")[0] or type(error).__name__)
        raise ValueError(f"{path} is damaged or no file of plain arrays: {reason}") from error
