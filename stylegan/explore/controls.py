"""What the controls of the page specify, as a view; and the page's words for it."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stylegan import sampling
from stylegan.explore.points import Point, between
from stylegan.explore.scene import Mixing, Scene, View, growth_in

SEED, POINTS = "Seed", "Saved points"
SMOOTH = 256  # pixels, from which on enlarged pictures are smoothed
Values = Mapping[str, Any]  # of the controls, by name


def view_of(scene: Scene, values: Values, points: Sequence[Point]) -> View:
    """The view that the controls specify. ValueError, fit for the user, where there is none.

    A value of a browser is what anybody may have sent, so each is checked where it is used.
    """
    config = scene.generator.config
    seed, mix_seed, noise_seed = (whole(values[name], name) for name in SEEDS)
    sampling.check_seeds([seed, mix_seed, noise_seed])
    mixing = None
    if values["mix"]:
        first, last = sorted(layer(scene, values[name]) for name in ("mix_first", "mix_last"))
        mixing = Mixing(mix_seed, range(first, last + 1))
    styles = None
    if values["start"] == POINTS:
        start, end = (point(points, values[name]) for name in ("from", "to"))
        styles = between(start, end, float(values["between"]))
    cutoff = whole(values["cutoff"], "cutoff")
    return View(
        seed=seed,
        label=class_of(scene, values),
        psi=float(values["psi"]),
        cutoff="all" if cutoff >= config.num_styles() else cutoff,
        mixing=mixing,
        styles=styles,
        moves={method: values[method] for method in scene.directions},
        growth=float(values["growth"]),
        noise=values["noise"],
        noise_seed=noise_seed,
    )


SEEDS = ("seed", "mix_seed", "noise_seed")


def whole(value: Any, name: str) -> int:
    """A number without fraction: sliders send 3.0, an emptied field nothing."""
    if value is None or int(value) != value:
        raise ValueError(f"{name} is a whole number, not {value}")
    return int(value)


def class_of(scene: Scene, values: Values) -> int | None:
    """The class that is chosen, None where there are none."""
    count = scene.generator.config.label_dim
    if count == 0:
        return None
    label = whole(values["label"], "class")
    if not 0 <= label < count:
        raise ValueError(f"the class is from 0 to {count - 1}, not {label}")
    return label


def layer(scene: Scene, value: Any) -> int:
    """The row of ws that the page calls layer `value`; it counts from 1."""
    layers = scene.generator.config.num_styles()
    if not 1 <= whole(value, "layer") <= layers:
        raise ValueError(f"the layers are 1 to {layers}, not {value}")
    return int(value) - 1


def point(points: Sequence[Point], index: Any) -> Point:
    """The saved point that a menu means."""
    if not points:
        raise ValueError("no points are saved yet: press Save first")
    if index is None or not 0 <= index < len(points):
        raise ValueError("choose two of the saved points")
    return points[index]


def name_of(scene: Scene, view: View) -> str:
    """A short name for a picture, fit for files."""
    if view.styles is not None:
        return "point"
    label = "" if view.label is None else f"-{class_names(scene)[view.label]}"
    mixed = "" if view.mixing is None else f"-mixed{view.mixing.seed}"
    moves = "-moved" if any(map(any, view.moves.values())) else ""
    name = f"seed{view.seed:04d}{label}{mixed}{moves}"
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)


def class_names(scene: Scene) -> list[str]:
    """The name, or number, of every class."""
    count, names = scene.generator.config.label_dim, scene.loaded.label_names
    return list(map(str, names)) if len(names) == count else [f"class {i}" for i in range(count)]


def described(scene: Scene, values: Values, view: View) -> str:
    """One line about the picture that the controls ask for."""
    resolution, alpha = growth_in(scene, view)
    size = f"{resolution}×{resolution}"  # noqa: RUF001
    if alpha < 1:
        size += f", {100 * alpha:.0f} % grown in"
    if view.styles is not None:
        return f"{way_named(values)} · {size}"
    words = [f"seed {view.seed}", f"ψ {view.psi:g}", size]
    if view.label is not None:
        words.insert(1, class_names(scene)[view.label])
    if view.mixing is not None:
        layers = view.mixing.layers
        words.append(f"layers {layers.start + 1} to {layers.stop} of seed {view.mixing.seed}")
    return " · ".join(words)


def way_named(values: Values) -> str:
    """Where between two saved points."""
    first, last, t = values["from"] + 1, values["to"] + 1, values["between"]
    if first == last or t in (0, 1):
        return f"point {last if t == 1 else first}"
    return f"{100 * t:.0f} % from point {first} to {last}"


def png(pixels: np.ndarray) -> bytes:
    """uint8 (H, W, C) as a file, packed quickly rather than tightly."""
    buffer = io.BytesIO()
    sampling.picture(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def figure_html(pixels: np.ndarray, name: str, caption: str) -> str:
    """The HTML of a picture with its caption; the picture is inside, so it is nobody else's."""
    kind = "sharp" if max(pixels.shape[:2]) < SMOOTH else "smooth"
    source = base64.b64encode(png(pixels)).decode()
    return (
        f'<figure><img class="{kind}" alt="{html.escape(caption)}" '
        f'data-name="{html.escape(name)}.png" src="data:image/png;base64,{source}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )
