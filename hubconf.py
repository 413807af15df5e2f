"""Entry points of torch.hub: `torch.hub.list`, `help` and `load` on this repository.

Only entry points have public names here, so that torch.hub lists nothing else; what they need is
imported when they are called.
"""

from inspect import cleandoc as _cleandoc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable as _Callable
    from pathlib import Path as _Path
    from typing import TypeVar as _TypeVar

    import torch as _torch

    from stylegan.files.loaded import SeededGenerator as _Generator
    from stylegan.networks import Discriminator as _Discriminator

    _Entry = _TypeVar("_Entry", bound=_Callable[..., object])

dependencies = ["torch", "numpy"]

_MODULE = """
Returns a torch.nn.Module in eval mode, `G`:
  G(z, labels=None, *, psi=1.0, cutoff=None, resolution=None, alpha=1.0, noise="random")
    z           (N, G.config.z_dim), standard normal
    labels      (N, G.config.label_dim), one-hot or weights; exactly when label_dim > 0
    psi         truncation: 1 = none, 0.7 is usual for pictures, 0 = the average image; any number
    cutoff      layers that truncation reaches, from the coarsest; None = all, 8 is usual
    resolution  of the images, 4, 8, ... G.config.resolution (the default)
    alpha       weight of that resolution against the one below it, 0 to 1
    noise       "random" draws, "const" uses the stored maps, "none" leaves it out,
                or a list of one tensor (N or 1, 1, r, r) per layer
    -> images   (N, G.config.image_channels, resolution, resolution), nominally in [-1, 1]
                and not clamped
  G.sample(seeds, psi=None, *, cutoff=None, labels=None, noise="const", batch=None) -> pictures
    seeds       whole numbers, 0 to 2**32 - 1; each names a picture, on every machine
    psi, cutoff None: what the file says, else 0.7 and 8; cutoff "all": all layers
    labels      as above, or (1, label_dim) for all; the names of the classes, if the file knows
                them, are G.loaded.label_names
    batch       images made at once; the fewer, the less memory
    -> pictures uint8 (N, image_channels, height, width) in [0, 255], on the CPU: the pixels that
                `stylegan generate` writes for these seeds, without padding
  G.mapping(z, labels=None) -> w                   (N, G.config.w_dim)
  G.synthesis(ws, resolution=..., alpha=..., noise=...) -> images, with ws
                (N, G.config.num_styles(), G.config.w_dim): one row per layer, to mix as you like
  G.broadcast(w) -> ws;  G.w_avg (w_dim,) is the average w that truncation pulls toward
G.to("cuda"), G.half(), G.bfloat16(), G.double() and torch.nn.DataParallel(G) work as for any
module; z must be where G is, and of its type. It can be trained further.
"""

_SOURCE = """
Source: Karras, Laine, Aila: A Style-Based Generator Architecture for Generative Adversarial
Networks, CVPR 2019, https://arxiv.org/abs/1812.04948
"""

_OFFICIAL = """
weights: the official file, {file},
  what `stylegan convert` made of it, or an https address of either that ends in #sha256=<8 or more
  digits>. Files are read without TensorFlow and without executing anything in them. None (the
  default) looks into the cache of torch.hub, $TORCH_HOME/hub/checkpoints, for a file of that name,
  also with the endings .pt and .safetensors. A network of other sizes is refused.
pretrained: False gives the same network with random weights, without any file.
map_location: where to put it; the CPU unless told otherwise.

The weights are not part of this repository, and it does not download them. NVIDIA publishes them:
https://github.com/NVlabs/stylegan names a folder "networks" on its Google Drive. The file is about
{megabytes} MB (generator, discriminator and average generator, which is the one used here, in
float32). Converted once, it loads faster (python -m stylegan in a clone that is not installed):
  stylegan convert {file} \\
      {converted}
{module}
Usage:
  G = torch.hub.load(CLONE, "{entry}", source="local")  # weights from the cache
  pictures = G.sample(range(4), psi=0.7)  # uint8 (4, 3, {height}, {width})
  images = G(torch.randn(4, 512), psi=0.7, cutoff=8)  # (4, 3, {resolution}, {resolution})

Licence: the code is MIT; the weights are NVIDIA's, CC BY-NC 4.0: not for commercial purposes, with
credit by citing the paper and indicating changes.
{source}"""


def _page(**parts: object) -> "_Callable[[_Entry], _Entry]":
    """Fills the {parts} into a docstring: torch.hub.help prints whole pages."""

    def fill(entry: "_Entry") -> "_Entry":
        text = _cleandoc(entry.__doc__ or "")
        for name, part in parts.items():
            text = text.replace(f"{{{name}}}", str(part).strip("\n"))
        entry.__doc__ = text + "\n"
        return entry

    return fill


def _official(entry: str, file: str, megabytes: int, width: int, height: int) -> str:
    """What the pages of the officially published networks share."""
    return _OFFICIAL.format(
        entry=entry,
        file=file,
        converted=file.replace(".pkl", ".pt"),
        megabytes=megabytes,
        width=width,
        height=height,
        resolution=max(width, height),
        module=_MODULE,
        source=_SOURCE.strip("\n"),
    )


@_page(module=_MODULE, source=_SOURCE)
def generator(
    weights: "str | _Path", *, map_location: "str | _torch.device" = "cpu"
) -> "_Generator":
    """A StyleGAN (version 1) generator with weights of your choice.

    weights: one of
      - a run folder of this repository's training, or a file in it: generator-*.pt, or state-*.pt,
        of which the average generator is taken;
      - what `stylegan export` wrote, .safetensors or .npz (official variable names), or a folder
        like those of the Hugging Face Hub, with model.safetensors;
      - an official NVIDIA snapshot (.pkl), read without TensorFlow;
      - a checkpoint of genforce (.pth), rosinality/style-based-gan-pytorch (.model) or
        huangzh13/StyleGAN.pytorch (.pth);
      - an https address of such a file. It must tell the beginning of its SHA-256, as
        NAME-<8 or more digits>.pt or with #sha256=<8 or more digits> at the end;
      - a bundled name, such as emoji32.
      Nothing in a file is executed. Only addresses need a network, once.
    map_location: where to put it; the CPU unless told otherwise.

    Raises FileNotFoundError or ValueError: what was found, and what is accepted.

    {module}

    Usage:
      G = torch.hub.load(CLONE, "generator", "runs/mine", source="local")
      images = G(torch.randn(4, G.config.z_dim), psi=0.7)
      pictures = G.sample(range(4))  # those of `stylegan generate runs/mine --seeds 0-3`

    Licence: the code is MIT; weights have the licence of whoever trained them (official NVIDIA
    weights: CC BY-NC 4.0).
    {source}
    """
    from stylegan.files.loading import load_generator

    return load_generator(weights, map_location=map_location)


@_page(source=_SOURCE)
def discriminator(
    weights: "str | _Path", *, map_location: "str | _torch.device" = "cpu"
) -> "_Discriminator":
    """A StyleGAN (version 1) discriminator with weights of your choice, to judge or to train.

    weights: one of
      - a run folder of this repository's training (its newest state), or a state-*.pt;
      - what `stylegan convert SRC DST --discriminator FILE` wrote (.pt);
      - an official NVIDIA snapshot (.pkl), read without TensorFlow;
      - a checkpoint of genforce's training (.pth);
      - an https address of such a file, telling its SHA-256: see the entry `generator`.
      Nothing in a file is executed. Other files of generators hold no discriminator: ValueError.
    map_location: where to put it; the CPU unless told otherwise.

    Returns a torch.nn.Module in eval mode, `D`:
      D(images, labels=None, *, alpha=1.0) -> logits
        images    (N, D.config.image_channels, r, r) in [-1, 1], at any r = 4, 8, ...
                  D.config.resolution: r is the resolution it judges at
        labels    (N, D.config.label_dim), one-hot or weights; exactly when label_dim > 0
        alpha     weight of the layers of r against those of r / 2, 0 to 1: fading in
        -> logits (N,), positive for real. They depend on the other images of the batch, by the
                  minibatch deviation: N is a multiple of D.config.deviation_group, or less
    D.to("cuda"), D.half(), D.bfloat16(), D.double() and torch.nn.DataParallel(D) work as for any
    module; images must be where D is, and of its type.

    Usage:
      D = torch.hub.load(CLONE, "discriminator", "runs/mine", source="local")
      G = torch.hub.load(CLONE, "generator", "runs/mine", source="local")
      logits = D(G(torch.randn(4, G.config.z_dim)))

    Licence: the code is MIT; weights have the licence of whoever trained them (official NVIDIA
    weights: CC BY-NC 4.0).
    {source}
    """
    from stylegan.files.loading import load_discriminator

    return load_discriminator(weights, map_location=map_location)


@_page(module=_MODULE, source=_SOURCE)
def emoji32(
    pretrained: bool = True, *, map_location: "str | _torch.device" = "cpu"
) -> "_Generator":
    """A small StyleGAN (version 1) generator of 32x32 emoji, bundled with the repository.

    Trained with this repository on pictures of the Noto colour emoji font; small enough to try
    everything on a CPU. Needs no network. G(z) gives images (N, 3, 32, 32) in [-1, 1].

    pretrained: False gives the same network with random weights.
    map_location: where to put it; the CPU unless told otherwise.

    {module}

    Usage:
      G = torch.hub.load(CLONE, "emoji32", source="local")
      pictures = G.sample(range(8), psi=0.7)  # uint8 (8, 3, 32, 32)
      PIL.Image.fromarray(pictures[0].permute(1, 2, 0).numpy()).save("emoji.png")

    Licence: code and weights MIT; the pictures it learned from are of Google's Noto Emoji project,
    Apache License 2.0 (datasets/emoji-LICENSE.txt).
    {source}
    """
    from stylegan.files.hub import load_bundled

    return load_bundled("emoji32", pretrained=pretrained, map_location=map_location)


@_page(module=_MODULE, source=_SOURCE)
def emoji64(
    pretrained: bool = True, *, map_location: "str | _torch.device" = "cpu"
) -> "_Generator":
    """A small StyleGAN (version 1) generator of 64x64 emoji, bundled with the repository.

    Yellow faces, and heads of people; a shorter training than that of `emoji32` (docs/emoji64.md).
    Needs no network. G(z) gives images (N, 3, 64, 64) in [-1, 1].

    pretrained: False gives the same network with random weights.
    map_location: where to put it; the CPU unless told otherwise.

    {module}

    Usage:
      G = torch.hub.load(CLONE, "emoji64", source="local")
      pictures = G.sample(range(8), psi=0.7)  # uint8 (8, 3, 64, 64)
      PIL.Image.fromarray(pictures[0].permute(1, 2, 0).numpy()).save("emoji.png")

    Licence: code and weights MIT; the pictures it learned from are of Google's Noto Emoji project,
    Apache License 2.0 (datasets/emoji-LICENSE.txt).
    {source}
    """
    from stylegan.files.hub import load_bundled

    return load_bundled("emoji64", pretrained=pretrained, map_location=map_location)


@_page(rest=_official("ffhq1024", "karras2019stylegan-ffhq-1024x1024.pkl", 324, 1024, 1024))
def ffhq1024(
    weights: "str | _Path | None" = None,
    *,
    pretrained: bool = True,
    map_location: "str | _torch.device" = "cpu",
) -> "_Generator":
    """NVIDIA's generator of 1024x1024 portraits, trained on Flickr-Faces-HQ (published FID 4.40).

    {rest}
    """
    from stylegan.files.hub import load_published

    return load_published("ffhq1024", weights, pretrained=pretrained, map_location=map_location)


@_page(rest=_official("celebahq1024", "karras2019stylegan-celebahq-1024x1024.pkl", 324, 1024, 1024))
def celebahq1024(
    weights: "str | _Path | None" = None,
    *,
    pretrained: bool = True,
    map_location: "str | _torch.device" = "cpu",
) -> "_Generator":
    """NVIDIA's generator of 1024x1024 portraits of celebrities, trained on CelebA-HQ.

    {rest}
    """
    from stylegan.files.hub import load_published

    return load_published("celebahq1024", weights, pretrained=pretrained, map_location=map_location)


@_page(rest=_official("bedrooms256", "karras2019stylegan-bedrooms-256x256.pkl", 302, 256, 256))
def bedrooms256(
    weights: "str | _Path | None" = None,
    *,
    pretrained: bool = True,
    map_location: "str | _torch.device" = "cpu",
) -> "_Generator":
    """NVIDIA's generator of 256x256 bedrooms, trained on LSUN Bedroom.

    {rest}
    """
    from stylegan.files.hub import load_published

    return load_published("bedrooms256", weights, pretrained=pretrained, map_location=map_location)


@_page(rest=_official("cars512", "karras2019stylegan-cars-512x384.pkl", 307, 512, 384))
def cars512(
    weights: "str | _Path | None" = None,
    *,
    pretrained: bool = True,
    map_location: "str | _torch.device" = "cpu",
) -> "_Generator":
    """NVIDIA's generator of cars, trained on LSUN Car: 512x384 pictures in the middle of 512x512.

    G(z) gives the padded squares, G.sample(seeds) the pictures alone.

    {rest}
    """
    from stylegan.files.hub import load_published

    return load_published("cars512", weights, pretrained=pretrained, map_location=map_location)


@_page(rest=_official("cats256", "karras2019stylegan-cats-256x256.pkl", 302, 256, 256))
def cats256(
    weights: "str | _Path | None" = None,
    *,
    pretrained: bool = True,
    map_location: "str | _torch.device" = "cpu",
) -> "_Generator":
    """NVIDIA's generator of 256x256 cats, trained on LSUN Cat.

    {rest}
    """
    from stylegan.files.hub import load_published

    return load_published("cats256", weights, pretrained=pretrained, map_location=map_location)
