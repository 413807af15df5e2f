"""Augmentation: random transforms of reals and fakes, so that D does not memorize few images."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stylegan.ops import without_autocast, without_tf32
from stylegan.utils import distributed

from . import ada, diffaugment
from .strength import PIPELINES, AugmentConfig, AugmentStrength, StrengthValues

Transform = ada.Transform | diffaugment.Transform


def draw(
    shape: Sequence[int], config: AugmentConfig, probability: float, rng: torch.Generator
) -> Transform | None:
    """Draw a transform for images of `shape` (N, C, H, W), or None if it would change nothing."""
    if config.kind == "none" or probability == 0:
        return None
    return PIPELINES[config.kind].draw(shape, config.names, probability, rng)


def apply(images: Tensor, transform: Transform | None) -> Tensor:
    """Transform images (N, C, H, W) in float32 or wider, differentiable any number of times."""
    if transform is None:
        return images
    with without_autocast(images), without_tf32():
        wide = images.to(torch.promote_types(images.dtype, torch.float32))
        if isinstance(transform, ada.Transform):
            return ada.apply(wide, transform)
        return diffaugment.apply(wide, transform)


def select_rows(transform: Transform | None, rows: slice) -> Transform | None:
    """The transform of the images `rows` of the batch."""
    return of_tensors(transform, lambda parameters: parameters[rows])


def to_device(
    transform: Transform | None, device: torch.device, dtype: torch.dtype
) -> Transform | None:
    """Copy to `device` as `dtype`, asynchronously."""
    return of_tensors(transform, lambda x: distributed.to_device(x.to(dtype), device))


def of_tensors(transform: Transform | None, change: Callable[[Tensor], Tensor]) -> Transform | None:
    if transform is None:
        return None
    tensors: dict[str, Any] = {
        name: change(value) for name, value in vars(transform).items() if isinstance(value, Tensor)
    }
    return dataclasses.replace(transform, **tensors)
