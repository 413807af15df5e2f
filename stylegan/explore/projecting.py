"""A picture that somebody brought, and the styles that make the generator's most similar one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stylegan import projection, sampling
from stylegan.explore.scene import Scene

SHOWN = 40  # times that the search is looked at
MOST_STEPS = 1000


@dataclass(frozen=True, eq=False)
class Progress:
    """Where the search for one picture is."""

    step: int
    steps: int
    styles: Tensor  # (num_styles, w_dim)
    picture: np.ndarray  # uint8 (H, W, C)
    decibels: float  # peak signal-to-noise ratio of `picture`


def target_of(scene: Scene, path: Path) -> Tensor:
    """The picture in a file as an image (1, C, r, r). ValueError, naming it shortly, if it is none
    or too large."""
    config, loaded = scene.generator.config, scene.loaded
    try:
        return projection.read_target(
            path,
            resolution=loaded.resolution,
            channels=config.image_channels,
            crop="center" if loaded.active_rectangle is None else "pad",
        )
    except ValueError as error:
        raise ValueError(str(error).replace(str(path), path.name)) from error


def searched(
    scene: Scene, target: Tensor, *, steps: int, each_layer: bool, label: int | None = None
) -> Iterator[Progress]:
    """The search for `target` (1, C, r, r), now and then; the last one is the result.

    By LPIPS if its weights are here, else by pixels. `each_layer` searches one w for each layer.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"a search takes 1 to {MOST_STEPS} steps here, not {steps}")
    generator, loaded = scene.generator, scene.loaded
    config = generator.config
    distance, _ = projection.choose_distance(
        "auto",
        resolution=loaded.resolution,
        channels=config.image_channels,
        weights=None,
        device=generator.w_avg.device,
    )
    target = target.to(generator.w_avg)
    every = max(1, steps // SHOWN)
    for found in projection.project(
        generator,
        target,
        distance,
        projection.Settings(steps=steps, space="w+" if each_layer else "w"),
        labels=None if label is None else torch.eye(config.label_dim)[label][None],
        resolution=loaded.resolution,
        alpha=loaded.alpha,
    ):
        if found.step % every == 0 or found.step == steps:
            picture = sampling.crop(sampling.to_uint8(found.images), loaded.active_rectangle)[0]
            decibels = float(projection.psnr(found.images, target, loaded.active_rectangle))
            yield Progress(found.step, steps, found.ws[0].float().cpu(), picture, decibels)
