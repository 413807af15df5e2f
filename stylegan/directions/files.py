"""Directions in files, NumPy's `.npz` beside their generator, and what `--edit` names in them."""

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from stylegan.directions.finding import COUNT, KNOWN, METHODS, Directions, find_directions
from stylegan.disk import atomic_file
from stylegan.edits import FORM, Edit, check_layers, parsed
from stylegan.files.checkpoint import npz_arrays
from stylegan.files.download import BUNDLED
from stylegan.files.formats.own import from_json
from stylegan.files.latents import checked_numbers
from stylegan.files.loaded import LoadedGenerator, fits, hashes
from stylegan.messages import readable, reason_of
from stylegan.networks import Generator

FORMAT, VERSION = "stylegan-directions", 1
SCORES = {"pca": "eigenvalues", "sefa": "eigenvalues", "svm": "accuracies"}  # names in files
QUICK_SAMPLES = 10_000  # latents that directions without a file are measured on
CALLED = re.compile(rf"((?P<file>.+?\.npz):)?(?P<method>{'|'.join(KNOWN)}):(?P<name>.+)", re.S)
REMOVED = ("label",)  # a method of earlier versions; its directions are not read


def default_path(source: str | Path) -> Path:
    """Where the directions of a source are kept: in a run folder or beside a file; of a bundled
    name or an address, in the current folder. `directions.npz` or `NAME.directions.npz`."""
    path, name = Path(source), str(source)
    if name in BUNDLED or not path.exists():
        return Path(f"{PurePosixPath(name.partition('#')[0]).stem}.directions.npz")
    return path / "directions.npz" if path.is_dir() else path.with_suffix(".directions.npz")


def save_directions(path: Path, found: Sequence[Directions], generator: Generator) -> None:
    """Write directions as arrays and JSON, with hashes of the generator's weights."""
    methods: dict[str, dict[str, Any]] = {}
    arrays: dict[str, np.ndarray] = {"meta": np.array("")}
    for d in found:
        methods[d.method] = {"layers": [d.layers.start, d.layers.stop], "samples": d.samples}
        methods[d.method] |= {"names": list(d.names)} if d.method == "svm" else {}
        numbers = {"vectors": d.vectors, "deviations": d.deviations, SCORES[d.method]: d.scores}
        arrays |= {f"{d.method}_{part}": tensor.numpy() for part, tensor in numbers.items()}
    about = {"format": FORMAT, "version": VERSION, **hashes(generator), "methods": methods}
    arrays["meta"] = np.array(json.dumps(about))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_directions(path: Path, generator: Generator) -> list[Directions]:
    """What `save_directions` wrote for this generator; nothing in the file is executed. ValueError
    if the file is another one, damaged, or was made for other weights."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} with directions")
    arrays, config = npz_arrays(path), generator.config
    about = from_json(str(arrays.get("meta", "{}")), path, entry="meta")
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        what = f"{path} does not hold directions of version {VERSION}"
        raise ValueError(f"{what}; stylegan directions makes them")
    if not fits(about, generator):
        what = f"{path} has directions of other weights"
        raise ValueError(f"{what}; stylegan directions makes those of this generator")
    found = []
    try:
        for method, entry in about["methods"].items():
            if method in REMOVED:
                continue
            parts = [f"{method}_{part}" for part in ("vectors", "deviations", SCORES[method])]
            vectors, deviations, scores = (checked_numbers(part, arrays[part]) for part in parts)
            k = len(vectors)
            if vectors.shape != (k, config.w_dim) or not deviations.shape == scores.shape == (k,):
                raise ValueError(f"{k} directions {method} do not fit w of {config.w_dim} numbers")
            names = [str(n) for n in (entry["names"] if method == "svm" else range(1, k + 1))]
            if len(set(names)) != k:
                raise ValueError(f"its {k} directions {method} do not have as many names")
            layers = check_layers(range(*map(int, entry["layers"])), config)
            numbers = vectors, deviations, scores
            found.append(Directions(method, layers, int(entry["samples"]), *numbers, names))
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {readable(reason_of(error), 1000)}") from error
    return found


def updated(kept: Sequence[Directions], found: Sequence[Directions]) -> list[Directions]:
    """The directions of a file with new ones: these replace methods, but of learned directions only
    those of the same name."""
    new = {d.method: d for d in found}
    for old in kept:
        added = new.setdefault(old.method, old)
        rows = [i for i, name in enumerate(old.names) if name not in added.names]
        if rows and old.method == "svm":
            both: dict[str, Any] = {
                part: torch.cat([getattr(old, part)[rows], getattr(added, part)])
                for part in ("vectors", "deviations", "scores")
            }
            names = [*(old.names[i] for i in rows), *added.names]
            new[old.method] = dataclasses.replace(added, **both, names=names)
    return [new[method] for method in KNOWN if method in new]


def known_directions(
    source: str | Path,
    loaded: LoadedGenerator,
    file: Path | None = None,
    *,
    methods: Sequence[str] = METHODS,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Directions]:
    """Directions of the file; by default of the one beside the source, and those of `methods` that
    it lacks, found from the first 10,000 seeds. If that file is damaged or of other weights, `tell`
    gets the reason, and it is not used."""
    if file is not None:
        return load_directions(file, loaded.generator)
    found: list[Directions] = []
    if default_path(source).exists():
        try:
            found = load_directions(default_path(source), loaded.generator)
        except ValueError as error:
            tell(f"not used: {error}")
    config, there = loaded.generator.config, {d.method for d in found}
    possible = METHODS if config.styles else METHODS[:1]
    if new := [m for m in possible if m in methods and m not in there]:
        count = min(COUNT, config.w_dim)
        found += find_directions(loaded.generator, new, count=count, samples=QUICK_SAMPLES)
    return found


def read_edits(
    texts: Sequence[str],
    loaded: LoadedGenerator,
    source: str | Path,
    *,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Edit]:
    """The move of each text `[FILE:]METHOD:NAME[=STRENGTH][@LAYERS]`, such as `pca:2=+3@0-3` or
    `svm:smile`. FILE (.npz) holds directions; without it those of `source` are used. STRENGTH
    counts standard deviations of w and is 1 unless given."""
    known: dict[tuple[str | None, str], Directions] = {}
    moves: list[Edit] = []
    for text in texts:
        called, strength, layers = parsed(text)
        parts = CALLED.fullmatch(called)
        if parts is None:
            raise ValueError(f"{readable(text, 60)} is not an edit like {FORM}")
        file, method, name = parts.group("file", "method", "name")
        if (file, method) not in known:
            path = Path(file) if file else None
            found = known_directions(source, loaded, path, methods=[method], tell=tell)
            known |= {(file, d.method): d for d in found}
        if (file, method) not in known:
            raise ValueError(
                f"{file or default_path(source)} has no directions of {method}; stylegan "
                "directions finds those that the network has, with --from for svm"
            )
        moves.append(known[file, method].edit(name, strength, layers))
    return moves
