"""A picture that somebody brought, and the styles that make the generator's most similar one."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan import projection, sampling
from stylegan.explore.scene import Scene
from stylegan.files.loaded import LoadedGenerator

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
    doing: str = "search"  # "tuning", "tuned" of the last one
    network: LoadedGenerator | None = None  # the one that was tuned, of the last one


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
    target = target.to(generator.w_avg)
    for found in projection.project(
        generator,
        target,
        distance_of(scene),
        projection.SearchOptions(steps=steps, space="w+" if each_layer else "w"),
        labels=scene.one_hot(label),
        resolution=loaded.resolution,
        alpha=loaded.alpha,
    ):
        if closing is not None and closing.is_set():
            return
        if looked_at(found.step, steps):
            yield candidate(scene, found.step, steps, found.ws, found.images, target)


def tuned(
    scene: Scene,
    target: Tensor,
    styles: Tensor,
    *,
    steps: int,
    label: int | None = None,
    closing: Event | None = None,
) -> Iterator[Candidate]:
    """Tuning of a copy of the generator until it makes `target` (1, C, r, r) of the styles that a
    search found, now and then; the last one has the result."""
    loaded, target = scene.loaded, target.to(scene.generator.w_avg)
    ws = styles[None].to(target)
    growth: dict[str, Any] = {"resolution": loaded.resolution, "alpha": loaded.alpha}
    options = projection.TuningOptions(steps=steps)
    for state in projection.tune(
        loaded.generator,
        target,
        ws,
        distance_of(scene),
        options,
        labels=scene.one_hot(label),
        **growth,
    ):
        if closing is not None and closing.is_set():
            return
        if not looked_at(state.step, steps):
            continue
        with torch.no_grad(), sampling.repeatable():
            images = state.generator.synthesis(ws, noise="const", **growth)
        now = candidate(scene, state.step, steps, ws, images, target)
        if state.step < steps:
            yield replace(now, doing="tuning")
            continue
        network = replace(
            loaded,
            generator=state.generator.requires_grad_(False).eval(),
            origin=f"{loaded.origin}, tuned to 1 picture",
            lineage=scene.lineage,
        )
        yield replace(now, doing="tuned", network=network)


def distance_of(scene: Scene) -> projection.Distance:
    """LPIPS if its weights are here, else that of pixels."""
    distance, _ = projection.choose_distance(
        "auto",
        resolution=scene.loaded.resolution,
        channels=scene.generator.config.image_channels,
        weights=None,
        device=scene.generator.w_avg.device,
    )
    return distance


def looked_at(step: int, steps: int) -> bool:
    """Whether the picture of a step is shown."""
    return step % max(1, steps // LOOKS) == 0 or step == steps


def candidate(
    scene: Scene, step: int, steps: int, ws: Tensor, images: Tensor, target: Tensor
) -> Candidate:
    rectangle = scene.loaded.active_rectangle
    whole = sampling.to_uint8(images, premultiplied=scene.generator.config.premultiplied)
    decibels = float(projection.psnr(images, target, rectangle))
    picture = sampling.crop(whole, rectangle)[0]
    return Candidate(step, steps, ws[0].float().cpu(), picture, decibels)
