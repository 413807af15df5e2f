"""The page: what each control sets off. The numbers are made elsewhere.

What a user has made is in the browser and in the state of the session, never here.
"""

import base64
import html
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from threading import Event
from typing import Any, ParamSpec, TypeVar

import gradio as gr

from stylegan import sampling
from stylegan.explore.controls import (
    POINTS,
    SEED,
    class_of,
    described,
    figure_html,
    name_of,
    view_of,
)
from stylegan.explore.layout import LARGEST_SEED, Layout
from stylegan.explore.points import Point, keep, latents_file, point_of
from stylegan.explore.projecting import searched, target_of
from stylegan.explore.scene import Scene, render

DOWNLOAD_PICTURE = """() => {
  const picture = document.querySelector("#picture img");
  const link = document.createElement("a");
  link.href = picture.src;
  link.download = picture.dataset.name;
  link.click();
}"""
DOWNLOAD_LATENTS = """(content) => {
  const link = document.createElement("a");
  link.href = "data:application/octet-stream;base64," + content;
  link.download = document.querySelector("#picture img").dataset.name.replace(/png$/, "npz");
  link.click();
}"""

OF_SEED = ("seed", "label", "psi", "cutoff", "mix")
OF_MIXING = ("mix_seed", "mix_first", "mix_last")
OF_POINTS = ("from", "to", "between")
HOUR, DAY = 3600, 86400  # seconds: how often files are looked through, how old they become
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}

Points = tuple[Point, ...]
Given = ParamSpec("Given")
Result = TypeVar("Result")


def politely(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """What a user can do wrong becomes a message on the page."""

    @wraps(function)
    def wrapped(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (ValueError, OSError) as error:
            raise refusal(error) from error

    return wrapped


def refusal(error: Exception) -> gr.Error:
    """A message for the page, as text without markup."""
    return gr.Error(html.escape(str(error)), print_exception=False)


class Page:
    """One page, and what its controls set off."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.painter = ThreadPoolExecutor(1, "painter")  # pictures one at a time, by one thread
        self.closing = Event()  # ends a search
        with gr.Blocks(
            title="StyleGAN explorer", analytics_enabled=False, delete_cache=(HOUR, DAY)
        ) as self.blocks:
            self.layout = Layout(scene)
            self.controls = self.layout.controls
            self.everything = [self.layout.points, *self.controls.values()]
            self.wire_controls()
            self.wire_points()
            self.wire_projection()

    def on(self, triggers: list[Any], function: Callable[..., Any], outputs: list[Any]) -> None:
        """Draw at these events, quickly: while a picture is made, only the last request waits."""
        gr.on(triggers, politely(function), **self.drawing(outputs))

    def drawing(self, outputs: list[Any]) -> dict[str, Any]:
        """Arguments of an event that draws a picture; the painter makes them one by one."""
        return {
            "inputs": self.everything,
            "outputs": [*outputs, self.layout.picture],
            "trigger_mode": "always_last",
            "concurrency_limit": None,
            **QUIET,
        }

    def inputs(self, *names: str) -> list[Any]:
        """What a user's moving these controls sets off, not the page's own."""
        return [self.controls[name].input for name in names]  # type: ignore[attr-defined]

    def wire_controls(self) -> None:
        """Every control draws the picture anew, and turns on what it is about."""
        layout, controls = self.layout, self.controls
        chosen: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
            (OF_SEED, {"start": SEED}),
            (OF_MIXING, {"start": SEED, "mix": True}),
            (("noise_seed",), {"noise": "random"}),
        )
        others = set(controls) - {"start", *OF_POINTS}
        for names, choices in chosen:
            outputs = [controls[name] for name in choices]
            self.on(self.inputs(*names), partial(self.show, choices), outputs)
            others -= set(names)
        rest = [name for name in controls if name in others]
        self.on([self.blocks.load, *self.inputs(*rest)], partial(self.show, {}), [])
        from_points = [controls["start"], *layout.moves]
        self.on(self.inputs(*OF_POINTS), self.show_points, from_points)
        self.on(self.inputs("start"), self.show_start, from_points)
        layout.random.click(random_seed, outputs=controls["seed"], **QUIET).then(
            politely(partial(self.show, {"start": SEED})), **self.drawing([controls["start"]])
        )
        if layout.moves:
            layout.reset.click(lambda: [0] * len(layout.moves), outputs=layout.moves, **QUIET).then(
                politely(partial(self.show, {})), **self.drawing([])
            )

    def wire_points(self) -> None:
        """Saving, choosing, removing; and files of the picture that is shown."""
        layout, controls = self.layout, self.controls
        first, last, way = (controls[name] for name in OF_POINTS)
        listed = [layout.points, layout.gallery, first, last]
        layout.save.click(politely(self.save_point), self.everything, listed, **QUIET)
        layout.remove.click(politely(remove_point), [layout.points, first], listed, **QUIET)
        layout.gallery.select(choose, outputs=[first, way], **QUIET).then(
            politely(partial(self.show_points, reset=True)),
            **self.drawing([controls["start"], *layout.moves]),
        )
        layout.picture_file.click(None, js=DOWNLOAD_PICTURE)
        layout.latents_file.click(
            politely(self.latents_of), self.everything, layout.latents, **QUIET
        ).then(None, layout.latents, js=DOWNLOAD_LATENTS)

    def wire_projection(self) -> None:
        """One search at a time, which can be stopped; its result is shown as a point."""
        layout, controls = self.layout, self.controls
        first, last, way = (controls[name] for name in OF_POINTS)
        search = layout.project.click(
            self.search,
            [layout.upload, layout.steps, layout.each_layer, *self.everything],
            [layout.target, layout.picture, layout.points, layout.gallery, first, last, way],
            concurrency_limit=1,
            **QUIET,
        )
        search.success(
            politely(partial(self.show_points, reset=True)),
            **self.drawing([controls["start"], *layout.moves]),
        )
        layout.stop.click(None, cancels=[search])

    def values(self, given: Sequence[Any]) -> dict[str, Any]:
        """The values of the controls by name, those of a method's sliders as one list."""
        values = dict(zip(self.controls, given, strict=True))
        of_methods = self.layout.sliders.items()
        return values | {method: [values[name] for name in names] for method, names in of_methods}

    def drawn(self, points: Points, values: dict[str, Any]) -> str:
        """The picture that the controls ask for, as HTML."""
        view = view_of(self.scene, values, points)
        pixels = self.painter.submit(render, self.scene, view).result()
        name, caption = name_of(self.scene, view), described(self.scene, values, view)
        return figure_html(pixels, name, caption)

    def show(self, choices: dict[str, Any], points: Points, *given: Any) -> Any:
        """The picture, with some controls set: what these now are, and the picture."""
        picture = self.drawn(points, self.values(given) | choices)
        return [*choices.values(), picture] if choices else picture

    def show_points(self, points: Points, *given: Any, reset: bool = False) -> list[Any]:
        """The picture from saved points. They hold what the sliders of directions did, so these go
        back to 0 when points take the place of a seed, and at `reset`."""
        values, moves = self.values(given), self.layout.moves
        if not (reset or values["start"] == SEED):
            return [POINTS, *(gr.skip() for _ in moves), self.drawn(points, values)]
        values |= {method: [0] * len(names) for method, names in self.layout.sliders.items()}
        return [POINTS, *(0 for _ in moves), self.drawn(points, values | {"start": POINTS})]

    def show_start(self, points: Points, *given: Any) -> list[Any]:
        """The picture from what was chosen to start from."""
        values = self.values(given)
        if values["start"] == POINTS:
            return self.show_points(points, *given, reset=True)
        return [SEED, *(gr.skip() for _ in self.layout.moves), self.drawn(points, values)]

    def save_point(self, points: Points, *given: Any) -> tuple[Any, ...]:
        """The picture that is shown becomes a point."""
        view = view_of(self.scene, self.values(given), points)
        name = name_of(self.scene, view)
        new = self.painter.submit(point_of, self.scene, view, name).result()
        points = keep(points, new)
        gr.Info(f"Saved as point {len(points)}.", duration=2)
        return listed(points, max(len(points) - 2, 0), len(points) - 1)

    def latents_of(self, points: Points, *given: Any) -> str:
        """The file of latents, as text."""
        view = view_of(self.scene, self.values(given), points)
        content = self.painter.submit(latents_file, self.scene, view).result()
        return base64.b64encode(content).decode()

    def search(
        self, file: str | None, steps: float, each_layer: bool, points: Points, *given: Any
    ) -> Iterator[list[Any]]:
        """Look for the picture that was brought, showing how it goes; the result is a point."""
        try:
            if file is None:
                raise ValueError("choose a picture first")
            path, label = Path(file), class_of(self.scene, self.values(given))
            target = target_of(self.scene, path)
            wanted = figure_html(sampling.to_uint8(target)[0], path.stem, f"wanted: {path.name}")
            for now in searched(
                self.scene,
                target,
                steps=int(steps),
                each_layer=each_layer,
                label=label,
                closing=self.closing,
            ):
                caption = f"step {now.step} of {now.steps} · {now.decibels:.1f} dB"
                picture = figure_html(now.picture, path.stem, caption)
                yield [wanted, picture, *(gr.skip() for _ in range(5))]
            if self.closing.is_set():
                return
            point = Point(f"{path.name}, {now.decibels:.1f} dB", now.styles, now.picture)
            points = keep(points, point)
            yield [wanted, picture, *listed(points, len(points) - 1, len(points) - 1), 0]
        except (ValueError, OSError) as error:
            raise refusal(error) from error


def listed(points: Points, first: int | None, last: int | None) -> tuple[Any, ...]:
    """The points as the state, the gallery and the two menus have them."""
    choices = [(f"{i + 1}: {point.name}", i) for i, point in enumerate(points)]
    pictures = [(sampling.picture(point.picture), f"{i + 1}") for i, point in enumerate(points)]
    menus = (gr.update(choices=choices, value=value) for value in (first, last))
    return points, pictures, *menus


def remove_point(points: Points, index: int | None) -> tuple[Any, ...]:
    """The points without one of them."""
    if index is None:
        raise ValueError("no point is chosen")
    points = points[:index] + points[index + 1 :]
    return listed(points, 0 if points else None, len(points) - 1 if points else None)


def choose(event: gr.SelectData) -> tuple[int, float]:
    """A click into the gallery: the way begins there."""
    return event.index, 0.0


def random_seed() -> int:
    return secrets.randbelow(LARGEST_SEED + 1)
