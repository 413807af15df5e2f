"""The page's controls, from which it is built and requests are checked, and what they specify."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor

from stylegan.directions import Directions
from stylegan.directions.texts import parsed
from stylegan.files.loaded import LoadedGenerator
from stylegan.machine.messages import listed, readable
from stylegan.networks.edits import Edit
from stylegan.projection import Space
from stylegan.sampling import MAX_SEED

FIRST_SEED = 10  # the first picture: a good one of both bundled generators
SLIDER_SEEDS = 9999  # the end of sliders for seeds; their numbers take any seed
REACH = 4  # standard deviations that a direction's slider moves either way
PLANE = 1.25  # the reach of the plane of seeds; the seeds are at 1
Values = Mapping[str, object]  # sent by a browser: anything, until a control has read it
Moves = Mapping[str, Edit]  # what `--edit` says, without the strength -> the edit at first


@dataclass(frozen=True, eq=False)
class View:
    """What the controls say, each under its name; where a generator has no use for a control, what
    would do nothing. Beside them what follows: `edits` and `styles`."""

    seed: int = 0
    label: int = 0  # the number of the class, or of a label of the data; 0 without labels
    psi: float = 0.7
    noise: Literal["const", "random", "none"] = "const"
    noise_seed: int = 0  # of "random"
    start: Literal["seed", "own"] = "seed"  # the user's own picture, once one is projected
    plane_x: float = 0  # toward the seed `plane_a`, in the plane of w through three seeds
    plane_y: float = 0  # toward the seed `plane_b`
    plane_a: int = 1
    plane_b: int = 2
    mix_seed: int = 1
    mix_layers: Sequence[int] = ()  # which take their styles from `mix_seed`
    edit_first: int = 0  # the first of the layers that edits move, or the last
    edit_last: int = 0
    steps: int = 300  # of a search
    space: Space = "w"
    edits: Sequence[Edit] = ()
    styles: Tensor | None = None  # of the own picture, (num_styles, w_dim), in place of the seed's


@dataclass(frozen=True)
class Control:
    """What every control has; `tip` is shown over it. All have a method `read` that gives the value
    which a browser sent, or a ValueError if the control has no such value."""

    name: str
    label: str
    tip: str

    def wrong(self, value: object, expected: str) -> ValueError:
        return ValueError(f"{self.label}: {readable(repr(value), 40)} is not {expected}")


@dataclass(frozen=True)
class Slider(Control):
    """A number, whole if `step` is."""

    low: float
    high: float
    value: float
    step: float = 1
    most: float | None = None  # what may be typed, beyond the end of the slider

    def read(self, value: object) -> float:
        whole = self.step % 1 == 0
        most = self.high if self.most is None else self.most
        kind = "whole number" if whole else "number"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(value, f"a {kind} from {self.low} to {most}")
        if not self.low <= value <= most or (whole and value % 1):
            raise self.wrong(value, f"a {kind} from {self.low} to {most}")
        return int(value) if whole else float(value)


@dataclass(frozen=True)
class Menu(Control):
    """One of several values, each with its text."""

    options: Sequence[tuple[str, str]]
    value: str

    def read(self, choice: object) -> str:
        if choice not in [value for value, _ in self.options]:
            raise self.wrong(choice, "one of the choices")
        return str(choice)


@dataclass(frozen=True)
class Layers(Control):
    """Any of the layers, each with a box to tick."""

    count: int
    value: Sequence[int] = ()

    def read(self, layers: object) -> list[int]:
        if not isinstance(layers, list) or not all(i in range(self.count) for i in layers):
            raise self.wrong(layers, f"a list of layers below {self.count}")
        return sorted(set(layers))


def seed_slider(name: str, label: str, tip: str, value: int) -> Slider:
    return Slider(name, label, tip, 0, SLIDER_SEEDS, value, most=MAX_SEED)


def moves_along(directions: Sequence[Directions]) -> Moves:
    """Edits along all these directions, by 0 at first."""
    return {f"{d.method}:{name}": d.edit(name, 0.0) for d in directions for name in d.names}


def moves_of(texts: Sequence[str], edits: Sequence[Edit]) -> Moves:
    """Edits by the texts of `--edit` that they were read from."""
    moves = {str(parsed(text)): edit for text, edit in zip(texts, edits, strict=True)}
    if len(moves) < len(edits):
        raise ValueError(f"one of these edits is given twice: {listed(texts)}")
    return moves


def edit_slider(name: str, tip: str, strength: float) -> Slider:
    reach = max(REACH, abs(strength))
    return Slider(name, name, tip, -reach, reach, strength, 0.1)


class Controls:
    """The controls of a generator and its edits, by section of the page; without those of the
    user's picture unless one `can_project`."""

    def __init__(self, loaded: LoadedGenerator, moves: Moves, *, can_project: bool = True) -> None:
        config = loaded.generator.config
        psi = loaded.psi
        rows = loaded.label_rows
        numbers = range(config.label_dim if rows is None else len(rows))
        self.layers = config.num_styles()
        last = config.num_styles() - 1
        names = list(loaded.label_names) or [f"class {i}" for i in numbers]
        if rows is not None:  # labels that are no classes
            names = [f"label {i + 1} of the data" for i in numbers]
        self.moves = moves
        to_seed = "1 is all the way to that seed"
        along = "Standard deviations along this direction"
        same = "The same seed always gives the same picture"
        average = "0 is the average picture, 1 full variety, below 0 the opposite"
        reach = max(1.5, abs(psi))
        classes = [(str(i), names[i]) for i in numbers]
        kinds = [("const", "stored"), ("random", "random"), ("none", "off")]
        noise: list[Slider | Menu | Layers] = [
            Menu("noise", "Noise", "Fine random detail", kinds, "const"),
            seed_slider("noise_seed", "Seed of random noise", "Chooses the random noise", 0),
        ]
        ticked = "Layers that take the other seed's styles: first pose and shape, last colors"
        spaces = [("w", "Natural (one style)"), ("w+", "Closer match (one style per layer)")]
        starts = [("seed", "the seed"), ("own", "your picture")][: 2 if can_project else 1]
        own: list[Slider | Menu | Layers] = [
            Slider("steps", "Steps", "More steps find a closer match", 20, 1000, 300, 10),
            Menu("space", "Match", "What the search may change", spaces, "w"),
        ]
        self.sections: dict[str, list[Slider | Menu | Layers]] = {
            "start": [Menu("start", "Start from", "What the picture is made from", starts, "seed")],
            "picture": [
                seed_slider("seed", "Seed", same, FIRST_SEED),
                *([Menu("label", "Class", "The kind of picture", classes, "0")] if classes else []),
                Slider("psi", "Truncation ψ", average, -reach, reach, psi, 0.05),
                *(noise if config.noise else []),
            ],
            "plane": [
                Slider("plane_x", "Toward the second seed", to_seed, -PLANE, PLANE, 0, 0.01),
                Slider("plane_y", "Toward the third seed", to_seed, -PLANE, PLANE, 0, 0.01),
                seed_slider("plane_a", "Second seed", "The seed at the right of the plane", 1),
                seed_slider("plane_b", "Third seed", "The seed at the top of the plane", 2),
            ],
            "mixing": [
                seed_slider("mix_seed", "Other seed", "The seed that gives the ticked layers", 1),
                Layers("mix_layers", "Layers", ticked, self.layers),
            ],
            "edits": [
                Slider("edit_first", "First layer", "Coarsest layer that edits move", 0, last, 0),
                Slider("edit_last", "Last layer", "Finest layer that edits move", 0, last, last),
                *(edit_slider(name, along, edit.strength) for name, edit in moves.items()),
            ],
            "own": own if can_project else [],
        }

    def view(self, values: Values, projected: Tensor | None = None) -> View:
        """What a browser sent; `projected` are the styles of the user's own picture. ValueError,
        for the user to read, where a control has no such value."""
        controls = [control for section in self.sections.values() for control in section]
        read: dict[str, Any] = {  # of the types that `View` names
            control.name: control.read(values.get(control.name)) for control in controls
        }
        strengths: dict[str, float] = {name: read.pop(name) for name in self.moves}
        read["label"] = int(read.get("label", 0))
        view = View(**read)
        if view.start == "own" and projected is None:
            raise ValueError("project a picture first, under 'Your picture'")
        return replace(
            view,
            edits=self.edits(strengths, view.edit_first, view.edit_last),
            styles=projected if view.start == "own" else None,
        )

    def edits(self, strengths: Mapping[str, float], first: int, last: int) -> list[Edit]:
        """The moves by their `strengths`, which are not 0, in the layers between two; each in its
        own layers where these are all."""
        first, last = sorted((first, last))
        rows = None if last - first + 1 == self.layers else range(first, last + 1)
        return [
            replace(edit, strength=strengths[name], layers=rows or edit.layers)
            for name, edit in self.moves.items()
            if strengths[name]
        ]
