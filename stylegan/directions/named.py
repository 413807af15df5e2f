"""What an edit's text names: a direction of a generator, or an edit that was saved beside it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import torch
from PIL.Image import Image
from torch import Tensor

from stylegan.atomic import write_text
from stylegan.directions.files import beside, default_path, load_directions
from stylegan.directions.finding import (
    COUNT,
    KNOWN,
    METHODS,
    Directions,
    Method,
    find_directions,
    swept,
)
from stylegan.directions.supervised import class_directions
from stylegan.edits import FORM, Edit, check_layers, parsed
from stylegan.figures import chart, save_picture
from stylegan.files.formats.metadata import from_json
from stylegan.files.loaded import LoadedGenerator, fits, hashes
from stylegan.messages import readable, suggestion
from stylegan.networks import NetworkConfig

QUICK_SAMPLES = 10_000  # latents that directions without a file are measured on
FORMAT, VERSION = "stylegan-edits", 1
MOST_EDITS, MOST_MOVES = 1000, 100  # of one file, of one edit
LONGEST_NAME = 60
SHARES = (-1.0, -0.5, 0.0, 0.5, 1.0)  # of an edit, columns of its picture
Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class SavedEdit:
    """An edit with a name: several moves at once."""

    made_of: Sequence[str]  # the texts that it was saved from
    moves: Sequence[Edit]

    def times(self, strength: float, layers: range | None = None) -> list[Edit]:
        """The moves with `strength` times their own; in other layers, if some are given."""
        return [
            replace(move, strength=strength * move.strength, layers=layers or move.layers)
            for move in self.moves
        ]


def known_directions(
    source: str | Path,
    loaded: LoadedGenerator,
    file: Path | None = None,
    *,
    methods: Sequence[Method] = METHODS,
    tell: Tell = lambda text: None,
) -> list[Directions]:
    """Directions of the file, of the one beside the source, or, of the `methods` that it lacks,
    found anew from the first 10,000 seeds.

    A file beside the source that is of other weights, or damaged, is told and not used.
    """
    found: list[Directions] = []
    kept = file or default_path(source)
    if file is not None or kept.exists():
        try:
            found = load_directions(kept, loaded.generator)
        except ValueError as error:
            if file is not None:
                raise
            tell(f"not used: {error}")
    if found and file is not None:
        return found
    config = loaded.generator.config
    lacking = [m for m in methods if m not in [d.method for d in found]]
    new = [m for m in lacking if m == "pca" or (m == "sefa" and config.styles)]
    if new:
        count = min(COUNT, config.w_dim)
        found += find_directions(loaded.generator, new, count=count, samples=QUICK_SAMPLES)
    if "label" in lacking:
        found.append(class_directions(loaded, QUICK_SAMPLES))
    return found


def edits_path(source: str | Path) -> Path:
    """The file of the saved edits of a source: `edits.json` of a run folder, `NAME.edits.json`
    beside a file, or in the current folder."""
    return beside(source, "edits.json")


def read_edits(
    texts: Sequence[str],
    loaded: LoadedGenerator,
    source: str | Path,
    *,
    tell: Tell = lambda text: None,
) -> list[Edit]:
    """The moves that texts specify: `pca:2=+3@0-3` or `smile=0.5`, all of them at once.

    A text is `[FILE:]NAME[=STRENGTH][@LAYERS]`. NAME is `pca:2`, `sefa:1`, `label:CLASS`,
    `svm:NAME` or that of a saved edit. FILE is one of directions (.npz) or of saved edits (.json),
    otherwise those that belong to `source` are used. STRENGTH is 1 unless given: standard
    deviations of w, or that many times a saved edit.
    """
    directions: dict[tuple[Path | None, Method], Directions | None] = {}
    moves: list[Edit] = []
    for text in texts:
        name, strength, layers = parsed(text)
        file, name = file_and_name(name)
        if layers is not None:
            check_layers(layers, loaded.generator.config)
        method, colon, member = name.partition(":")
        if is_method(method) and colon and (file is None or file.suffix == ".npz"):
            key = file, method
            if key not in directions:
                found = known_directions(source, loaded, file, methods=[method], tell=tell)
                directions[key] = next((d for d in found if d.method == method), None)
            of_method = directions[key]
            if of_method is None:
                raise ValueError(no_directions(method, file or default_path(source)))
            moves.append(of_method.edit(member, strength, layers))
        elif file is not None and file.suffix == ".npz":
            raise ValueError(f"{readable(text, 60)}: of {file} an edit is like {FORM}")
        else:
            path = file or edits_path(source)
            saved = load_edits(path, loaded) if file or path.exists() else {}
            if name not in saved:
                raise ValueError(unknown_edit(text, name, path, saved))
            moves += saved[name].times(strength, layers)
    return moves


def is_method(text: str) -> TypeGuard[Method]:
    return text in KNOWN


def no_directions(method: str, path: Path) -> str:
    if method == "svm":
        return f"{path} has no directions learnt from examples; stylegan directions --from adds one"
    return f"{path} has no directions of {method}, or the network has none"


def unknown_edit(text: str, name: str, path: Path, saved: Mapping[str, SavedEdit]) -> str:
    near = suggestion(name, list(saved)) if saved else ""
    where = f"{path} has no edit of that name{near}" if saved else f"no edits are saved in {path}"
    return f"{readable(text, 60)} is not an edit like {FORM}, and {where}"


def file_and_name(name: str) -> tuple[Path | None, str]:
    """The parts of `FILE:NAME`, of a file .npz or .json."""
    for ending in (".npz:", ".json:"):
        before, found, after = name.partition(ending)
        if found and after:
            return Path(f"{before}{found[:-1]}"), after
    return None, name


def check_name(name: str) -> str:
    """A name that an edit may be saved under. ValueError if it would be read as something else."""
    plain = name.isprintable() and name.strip() == name and 0 < len(name) <= LONGEST_NAME
    if not plain or any(c in ":=@/\\" for c in name):
        raise ValueError(
            f"an edit is called by 1 to {LONGEST_NAME} characters, none of them : = @ / or \\, not "
            f"{readable(name, 80)}"
        )
    return name


def load_edits(path: Path, loaded: LoadedGenerator) -> dict[str, SavedEdit]:
    """The edits of a file by name. ValueError if it is another file, damaged, or of other weights.
    Nothing in it is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} with saved edits")
    about = from_json(path.read_text(encoding="utf-8", errors="replace"), path, "text")
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise ValueError(
            f"{path} does not hold edits of version {VERSION}; stylegan edits saves them"
        )
    if not fits(about, loaded.generator):
        raise ValueError(
            f"{path} has edits of other weights; pass the generator that they are of, or move "
            "the file away"
        )
    try:
        edits = about["edits"]
        if not isinstance(edits, dict) or len(edits) > MOST_EDITS:
            raise ValueError(f"edits are at most {MOST_EDITS} by name")
        return {
            check_name(name): saved_of(entry, loaded.generator.config)
            for name, entry in edits.items()
        }
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is damaged: {readable(reason, 1000)}") from error


def saved_of(entry: Mapping[str, Any], config: NetworkConfig) -> SavedEdit:
    """An edit of a file."""
    texts, moves = entry["made_of"], entry["moves"]
    if not isinstance(moves, list) or not 1 <= len(moves) <= MOST_MOVES:
        raise ValueError(f"an edit has from 1 to {MOST_MOVES} moves")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("made_of must be texts")
    return SavedEdit(tuple(texts), tuple(move_of(move, config) for move in moves))


def move_of(move: Mapping[str, Any], config: NetworkConfig) -> Edit:
    numbers, strength = move["direction"], move["strength"]
    kinds = {type(x) for x in [*numbers, strength]}
    if len(numbers) != config.w_dim or not kinds <= {int, float}:
        raise ValueError(f"a direction must be {config.w_dim} numbers")
    direction = torch.tensor([float(x) for x in numbers], dtype=torch.float64).float()
    first, stop = map(int, move["layers"])
    return Edit(direction, float(strength), check_layers(range(first, stop), config))


def save_edits(path: Path, saved: Mapping[str, SavedEdit], loaded: LoadedGenerator) -> None:
    """Write edits as JSON with hashes of the generator's weights."""
    rows = range(loaded.generator.config.num_styles())
    about = {
        "format": FORMAT,
        "version": VERSION,
        **hashes(loaded.generator),
        "edits": {
            check_name(name): {
                "made_of": list(edit.made_of),
                "moves": [plain_move(move, rows) for move in edit.moves],
            }
            for name, edit in saved.items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(about, allow_nan=False) + "\n")


def plain_move(move: Edit, rows: range) -> dict[str, Any]:
    """Numbers that give the same float32 again, as short as they can be."""
    layers = rows if move.layers is None else move.layers
    numbers = [float(str(x)) for x in move.direction.cpu().float().numpy()]
    return {
        "strength": move.strength,
        "layers": [layers.start, layers.stop],
        "direction": numbers,
    }


def with_edit(
    path: Path,
    name: str,
    edit: SavedEdit,
    loaded: LoadedGenerator,
    *,
    overwrite: bool = False,
) -> dict[str, SavedEdit]:
    """The edits of the file and a new one. ValueError if it has one of that name, unless that is
    to be replaced."""
    saved = load_edits(path, loaded) if path.exists() else {}
    if check_name(name) in saved and not overwrite:
        raise ValueError(f"{path} has an edit {name} already; choose another name, or --overwrite")
    if not 1 <= len(edit.moves) <= MOST_MOVES:
        raise ValueError(f"an edit has from 1 to {MOST_MOVES} moves, not {len(edit.moves)}")
    return saved | {name: edit}


def write_edits(
    path: Path,
    saved: Mapping[str, SavedEdit],
    loaded: LoadedGenerator,
    *,
    seed: int = 0,
    labels: Tensor | None = None,
) -> None:
    """Write edits as a file of numbers, and a picture beside it: see `draw_edits`. Without edits
    both are removed."""
    picture = path.with_suffix(".png")
    if saved:
        image = draw_edits(loaded, saved, seed=seed, labels=labels)
        save_edits(path, saved, loaded)
        save_picture(picture, image, overwrite=True)
    else:
        path.unlink()
        picture.unlink(missing_ok=True)


def draw_edits(
    loaded: LoadedGenerator,
    saved: Mapping[str, SavedEdit],
    *,
    seed: int = 0,
    labels: Tensor | None = None,
) -> Image:
    """A row for each edit: the picture of a seed, from its opposite to the whole edit."""
    return chart(
        [
            swept(loaded, [edit.times(share) for share in SHARES], seed=seed, labels=labels)
            for edit in saved.values()
        ],
        columns=[f"{share:+g}" if share else "0" for share in SHARES],
        names=list(saved),
        title=f"times the edit, seed {seed}",
    )
