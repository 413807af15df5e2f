"""A faithful, fast PyTorch reproduction of StyleGAN (version 1)."""

import importlib
from typing import TYPE_CHECKING, Any

from stylegan.utils.version import __version__

if TYPE_CHECKING:
    from stylegan.files.loading import load_generator
    from stylegan.networks import Discriminator, Generator, NetworkConfig
    from stylegan.utils.console import Console, PrintingConsole

OWNERS = {
    "Console": "utils.console",
    "Discriminator": "networks",
    "Generator": "networks",
    "NetworkConfig": "networks",
    "PrintingConsole": "utils.console",
    "load_generator": "files.loading",
}
__all__ = [
    "Console",
    "Discriminator",
    "Generator",
    "NetworkConfig",
    "PrintingConsole",
    "__version__",
    "load_generator",
]


def __getattr__(name: str) -> object:
    """Import a public name at its first use, as torch takes seconds."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{OWNERS[name]}"), name)
