"""What tests of projection and tuning share: pictures of a generator, and short searches."""

import torch

from stylegan.projection import PixelDistance, project
from stylegan.sampling import latents

EXACT = {"rtol": 0, "atol": 0}


def draws(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pictures_of(generator, seeds, **options):
    """Styles and images of seeds, not truncated."""
    with torch.no_grad():
        ws = generator.broadcast(generator.mapping(latents(seeds, generator.config.z_dim)))
        return ws, generator.synthesis(ws, noise="const", **options)


def last(states):
    return list(states)[-1]


def found_by_pixels(generator, targets, options, **stage):
    """The last state of a search by the distance of pixels."""
    return last(project(generator, targets, PixelDistance(), options, **stage))
