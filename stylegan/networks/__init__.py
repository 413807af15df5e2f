"""The networks of StyleGAN (Karras, Laine, Aila 2019, arXiv 1812.04948), version 1."""

from stylegan.networks.config import NetworkConfig
from stylegan.networks.discriminator import Discriminator
from stylegan.networks.generator import Generator, MappingNetwork, Noise, SynthesisNetwork
from stylegan.networks.making import DISCRIMINATORS, GENERATORS, make_discriminator, make_generator

__all__ = [
    "DISCRIMINATORS",
    "GENERATORS",
    "Discriminator",
    "Generator",
    "MappingNetwork",
    "NetworkConfig",
    "Noise",
    "SynthesisNetwork",
    "make_discriminator",
    "make_generator",
]
