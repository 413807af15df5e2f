"""The networks of StyleGAN (Karras, Laine, Aila 2019, arXiv 1812.04948), version 1."""

from stylegan.networks.config import (
    NetworkConfig,
    check_alpha,
    check_labels,
    doublings,
    rgb_sizes,
)
from stylegan.networks.discriminator import (
    Discriminator,
    DiscriminatorBlock,
    DiscriminatorHead,
    FromRGB,
)
from stylegan.networks.generator import (
    Generator,
    InputBlock,
    MappingNetwork,
    Noise,
    SynthesisBlock,
    SynthesisNetwork,
    ToRGB,
    epilogue,
)
from stylegan.schedule import MAX_RESOLUTION, check_resolution, resolutions

__all__ = [
    "MAX_RESOLUTION",
    "Discriminator",
    "DiscriminatorBlock",
    "DiscriminatorHead",
    "FromRGB",
    "Generator",
    "InputBlock",
    "MappingNetwork",
    "NetworkConfig",
    "Noise",
    "SynthesisBlock",
    "SynthesisNetwork",
    "ToRGB",
    "check_alpha",
    "check_labels",
    "check_resolution",
    "doublings",
    "epilogue",
    "resolutions",
    "rgb_sizes",
]
