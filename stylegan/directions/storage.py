"""Files of directions, `.npz` next to their generator, and the edits that `--edit` names."""

import dataclasses
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from stylegan.directions.edit_syntax import parsed
from stylegan.directions.finding import (
    ALL_METHODS,
    COUNT,
    METHODS,
    Directions,
    Method,
    find_directions,
)
from stylegan.files.checkpoint import npy_array, npz_arrays
from stylegan.files.download import BUNDLED, WEIGHTS
from stylegan.files.formats.native import from_json
from stylegan.files.latents import DIRECTIONS, checked_numbers
from stylegan.files.run_folder import RunFolder
from stylegan.networks import Generator
from stylegan.networks.edits import Edit, check_layers
from stylegan.sampling.pretrained import Pretrained, weights_sha256
from stylegan.utils.console import SILENT, Console
from stylegan.utils.filesystem import (
    ALLOW_OVERWRITE,
    KEEP_EXISTING,
    OutputWriter,
    as_value_error,
    lock,
)
from stylegan.utils.text import command_line

VERSION = 1
SCORES = {"pca": "eigenvalues", "sefa": "eigenvalues", "svm": "accuracies"}  # names in files
QUICK_SAMPLES = 10_000  # of w, for directions that are not in a file


def default_path(source: str | Path) -> Path:
    """Default file for directions of a source: `directions.npz` in a run, `NAME.directions.npz`
    next to a file or, for a bundled name or an address, in the current folder."""
    path = Path(source)
    name = str(source)
    if name in BUNDLED or not path.exists():
        return Path(f"{PurePosixPath(name.partition('#')[0]).stem}.directions.npz")
    return path / "directions.npz" if path.is_dir() else path.with_suffix(".directions.npz")


def find_directions_file(source: str | Path) -> Path:
    """The `default_path` of a source, or that of its run if only the latter exists."""
    own = default_path(source)
    run = RunFolder.of(source)
    of_run = default_path(run.path) if run else own
    return of_run if of_run.exists() and not own.exists() else own


def save_directions(
    path: Path,
    directions: Sequence[Directions],
    generator: Generator,
    outputs: OutputWriter = KEEP_EXISTING,
) -> None:
    """Write directions as arrays and JSON, with hashes of the generator's weights."""
    methods = {
        d.method: {"layers": [d.layers.start, d.layers.stop], "samples": d.samples}
        | ({"names": list(d.names)} if d.method == "svm" else {})
        for d in directions
    }
    meta = {"format": DIRECTIONS, "version": VERSION, **hashes(generator), "methods": methods}
    arrays = {"meta": np.array(json.dumps(meta))}
    for d in directions:
        numbers = {"vectors": d.vectors, "deviations": d.deviations, SCORES[d.method]: d.scores}
        arrays |= {f"{d.method}_{part}": tensor.numpy() for part, tensor in numbers.items()}
    with outputs.file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def add_directions(
    path: Path,
    new: Sequence[Directions],
    generator: Generator,
    outputs: OutputWriter = KEEP_EXISTING,
    *,
    name: str | None = None,
) -> None:
    """Add directions to a file, which keeps its others, including those that another process has
    written meanwhile. Raises ValueError as `others_in` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path.with_name(f".{path.name[:40]}.lock"), waiting=lambda: None):
        others = others_in(path, generator, [d.method for d in new], outputs, name=name)
        save_directions(path, updated(others, new), generator, outputs=ALLOW_OVERWRITE)


def load_directions(path: Path, generator: Generator) -> list[Directions]:
    """Read a file of `save_directions`; nothing in it is executed. Raises ValueError if it is not
    such a file, is damaged, or belongs to other weights."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} with directions")
    arrays = npz_arrays(path)
    config = generator.config
    meta = from_json(str(arrays.get("meta", "{}")), path, entry="meta")
    if meta.get("format") != DIRECTIONS or meta.get("version") != VERSION:
        raise ValueError(
            f"{path} does not hold directions of version {VERSION}; stylegan directions find makes "
            "them"
        )
    if not any(meta.get(name) == digest for name, digest in hashes(generator).items()):
        raise ValueError(
            f"{path} has directions of other weights; stylegan directions find makes those of this "
            "generator"
        )
    directions = []
    with as_value_error(path, "is damaged"):
        for method, entry in meta["methods"].items():
            parts = [f"{method}_{part}" for part in ("vectors", "deviations", SCORES[method])]
            vectors, deviations, scores = (checked_numbers(part, arrays[part]) for part in parts)
            k = len(vectors)
            if vectors.shape != (k, config.w_dim) or not deviations.shape == scores.shape == (k,):
                raise ValueError(f"{k} directions {method} do not fit w of {config.w_dim} numbers")
            names = [str(n) for n in (entry["names"] if method == "svm" else range(1, k + 1))]
            if len(set(names)) != k:
                raise ValueError(f"its {k} directions {method} do not have as many names")
            layers = check_layers(range(*map(int, entry["layers"])), config.num_ws())
            samples = int(entry["samples"])
            directions.append(
                Directions(method, layers, samples, vectors, deviations, scores, names)
            )
    return directions


def hashes(generator: Generator) -> dict[str, str]:
    """SHA-256 of all weights, and of those that w depends on: the mapping network and w_avg."""
    digests = {"generator_sha256": weights_sha256(generator)}
    if any(True for _ in generator.mapping.parameters()):
        digests["mapping_sha256"] = weights_sha256(generator, ("mapping.", "w_avg"))
    return digests


def others_in(
    path: Path,
    generator: Generator,
    methods: Sequence[Method],
    outputs: OutputWriter,
    *,
    name: str | None = None,
) -> list[Directions]:
    """Read the directions of a file that gets new ones by `methods`, or the learned one `name`.
    Raises ValueError if some would be replaced or cannot be read, unless `outputs` overwrites."""
    if not path.exists():
        return []
    try:
        directions = load_directions(path, generator)
    except ValueError as error:
        if outputs.overwrite:
            return []
        hint = "--overwrite replaces the whole file, --out chooses another"
        raise ValueError(f"{error}; {hint}") from error
    replaced = [d.method for d in directions if d.method in methods and name in (None, *d.names)]
    if replaced and not outputs.overwrite:
        those = f"svm:{name}" if name else " and ".join(replaced)
        raise ValueError(
            f"{path} exists, with directions {those}; pass --overwrite to replace them, or choose "
            "another name"
        )
    return directions


def updated(others: Sequence[Directions], new: Sequence[Directions]) -> list[Directions]:
    """Merge directions: new ones replace all of their method, or with svm those of equal names."""
    by_method = {d.method: d for d in new}
    for old in others:
        added = by_method.setdefault(old.method, old)
        rows = [i for i, name in enumerate(old.names) if name not in added.names]
        if rows and old.method == "svm":
            by_method["svm"] = dataclasses.replace(
                added,
                vectors=torch.cat([old.vectors[rows], added.vectors]),
                deviations=torch.cat([old.deviations[rows], added.deviations]),
                scores=torch.cat([old.scores[rows], added.scores]),
                names=[*(old.names[i] for i in rows), *added.names],
            )
    return [by_method[method] for method in ALL_METHODS if method in by_method]


def load_or_find_directions(
    source: str | Path,
    loaded: Pretrained,
    file: Path | None = None,
    *,
    methods: Sequence[str] = METHODS,
    console: Console = SILENT,
) -> list[Directions]:
    """Directions of a file, by default those of the source: from its own file (reported and ignored
    if damaged or of other weights), from the package if it has some for the same mapping network,
    which tuned generators share, and, of `methods` still missing, found from 10,000 seeds."""
    if file is not None:
        return load_directions(file, loaded.generator)
    directions: list[Directions] = []
    place = find_directions_file(source)
    if place.exists():
        try:
            directions = load_directions(place, loaded.generator)
        except ValueError as error:
            console.info(f"not used: {error}")
    for name in BUNDLED:
        with suppress(FileNotFoundError, ValueError):  # of another network
            bundled = load_directions(WEIGHTS / f"{name}.directions.npz", loaded.generator)
            directions = updated(bundled, directions)
    config = loaded.generator.config
    in_file = {d.method for d in directions}
    possible = METHODS if config.styles else METHODS[:1]
    missing = [m for m in possible if m in methods and m not in in_file]
    if missing:
        directions += find_directions(
            loaded.generator,
            missing,
            count=min(COUNT, config.w_dim),
            samples=QUICK_SAMPLES,
            label_rows=loaded.label_rows,
            resolution=loaded.settings.synthesis_resolution,
        )
    return directions


def read_edits(
    texts: Sequence[str], loaded: Pretrained, source: str | Path, *, console: Console = SILENT
) -> list[Edit]:
    """Read edits such as `pca:2=+3@0-3` or `svm:smile`: `[FILE:]METHOD:NAME[=STRENGTH][@LAYERS]`.

    FILE (.npz) contains directions; default: those of `source`. STRENGTH, 1 by default, is in
    standard deviations of w. Instead of FILE:METHOD:NAME, an .npy file may contain a vector
    (w_dim,), such as a boundary of InterFaceGAN, which STRENGTH multiplies."""
    known: dict[tuple[Path | None, str], Directions] = {}
    edits: list[Edit] = []
    config = loaded.generator.config
    for text in texts:
        parts = parsed(text)
        if parts.layers is not None:
            check_layers(parts.layers, config.num_ws(loaded.settings.synthesis_resolution))
        if parts.vector is not None:
            vector = vector_of(parts.vector, loaded.generator)
            edits.append(Edit(vector, parts.strength, parts.layers))
            continue
        key = (parts.file, parts.method)
        if key not in known:
            directions = load_or_find_directions(
                source, loaded, parts.file, methods=[parts.method], console=console
            )
            known |= {(parts.file, d.method): d for d in directions}
        if key not in known:
            place = parts.file or find_directions_file(source)
            find = command_line("stylegan", "directions", "find", source)
            how = f"{find} finds those of pca and sefa"
            if parts.method == "svm":
                words = ("directions", "learn", source, "with/", "without/", "--name", parts.name)
                how = (
                    "sort samples of it into two folders, with and without what to change, and run "
                    + command_line("stylegan", *words)
                )
            raise ValueError(
                f"{place if place.exists() else source} has no directions of {parts.method}; {how}"
            )
        edits.append(known[key].edit(parts.name, parts.strength, parts.layers))
    return edits


def vector_of(path: Path, generator: Generator) -> torch.Tensor:
    """Read a vector (w_dim,) from an .npy file of shape (w_dim,) or (1, w_dim)."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} with a direction")
    with as_value_error(path, "holds no direction"):
        vector = checked_numbers("it", npy_array(path))
    size = generator.config.w_dim
    if vector.shape not in ((size,), (1, size)):
        shape = tuple(vector.shape)
        raise ValueError(f"{path} must hold a direction of shape ({size},), got {shape}")
    return vector.reshape(size)
