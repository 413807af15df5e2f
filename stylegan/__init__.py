"""A faithful, fast PyTorch reproduction of StyleGAN (version 1)."""

import importlib
from typing import TYPE_CHECKING, Any

from stylegan.version import __version__

if TYPE_CHECKING:
    from stylegan.files.loading import load_generator
    from stylegan.networks import Discriminator, Generator, NetworkConfig

__all__ = ["Discriminator", "Generator", "NetworkConfig", "__version__", "load_generator"]


def __getattr__(name: str) -> object:
    """The networks and `load_generator`, imported at their first use: torch takes seconds."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "files.loading" if name == "load_generator" else "networks"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
