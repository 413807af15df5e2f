"""`.npz`: official variables under their names, `static_kwargs` and, perhaps, our `meta`."""

import dataclasses
import zipfile
from pathlib import Path

import numpy as np

from stylegan.files import checkpoint
from stylegan.files.formats.correspondence import truncation_defaults
from stylegan.files.formats.official import generator_from_official, reached
from stylegan.files.formats.own import HEAD, from_json, snapshot_of
from stylegan.files.snapshot import Snapshot
from stylegan.lineage import source_of, to_plain
from stylegan.messages import readable


def is_npz(path: Path) -> bool:
    """Whether the file is an archive of NumPy arrays and nothing else."""
    if not checkpoint.is_zip(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False  # `load_torch` says why
    return bool(names) and all(name.endswith(".npy") for name in names)


def load_npz(path: Path) -> Snapshot:
    """The generator of official variables with `static_kwargs`, the JSON of the arguments of the
    official generator. What else a generator file says is JSON in `meta`; without it, resolution
    and truncation are those of the variables and arguments."""
    arrays = npz_arrays(path)
    texts = {name: str(arrays.pop(name, "")) for name in ("static_kwargs", "meta")}
    if not texts["static_kwargs"]:
        raise ValueError(
            f"{path} has no entry static_kwargs, the JSON of the official generator's arguments, "
            "which specify the network that the variables are of"
        )
    settings = from_json(texts["static_kwargs"], path, "static_kwargs")
    meta = from_json(texts["meta"], path, "meta") if texts["meta"] else {}
    try:
        generator = generator_from_official(arrays, settings)
        psi, cutoff = truncation_defaults(settings)
        resolution, alpha = reached(arrays, generator.config.resolution)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from error
    payload = {
        **HEAD,
        "resolution": resolution,
        "alpha": alpha,
        "psi": psi,
        "cutoff": cutoff,
        "images_seen": None,
        "lineage": () if meta else to_plain([source_of(path)]),
        **meta,
        "config": dataclasses.asdict(generator.config),
        "weights": generator.state_dict(),
    }
    return snapshot_of(checkpoint.checked(payload, path), path)


def npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of a file of NumPy's, by name, as `numpy.savez` writes them: not compressed."""
    try:
        checkpoint.check_entries(path, checksums=False)  # NumPy compares them as it reads
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
        others = [name for name, value in found.items() if not isinstance(value, np.ndarray)]
        if others:  # NumPy gives the bytes of what does not begin as its files do
            raise ValueError(f"its entry {readable(others[0])} is no array")
        return found
    except Exception as error:  # a damaged file can raise almost anything
        reason = readable(str(error).split("\n")[0] or type(error).__name__)
        raise ValueError(f"{path} is damaged or no file of plain arrays: {reason}") from error
