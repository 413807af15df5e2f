"""The page's controls, from which it is built and requests are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor

from stylegan.directions import Directions
from stylegan.directions.texts import parsed
from stylegan.machine.messages import listed, readable
from stylegan.networks.edits import Edit
from stylegan.projection import Space
from stylegan.sampling import MAX_SEED
from stylegan.sampling.pretrained import Pretrained

FIRST_SEED = 10  # the first picture: a good one of both bundled generators
SLIDER_SEEDS = 9999  # the end of sliders for seeds; their numbers take any seed
REACH = 4  # standard deviations that a direction's slider moves either way
PLANE = 1.25  # the reach of the plane of seeds; the seeds are at 1
Values = Mapping[str, object]  # sent by a browser: anything, until a control has read it
Moves = Mapping[str, Edit]  # text of `--edit` without the strength -> the edit at first


@dataclass(frozen=True, eq=False)
class View:
    """The values of the controls, by their names; the default of one that a generator does not have
    changes nothing. `edits` and `styles` follow from them."""

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
    """The name of a value, its label, and the tip that is shown over it."""

    name: str
    label: str
    tip: str

    def read(self, value: object) -> object:
        """Value that a browser sent. Raises ValueError if the control has no such value."""
        raise NotImplementedError

    def wrong(self, value: object, expected: str) -> ValueError:
        return ValueError(f"{self.label}: {readable(repr(value), 40)} is not {expected}")


@dataclass(frozen=True)
class Slider(Control):
    """A number, whole if `step` is."""

    low: float
    high: float
    value: float
    step: float = 1
    most: float | None = None  # the largest that may be typed, beyond the slider

    def read(self, value: object) -> float:
        whole = self.step % 1 == 0
        most = self.high if self.most is None else self.most
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and self.low <= value <= most
            and not (whole and value % 1)
        ):
            return int(value) if whole else float(value)
        kind = "whole number" if whole else "number"
        raise self.wrong(value, f"a {kind} from {self.low} to {most}")


@dataclass(frozen=True)
class Menu(Control):
    """One of several values, each with its text."""

    options: Sequence[tuple[str, str]]
    value: str

    def read(self, value: object) -> str:
        if value not in [choice for choice, _ in self.options]:
            raise self.wrong(value, "one of the choices")
        return str(value)


@dataclass(frozen=True)
class Layers(Control):
    """Any of the layers, each with a box to tick."""

    count: int
    value: Sequence[int] = ()

    def read(self, value: object) -> list[int]:
        if not isinstance(value, list) or not all(i in range(self.count) for i in value):
            raise self.wrong(value, f"a list of layers below {self.count}")
        return sorted(set(value))


def seed_slider(name: str, label: str, tip: str, value: int) -> Slider:
    return Slider(name, label, tip, 0, SLIDER_SEEDS, value, most=MAX_SEED)


def moves_along(directions: Sequence[Directions]) -> Moves:
    """Make edits along all these directions, by 0 at first."""
    return {f"{d.method}:{name}": d.edit(name, 0.0) for d in directions for name in d.names}


def moves_of(texts: Sequence[str], edits: Sequence[Edit]) -> Moves:
    """Name edits by the texts of `--edit` that they were read from."""
    moves = {str(parsed(text)): edit for text, edit in zip(texts, edits, strict=True)}
    if len(moves) < len(edits):
        raise ValueError(f"one of these edits is given twice: {listed(texts)}")
    return moves


class Controls:
    """The controls of a generator and its edits, by section of the page; without those of the
    user's picture unless one `can_project`."""

    def __init__(self, loaded: Pretrained, moves: Moves, *, can_project: bool = True) -> None:
        config = loaded.generator.config
        self.layers = config.num_styles()
        self.moves = moves
        last = self.layers - 1
        names = list(loaded.label_names) or [f"class {i}" for i in range(config.label_dim)]
        if loaded.label_rows is not None:  # labels that are no classes
            names = [f"label {i + 1} of the data" for i in range(len(loaded.label_rows))]
        classes = [(str(i), name) for i, name in enumerate(names)]
        to_seed = "1 is all the way to that seed"
        along = "Standard deviations along this direction"
        same = "The same seed always gives the same picture"
        average = "0 is the average picture, 1 full variety, below 0 the opposite"
        reach = max(1.5, abs(loaded.look.psi))
        kinds = [("const", "stored"), ("random", "random"), ("none", "off")]
        noise: list[Control] = [
            Menu("noise", "Noise", "Fine random detail", kinds, "const"),
            seed_slider("noise_seed", "Seed of random noise", "Chooses the random noise", 0),
        ]
        ticked = "Layers that take the other seed's styles: first pose and shape, last colors"
        spaces = [("w", "Natural (one style)"), ("w+", "Closer match (one style per layer)")]
        starts = [("seed", "the seed"), ("own", "your picture")][: 2 if can_project else 1]
        own: list[Control] = [
            Slider("steps", "Steps", "More steps find a closer match", 20, 1000, 300, 10),
            Menu("space", "Match", "What the search may change", spaces, "w"),
        ]
        edits: list[Control] = []
        for name, edit in moves.items():
            far = max(REACH, abs(edit.strength))
            edits.append(Slider(name, name, along, -far, far, edit.strength, 0.1))
        self.sections: dict[str, list[Control]] = {
            "start": [Menu("start", "Start from", "What the picture is made from", starts, "seed")],
            "picture": [
                seed_slider("seed", "Seed", same, FIRST_SEED),
                *([Menu("label", "Class", "The kind of picture", classes, "0")] if classes else []),
                Slider("psi", "Truncation ψ", average, -reach, reach, loaded.look.psi, 0.05),
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
                *edits,
            ],
            "own": own if can_project else [],
        }

    def view(self, values: Values, projected: Tensor | None = None) -> View:
        """Read the values of a browser; `projected` are the styles of the user's own picture.
        ValueError, for the user to read, where a control has no such value."""
        read: dict[str, Any] = {  # of the types that `View` names
            control.name: control.read(values.get(control.name))
            for section in self.sections.values()
            for control in section
        }
        strengths: dict[str, float] = {name: read.pop(name) for name in self.moves}
        read["label"] = int(read.get("label", 0))
        view = View(**read)
        if view.start == "own" and projected is None:
            raise ValueError("project a picture first, under 'Your picture'")
        first, last = sorted((view.edit_first, view.edit_last))
        rows = None if last - first + 1 == self.layers else range(first, last + 1)
        edits = [  # each in its own layers where all are chosen
            replace(edit, strength=strengths[name], layers=rows or edit.layers)
            for name, edit in self.moves.items()
            if strengths[name]
        ]
        return replace(view, edits=edits, styles=projected if view.start == "own" else None)
