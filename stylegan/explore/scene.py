"""What is to be seen (a generator, its directions) and how (settings), and the picture of both."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.directions import Directions, Method, moved
from stylegan.figures import StyleRange, mixed
from stylegan.files.loading import LoadedGenerator
from stylegan.networks import Generator
from stylegan.ops import truncate

KEPT_W, KEPT_NOISE = 256, 2  # latents and sets of noise maps that are not drawn again

NoiseKind = Literal["const", "random", "none"]


class Growth(NamedTuple):
    resolution: int
    alpha: float  # how far it has grown in


@dataclass(frozen=True)
class Mixing:
    """The layers that take their styles from another seed. Section 3.1 of the paper."""

    seed: int
    layers: range


@dataclass(frozen=True, eq=False)
class Settings:
    """All that a picture depends on beside the scene."""

    seed: int = 0
    label: int | None = None  # the class, exactly for networks that have classes
    psi: float = 0.7
    cutoff: int | None = None  # layers that truncation reaches, None = all
    mixing: Mixing | None = None
    styles: Tensor | None = None  # final ones (num_styles, w_dim), in place of all above
    moves: Mapping[Method, Sequence[float]] = field(default_factory=dict)  # standard deviations
    growth: float | None = None  # see `grown`; None: as far as training came
    noise: NoiseKind = "const"
    noise_seed: int = 0  # of "random"


class Scene:
    """A generator, which many look at at once, and its directions. Nothing changes but caches."""

    def __init__(
        self, loaded: LoadedGenerator, directions: Sequence[Directions] = (), name: str = ""
    ) -> None:
        loaded.generator.requires_grad_(False)
        self.loaded = loaded
        self.name = name  # what the user calls it
        self.directions = {found.method: found for found in directions}
        self.w = lru_cache(KEPT_W)(self._w)
        self.noise_maps = lru_cache(KEPT_NOISE)(self._noise_maps)

    @property
    def generator(self) -> Generator:
        return self.loaded.generator

    def _w(self, seed: int, label: int | None) -> Tensor:
        """(1, w_dim) of a seed, and of a class where there are some."""
        config, average = self.generator.config, self.generator.w_avg
        labels = None if label is None else torch.eye(config.label_dim)[label][None].to(average)
        return self.generator.mapping(sampling.latents([seed], config.z_dim).to(average), labels)

    def _noise_maps(self, seed: int, resolution: int) -> list[Tensor]:
        maps = sampling.seed_noise([seed], self.generator.config, resolution)
        return [noise_map.to(self.generator.w_avg) for noise_map in maps]


def grown(growth: float) -> Growth:
    """Resolution and alpha when the side of pictures is 2 to the `growth`, fading in between.

    5 is 32x32; 4.25 is 32x32, a quarter grown in.
    """
    doublings = math.ceil(growth)
    return Growth(2**doublings, 1 - (doublings - growth))


def growth_of(resolution: int, alpha: float = 1.0) -> float:
    """What `grown` turns into these."""
    return resolution.bit_length() - 1 - (1 - alpha if resolution > 4 else 0)


def growth_in(scene: Scene, settings: Settings) -> Growth:
    """The resolution and alpha of a picture. ValueError beyond what training has reached."""
    loaded = scene.loaded
    if settings.growth is None:
        return Growth(loaded.resolution, loaded.alpha)
    most = growth_of(loaded.resolution, loaded.alpha)
    if not 2 <= settings.growth <= most:
        raise ValueError(f"growth is from 2 to {most:g} here, not {settings.growth:g}")
    return grown(settings.growth)


@torch.inference_mode()
def final_styles(scene: Scene, settings: Settings) -> Tensor:
    """What the synthesis network gets, on the CPU: float32 (num_styles, w_dim).

    The seed's styles, mixed and truncated, or those given; then moved along the directions.
    """
    generator = scene.generator
    if settings.styles is not None:
        ws = settings.styles[None].to(generator.w_avg)
    else:
        ws = generator.broadcast(scene.w(settings.seed, settings.label))
        if settings.mixing is not None:
            layers = StyleRange(settings.mixing.layers.start, settings.mixing.layers.stop - 1)
            ws = mixed(ws, scene.w(settings.mixing.seed, settings.label), layers)
        ws = truncate(ws, generator.w_avg, settings.psi, settings.cutoff)
    for method, amounts in settings.moves.items():
        if any(amounts):
            ws = moved(ws, scene.directions[method], amounts)
    return ws[0].float().cpu().clone()


def noise_in(scene: Scene, settings: Settings) -> Literal["const", "none"] | list[Tensor]:
    """The noise of a picture: a kind, or the maps that a seed draws."""
    if settings.noise != "random":
        return settings.noise
    return scene.noise_maps(settings.noise_seed, growth_in(scene, settings).resolution)


def render(scene: Scene, settings: Settings) -> np.ndarray:
    """The picture: uint8 (H, W, C)."""
    growth = growth_in(scene, settings)
    (pixels,) = sampling.generate(
        scene.generator,
        [settings.noise_seed],
        psi=1,
        ws=final_styles(scene, settings)[None],
        noise=noise_in(scene, settings),
        resolution=growth.resolution,
        alpha=growth.alpha,
    )
    picture: np.ndarray = sampling.crop(pixels, scene.loaded.active_rectangle)[0]
    return picture
