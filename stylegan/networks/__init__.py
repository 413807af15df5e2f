"""The networks of StyleGAN (Karras, Laine, Aila 2019, arXiv 1812.04948), version 1, and those with
random weights of the classes that a configuration names."""

from collections.abc import Mapping
from typing import TypeVar

from stylegan.machine.messages import readable

from .config import NetworkConfig
from .discriminator import Discriminator
from .generator import Generator, MappingNetwork, Noise, SynthesisNetwork

Thing = TypeVar("Thing")

# A script adds its own classes, which are made from a NetworkConfig alone. Training and tools call
# a generator's `mapping`, `broadcast` and `synthesis`, and train what `active_parameters` yields.
GENERATORS: dict[str, type[Generator]] = {"stylegan": Generator}
DISCRIMINATORS: dict[str, type[Discriminator]] = {"stylegan": Discriminator}


def known(option: str, table: Mapping[str, Thing], name: str) -> Thing:
    """Return the entry of that name. Raise ValueError if this process has none."""
    if not isinstance(name, str) or name not in table:  # the name may come from any file
        raise ValueError(
            f"{option} is {name!r}, not one of {', '.join(table)}; a Python script "
            "must add its own before it loads the file"
        )
    return table[name]


def make_generator(config: NetworkConfig) -> Generator:
    return known("network.generator", GENERATORS, config.generator)(config)


def make_discriminator(config: NetworkConfig) -> Discriminator:
    return known("network.discriminator", DISCRIMINATORS, config.discriminator)(config)
