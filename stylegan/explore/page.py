"""What the page asks, and the answers: each a stream of JSON objects, most of them one long."""

import base64
from collections.abc import Callable, Generator, Sequence
from threading import Event, Lock
from typing import Any

from torch import Tensor

from stylegan import projection, sampling
from stylegan.directions import Directions
from stylegan.explore.controls import PLANE, Controls, Values
from stylegan.explore.pictures import latents_file, one_hot, png_url, render
from stylegan.files.loaded import LoadedGenerator
from stylegan.messages import readable

LOOKS = 40  # pictures that are shown of a search
Answer = dict[str, Any]
Parts = Generator[Answer, None, None]


class Page:
    """Answers for one generator. ValueError and OSError are for the user to read."""

    def __init__(
        self, loaded: LoadedGenerator, directions: Sequence[Directions] = (), name: str = ""
    ) -> None:
        self.loaded, self.name = loaded, name
        self.controls = Controls(loaded, directions)
        self.own: Tensor | None = None  # styles (num_styles, w_dim) of the user's picture
        self.drawing, self.searching = Lock(), Lock()  # one picture and one search at a time
        self.closing = Event()
        self.answers: dict[str, Callable[[Values], Parts]] = {
            "/scene": self.scene,
            "/picture": self.picture,
            "/latents": self.latents,
            "/search": self.search,
        }

    def close(self) -> None:
        """End a search at its next step."""
        self.closing.set()

    def scene(self, values: Values) -> Parts:
        """What the page is built from."""
        sections = {
            name: [{"kind": type(one).__name__, **vars(one)} for one in controls]
            for name, controls in self.controls.sections.items()
        }
        yield {"name": self.name, "plane": PLANE, "sections": sections}

    def picture(self, values: Values) -> Parts:
        """The picture that the controls specify, and what `generate` would be asked for it."""
        view = self.controls.view(values, self.own)
        start = "your picture" if view.styles is not None else f"seed {view.seed} · ψ {view.psi:g}"
        with self.drawing:
            pixels = render(self.loaded, view)
        caption = " · ".join([start, *(f"--edit {text}" for text in view.edits)])
        yield {"picture": png_url(pixels), "caption": caption}

    def latents(self, values: Values) -> Parts:
        """Its file for `stylegan generate --latents`."""
        view = self.controls.view(values, self.own)
        with self.drawing:
            content = latents_file(self.loaded, view)
        yield {"content": base64.b64encode(content).decode()}

    def search(self, values: Values) -> Parts:
        """Search for a picture that the user brought, which then is the page's own."""
        loaded, read = self.loaded, self.controls.read(values)
        name, config = readable(values.get("name"), 80), loaded.generator.config
        about = {"resolution": loaded.resolution, "channels": config.image_channels}
        target = projection.target_of(
            base64.b64decode(str(values.get("content"))),
            **about,
            premultiply=config.premultiplied,
            crop=loaded.crop,
            name=name,
        )
        (wanted,) = sampling.to_uint8(target, premultiplied=config.premultiplied)
        yield {"wanted": png_url(wanted), "caption": f"wanted: {name}"}
        device = loaded.generator.w_avg.device
        distance, _ = projection.choose_distance("auto", weights=None, device=device, **about)
        options = projection.SearchOptions(read["steps"], read["space"])
        growth: dict[str, Any] = {"resolution": loaded.resolution, "alpha": loaded.alpha}
        label = one_hot(loaded, self.controls.view(values, self.own).label)
        with self.searching:
            for state in projection.project(
                loaded.generator, target, distance, options, labels=label, **growth
            ):
                if self.closing.is_set():
                    return
                if state.step % max(1, options.steps // LOOKS) and state.step < options.steps:
                    continue
                pixels = sampling.to_uint8(state.images, premultiplied=config.premultiplied)
                near = projection.psnr(state.images, target.to(device), loaded.active_rectangle)
                yield {
                    "picture": png_url(sampling.crop(pixels, loaded.active_rectangle)[0]),
                    "caption": f"step {state.step} of {options.steps} · {float(near):.1f} dB",
                }
            self.own = state.ws[0].float().cpu()
