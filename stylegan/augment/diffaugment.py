"""DiffAugment: color, translation and cutout. Zhao et al. 2020, section 3 and appendix."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NAMES = ("color", "translation", "cutout")
MAX_SHIFT = 0.125  # relative to the side of the image
CUTOUT_SIZE = 0.5  # relative to the side of the image


@dataclass(frozen=True)
class Transform:
    """Parameters of each transform for N images; None if it is not applied."""

    color: Tensor | None = None  # (N, 3): added brightness, factors of saturation and contrast
    shift: Tensor | None = None  # (N, 2): x and y, in pixels
    cutout: Tensor | None = None  # (N, 4): x and y of the first and the last pixel set to 0


def draw(shape: Sequence[int], names: Iterable[str], p: float, rng: torch.Generator) -> Transform:
    """Draw transforms for images of `shape` (N, C, H, W), each with probability `p` per image.

    The random numbers drawn do not depend on `names` and `p`.
    """
    names = parse_names(names)
    n, _, height, width = shape
    u = torch.rand(n, 7, generator=rng, dtype=torch.float64)
    happens = torch.rand(n, 3, generator=rng, dtype=torch.float64) < p
    size = torch.tensor([width, height])
    color = u[:, :3] * torch.tensor([1.0, 2.0, 1.0]) + torch.tensor([-0.5, 0.0, 0.5])
    color = torch.where(happens[:, :1], color, torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64))
    reach = (size * MAX_SHIFT + 0.5).floor()
    shift = (u[:, 3:5] * (2 * reach + 1)).floor() - reach
    hole = (size * CUTOUT_SIZE + 0.5).floor()
    first = (u[:, 5:] * (size + 1 - hole % 2)).floor() - (hole / 2).floor()
    cutout = torch.cat([first, first + hole - 1], dim=1)
    return Transform(
        color if "color" in names else None,
        shift * happens[:, 1:2] if "translation" in names else None,
        torch.where(happens[:, 2:], cutout, -1.0) if "cutout" in names else None,
    )


def parse_names(names: Iterable[str]) -> set[str]:
    """The names as a set. Raises ValueError for names that are not in NAMES."""
    asked = set(names)
    if unknown := sorted(asked - {*NAMES}):
        raise ValueError(f"transforms must be among {', '.join(NAMES)}, got {unknown[0]!r}")
    return asked


def apply(images: Tensor, transform: Transform) -> Tensor:
    """Transform images (N, C, H, W); color keeps alpha, the last of 2 or 4 channels."""
    for change, parameters in (
        (recolor, transform.color),
        (translate, transform.shift),
        (cut_out, transform.cutout),
    ):
        if parameters is not None:
            images = change(images, parameters.to(images))
    return images


def recolor(images: Tensor, parameters: Tensor) -> Tensor:
    """Add brightness, then scale the distance of pixels from their gray, then from the mean."""
    brightness, saturation, contrast = parameters[:, :, None, None, None].unbind(1)
    colors = images.shape[1] - (images.shape[1] % 2 == 0)
    x = images[:, :colors] + brightness
    x = torch.lerp(x.mean(dim=1, keepdim=True), x, saturation)
    x = torch.lerp(x.mean(dim=(1, 2, 3), keepdim=True), x, contrast)
    return x if colors == images.shape[1] else torch.cat([x, images[:, colors:]], dim=1)


def translate(images: Tensor, shift: Tensor) -> Tensor:
    """Move images right and down by `shift` (N, 2), in whole pixels; zeros move in."""

    def moved(n: int, by: Tensor) -> Tensor:
        """Matrices (N, 1, n, n) that move n pixels by `by` (N,)."""
        places = torch.arange(n, device=by.device)
        distance = places[:, None] - places
        return (distance == by[:, None, None]).to(by)[:, None]

    height, width = images.shape[2:]
    return moved(height, shift[:, 1]) @ images @ moved(width, shift[:, 0]).mT


def cut_out(images: Tensor, edges: Tensor) -> Tensor:
    """Set rectangles to 0; `edges` (N, 4): x and y of the first and of the last pixel."""
    height, width = images.shape[2:]
    left, top, right, bottom = edges[:, :, None].unbind(1)
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device)
    beside_x = (x < left) | (x > right)
    beside_y = (y < top) | (y > bottom)
    return images * (beside_x[:, None, None, :] | beside_y[:, None, :, None])
