"""What the page asks for, and the answers. What a user has made is in the browser, never here."""

import base64
import importlib.util
import io
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from threading import Event, Lock
from typing import Any, TypeVar

import numpy as np

from stylegan import sampling
from stylegan.directions import SavedEdit, with_edit, write_edits
from stylegan.explore.controls import (
    Values,
    blend_of,
    centers_known,
    class_names,
    class_of,
    described,
    edits_in,
    file_of,
    keyframes_in,
    name_of,
    noise_of,
    seed_of,
    switch,
    tuned_of,
    view_of,
    whole,
)
from stylegan.explore.maps import activations, contact_sheet
from stylegan.explore.projecting import MOST_STEPS, Candidate, searched, target_of, tuned
from stylegan.explore.scene import Scene, View, final_styles, growth_of, render_with_styles
from stylegan.files.formats.own import save_loaded
from stylegan.files.keyframes import keyframes_text, styles_text
from stylegan.files.latents import read_latents, write_latents
from stylegan.video import film, keyframe_walk, write_video

FIRST_SEED = 10  # the first picture: a good one of both bundled generators
FPS = 25  # frames per second of a film
MOST_POINTS = 100  # of one file
Answer = dict[str, Any]
Parts = Generator[Answer, None, None]
Result = TypeVar("Result")


class Page:
    """Answers to requests: each a stream of parts, most of them one part long.

    ValueError or OSError for what cannot be, in words for the user.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.painter = ThreadPoolExecutor(1, "painter")  # pictures one at a time, by one thread
        self.searching = Lock()  # one search at a time
        self.keeping = Lock()  # one edit is saved at a time
        self.closing = Event()  # ends a search
        self.answers: dict[str, Callable[[Values], Parts]] = {
            "/scene": self.about,
            "/picture": self.picture,
            "/activations": self.activations,
            "/latents": self.latents,
            "/load": self.load,
            "/search": self.search,
            "/keep": self.keep,
            "/keyframes": self.keyframes,
            "/film": self.film,
            "/tuned": self.tuned,
        }

    def close(self) -> None:
        """End what is being computed: at the next step of a search, after a picture."""
        self.closing.set()
        self.painter.shutdown(cancel_futures=True)

    def painted(self, function: Callable[..., Result], *args: Any) -> Result:
        """What the function makes, by the painter."""
        try:
            return self.painter.submit(function, *args).result()
        except (CancelledError, RuntimeError) as error:
            if self.closing.is_set():
                raise ValueError("the page has ended") from error
            raise

    def about(self, values: Values) -> Parts:
        """What the controls are made of."""
        config, loaded = self.scene.generator.config, self.scene.loaded
        layers = config.num_styles()
        directions = self.scene.directions.items()
        with self.keeping:
            saved = list(self.scene.saved())
        yield {
            "name": self.scene.name,
            "seed": FIRST_SEED,
            "largest_seed": sampling.MAX_SEED,
            "psi": loaded.psi,
            "layers": layers,
            "all_layers": config.num_layers(loaded.resolution),
            "cutoff": layers if loaded.cutoff is None else min(loaded.cutoff, layers),
            "centers": centers_known(self.scene),
            "growth": growth_of(loaded.resolution, loaded.alpha),
            "growing": loaded.alpha < 1,
            "styles": config.styles,
            "noise": config.noise,
            "blend": self.scene.other is not None,
            "classes": class_names(self.scene),
            "directions": {method: found.called() for method, found in directions},
            "saved": saved,
            "steps": MOST_STEPS,
        }

    def picture(self, values: Values) -> Parts:
        """The picture that the controls specify."""
        yield self.drawn(view_of(self.scene, values))

    def drawn(self, view: View) -> Answer:
        """A picture, if it has alpha also its file, its styles, its name and its caption."""
        pixels, styles = self.painted(render_with_styles, self.scene, view)
        file = {"file": png_url(pixels)} if pixels.shape[-1] == 4 else {}
        return file | {
            "picture": url(pixels),
            "styles": styles_text(styles),
            "name": name_of(self.scene, view),
            "caption": described(self.scene, view),
        }

    def activations(self, values: Values) -> Parts:
        """What a layer computes for the picture that the controls specify."""
        view = view_of(self.scene, values)
        layers = self.scene.generator.config.num_layers()
        layer = whole(values, "activations_layer", 0, layers - 1)
        maps = self.painted(activations, self.scene, view, layer)
        sheet, white = contact_sheet(maps)
        count, height, width = maps.shape
        caption = f"layer {layer}: {count} channels of {height}×{width}, "  # noqa: RUF001
        yield {
            "picture": url(sheet),
            "caption": f"{caption}{-white:.2g} black to {white:.2g} white",
        }

    def latents(self, values: Values) -> Parts:
        """A file for `stylegan generate --latents` of the picture."""
        view = view_of(self.scene, values)
        content = self.painted(latents_file, self.scene, view)
        yield {"name": name_of(self.scene, view), "content": base64.b64encode(content).decode()}

    def load(self, values: Values) -> Parts:
        """The pictures of such a file, one by one."""
        name, content = file_of(values)
        label = self.scene.one_hot(class_of(self.scene, values))
        with TemporaryDirectory(prefix="stylegan-explore-") as folder:
            path = Path(folder) / "latents.npz"
            path.write_bytes(content)
            try:
                ws, noise = self.painted(read_latents, path, self.scene.generator, label)
            except ValueError as error:
                raise ValueError(str(error).replace(str(path), name)) from error
        if len(ws) > MOST_POINTS:
            raise ValueError(f"{name} has {len(ws)} latents; at most {MOST_POINTS} can be loaded")
        for i, styles in enumerate(ws):
            title = name if len(ws) == 1 else f"{name}, {i}"
            yield {"title": title, "noise": noise is not None, **self.drawn(View(styles=styles))}

    def keep(self, values: Values) -> Parts:
        """Save the edit that the controls specify beside the source, under a name of the user's."""
        scene, name = self.scene, values.get("name")
        if scene.edits_file is None:
            raise ValueError(
                "edits cannot be saved: the file of edits could not be used; move it away, then "
                "start stylegan explore again"
            )
        if not isinstance(name, str):
            raise ValueError("an edit needs a name to be saved under")
        texts, edits = edits_in(scene, values)
        if not edits:
            raise ValueError("all directions are at 0; move some first")
        seed, labels = seed_of(values, "seed"), scene.one_hot(class_of(scene, values))
        with self.keeping:
            saved = with_edit(scene.edits_file, name, SavedEdit(texts, edits), scene.loaded)
            write = partial(write_edits, scene.edits_file, saved, scene.loaded)
            self.painted(partial(write, seed=seed, labels=labels))
        yield {"saved": list(saved), "file": str(scene.edits_file)}

    def keyframes(self, values: Values) -> Parts:
        """A file for `stylegan video keyframes` of the saved points."""
        content = keyframes_text(keyframes_in(self.scene, values), self.scene.loaded)
        yield {"name": "keyframes.json", "content": base64.b64encode(content.encode()).decode()}

    def film(self, values: Values) -> Parts:
        """A film through the saved points, telling how far it is; the last part is the file.

        Its pictures take turns with those of other requests. It ends when nobody waits for it.
        """
        keyframes = keyframes_in(self.scene, values)
        count = max(1, round(sum(keyframes.ways) * FPS))
        view = View(blend=blend_of(self.scene, values), tuned=tuned_of(self.scene, values))
        loaded = self.painted(self.scene.made_of, view)
        made = film(keyframe_walk(loaded, keyframes, count, noise=noise_of(values)))
        ending = "mp4" if importlib.util.find_spec("av") else "webp"
        told: Queue[int | None] = Queue()
        stopped = Event()

        def frames() -> Iterator[np.ndarray]:
            for _ in range(count):
                if stopped.is_set() or self.closing.is_set():
                    raise ValueError("the film was stopped")
                yield self.painted(next, made.frames)

        with (
            TemporaryDirectory(prefix="stylegan-explore-") as folder,
            ThreadPoolExecutor(1) as pool,
        ):
            path = Path(folder) / f"film.{ending}"
            work = pool.submit(
                write_video,
                path,
                frames(),
                count=count,
                fps=FPS,
                progress=lambda done, total: told.put(done),
            )
            work.add_done_callback(lambda _: told.put(None))
            try:
                while (done := told.get()) is not None:
                    yield {"note": f"frame {done} of {count}"}
            finally:
                stopped.set()
            work.result()
            kind = "video/mp4" if ending == "mp4" else "image/webp"
            content = base64.b64encode(path.read_bytes()).decode()
            yield {"name": path.name, "content": f"data:{kind};base64,{content}"}

    def search(self, values: Values) -> Parts:
        """Look for a picture that was brought, and perhaps tune a generator to it, showing how it
        goes; the last part is the result."""
        scene, (name, content) = self.scene, file_of(values)
        steps, each_layer = whole(values, "steps", 1, MOST_STEPS), switch(values, "each_layer")
        tuning = whole(values, "tune_steps", 1, MOST_STEPS) if switch(values, "tune") else 0
        label = class_of(scene, values)
        target = target_of(scene, content, name)
        wanted = sampling.to_uint8(target, premultiplied=scene.generator.config.premultiplied)[0]
        yield {"wanted": url(wanted), "caption": f"wanted: {name}"}
        how: dict[str, Any] = {"label": label, "closing": self.closing}
        with self.searching:
            for now in searched(scene, target, steps=steps, each_layer=each_layer, **how):
                yield self.told(now, name)
            if tuning and not self.closing.is_set():
                for better in tuned(scene, target, now.styles, steps=tuning, **how):
                    yield self.told(better, name)

    def told(self, now: Candidate, name: str) -> Answer:
        """What is told of a search for the picture of that name, or of tuning to it."""
        doing = "" if now.doing == "search" else f"{now.doing}, "
        number = {} if now.network is None else {"tuned": self.scene.keep(now.network)}
        return number | {
            "picture": url(now.picture),
            "caption": f"{doing}step {now.step} of {now.steps} · {now.decibels:.1f} dB",
            "title": f"{name}, {doing}{now.decibels:.1f} dB",
            "styles": styles_text(now.styles),
        }

    def tuned(self, values: Values) -> Parts:
        """The file of a tuned generator, for every command."""
        result = self.scene.network(tuned_of(self.scene, values))
        if result is self.scene.loaded:
            raise ValueError("the original generator is shown; choose a tuned one")
        with TemporaryDirectory(prefix="stylegan-explore-") as folder:
            path = Path(folder) / "tuned.pt"
            save_loaded(path, result)
            yield {"name": path.name, "content": base64.b64encode(path.read_bytes()).decode()}


def latents_file(scene: Scene, view: View) -> bytes:
    """A file for `stylegan generate --latents` that gives this picture again, at full growth.

    It holds final styles, and the maps of random noise for all layers that training has reached.
    """
    config, maps = scene.generator.config, None
    if view.noise == "random":
        maps = sampling.seed_noise([view.noise_seed], config, scene.loaded.resolution)
    with TemporaryDirectory(prefix="stylegan-explore-") as folder:
        path = Path(folder) / "latents.npz"
        write_latents(path, final_styles(scene, view)[None], maps)
        return path.read_bytes()


def url(pixels: np.ndarray) -> str:
    """uint8 (H, W, C) as the address of a PNG; what is transparent shows a chequered ground."""
    return png_url(sampling.over_squares(pixels))


def png_url(pixels: np.ndarray) -> str:
    """uint8 (H, W, C) as the address of a PNG, packed quickly rather than tightly."""
    buffer = io.BytesIO()
    sampling.picture(pixels).save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
