"""A picture that somebody brought, and the styles that make the generator's most similar one."""

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event

import numpy as np
from torch import Tensor

from stylegan import projection, sampling
from stylegan.explore.scene import Scene

LOOKS = 40  # at the picture, during a search
MOST_STEPS = 1000


@dataclass(frozen=True, eq=False)
class Candidate:
    """The most similar picture so far."""

    step: int
    steps: int
    styles: Tensor  # (num_styles, w_dim)
    picture: np.ndarray  # uint8 (H, W, C)
    decibels: float  # peak signal-to-noise ratio of `picture`


def target_of(scene: Scene, content: bytes, name: str) -> Tensor:
    """The picture in a file as an image (1, C, r, r). ValueError, naming it, if it is none or too
    large."""
    return projection.target_of(
        content,
        resolution=scene.loaded.resolution,
        channels=scene.generator.config.image_channels,
        premultiply=scene.generator.config.premultiplied,
        crop=scene.loaded.crop,
        name=name,
    )


def searched(
    scene: Scene,
    target: Tensor,
    *,
    steps: int,
    each_layer: bool,
    label: int | None = None,
    closing: Event | None = None,
) -> Iterator[Candidate]:
    """The search for `target` (1, C, r, r), now and then; the last one is the result.

    By LPIPS if its weights are here, else by pixels. `each_layer` searches one w for each layer.
    It ends at the next step once `closing` is set.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"a search takes 1 to {MOST_STEPS} steps here, not {steps}")
    generator, loaded = scene.generator, scene.loaded
    distance, _ = projection.choose_distance(
        "auto",
        resolution=loaded.resolution,
        channels=generator.config.image_channels,
        weights=None,
        device=generator.w_avg.device,
    )
    target = target.to(generator.w_avg)
    every = max(1, steps // LOOKS)
    for found in projection.project(
        generator,
        target,
        distance,
        projection.SearchOptions(steps=steps, space="w+" if each_layer else "w"),
        labels=scene.one_hot(label),
        resolution=loaded.resolution,
        alpha=loaded.alpha,
    ):
        if closing is not None and closing.is_set():
            return
        if found.step % every == 0 or found.step == steps:
            premultiplied = generator.config.premultiplied
            whole = sampling.to_uint8(found.images, premultiplied=premultiplied)
            picture = sampling.crop(whole, loaded.active_rectangle)[0]
            decibels = float(projection.psnr(found.images, target, loaded.active_rectangle))
            yield Candidate(found.step, steps, found.ws[0].float().cpu(), picture, decibels)
