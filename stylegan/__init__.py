"""A faithful, fast PyTorch reproduction of StyleGAN (version 1)."""

from typing import TYPE_CHECKING

from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    import torch

__all__ = ["Discriminator", "Generator", "NetworkConfig", "__version__", "load_generator"]


def load_generator(
    path_or_url: "str | Path", *, map_location: "str | torch.device" = "cpu"
) -> Generator:
    """The generator of one of our files, of an https address or of a bundled name; eval mode."""
    from stylegan.files.loading import load_generator as load

    return load(path_or_url, map_location=map_location)
