"""What the page asks for, checked: its controls as a view, and the page's words for it.

A value of a browser is what anybody may have sent, so nothing is used that was not checked here.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeGuard, TypeVar

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.centers import Centers
from stylegan.edits import Edit, EditText, text_of
from stylegan.explore.scene import Blend, Mixing, Plane, Scene, View, growth_in, growth_of
from stylegan.files.keyframes import MOST, Keyframes, decoded, styles_of
from stylegan.messages import readable

SEED, POINTS = "seed", "points"  # what a picture starts from
LARGEST_PSI = 100.0
LARGEST_MOVE = 100.0  # standard deviations
Values = Mapping[str, Any]  # of the controls, by name
Choice = TypeVar("Choice")


def view_of(scene: Scene, values: Values) -> View:
    """The view that the controls specify. ValueError, fit for the user, where there is none."""
    config, loaded = scene.generator.config, scene.loaded
    layers = config.num_styles()
    mixing = Mixing(seed_of(values, "mix_seed"), layers_of(values, "mix_layers", layers))
    styles = None
    if choice(values, "start", (SEED, POINTS)) == POINTS:
        start, end = (point_of(scene, values.get(name)) for name in ("from", "to"))
        styles = torch.lerp(start, end, number(values, "between", 0, 1))
    cutoff = whole(values, "cutoff", 0, layers)
    texts, edits = edits_in(scene, values)
    return View(
        seed=seed_of(values, "seed"),
        label=class_of(scene, values),
        psi=number(values, "psi", -LARGEST_PSI, LARGEST_PSI),
        cutoff="all" if cutoff == layers else cutoff,
        centers=centers_of(scene, values),
        plane=plane_of(values),
        mixing=mixing if switch(values, "mix") else None,
        styles=styles,
        edits=edits,
        edit_texts=texts,
        growth=number(values, "growth", 2, growth_of(loaded.resolution, loaded.alpha)),
        noise=noise_of(values),
        noise_seed=seed_of(values, "noise_seed"),
        blend=blend_of(scene, values),
        tuned=tuned_of(scene, values),
    )


def tuned_of(scene: Scene, values: Values) -> int:
    """The number of a tuned generator that is still there, or 0."""
    number = whole(values, "tuned", 0, sampling.MAX_SEED)
    scene.network(number)
    return number


def layers_of(values: Values, name: str, layers: int) -> tuple[int, ...]:
    """Numbers of layers, each once, in order."""
    given = values.get(name)
    if not isinstance(given, list) or len(given) > layers:
        raise ValueError(f"{name} is a list of layers from 0 to {layers - 1}, not {shown(given)}")
    return tuple(sorted({whole({name: one}, name, 0, layers - 1) for one in given}))


def centers_of(scene: Scene, values: Values) -> Centers | Literal["none"] | None:
    """What truncation pulls toward."""
    chosen = choice(values, "centers", [name for name, _ in centers_known(scene)])
    match chosen:
        case "none":
            return None if scene.loaded.centers is None else "none"
        case "file":
            return None
        case "class":
            return "class"
    return int(chosen)


def centers_known(scene: Scene) -> list[tuple[str, str]]:
    """The choices of centres, the first of which is that of the start, and what they are."""
    kept = scene.loaded.centers
    own = [] if kept is None else [("file", f"the file's centres ({len(kept)})")]
    counts = [(str(count), f"the nearest of {count} centres") for count in (4, 16, 64)]
    kinds = [("class", "the mean of the class")] if scene.generator.config.label_dim else []
    return [*own, ("none", "the average"), *counts, *kinds]


def plane_of(values: Values) -> Plane | None:
    """A place in the plane of three seeds; None where the picture's own is."""
    x, y = (number(values, name, -LARGEST_MOVE, LARGEST_MOVE) for name in ("plane_x", "plane_y"))
    seeds = seed_of(values, "plane_a"), seed_of(values, "plane_b")
    return Plane(seeds, x, y) if x or y else None


def blend_of(scene: Scene, values: Values) -> Blend | None:
    """What is taken from the other network; None where there is none, or nothing of it is."""
    if scene.other is None:
        return None
    share = number(values, "share", 0, 1)
    doublings = whole(values, "blend_from", 2, growth_of(scene.loaded.resolution))
    return Blend(2**doublings, share) if share else None


def is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(values: Values, name: str, least: float, most: float) -> float:
    """A number between two, which are included."""
    value = values.get(name)
    if is_number(value) and least <= value <= most:
        return float(value)
    raise ValueError(f"{name} is a number from {least:g} to {most:g}, not {shown(value)}")


def whole(values: Values, name: str, least: int, most: float) -> int:
    """A number without a fraction; JavaScript has only one kind of numbers."""
    value = values.get(name)
    if is_number(value) and least <= value <= most and value == math.floor(value):
        return int(value)
    raise ValueError(f"{name} is a whole number from {least} to {most:.0f}, not {shown(value)}")


def shown(value: Any) -> str:
    return "empty" if value is None else readable(repr(value), 40)


def seed_of(values: Values, name: str) -> int:
    return whole(values, name, 0, sampling.MAX_SEED)


def switch(values: Values, name: str) -> bool:
    return choice(values, name, (False, True))


def choice(values: Values, name: str, known: Sequence[Choice]) -> Choice:
    """One of the known values, of their own type."""
    value = values.get(name)
    for one in known:
        if type(value) is type(one) and value == one:
            return one
    raise ValueError(f"{name} is one of {', '.join(map(repr, known))}, not {shown(value)}")


def noise_of(values: Values) -> Literal["const", "random", "none"]:
    kinds: tuple[Literal["const", "random", "none"], ...] = ("const", "random", "none")
    return choice(values, "noise", kinds)


def class_of(scene: Scene, values: Values) -> int | None:
    """The class that is chosen, None where there are none."""
    count = scene.generator.config.label_dim
    return whole(values, "label", 0, count - 1) if count else None


def edits_in(scene: Scene, values: Values) -> tuple[list[str], list[Edit]]:
    """The moves of the sliders that are not at 0, in the chosen layers, and of saved edits; with
    what `--edit` says for each."""
    layers = scene.generator.config.num_styles()
    first, last = sorted(whole(values, name, 0, layers - 1) for name in ("edit_first", "edit_last"))
    chosen = (
        range(first, last + 1) if last - first + 1 < layers else None
    )  # None: a direction's own
    texts, edits = [], []
    for method, found in scene.directions.items():
        called = found.called()
        for name, amount in zip(
            called, moves_of(values.get(method), len(called), method), strict=True
        ):
            if amount:
                texts.append(text_of(EditText(f"{method}:{name}", amount, chosen)))
                edits.append(found.edit(name, amount, chosen))
    given = values.get("saved")
    if not isinstance(given, dict):
        raise ValueError(f"saved are strengths of saved edits by name, not {shown(given)}")
    saved = scene.saved() if any(given.values()) else {}
    for name, strength in given.items():
        amount = number({name: strength}, name, -LARGEST_MOVE, LARGEST_MOVE)
        if amount and name not in saved:
            raise ValueError(f"there is no saved edit {shown(name)}; load this page anew")
        if amount:
            texts.append(text_of(EditText(name, amount)))
            edits += saved[name].times(amount)
    return texts, edits


def moves_of(given: Any, count: int, method: str) -> list[float]:
    """How far to move along each direction of a method."""
    if not isinstance(given, list) or len(given) != count:
        raise ValueError(f"{method} is a list of {count} numbers, not {shown(given)}")
    named = {f"direction {i + 1} of {method}": value for i, value in enumerate(given)}
    return [number(named, name, -LARGEST_MOVE, LARGEST_MOVE) for name in named]


def point_of(scene: Scene, text: Any) -> Tensor:
    """The styles (num_styles, w_dim) of a saved point; ValueError if it is not of this network."""
    if text is None:
        raise ValueError("choose two saved points; Save point keeps the picture that is shown")
    return styles_of(text, scene.generator.config, "the saved point")


def keyframes_in(scene: Scene, values: Values) -> Keyframes:
    """The saved points as keyframes of a film."""
    texts = values.get("points")
    if not isinstance(texts, list) or not 2 <= len(texts) <= MOST:
        raise ValueError("save at least two points; Save point keeps the picture that is shown")
    seconds = number(values, "film_seconds", 0.1, 60)
    ws = torch.stack([point_of(scene, text) for text in texts])
    loop, ease = switch(values, "loop"), switch(values, "ease")
    return Keyframes(ws, [seconds] * len(ws), loop, ease)


def file_of(values: Values) -> tuple[str, bytes]:
    """Name and content of a file that the user brought."""
    file = values.get("file")
    if not isinstance(file, dict) or not isinstance(file.get("name"), str):
        raise ValueError("choose a file first")
    name = file["name"].replace("\\", "/").rpartition("/")[2]
    return readable(name, 80) or "the file", decoded(file.get("content"), "the file's content")


def name_of(scene: Scene, view: View) -> str:
    """A short name for a picture, fit for files."""
    if view.styles is not None:
        return "point"
    label = "" if view.label is None else f"-{class_names(scene)[view.label]}"
    mixed = "" if view.mixing is None else f"-mixed{view.mixing.seed}"
    moves = "-moved" if view.plane is not None else ""
    moves += "-edited" if view.edits else ""
    moves += "-tuned" if view.tuned else ""
    name = f"seed{view.seed:04d}{label}{mixed}{moves}"
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)


def class_names(scene: Scene) -> list[str]:
    """The name, or number, of every class."""
    count, names = scene.generator.config.label_dim, scene.loaded.label_names
    return list(map(str, names)) if len(names) == count else [f"class {i}" for i in range(count)]


def ranges_text(layers: Sequence[int]) -> str:
    """`0-3,5` of layers in order."""
    starts = [i for i in layers if i - 1 not in layers]
    ends = [i for i in layers if i + 1 not in layers]
    parts = [f"{a}-{b}" if a < b else f"{a}" for a, b in zip(starts, ends, strict=True)]
    return ",".join(parts) or "none"


def described(scene: Scene, view: View) -> str:
    """One line about a picture."""
    resolution, alpha = growth_in(scene, view)
    size = f"{resolution}×{resolution}"  # noqa: RUF001
    if alpha < 1:
        size += f", {100 * alpha:.0f} % grown in"
    edits = [f"--edit {text}" for text in view.edit_texts]
    if view.blend is not None:
        edits.append(f"blend --from {view.blend.first} --share {view.blend.share:g}")
    if view.tuned:
        edits.append("tuned generator")
    if view.styles is not None:
        return " · ".join([size, *edits])
    words = [f"seed {view.seed}", f"ψ {view.psi:g}", size]
    if view.label is not None:
        words.insert(1, class_names(scene)[view.label])
    if view.mixing is not None:
        words.append(f"layers {ranges_text(view.mixing.layers)} of seed {view.mixing.seed}")
    if view.plane is not None:
        for share, seed in zip((view.plane.x, view.plane.y), view.plane.seeds, strict=True):
            words.append(f"{share:g} of the way to seed {seed}")
    if view.centers is not None:
        words.append(f"--centers {view.centers}")
    return " · ".join([*words, *edits])
