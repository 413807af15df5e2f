"""Augmentation: random transforms of everything that the discriminator sees, reals and fakes alike,
so that it cannot learn few images by heart. Samples are not transformed."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stylegan.machine import distributed
from stylegan.ops import in_float32, without_autocast

from . import ada, diffaugment
from .strength import KINDS, AugmentConfig, Strength, StrengthValues

Transform = ada.Transform | diffaugment.Transform


def draw(
    shape: Sequence[int], config: AugmentConfig, probability: float, rng: torch.Generator
) -> Transform | None:
    """Draw a transform for each of N images of the shape (N, C, H, W); None if nothing changes."""
    if config.kind == "none" or probability == 0:
        return None
    return KINDS[config.kind].draw(shape, config.names, probability, rng)


def apply(images: Tensor, transform: Transform | None) -> Tensor:
    """Transform images (N, C, H, W), any number of times differentiable, in full precision."""
    if transform is None:
        return images
    with without_autocast(images), in_float32():
        wide = images.to(torch.promote_types(images.dtype, torch.float32))
        if isinstance(transform, ada.Transform):
            return ada.apply(wide, transform)
        return diffaugment.apply(wide, transform)


def part(transform: Transform | None, rows: slice) -> Transform | None:
    """Return the transform of those images."""
    return of_tensors(transform, lambda parameters: parameters[rows])


def to_device(
    transform: Transform | None, device: torch.device, dtype: torch.dtype
) -> Transform | None:
    """Copy the transform to the device, in that type; nobody waits for the copies."""
    return of_tensors(transform, lambda x: distributed.to_device(x.to(dtype), device))


def of_tensors(transform: Transform | None, change: Callable[[Tensor], Tensor]) -> Transform | None:
    """Change all tensors of a transform."""
    if transform is None:
        return None
    tensors: dict[str, Any] = {
        name: change(value) for name, value in vars(transform).items() if isinstance(value, Tensor)
    }
    return dataclasses.replace(transform, **tensors)
