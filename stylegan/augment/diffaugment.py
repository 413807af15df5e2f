"""Color, translation and cutout of every image that the discriminator sees, each with a given
probability (officially 1): Zhao et al. 2020 (Differentiable augmentation), section 3, appendix."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NAMES = ("color", "translation", "cutout")
LARGEST_SHIFT = 0.125  # of the size
CUTOUT_SIZE = 0.5  # of the size


@dataclass(frozen=True)
class Transform:
    """Parameters of each transform for N images; None: it is not applied."""

    color: Tensor | None = None  # (N, 3): brightness added, factors of saturation and contrast
    shift: Tensor | None = None  # (N, 2) pixels by x and y
    cutout: Tensor | None = None  # (N, 4) first and last pixel set to 0, by x and y


def draw(shape: Sequence[int], names: Iterable[str], p: float, rng: torch.Generator) -> Transform:
    """Draw each transform for each image with probability `p`; shape (N, C, H, W). The same numbers
    are drawn whatever the names and `p`."""
    names = names_of(names)
    n, _, height, width = shape
    u = torch.rand(n, 7, generator=rng, dtype=torch.float64)
    happens = torch.rand(n, 3, generator=rng, dtype=torch.float64) < p
    size = torch.tensor([width, height])
    color = u[:, :3] * torch.tensor([1.0, 2.0, 1.0]) + torch.tensor([-0.5, 0.0, 0.5])
    color = torch.where(happens[:, :1], color, torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64))
    reach = (size * LARGEST_SHIFT + 0.5).floor()
    shift = (u[:, 3:5] * (2 * reach + 1)).floor() - reach
    hole = (size * CUTOUT_SIZE + 0.5).floor()
    first = (u[:, 5:] * (size + 1 - hole % 2)).floor() - (hole / 2).floor()
    cutout = torch.cat([first, first + hole - 1], dim=1)
    return Transform(
        color if "color" in names else None,
        shift * happens[:, 1:2] if "translation" in names else None,
        torch.where(happens[:, 2:], cutout, -1.0) if "cutout" in names else None,
    )


def names_of(names: Iterable[str]) -> set[str]:
    """Return the names. Raise ValueError for others than NAMES."""
    asked = set(names)
    if unknown := sorted(asked - {*NAMES}):
        raise ValueError(f"{unknown[0]!r} is not a transform; there are {', '.join(NAMES)}")
    return asked


def apply(images: Tensor, transform: Transform) -> Tensor:
    """Transform images (N, C, H, W), differentiable any number of times; with 2 and 4 channels the
    last is alpha, which color leaves alone."""
    for change, parameters in (
        (recolor, transform.color),
        (translate, transform.shift),
        (cut_out, transform.cutout),
    ):
        if parameters is not None:
            images = change(images, parameters.to(images))
    return images


def recolor(images: Tensor, parameters: Tensor) -> Tensor:
    """Make images brighter, then move them from each pixel's gray, then from their mean; (N, 3)."""
    brightness, saturation, contrast = parameters[:, :, None, None, None].unbind(1)
    colors = images.shape[1] - (images.shape[1] % 2 == 0)
    x = images[:, :colors] + brightness
    x = torch.lerp(x.mean(dim=1, keepdim=True), x, saturation)
    x = torch.lerp(x.mean(dim=(1, 2, 3), keepdim=True), x, contrast)
    return x if colors == images.shape[1] else torch.cat([x, images[:, colors:]], dim=1)


def translate(images: Tensor, shift: Tensor) -> Tensor:
    """Move images by (N, 2) whole pixels, right and down; zeros move in."""

    def moved(n: int, by: Tensor) -> Tensor:
        """Return (N, 1, n, n) matrices that move n pixels by (N,)."""
        places = torch.arange(n, device=by.device)
        distance = places[:, None] - places
        return (distance == by[:, None, None]).to(by)[:, None]

    height, width = images.shape[2:]
    return moved(height, shift[:, 1]) @ images @ moved(width, shift[:, 0]).mT


def cut_out(images: Tensor, edges: Tensor) -> Tensor:
    """Set squares to 0; `edges` (N, 4): first pixel by x and y, last."""
    height, width = images.shape[2:]
    left, top, right, bottom = edges[:, :, None].unbind(1)
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device)
    beside_x = (x < left) | (x > right)
    beside_y = (y < top) | (y > bottom)
    return images * (beside_x[:, None, None, :] | beside_y[:, None, :, None])
