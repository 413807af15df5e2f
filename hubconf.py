"""Entry points of torch.hub: `torch.hub.list`, `help` and `load` on this repository.

Only entry points have public names here, so that torch.hub lists nothing else; what they need is
imported when they are called.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stylegan import Generator as _Generator

dependencies = ["torch", "numpy"]


def generator(weights: str, *, map_location: str = "cpu") -> "_Generator":
    """A StyleGAN (version 1) generator with weights of your choice.

    weights: one of
      - a file that training with this repository wrote (generator-*.pt, or state-*.pt, of which
        the average generator is taken), or a run folder with such files;
      - an official NVIDIA snapshot (.pkl), read without TensorFlow and without executing anything;
      - an https address of such a file. A file named NAME-<first 8 or more digits of its
        SHA-256>.pt is checked against that hash; http is refused;
      - a bundled name: emoji32.
    map_location: where to put it; the CPU unless told otherwise.

    Returns a torch.nn.Module in eval mode, `G`:
      G(z, labels=None, *, psi=1.0, cutoff=None, resolution=None, alpha=1.0, noise="random")
        z           (N, G.config.z_dim), standard normal
        labels      (N, G.config.label_dim), one-hot or weights; exactly when label_dim > 0
        psi         truncation: 1 = none, 0.7 is usual for pictures, 0 = the average image
        cutoff      layers that truncation reaches, from the coarsest; None = all, 8 is usual
        resolution  of the images, 4, 8, ... G.config.resolution (the default)
        alpha       weight of that resolution against the one below it
        noise       "random" draws, "const" uses the stored maps, "none" leaves it out,
                    or a list of one tensor (N or 1, 1, r, r) per layer
        -> images   (N, G.config.image_channels, resolution, resolution), nominally in [-1, 1]
                    and not clamped
      G.mapping(z, labels=None) -> w                   (N, G.config.w_dim)
      G.synthesis(ws, resolution=..., alpha=..., noise=...) -> images, with ws
                    (N, G.config.num_styles(), G.config.w_dim): one row per layer
      G.broadcast(w) -> ws;  G.w_avg is the average w that truncation pulls toward

    Usage:
      G = torch.hub.load(CLONE, "generator", "runs/mine", source="local")
      images = G(torch.randn(4, G.config.z_dim), psi=0.7)

    Licence: the code is MIT; weights have the licence of whoever trained them (official NVIDIA
    weights: CC BY-NC 4.0).
    Source: Karras, Laine, Aila: A Style-Based Generator Architecture for Generative Adversarial
    Networks, CVPR 2019, https://arxiv.org/abs/1812.04948
    """
    from stylegan.loading import load_generator

    return load_generator(weights, map_location=map_location)


def emoji32(pretrained: bool = True) -> "_Generator":
    """A small StyleGAN (version 1) generator of 32x32 emoji, bundled with the repository.

    Trained with this repository on pictures of the Noto colour emoji font; small enough to try
    everything on a CPU. Needs no network.

    pretrained: False gives the same network with random weights.

    Returns a torch.nn.Module on the CPU, in eval mode, `G`:
      G(z, psi=0.7, noise="const") -> images (N, 3, 32, 32), nominally in [-1, 1], from
        z (N, G.config.z_dim), standard normal
      G.mapping(z) -> w (N, G.config.w_dim)
      G.synthesis(ws) -> images, ws (N, G.config.num_styles(), G.config.w_dim)
      All options are those of the entry `generator`: torch.hub.help("OWNER/NAME", "generator").

    Usage:
      G = torch.hub.load(CLONE, "emoji32", source="local")
      pixels = ((G(torch.randn(8, G.config.z_dim), psi=0.7) + 1) * 127.5).round().clamp(0, 255)

    Licence: code and weights MIT; the pictures it learned from are of Google's Noto Emoji project,
    Apache License 2.0 (datasets/emoji-LICENSE.txt).
    Source: Karras, Laine, Aila: A Style-Based Generator Architecture for Generative Adversarial
    Networks, CVPR 2019, https://arxiv.org/abs/1812.04948
    """
    from stylegan.loading import load_bundled

    return load_bundled("emoji32", pretrained=pretrained)
