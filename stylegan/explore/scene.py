"""What is looked at (a generator, its directions and edits) and how (a view), and the picture."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.blending import blended, check_alike
from stylegan.centers import Centers, find_centers
from stylegan.directions import Directions, SavedEdit, load_edits
from stylegan.edits import Edit, edited
from stylegan.figures import mixed
from stylegan.files.loaded import LoadedGenerator
from stylegan.lineage import Lineage
from stylegan.networks import Generator

MOST_TUNED = 3  # tuned generators that are kept


class Growth(NamedTuple):
    resolution: int
    alpha: float  # how far it has grown in


@dataclass(frozen=True)
class Mixing:
    """The layers that take their styles from another seed. Section 3.1 of the paper."""

    seed: int
    layers: Sequence[int]


@dataclass(frozen=True)
class Plane:
    """A place in the plane of w through a picture's seed and two others: where (x, y) is (1, 0)
    and (0, 1) are those seeds."""

    seeds: tuple[int, int]
    x: float
    y: float


@dataclass(frozen=True)
class Blend:
    """The layers from a resolution on that are, to a share, those of another network."""

    first: int
    share: float


@dataclass(frozen=True, eq=False)
class View:
    """All that a picture depends on beside the scene."""

    seed: int = 0
    label: int | None = None  # the class, exactly for networks that have classes
    psi: float = 0.7
    cutoff: int | Literal["all"] = "all"  # layers that truncation reaches
    mixing: Mixing | None = None
    styles: Tensor | None = None  # final ones (num_styles, w_dim), in place of all above
    edits: Sequence[Edit] = ()  # after truncation, also of given styles
    edit_texts: Sequence[str] = ()  # what `--edit` says for them
    growth: float | None = None  # see `grown`; None: as far as training came
    noise: Literal["const", "random", "none"] = "const"
    noise_seed: int = 0  # of "random"
    blend: Blend | None = None
    centers: Centers | Literal["none"] | None = None  # of truncation; None: as the file says
    plane: Plane | None = None
    tuned: int = 0  # the number of a tuned generator; 0: the original


class Scene:
    """A generator, which many look at at once, its directions, and perhaps another to blend it
    with. Only saved edits and tuned generators change."""

    def __init__(
        self,
        loaded: LoadedGenerator,
        directions: Sequence[Directions] = (),
        name: str = "",
        edits_file: Path | None = None,
        other: LoadedGenerator | None = None,
        lineage: Lineage = (),
    ) -> None:
        loaded.generator.requires_grad_(False)
        self.loaded = loaded
        self.name = name  # what the user calls it
        self.directions = {found.method: found for found in directions}
        self.edits_file = edits_file  # where saved edits are kept; None: nowhere
        if other is not None:
            check_alike(loaded, other)
        self.other = other  # whose layers can take part
        self.lineage = lineage  # of what is made of the generator
        self.mixture: tuple[Blend, int, LoadedGenerator] | None = None  # the last one
        self.tuned: dict[int, LoadedGenerator] = {}  # the last ones, by their numbers
        self.numbers = itertools.count(1)
        self.found: dict[tuple[Centers, int | None], Tensor] = {}  # centres, also of one class

    def saved(self) -> dict[str, SavedEdit]:
        """The edits that are saved beside the source, by name."""
        kept = self.edits_file is not None and self.edits_file.exists()
        return load_edits(self.edits_file, self.loaded) if kept and self.edits_file else {}

    @property
    def generator(self) -> Generator:
        return self.loaded.generator

    def keep(self, tuned: LoadedGenerator) -> int:
        """The number of a tuned generator, for views; only the last ones are kept."""
        number = next(self.numbers)
        self.tuned = dict([*self.tuned.items(), (number, tuned)][-MOST_TUNED:])
        return number

    def network(self, number: int) -> LoadedGenerator:
        """The tuned generator of that number; 0 is the original."""
        found = self.tuned.get(number) if number else self.loaded
        if found is None:
            raise ValueError(
                f"only the last {MOST_TUNED} tuned generators are kept; choose the original one"
            )
        return found

    def made_of(self, view: "View") -> LoadedGenerator:
        """The generator of a view, with layers of the other one; of one thread at a time."""
        loaded, blend = self.network(view.tuned), view.blend
        if blend is None or self.other is None:
            return loaded
        kept = self.mixture
        if kept is None or kept[:2] != (blend, view.tuned):
            network = blended(loaded, self.other, first=blend.first, share=blend.share)
            kept = self.mixture = blend, view.tuned, replace(loaded, generator=network)
        return kept[2]

    def centers(self, view: "View") -> "Tensor | Literal['none'] | None":
        """The centres that a view is truncated toward; of one thread at a time."""
        if view.centers is None or view.centers == "none":
            return view.centers
        key = view.centers, view.label
        if key not in self.found:
            self.found[key] = find_centers(self.generator, view.centers, self.one_hot(view.label))
        return self.found[key]

    def one_hot(self, label: int | None) -> Tensor | None:
        """The label (1, label_dim) of a class."""
        return None if label is None else torch.eye(self.generator.config.label_dim)[label][None]

    def styles(self, seed: int, label: int | None) -> Tensor:
        """ws (1, num_styles, w_dim) of a seed, not truncated."""
        z = sampling.latents([seed], self.generator.config.z_dim)
        return self.loaded.styles(z, self.one_hot(label))


def grown(growth: float) -> Growth:
    """Resolution and alpha when the side of pictures is 2 to the `growth`, fading in between.

    5 is 32x32; 4.25 is 32x32, a quarter grown in.
    """
    doublings = math.ceil(growth)
    return Growth(2**doublings, 1 - (doublings - growth))


def growth_of(resolution: int, alpha: float = 1.0) -> float:
    """The inverse of `grown`."""
    return resolution.bit_length() - 1 - (1 - alpha if resolution > 4 else 0)


def growth_in(scene: Scene, view: View) -> Growth:
    """The resolution and alpha of a picture. ValueError beyond what training has reached."""
    loaded = scene.loaded
    if view.growth is None:
        return Growth(loaded.resolution, loaded.alpha)
    most = growth_of(loaded.resolution, loaded.alpha)
    if not 2 <= view.growth <= most:
        raise ValueError(f"growth is from 2 to {most:g} here, not {view.growth:g}")
    return grown(view.growth)


@torch.inference_mode()
def final_styles(scene: Scene, view: View) -> Tensor:
    """Input of the synthesis network, on the CPU: float32 (num_styles, w_dim).

    The seed's styles, moved in a plane, mixed and truncated, or those given; then edited.
    """
    if view.styles is not None:
        ws = view.styles[None].to(scene.generator.w_avg)
    else:
        ws = scene.styles(view.seed, view.label)
        if view.plane is not None:
            a, b = (scene.styles(seed, view.label) for seed in view.plane.seeds)
            ws = ws + view.plane.x * (a - ws) + view.plane.y * (b - ws)
        if view.mixing is not None:
            other = scene.styles(view.mixing.seed, view.label)[:, 0]
            ws = mixed(ws, other, view.mixing.layers)
        loaded = scene.loaded.adjusted(centers=scene.centers(view))
        ws = loaded.truncated(ws, psi=view.psi, cutoff=view.cutoff)
    ws = edited(ws, view.edits, scene.generator.config)
    return ws[0].float().cpu().clone()


def render(scene: Scene, view: View) -> np.ndarray:
    """The picture: uint8 (H, W, C)."""
    return render_with_styles(scene, view)[0]


def render_with_styles(scene: Scene, view: View) -> tuple[np.ndarray, Tensor]:
    """The picture, and its `final_styles`."""
    return picture_of(scene, view, scene.made_of(view))


def picture_of(scene: Scene, view: View, loaded: LoadedGenerator) -> tuple[np.ndarray, Tensor]:
    """The picture that a network makes of the `final_styles` of a view, and these."""
    resolution, alpha = growth_in(scene, view)
    ws = final_styles(scene, view)
    (picture,) = loaded.pictures(
        [view.noise_seed], ws=ws[None], psi=1, noise=view.noise, resolution=resolution, alpha=alpha
    )
    return picture, ws
