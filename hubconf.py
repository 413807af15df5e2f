"""Entry points of torch.hub: `torch.hub.list`, `help` and `load` on this repository.

torch.hub lists every public name here. See docs/library.md.
"""

from collections.abc import Callable as _Callable
from pathlib import Path as _Path

from torch import device as _device
from torch.nn import Module as _Module

dependencies = ["torch", "numpy", "pydantic", "PIL", "filelock"]


def generator(weights: str | _Path, *, map_location: str | _device = "cpu") -> _Module:
    """A StyleGAN (version 1) generator with weights of your choice.

    weights: a run folder of this repository or a file in it, an exported .safetensors, an official
      NVIDIA snapshot (.pkl), a checkpoint of genforce, rosinality,
      huangzh13, lernapparat or mmgeneration, an https address of such a file with its SHA-256, or
      a bundled name (faces64). Nothing in a file is executed.
    map_location: the device.

    Returns a torch.nn.Module `G` in eval mode, its weights frozen:
      G(z, labels=None, *, psi=1.0, noise="random")
        z (N, G.config.z_dim) -> images (N, G.config.image_channels, r, r), nominally in [-1, 1],
        as far as the network has grown; G.with_settings(resolution=32)(z) shows another resolution
      G.sample(seeds, psi=None, *, cutoff=None, labels=None, noise="const", edits=None,
               batch=None)
        -> the images that `stylegan generate` writes for these seeds, uint8 (N, channels, h, w);
        psi and cutoff default to those of the file
      G.mapping(z) -> w (N, w_dim);  G.broadcast(w) -> ws;  G.synthesis(ws) -> images

    Usage:
      G = torch.hub.load(CLONE, "generator", "runs/mine", source="local")
      images = G(torch.randn(4, G.config.z_dim), psi=0.7)
      samples = G.sample(range(4))

    Source: Karras, Laine, Aila 2019, https://arxiv.org/abs/1812.04948
    License: the code is MIT; weights have the license of their author.
    """
    from stylegan.files.loading import load_generator

    return load_generator(weights, map_location=map_location)


def discriminator(weights: str | _Path, *, map_location: str | _device = "cpu") -> _Module:
    """A StyleGAN (version 1) discriminator with weights of your choice.

    weights: a run folder of this repository, a state-*.pt, a file of `stylegan convert
      --discriminator`, "faces64", an official .pkl, or an https address of such a file with its
      SHA-256. Nothing in a file is executed.
    map_location: the device.

    Returns a torch.nn.Module `D` in eval mode, its weights frozen:
      D(images, labels=None, *, alpha=1.0) -> logits (N,), positive for real
        images (N, D.config.image_channels, r, r) in [-1, 1], r = 4, 8, ... D.config.resolution

    Usage:
      D = torch.hub.load(CLONE, "discriminator", "runs/mine", source="local")
      logits = D(images)

    License: the code is MIT; weights have the license of their author.
    """
    from stylegan.files.loading import open_weights

    opened = open_weights(weights, need="discriminator", map_location=map_location)
    return opened.require_discriminator().requires_grad_(requires_grad=False)


_BUNDLED = """A StyleGAN (version 1) generator of {subject}, bundled.

pretrained: False for the same network with random weights.
map_location: the device.

Returns a torch.nn.Module in eval mode: see the entry `generator`.

Usage:
  G = torch.hub.load(CLONE, "{name}", source="local")
  images = G(torch.randn(4, G.config.z_dim), {labels}psi=0.7)
  samples = G.sample(range(4))

Source: Karras, Laine, Aila 2019, https://arxiv.org/abs/1812.04948
License: the code and the weights are MIT; {images}.
"""


def _bundled(name: str, subject: str, images: str, *, labels: str = "") -> _Callable[..., _Module]:
    def entry(pretrained: bool = True, *, map_location: str | _device = "cpu") -> _Module:
        from stylegan.files.loading import load_generator, untrained_generator

        if pretrained:
            return load_generator(name, map_location=map_location)
        return untrained_generator(load_generator(name).config, map_location=map_location)

    entry.__doc__ = _BUNDLED.format(name=name, subject=subject, images=images, labels=labels)
    return entry


faces64 = _bundled("faces64", "64x64 rendered faces", "its training images are CC0")
glyphs64 = _bundled(
    "glyphs64",
    "64x64 digits and capital letters, gray",
    "the typefaces behind them are free, each in its way",
    labels="torch.eye(36)[:4], ",
)
