"""What the page shows, and the picture of it."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.edits import Edit, edited
from stylegan.figures import mixed
from stylegan.files.latents import write_latents
from stylegan.files.loaded import LoadedGenerator


@dataclass(frozen=True, eq=False)
class View:
    """All that a picture depends on beside the generator. The names are those of the controls."""

    seed: int = 0
    label: int | None = None  # the class, exactly for networks that have classes
    psi: float = 0.7
    plane_x: float = 0  # toward the seed `plane_a`, in the plane of w through three seeds
    plane_y: float = 0  # toward the seed `plane_b`
    plane_a: int = 1
    plane_b: int = 2
    mix_seed: int = 1
    mix_layers: Sequence[int] = ()  # which take their styles from `mix_seed`
    styles: Tensor | None = None  # final ones (num_styles, w_dim), in place of all above
    edits: Mapping[str, Edit] = field(default_factory=dict)  # by what `--edit` says for them
    noise: Literal["const", "random", "none"] = "const"
    noise_seed: int = 0  # of "random"


def one_hot(loaded: LoadedGenerator, label: int | None) -> Tensor | None:
    """The label (1, label_dim) of a class."""
    return None if label is None else torch.eye(loaded.generator.config.label_dim)[label][None]


@torch.inference_mode()
def final_styles(loaded: LoadedGenerator, view: View) -> Tensor:
    """Input of the synthesis network, on the CPU: float32 (num_styles, w_dim).

    The seed's styles, moved in a plane, mixed and truncated, or those given; then edited.
    """

    def of_seed(seed: int) -> Tensor:
        z = sampling.latents([seed], loaded.generator.config.z_dim)
        return loaded.styles(z, one_hot(loaded, view.label))  # (1, num_styles, w_dim)

    if view.styles is not None:
        ws = view.styles[None].to(loaded.generator.w_avg)
    else:
        ws = of_seed(view.seed)
        if view.plane_x or view.plane_y:
            a, b = of_seed(view.plane_a), of_seed(view.plane_b)
            ws = ws + view.plane_x * (a - ws) + view.plane_y * (b - ws)
        if view.mix_layers:
            ws = mixed(ws, of_seed(view.mix_seed), view.mix_layers)
        ws = loaded.truncated(ws, psi=view.psi)
    return edited(ws, [*view.edits.values()], loaded.generator.config)[0].float().cpu().clone()


def render(loaded: LoadedGenerator, view: View) -> np.ndarray:
    """The picture, uint8 (H, W, C)."""
    ws = final_styles(loaded, view)[None]
    (picture,) = loaded.pictures([view.noise_seed], ws=ws, psi=1, noise=view.noise)
    return picture


def latents_file(loaded: LoadedGenerator, view: View) -> bytes:
    """A file for `--latents` of the commands that gives this picture again: its final styles, and
    the maps of random noise."""
    config, maps = loaded.generator.config, None
    if view.noise == "random":
        maps = sampling.seed_noise([view.noise_seed], config, loaded.resolution)
    with TemporaryDirectory(prefix="stylegan-explore-") as folder:
        path = Path(folder) / "latents.npz"
        write_latents(path, final_styles(loaded, view)[None], maps)
        return path.read_bytes()


def png_url(pixels: np.ndarray) -> str:
    """Pixels uint8 (H, W, C) as the address of a PNG, packed quickly rather than tightly."""
    buffer = io.BytesIO()
    sampling.picture(pixels).save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
