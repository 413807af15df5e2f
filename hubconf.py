"""Entry points of torch.hub: `torch.hub.list`, `help` and `load` on this repository.

torch.hub lists all public names here. docs/weights.md describes the entries in full.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable as _Callable
    from pathlib import Path as _Path

    import torch as _torch
    from torch.nn import Module as _Module

    _Source = str | _Path | None
    _Device = str | _torch.device

dependencies = ["torch", "numpy"]

_PAGE = """A StyleGAN (version 1) {what}.
{weights}
map_location: the device to put it on; by default the CPU.
{network}
Licence: the code is MIT; {licence}.
Source: Karras, Laine, Aila 2019, https://arxiv.org/abs/1812.04948
More: docs/weights.md in the repository.
"""
_GENERATOR = """
Returns a torch.nn.Module in eval mode, `G`:
  G(z, labels=None, *, psi=1.0, cutoff=None, resolution=None, alpha=1.0, noise="random")
    z (N, G.config.z_dim) -> images (N, G.config.image_channels, r, r), nominally in [-1, 1]
  G.sample(seeds, psi=None, *, cutoff=None, labels=None, noise="const", batch=None)
    -> the pixels that `stylegan generate` writes for these seeds, uint8 (N, channels, h, w)
  G.mapping(z) -> w (N, w_dim);  G.broadcast(w) -> ws;  G.synthesis(ws) -> images

Usage:
  G = torch.hub.load(CLONE, "{name}", {given}source="local")
  images = G(torch.randn(4, G.config.z_dim), {one_each}psi=0.7)
  pictures = G.sample(range(4){one})
"""
_DISCRIMINATOR = """
Returns a torch.nn.Module in eval mode, `D`:
  D(images, labels=None, *, alpha=1.0) -> logits (N,), positive for real
    images (N, D.config.image_channels, r, r) in [-1, 1], r = 4, 8, ... D.config.resolution

Usage:
  D = torch.hub.load(CLONE, "discriminator", "runs/mine", source="local")
  logits = D(images)
"""
_SCORED = """
weights: a run folder of this repository, a state-*.pt, what `stylegan convert --discriminator`
  wrote, an official .pkl, a checkpoint of genforce's training, or an https address of such a file
  with its SHA-256. Nothing in a file is executed."""
_ANY = """
weights: a run folder of this repository or a file in it, what `stylegan export` wrote
  (.safetensors, .npz), an official NVIDIA snapshot (.pkl), a checkpoint of genforce, rosinality,
  huangzh13 or mmgeneration, an https address of such a file with its SHA-256, or a bundled name
  (emoji32). Nothing in a file is executed."""
_BUNDLED = "\npretrained: False gives the same network with random weights."
_OFFICIAL = """
weights: {file}, what `stylegan convert` made of it,
  or an https address of either with its SHA-256. By default looked for in
  $TORCH_HOME/hub/checkpoints.
pretrained: False gives the same network with random weights.

NVIDIA publishes the weights (https://github.com/NVlabs/stylegan, folder "networks"); this
repository neither contains nor downloads them. The file is about
{megabytes} MB. Converted it loads faster:
  stylegan convert {file} FILE.pt"""


def generator(weights: "str | _Path", *, map_location: "_Device" = "cpu") -> "_Module":
    from stylegan.files.loading import load_generator

    return load_generator(weights, map_location=map_location)


def discriminator(weights: "str | _Path", *, map_location: "_Device" = "cpu") -> "_Module":
    from stylegan.files.loading import load_discriminator

    return load_discriminator(weights, map_location=map_location)


def _bundled(name: str) -> "_Callable[..., _Module]":
    def entry(pretrained: bool = True, *, map_location: "_Device" = "cpu") -> "_Module":
        from stylegan.files.hub import load_bundled

        return load_bundled(name, pretrained=pretrained, map_location=map_location)

    return entry


def _official(name: str) -> "_Callable[..., _Module]":
    def entry(
        weights: "_Source" = None, *, pretrained: bool = True, map_location: "_Device" = "cpu"
    ) -> "_Module":
        from stylegan.files.hub import load_published

        return load_published(name, weights, pretrained=pretrained, map_location=map_location)

    return entry


_MAKER = "weights have the licence of their maker"
_EMOJI = "so are the weights; the pictures (Google's Noto Emoji) are Apache-2.0"
_GLYPHS = "so are the weights; the typefaces behind them are free, each in its way"
_NVIDIA = "the weights are NVIDIA's, CC BY-NC 4.0: not for commercial purposes"
_pages = {
    "generator": ("generator with weights of your choice", _ANY, _MAKER),
    "discriminator": ("discriminator with weights of your choice", _SCORED, _MAKER),
    "emoji32": ("generator of 32x32 emoji, bundled with the repository", _BUNDLED, _EMOJI),
    "emoji64": ("generator of 64x64 faces and heads, bundled", _BUNDLED, _EMOJI),
    "glyphs64": ("generator of 64x64 digits and capitals, gray, bundled", _BUNDLED, _GLYPHS),
}
emoji32, emoji64, glyphs64 = map(_bundled, ("emoji32", "emoji64", "glyphs64"))
for _name, _what, _size, _megabytes in (
    ("ffhq1024", "1024x1024 portraits (FFHQ, published FID 4.40)", "ffhq-1024x1024", 324),
    ("celebahq1024", "1024x1024 portraits (CelebA-HQ)", "celebahq-1024x1024", 324),
    ("bedrooms256", "256x256 bedrooms (LSUN)", "bedrooms-256x256", 302),
    ("cars512", "512x384 cars (LSUN), padded to 512x512", "cars-512x384", 307),
    ("cats256", "256x256 cats (LSUN)", "cats-256x256", 302),
):
    _weights = _OFFICIAL.format(file=f"karras2019stylegan-{_size}.pkl", megabytes=_megabytes)
    _pages[_name] = f"generator of {_what}, by NVIDIA", _weights, _NVIDIA
    globals()[_name] = _official(_name)
for _name, (_what, _weights, _licence) in _pages.items():
    _given = '"runs/mine", ' if _name == "generator" else ""
    _labelled = _name == "glyphs64"
    _network = (_DISCRIMINATOR if _name == "discriminator" else _GENERATOR).format(
        name=_name,
        given=_given,
        one_each="torch.eye(36)[:4], " if _labelled else "",
        one=", labels=torch.eye(36)[10:11]" if _labelled else "",
    )
    _parts = {"what": _what, "weights": _weights, "licence": _licence, "network": _network}
    globals()[_name].__doc__ = _PAGE.format(**_parts)
