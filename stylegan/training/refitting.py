"""RGB layers that growth has left behind, fitted to the networks as they are now.

Once a resolution has grown in, the RGB layers below it are trained no more, while the blocks that
they belong to move on: they are stale. What a smaller generator should show is known all the same:
the pictures of the grown one, averaged; and what its discriminator should see in them: the features
that the larger layers make of the pictures. The linear layer that comes nearest takes over.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stylegan import sampling
from stylegan.layers import EqualizedConv2d
from stylegan.networks import Discriminator, Generator
from stylegan.ops import reduced
from stylegan.schedule import resolutions

IMAGES = 64  # that layers are fitted to; twice as many at 4x4
SIDE = 16  # about as many rows and columns of an image count

Errors = dict[tuple[str, int], tuple[float, float]]  # of a layer: root mean squares, before and now


@torch.no_grad()
def refit(
    generator: Generator,
    discriminator: Discriminator | None,
    sizes: Sequence[int],
    *,
    grown: int,
    label_rows: Tensor | None = None,
) -> Errors:
    """Fit the layers `to_rgb` and, if there is a discriminator, `from_rgb` of these resolutions, by
    pictures of the generator at the resolution that has `grown`. What they miss by: `to_rgb` the
    averaged pictures, `from_rgb` the features of the larger layers, before its nonlinearity."""
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
    images = max(IMAGES, 512 // min(sizes))
    batch = sampling.default_batch(grown)
    for start in range(0, images, batch):
        seeds = range(start, start + batch)
        z = sampling.latents(seeds, config.z_dim)
        w = sampling.mapped(
            generator, z, sampling.cyclic_one_hot(seeds, config.label_dim, label_rows)
        )
        ws = generator.broadcast(w)
        noise = [m.to(like) for m in sampling.seed_noise(seeds, config, grown)]
        pictures = synthesis(ws, resolution=grown, noise=noise)
        for r in sizes:
            small = thinned(reduced(pictures, r))
            with layers["to_rgb", r].register_forward_pre_hook(
                lambda _, inputs, r=r: given["to_rgb", r].append(thinned(inputs[0]))
            ):
                synthesis(ws, resolution=r, noise=noise)
            wanted["to_rgb", r].append(small)
            if discriminator is not None:
                given["from_rgb", r].append(small)
                wanted["from_rgb", r].append(thinned(features(discriminator, pictures, r)))
    return {
        name: solve(layer, torch.cat(given[name]), torch.cat(wanted[name]))
        for name, layer in layers.items()
    }


def features(discriminator: Discriminator, images: Tensor, resolution: int) -> Tensor:
    """Return the features of larger images, by the layers above `resolution`."""
    x: Tensor = discriminator.from_rgb[str(images.shape[-1])](images)
    for r in reversed(resolutions(images.shape[-1])):
        x = discriminator.blocks[str(r)](x) if r > resolution else x
    return x


def thinned(x: Tensor) -> Tensor:
    """Return some rows and columns, odd and even, of x (N, C, r, r): the same for all of a size."""
    step = x.shape[-1] // SIDE | 1
    return x[..., ::step, ::step].float()


def solve(layer: nn.Module, given: Tensor, wanted: Tensor) -> tuple[float, float]:
    """Let a 1x1 convolution make of `given` (N, in, h, w) what is nearest to `wanted` (N, out, h,
    w) by least squares. Root mean squares of its error before and now."""
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
