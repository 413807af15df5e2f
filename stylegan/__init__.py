"""A faithful, fast PyTorch reproduction of StyleGAN (version 1)."""

from stylegan.networks import Discriminator, Generator, NetworkConfig

__version__ = "0.1.0"
__all__ = ["Discriminator", "Generator", "NetworkConfig", "load_generator"]


def load_generator(path_or_url: str, *, map_location: str = "cpu") -> Generator:
    """The generator of one of our files, of an https address or of a bundled name; eval mode."""
    from stylegan.loading import load_generator as load

    return load(path_or_url, map_location=map_location)
