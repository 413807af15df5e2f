"""The page's controls, from which it is built and its requests are parsed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor

from stylegan.directions import Directions
from stylegan.directions.edit_syntax import parsed
from stylegan.networks.edits import Edit
from stylegan.projection import Space
from stylegan.sampling import MAX_SEED
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.records import finite_float
from stylegan.utils.text import join_truncated, sanitize

FIRST_SEED = 10  # initially shown: a good sample of both bundled generators
SLIDER_SEEDS = 9999  # the largest seed of a slider; any seed can be typed
REACH = 4  # the largest value of a direction's slider, in standard deviations
PLANE = 1.25  # the half width of the seed plane; the seeds are at 1
Values = Mapping[str, object]  # from a browser: unchecked until a control has read them
Moves = Mapping[str, Edit]  # text of `--edit` without the strength -> the initial edit


@dataclass(frozen=True, eq=False)
class View:
    """Values of the controls by name, and the `edits` and `styles` that follow from them.

    The default of a control that a generator lacks has no effect.
    """

    seed: int = 0
    label: int = 0  # index of the class, or of a label of the data; 0 without labels
    psi: float = 0.7
    noise: Literal["const", "random", "none"] = "const"
    noise_seed: int = 0  # of "random" noise
    start: Literal["seed", "own"] = "seed"  # own = the user's image, after its projection
    plane_x: float = 0  # toward seed `plane_a`, in the plane of w through three seeds
    plane_y: float = 0  # toward seed `plane_b`
    plane_a: int = 1
    plane_b: int = 2
    mix_seed: int = 1
    mix_layers: Sequence[int] = ()  # layers that take their styles from `mix_seed`
    edit_first: int = 0  # one end of the range of layers that edits move
    edit_last: int = 0  # its other end
    steps: int = 300  # of a search
    space: Space = "w"
    edits: Sequence[Edit] = ()
    styles: Tensor | None = None  # (num_ws, w_dim) of the user's image, instead of the seed's


@dataclass(frozen=True)
class Control:
    """The name of a value, its label and its tooltip."""

    name: str
    label: str
    tip: str

    def read(self, value: object) -> object:
        """Parse a value from a browser. Raises ValueError if the control does not have it."""
        raise NotImplementedError

    def wrong(self, value: object, expected: str) -> ValueError:
        return ValueError(f"{self.label} must be {expected}, got {sanitize(repr(value), 40)}")


@dataclass(frozen=True)
class Slider(Control):
    """A number, which is whole if `step` is."""

    low: float
    high: float
    value: float
    step: float = 1
    most: float | None = None  # the largest number that can be typed; None = `high`

    def read(self, value: object) -> float:
        whole = self.step % 1 == 0
        most = self.high if self.most is None else self.most
        number = finite_float(value)
        if number is not None and self.low <= number <= most and not (whole and number % 1):
            return int(number) if whole else number
        kind = "whole number" if whole else "number"
        raise self.wrong(value, f"a {kind} from {self.low} to {most}")


@dataclass(frozen=True)
class Menu(Control):
    """One of several values, each with a text."""

    options: Sequence[tuple[str, str]]
    value: str

    def read(self, value: object) -> str:
        if value not in [choice for choice, _ in self.options]:
            raise self.wrong(value, "one of its options")
        return str(value)


@dataclass(frozen=True)
class Layers(Control):
    """Any of the layers, each with a checkbox."""

    count: int
    value: Sequence[int] = ()

    def read(self, value: object) -> list[int]:
        if not isinstance(value, list) or not all(i in range(self.count) for i in value):
            raise self.wrong(value, f"a list of layers below {self.count}")
        return sorted(set(value))


def seed_slider(name: str, label: str, tip: str, value: int) -> Slider:
    return Slider(name, label, tip, 0, SLIDER_SEEDS, value, most=MAX_SEED)


def moves_along(directions: Sequence[Directions]) -> Moves:
    """Edits along all directions, with strength 0, by name."""
    return {f"{d.method}:{name}": d.edit(name, 0.0) for d in directions for name in d.names}


def moves_of(texts: Sequence[str], edits: Sequence[Edit]) -> Moves:
    """Edits by the texts of `--edit` that they were parsed from."""
    moves = {str(parsed(text)): edit for text, edit in zip(texts, edits, strict=True)}
    if len(moves) < len(edits):
        raise ValueError(f"edits must differ, but one is given twice: {join_truncated(texts)}")
    return moves


class Controls:
    """Controls of a generator and its edits, by section; of the user's image if `can_project`."""

    def __init__(self, loaded: Pretrained, moves: Moves, *, can_project: bool = True) -> None:
        config = loaded.generator.config
        self.layers = config.num_ws(loaded.settings.synthesis_resolution)
        self.moves = moves
        last = self.layers - 1
        names = list(loaded.label_names) or [f"class {i}" for i in range(config.label_dim)]
        if loaded.label_rows is not None:  # labels are not classes
            names = [f"label {i + 1} of the data" for i in range(len(loaded.label_rows))]
        classes = [(str(i), name) for i, name in enumerate(names)]
        to_seed = "1 is all the way to that seed"
        along = "Standard deviations along this direction"
        same = "The same seed always gives the same image"
        average = "0 is the average image, 1 full variety, below 0 the opposite"
        reach = max(1.5, abs(loaded.settings.psi))
        kinds = [("const", "stored"), ("random", "random"), ("none", "off")]
        noise: list[Control] = [
            Menu("noise", "Noise", "Fine random detail", kinds, "const"),
            seed_slider("noise_seed", "Seed of random noise", "Chooses the random noise", 0),
        ]
        ticked = "Layers that take the other seed's styles: first pose and shape, last colors"
        spaces = [("w", "Natural (one style)"), ("w+", "Closer match (one style per layer)")]
        starts = [("seed", "the seed"), ("own", "your image")][: 2 if can_project else 1]
        own: list[Control] = [
            Slider("steps", "Steps", "More steps find a closer match", 20, 1000, 300, 10),
            Menu("space", "Match", "What the search may change", spaces, "w"),
        ]
        edits: list[Control] = []
        for name, edit in moves.items():
            far = max(REACH, abs(edit.strength))
            edits.append(Slider(name, name, along, -far, far, edit.strength, 0.1))
        self.sections: dict[str, list[Control]] = {
            "start": [Menu("start", "Start from", "What the image is made from", starts, "seed")],
            "picture": [
                seed_slider("seed", "Seed", same, FIRST_SEED),
                *([Menu("label", "Class", "The kind of image", classes, "0")] if classes else []),
                Slider("psi", "Truncation ψ", average, -reach, reach, loaded.settings.psi, 0.05),
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
        """Parse values from a browser; `projected` are the styles of the user's image."""
        read: dict[str, Any] = {  # of the types in `View`
            control.name: control.read(values.get(control.name))
            for section in self.sections.values()
            for control in section
        }
        strengths: dict[str, float] = {name: read.pop(name) for name in self.moves}
        read["label"] = int(read.get("label", 0))
        view = View(**read)
        if view.start == "own" and projected is None:
            raise ValueError("project an image first, under 'Your image'")
        first, last = sorted((view.edit_first, view.edit_last))
        rows = None if last - first + 1 == self.layers else range(first, last + 1)
        edits = [  # each in its own layers if the range is all layers
            replace(edit, strength=strengths[name], layers=rows or edit.layers)
            for name, edit in self.moves.items()
            if strengths[name]
        ]
        return replace(view, edits=edits, styles=projected if view.start == "own" else None)
