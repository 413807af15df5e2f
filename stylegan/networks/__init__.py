"""StyleGAN networks (version 1), and factories for the classes that a configuration names.

Karras, Laine, Aila 2019, arXiv 1812.04948.
"""

from collections.abc import Mapping
from typing import TypeVar

from .config import NetworkConfig
from .discriminator import Discriminator
from .generator import Generator, MappingNetwork, Noise, SynthesisNetwork

Thing = TypeVar("Thing")

# Scripts add their own classes, whose constructor takes a NetworkConfig. Training and tools call a
# generator's `mapping`, `broadcast` and `synthesis`, and train what `active_parameters` yields.
GENERATORS: dict[str, type[Generator]] = {"stylegan": Generator}
DISCRIMINATORS: dict[str, type[Discriminator]] = {"stylegan": Discriminator}


def lookup(option: str, table: Mapping[str, Thing], name: str) -> Thing:
    """Look up `name`, which may come from any file, in a registry; ValueError if it is unknown."""
    if not isinstance(name, str) or name not in table:
        raise ValueError(
            f"{option} must be one of {', '.join(table)}, got {name!r}; a Python script must add "
            "its own before it loads the file"
        )
    return table[name]


def make_generator(config: NetworkConfig) -> Generator:
    return lookup("network.generator", GENERATORS, config.generator)(config)


def make_discriminator(config: NetworkConfig) -> Discriminator:
    return lookup("network.discriminator", DISCRIMINATORS, config.discriminator)(config)
