"""Responses to the page's requests: each a stream of JSON objects, mostly a single one."""

import base64
import io
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock

import numpy as np
import torch
from torch import Tensor

from stylegan import projection, sampling
from stylegan.explore.controls import PLANE, Controls, Moves, Values, View
from stylegan.files.latents import write_latents
from stylegan.networks.edits import apply_edits
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.lineage import describe_lineage
from stylegan.utils.text import sanitize

LOOKS = 40  # images that a search shows
Answer = dict[str, object]
Parts = Generator[Answer, None, None]


class Page:
    """Responds to requests for one generator; raises ValueError or OSError with a message."""

    def __init__(self, loaded: Pretrained, moves: Moves, name: str = "") -> None:
        self.loaded = loaded
        self.name = name
        self.controls = Controls(loaded, moves)
        self.own: Tensor | None = None  # styles (num_ws, w_dim) of the user's image
        # Held for an image or a step of a search: both set flags of the whole process.
        self.computing = Lock()
        self.closing = Event()  # ends a search at its next step
        answers = (self.scene, self.picture, self.latents, self.search)
        self.answers = {f"/{answer.__name__}": answer for answer in answers}

    def scene(self, values: Values) -> Parts:
        yield scene_of(self.name, self.loaded, self.controls)

    def picture(self, values: Values) -> Parts:
        """Generate the image that the controls specify."""
        view = self.controls.view(values, self.own)
        with self.computing:
            pixels = render(self.loaded, view)
        yield {"picture": png_url(pixels)}

    def latents(self, values: Values) -> Parts:
        """Make the latents file of this image for `stylegan generate --latents`."""
        view = self.controls.view(values, self.own)
        with self.computing:
            content = latents_file(self.loaded, view)
        yield {"content": base64.b64encode(content).decode()}

    def search(self, values: Values) -> Parts:
        """Project an image that the user uploaded, which the page can then start from."""
        loaded = self.loaded
        settings = loaded.settings
        view = self.controls.view({**values, "start": "seed"})  # whatever the page shows now
        network = loaded.generator
        name = sanitize(values.get("name"), 80)
        premultiplied = network.config.premultiplied
        content = base64.b64decode(str(values.get("content")))
        size = settings.synthesis_resolution
        channels = network.config.image_channels
        target = projection.read_target(
            content, resolution=size, channels=channels, premultiplied=premultiplied,
            crop=loaded.crop, name=name,
        )  # fmt: skip
        (wanted,) = sampling.to_uint8(target, premultiplied=premultiplied)
        yield {"wanted": png_url(wanted), "caption": f"wanted: {name}"}
        distance, _ = projection.choose_distance("auto", loaded)
        options = projection.SearchOptions(view.steps, view.space)
        labels = loaded.labels_of([view.label])
        states = projection.project(
            network, target, distance, options, labels=labels, resolution=size, alpha=settings.alpha
        )
        for step in range(options.steps + 1):
            with self.computing:
                state = next(states)
            if self.closing.is_set():
                return
            if step % max(1, options.steps // LOOKS) and step < options.steps:
                continue
            pixels = sampling.to_uint8(state.images, premultiplied=premultiplied)
            near = projection.psnr(state.images, target.to(state.images), settings.active_rectangle)
            yield {
                "picture": png_url(sampling.crop_padding(pixels, settings.active_rectangle)[0]),
                "caption": f"step {step} of {options.steps} · {float(near):.1f} dB",
            }
        self.own = state.ws[0].float().cpu()
        yield {"done": True}


def scene_of(name: str, loaded: Pretrained, controls: Controls) -> Answer:
    """The description from which the page's script builds it."""
    sections = {
        section: [{"kind": type(control).__name__, **vars(control)} for control in members]
        for section, members in controls.sections.items()
    }
    return {
        "name": name,
        "weights": "; ".join(describe_lineage(loaded.lineage)),
        "plane": PLANE,
        "layers": controls.layers,
        "quick": True,  # whether the page offers images of some seeds without a request
        "sections": sections,
    }


def styles_of(
    loaded: Pretrained, z: Tensor, labels: Tensor | None, plane: Tensor, mixed: Tensor, psi: Tensor
) -> Tensor:
    """Truncated styles (1, num_ws, w_dim) of four seeds, moved in a plane and mixed.

    z: (4, z_dim) of the image's seed, the two others of its plane, and the one to mix in.
    plane: (2,), the position in the plane.
    mixed: (num_ws,), 1 for layers that take the styles of the last seed, else 0.
    """
    w = sampling.map_latents(loaded.generator, z, labels)
    own, right, top, other = loaded.generator.broadcast(w).split(1)
    ws = own + plane[0] * (right - own) + plane[1] * (top - own)
    ws = ws + mixed[:, None] * (other - ws)
    return loaded.settings.truncate_and_edit(ws, loaded.generator.w_avg, psi)


@torch.inference_mode()
def final_styles(loaded: Pretrained, view: View) -> Tensor:
    """Edited styles of the seed or the user's image: float32 (num_ws, w_dim) on the CPU."""
    config = loaded.generator.config
    like = loaded.generator.w_avg
    if view.styles is None:
        seeds = [view.seed, view.plane_a, view.plane_b, view.mix_seed]
        plane = like.new_tensor([view.plane_x, view.plane_y])
        mixed = like.new_tensor([layer in view.mix_layers for layer in range(config.num_ws())])
        z = sampling.latents(seeds, config.z_dim)
        labels = loaded.labels_of([view.label])
        ws = styles_of(loaded, z, labels, plane, mixed, like.new_tensor(view.psi))
    else:
        ws = view.styles[None].to(like)
    return apply_edits(ws, view.edits)[0].float().cpu().clone()


def render(loaded: Pretrained, view: View) -> np.ndarray:
    """Generate the sample uint8 (H, W, C)."""
    ws = final_styles(loaded, view)[None]
    (sample,) = loaded.generate([view.noise_seed], ws=ws, psi=1, noise=view.noise)
    return sample


def latents_file(loaded: Pretrained, view: View) -> bytes:
    """The content of a latents file that reproduces the image: final styles and random noise."""
    config = loaded.generator.config
    maps = None
    if view.noise == "random":
        maps = sampling.noise_from_seeds(
            [view.noise_seed], config, loaded.settings.synthesis_resolution
        )
    with TemporaryDirectory(prefix="stylegan-explore-") as folder:
        path = Path(folder) / "latents.npz"
        write_latents(path, final_styles(loaded, view)[None], maps)
        return path.read_bytes()


def png_url(pixels: np.ndarray) -> str:
    """Encode pixels uint8 (H, W, C) as the data URL of a PNG, with fast compression."""
    buffer = io.BytesIO()
    sampling.to_pil(pixels).save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
