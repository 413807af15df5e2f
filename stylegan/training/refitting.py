"""Refits RGB layers that growth has left behind to the networks as they are now.

Once a resolution has grown in, the RGB layers below it are no longer trained, while their blocks
are: the layers become stale. The targets are known, though: a smaller generator should give the
averaged images of the grown one, and a smaller discriminator the features that the larger layers
compute from these images. Each layer is replaced by the linear one that fits best.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stylegan import sampling
from stylegan.layers import EqualizedConv2d
from stylegan.networks import Discriminator, Generator
from stylegan.ops import downsample_to
from stylegan.schedule import resolutions

IMAGES = 64  # to fit to; 128 at 4x4
SIDE = 16  # approximate number of rows and columns used of an image

Errors = dict[tuple[str, int], tuple[float, float]]  # RMS errors of a layer, before and after


@torch.no_grad()
def refit(
    generator: Generator,
    discriminator: Discriminator | None,
    sizes: Sequence[int],
    *,
    grown: int,
    label_rows: Tensor | None = None,
) -> Errors:
    """Refit `to_rgb` and, given a discriminator, `from_rgb` at the resolutions `sizes`.

    `grown` is the resolution that the generator has grown to. Returns errors: of `to_rgb` in the
    averaged images, of `from_rgb` in the features, before its nonlinearity.
    """
    config = generator.config
    like = generator.w_avg
    synthesis = generator.synthesis
    layers = {("to_rgb", r): synthesis.to_rgb[str(r)] for r in sizes}
    if discriminator is not None:
        layers |= {
            ("from_rgb", r): discriminator.get_submodule(f"from_rgb.{r}.conv") for r in sizes
        }
    given: dict[tuple[str, int], list[Tensor]] = defaultdict(list)
    wanted: dict[tuple[str, int], list[Tensor]] = defaultdict(list)
    batch = sampling.default_batch(grown)
    for start in range(0, max(IMAGES, 512 // min(sizes)), batch):
        seeds = range(start, start + batch)
        z = sampling.latents(seeds, config.z_dim)
        w = sampling.map_latents(
            generator, z, sampling.cyclic_one_hot(seeds, config.label_dim, label_rows)
        )
        ws = generator.broadcast(w)
        noise = [m.to(like) for m in sampling.noise_from_seeds(seeds, config, grown)]
        images = synthesis(ws, resolution=grown, noise=noise)
        for r in sizes:
            small = thinned(downsample_to(images, r))
            with layers["to_rgb", r].register_forward_pre_hook(
                lambda _, inputs, r=r: given["to_rgb", r].append(thinned(inputs[0]))
            ):
                synthesis(ws, resolution=r, noise=noise)
            wanted["to_rgb", r].append(small)
            if discriminator is not None:
                given["from_rgb", r].append(small)
                wanted["from_rgb", r].append(thinned(features(discriminator, images, r)))
    return {
        name: solve(layer, torch.cat(given[name]), torch.cat(wanted[name]))
        for name, layer in layers.items()
    }


def features(discriminator: Discriminator, images: Tensor, resolution: int) -> Tensor:
    """Features of larger images at `resolution`, after the layers above it."""
    x: Tensor = discriminator.from_rgb[str(images.shape[-1])](images)
    for r in reversed(resolutions(images.shape[-1])):
        x = discriminator.blocks[str(r)](x) if r > resolution else x
    return x


def thinned(x: Tensor) -> Tensor:
    """Some rows and columns, both odd and even, of x (N, C, r, r); the same for each r."""
    step = x.shape[-1] // SIDE | 1
    return x[..., ::step, ::step].float()


def solve(layer: nn.Module, given: Tensor, wanted: Tensor) -> tuple[float, float]:
    """Fit a 1x1 convolution from `given` (N, in, h, w) to `wanted` (N, out, h, w) by least squares.

    Returns the RMS error before and after.
    """
    assert isinstance(layer, EqualizedConv2d) and layer.bias is not None
    x = torch.cat([given, torch.ones_like(given[:, :1])], dim=1).movedim(1, -1).flatten(0, 2)
    weight = layer.weight.flatten(1) * layer.weight_scale
    stored = torch.cat([weight, layer.bias[:, None]], dim=1).mT
    x, y, stored = (  # not every device has float64
        t.cpu().double() for t in (x, wanted.movedim(1, -1).flatten(0, 2), stored)
    )
    found = torch.linalg.lstsq(x, y).solution
    layer.weight.copy_((found[:-1].mT / layer.weight_scale).view_as(layer.weight))
    layer.bias.copy_(found[-1])
    before, now = (float((x @ s - y).square().mean().sqrt()) for s in (stored, found))
    return before, now
